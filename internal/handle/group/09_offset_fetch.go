package group

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord/group"
	"milena/internal/ids"
	"milena/internal/server"
)

// Versions of OffsetFetch from which something holds.
const (
	fetchTopLevelError = 2
	fetchManyGroups    = 8
)

// OffsetFetch (9), versions 1 to 10.
//
//	v2  null topics: all of the group's; an error of the whole request
//	v5  leader epochs (KIP-320)
//	v7  RequireStable (KIP-447); every offset is stable, as there are no transactions yet
//	v8  several groups (KIP-709)
//	v9  member id and epoch of KIP-848's groups, which classic groups ignore
//	v10 topic ids
func (h *Handlers) OffsetFetch(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrOffsetFetchRequest()
	if !h.decode(r, req) {
		return
	}
	if req.Version < fetchManyGroups {
		h.fetchOne(r, req)
		return
	}
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Groups = make([]kmsg.OffsetFetchResponseGroup, len(req.Groups))
	results := make([]group.FetchResult, len(req.Groups))
	left := atomic.Int32{}
	left.Store(int32(len(req.Groups)))
	if len(req.Groups) == 0 {
		reply(r, resp, api.NoError)
		return
	}
	for i, g := range req.Groups {
		h.o.Groups.Fetch(h.fetchRequest(req.Version, g), func(res group.FetchResult) {
			results[i] = res
			if left.Add(-1) > 0 {
				return
			}
			errs := tally{}
			for i := range results {
				resp.Groups[i] = h.fetchedGroup(req, i, results[i], errs)
			}
			errs.count(r)
			reply(r, resp, api.NoError)
		})
	}
}

func (h *Handlers) fetchRequest(version int16, g kmsg.OffsetFetchRequestGroup) *group.FetchRequest {
	fr := &group.FetchRequest{Group: g.Group}
	if g.Topics == nil {
		return fr
	}
	fr.Topics = make([]group.FetchTopic, 0, len(g.Topics))
	for _, t := range g.Topics {
		_, ref, _ := h.topic(t.Topic, t.TopicID, version >= topicsByID)
		fr.Topics = append(fr.Topics, group.FetchTopic{TopicRef: ref, Partitions: t.Partitions})
	}
	return fr
}

// fetchedGroup is the answer for the i-th group.
func (h *Handlers) fetchedGroup(req *kmsg.OffsetFetchRequest, i int, res group.FetchResult, errs tally) kmsg.OffsetFetchResponseGroup {
	g := req.Groups[i]
	out := kmsg.OffsetFetchResponseGroup{Group: g.Group, ErrorCode: errs.add(res.Code)}
	byID := req.Version >= topicsByID
	if g.Topics == nil {
		res.Topics = h.current(res.Topics, byID)
	}
	for _, t := range res.Topics {
		to := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Name, TopicID: t.ID}
		// A topic id that is unknown has no name: none of its offsets are known.
		unknown := byID && t.Name == ""
		for _, p := range t.Partitions {
			if unknown {
				p.Code = api.UnknownTopicID
			}
			to.Partitions = append(to.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{
				Partition:   p.Partition,
				Offset:      p.Offset,
				LeaderEpoch: p.LeaderEpoch,
				Metadata:    &p.Metadata,
				ErrorCode:   errs.add(p.Code),
			})
		}
		out.Topics = append(out.Topics, to)
	}
	return out
}

// current leaves those of all the offsets of a group that are of topics as they
// are now: an offset of a deleted topic is not one of the topic that has its
// name now. With byID topics that have no id any more are left out.
func (h *Handlers) current(in []group.FetchedTopic, byID bool) []group.FetchedTopic {
	img := h.o.Image()
	var out []group.FetchedTopic
	for _, t := range in {
		var id ids.UUID
		if mt := img.TopicByName(t.Name); mt != nil {
			id = mt.ID
		} else if byID {
			continue
		}
		kept := group.FetchedTopic{TopicRef: group.TopicRef{Name: t.Name, ID: id}}
		for _, p := range t.Partitions {
			if p.TopicID.IsZero() || id.IsZero() || p.TopicID == id {
				kept.Partitions = append(kept.Partitions, p)
			}
		}
		if len(kept.Partitions) > 0 {
			out = append(out, kept)
		}
	}
	return out
}

// fetchOne answers the versions with one group in a request.
func (h *Handlers) fetchOne(r *server.Request, req *kmsg.OffsetFetchRequest) {
	fr := &group.FetchRequest{Group: req.Group}
	if req.Topics != nil {
		fr.Topics = make([]group.FetchTopic, 0, len(req.Topics))
	}
	for _, t := range req.Topics {
		_, ref, _ := h.topic(t.Topic, ids.Zero, false)
		fr.Topics = append(fr.Topics, group.FetchTopic{TopicRef: ref, Partitions: t.Partitions})
	}
	h.o.Groups.Fetch(fr, func(res group.FetchResult) {
		resp := kmsg.NewPtrOffsetFetchResponse()
		resp.ErrorCode = int16(res.Code)
		switch {
		case res.Code != api.NoError && req.Version < fetchTopLevelError:
			// The request as a whole has no error field: every partition has it.
			for _, t := range req.Topics {
				to := group.FetchedTopic{TopicRef: group.TopicRef{Name: t.Topic}}
				for _, p := range t.Partitions {
					to.Partitions = append(to.Partitions, group.FetchedPartition{
						Partition: p, Offset: -1, LeaderEpoch: -1, Code: res.Code,
					})
				}
				res.Topics = append(res.Topics, to)
			}
		case req.Topics == nil:
			res.Topics = h.current(res.Topics, false)
		}
		for _, t := range res.Topics {
			to := kmsg.OffsetFetchResponseTopic{Topic: t.Name}
			for _, p := range t.Partitions {
				to.Partitions = append(to.Partitions, kmsg.OffsetFetchResponseTopicPartition{
					Partition:   p.Partition,
					Offset:      p.Offset,
					LeaderEpoch: p.LeaderEpoch,
					Metadata:    &p.Metadata,
					ErrorCode:   int16(p.Code),
				})
			}
			resp.Topics = append(resp.Topics, to)
		}
		reply(r, resp, res.Code)
	})
}
