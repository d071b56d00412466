package data

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/replica"
	"milena/internal/server"
)

// ListOffsets: API 2, versions 1 to 11.
//
// Behaviour: the leader answers for the earliest (-2), the latest (-1), the
// record with the highest timestamp (-3), the earliest local (-4, the
// earliest, as nothing is tiered), the latest tiered (-5) and the earliest to
// be uploaded (-6) offset (both unknown: -1), or the first record at or after
// a time. A partition named twice is answered once, with INVALID_REQUEST.
//
// Version notes: 2 isolation level, 4 leader epochs, 5 OFFSET_NOT_AVAILABLE,
// 6 flexible, 7 max timestamp (KIP-734), 8 and 9 tiered places (KIP-405,
// KIP-1005), 10 a timeout for remote lookups, 11 KIP-1023.
func (h *Handlers) ListOffsets(_ context.Context, r *server.Request) {
	var req kmsg.ListOffsetsRequest
	if !h.decode(r, &req) {
		return
	}
	iso := replica.ReadUncommitted
	switch {
	case req.ReplicaID >= 0:
		iso = replica.ReadAll
	case req.IsolationLevel == 1:
		iso = replica.ReadCommitted
	}
	type part struct {
		topic     string
		partition int32
	}
	seen := map[part]int{}
	for i := range req.Topics {
		for _, p := range req.Topics[i].Partitions {
			seen[part{req.Topics[i].Topic, p.Partition}]++
		}
	}
	resp := kmsg.ListOffsetsResponse{Version: r.Version, Topics: make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))}
	var failed api.Code
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, 0, len(t.Partitions))
		for j := range t.Partitions {
			id := part{t.Topic, t.Partitions[j].Partition}
			times := seen[id]
			if times == 0 {
				continue // answered
			}
			out.Partitions = append(out.Partitions, kmsg.ListOffsetsResponseTopicPartition{Partition: id.partition, Timestamp: -1, Offset: -1, LeaderEpoch: -1})
			p := &out.Partitions[len(out.Partitions)-1]
			var err error
			if times > 1 {
				seen[id] = 0
				err = api.Errorf(api.InvalidRequest, "%s-%d is in the request twice", t.Topic, p.Partition)
			} else {
				err = h.listOffset(t.Topic, &t.Partitions[j], iso, r.Version, p)
			}
			c, _ := code(err)
			p.ErrorCode = int16(c)
			if failed == api.NoError {
				failed = c
			}
		}
	}
	reply(r, &resp, failed)
}

func (h *Handlers) listOffset(topic string, in *kmsg.ListOffsetsRequestTopicPartition, iso replica.Isolation, version int16, out *kmsg.ListOffsetsResponseTopicPartition) error {
	if !timeServed(in.Timestamp, version) {
		return api.Errorf(api.UnsupportedVersion, "time %d needs a newer version of ListOffsets than %d", in.Timestamp, version)
	}
	p, err := h.o.Replicas.Get(topic, in.Partition)
	if err != nil {
		return err
	}
	current := in.CurrentLeaderEpoch
	if version < 4 {
		current = replica.AnyEpoch
	}
	at, err := p.FindOffset(current, in.Timestamp, iso)
	if err != nil {
		c, _ := api.CodeOf(err)
		if c == api.OffsetNotAvailable && version < 5 {
			// What clients of those versions know and try again after.
			return &api.Error{Code: api.LeaderNotAvailable, Err: err}
		}
		h.log("ListOffsets", topic, in.Partition, err)
		return err
	}
	out.Timestamp, out.Offset, out.LeaderEpoch = at.Timestamp, at.Offset, at.Epoch
	return nil
}

// timeServed reports whether the version has that special time.
func timeServed(time int64, version int16) bool {
	switch time {
	case replica.TimeMax:
		return version >= 7
	case replica.TimeEarliestLocal:
		return version >= 8
	case replica.TimeLatestTiered:
		return version >= 9
	case replica.TimeUpload:
		return version >= 11
	}
	return time >= replica.TimeEarliest
}
