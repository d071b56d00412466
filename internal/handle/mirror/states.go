package mirror

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord/mirrorstate"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
	"milena/internal/server"
)

// onMirror decodes a request between brokers and runs fn if its mirror exists; the response's top-level error is the result.
func (h *Handlers) onMirror(r *server.Request, req kmsg.Request, mirror *string, fn func(img *meta.Image)) error {
	if err := r.Decode(req); err != nil {
		return err
	}
	img := h.o.Image()
	if err := h.mirrorError(img, *mirror); err != nil {
		return err
	}
	fn(img)
	return nil
}

// stateKey names a partition of a mirror for its coordinator.
func stateKey(img *meta.Image, mirror, topic string, partition int32) (mirrorstate.Key, error) {
	t := img.TopicByName(topic)
	if t == nil {
		return mirrorstate.Key{}, api.Errorf(api.UnknownTopicOrPartition, "there is no topic %s", topic)
	}
	return mirrorstate.Key{Mirror: mirror, TopicID: t.ID, Partition: partition}, nil
}

// readStates answers other brokers for the partitions this one coordinates (4.11).
func (h *Handlers) readStates(ctx context.Context, r *server.Request) {
	req := &mirrormsg.ReadMirrorStatesRequest{}
	resp := &mirrormsg.ReadMirrorStatesResponse{}
	err := h.onMirror(r, req, &req.MirrorName, func(img *meta.Image) {
		for _, rt := range req.Topics {
			out := mirrormsg.ReadMirrorStatesTopicResult{TopicName: rt.TopicName}
			for _, rp := range rt.Partitions {
				res := mirrormsg.NewReadMirrorStatesPartitionResult()
				res.PartitionIndex, res.State = rp.PartitionIndex, int8(mirrormsg.Unknown)
				k, err := stateKey(img, req.MirrorName, rt.TopicName, rp.PartitionIndex)
				if err == nil {
					err = h.readState(ctx, k, rp.LeaderEpoch, &res)
				}
				if err != nil {
					res.ErrorCode, res.ErrorMessage = codeAndText(err)
				}
				out.Partitions = append(out.Partitions, res)
			}
			resp.Topics = append(resp.Topics, out)
		}
	})
	resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	reply(r, resp, resp.ErrorCode)
}

func (h *Handlers) readState(ctx context.Context, k mirrorstate.Key, leaderEpoch int32, res *mirrormsg.ReadMirrorStatesPartitionResult) error {
	st, err := h.o.States.Read(ctx, k, leaderEpoch)
	if err != nil {
		return err
	}
	res.State, res.LeaderEpoch, res.StateEpoch, res.RetryAttempt, res.PreviousState = int8(st.State), st.LeaderEpoch, st.StateEpoch, st.RetryAttempt, int8(st.Previous)
	res.LastMirrorEpoch, res.LastMirrorOffset = st.LastMirrorEpoch, st.LastMirrorOffset
	if st.Error != "" {
		res.ErrorMessage = &st.Error
	}
	return nil
}

// writeStates stores what other brokers' mirror leaders decided (4.12).
func (h *Handlers) writeStates(ctx context.Context, r *server.Request) {
	req := &mirrormsg.WriteMirrorStatesRequest{}
	resp := &mirrormsg.WriteMirrorStatesResponse{}
	err := h.onMirror(r, req, &req.MirrorName, func(img *meta.Image) {
		for _, rt := range req.Topics {
			out := mirrormsg.WriteMirrorStatesTopicResult{TopicName: rt.TopicName}
			for _, rp := range rt.Partitions {
				res := mirrormsg.NewWriteMirrorStatesPartitionResult()
				res.PartitionIndex = rp.PartitionIndex
				k, err := stateKey(img, req.MirrorName, rt.TopicName, rp.PartitionIndex)
				if err == nil {
					var st mirrorstate.Status
					if st, err = h.o.States.Write(ctx, stateWrite(k, &rp)); err == nil {
						res.StateEpoch, res.LastMirrorEpoch, res.LastMirrorOffset = st.StateEpoch, st.LastMirrorEpoch, st.LastMirrorOffset
					}
				}
				res.ErrorCode, res.ErrorMessage = codeAndText(err)
				out.Partitions = append(out.Partitions, res)
			}
			resp.Topics = append(resp.Topics, out)
		}
	})
	resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	reply(r, resp, resp.ErrorCode)
}

func stateWrite(k mirrorstate.Key, p *mirrormsg.WriteMirrorStatesPartition) mirrorstate.Write {
	w := mirrorstate.Write{Key: k, State: mirrormsg.State(p.State), LeaderEpoch: p.LeaderEpoch, StateEpoch: p.StateEpoch, StopWish: p.StopWishOffset,
		LastMirrorEpoch: p.LastMirrorEpoch, LastMirrorOffset: p.LastMirrorOffset, NonRetryable: p.NonRetryable, RetryAttempt: int16(max(min(p.RetryAttempt, 32767), -1))}
	if p.ErrorMessage != nil {
		w.Error = *p.ErrorMessage
	}
	return w
}

// readOffsets answers other brokers for the partitions this one leads (4.13).
func (h *Handlers) readOffsets(_ context.Context, r *server.Request) {
	req := &mirrormsg.ReadMirrorOffsetsRequest{}
	resp := &mirrormsg.ReadMirrorOffsetsResponse{}
	err := h.onMirror(r, req, &req.MirrorName, func(*meta.Image) {
		for _, rt := range req.Topics {
			out := mirrormsg.ReadMirrorOffsetsTopicResult{TopicName: rt.TopicName}
			for _, p := range rt.Partitions {
				out.Partitions = append(out.Partitions, h.offsets(rt.TopicName, p))
			}
			resp.Topics = append(resp.Topics, out)
		}
		notes := h.o.Manager.Notes(req.MirrorName)
		resp.Weaker, resp.GroupsGone, resp.Problems = notes.Weaker, notes.GroupsGone, notes.Problems
	})
	resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	reply(r, resp, resp.ErrorCode)
}

// offsets is how far a partition has come; -1 for what isn't known, and for one that isn't led here.
func (h *Handlers) offsets(topic string, partition int32) mirrormsg.ReadMirrorOffsetsPartitionResult {
	res := mirrormsg.NewReadMirrorOffsetsPartitionResult()
	res.PartitionIndex = partition
	mp := h.o.Manager.Partition(topic, partition)
	if mp == nil {
		return res
	}
	pr := mp.Progress(time.Now())
	res.DestinationOffset = pr.DestinationOffset
	if pr.SourceOffset >= 0 && pr.Age >= 0 {
		res.SourceOffset, res.SourceOffsetAgeMs = pr.SourceOffset, pr.Age.Milliseconds()
	}
	if pr.LastSourceOffset >= 0 {
		res.LastSourceOffset, res.LastSourceOffsetAgeMs = pr.LastSourceOffset, pr.LastSourceAge.Milliseconds()
	}
	if pr.Error != "" {
		res.ErrorMessage = &pr.Error
	}
	return res
}

// recover takes FAILED partitions back to the state they failed in, with a fresh count of retries (4.16).
func (h *Handlers) recover(ctx context.Context, r *server.Request) {
	req := &mirrormsg.RecoverMirrorTopicsRequest{}
	resp := &mirrormsg.RecoverMirrorTopicsResponse{}
	err := h.onMirror(r, req, &req.MirrorName, func(*meta.Image) {
		for _, rt := range req.Topics {
			out := mirrormsg.RecoverMirrorTopicResult{Name: rt.TopicName}
			out.ErrorCode, out.ErrorMessage = h.codeAndText(h.recoverTopic(ctx, req.MirrorName, rt.TopicName))
			resp.Topics = append(resp.Topics, out)
		}
	})
	resp.ErrorCode, resp.ErrorMessage = h.codeAndText(err)
	h.reply(r, resp, resp.ErrorCode)
}

func (h *Handlers) recoverTopic(ctx context.Context, mirror, topic string) error {
	t := h.o.Image().TopicByName(topic)
	switch {
	case t == nil:
		return api.Errorf(api.UnknownTopicOrPartition, "there is no topic %s", topic)
	case t.MirrorName != mirror:
		return api.Errorf(api.TopicNotInClusterMirror, "topic %s is not in mirror %s", topic, mirror)
	}
	for i := range t.Partitions {
		k := mirrorstate.Key{Mirror: mirror, TopicID: t.ID, Partition: int32(i)}
		st, err := h.o.Cluster.Read(ctx, k, -1)
		if err != nil {
			return err
		}
		if st.State != mirrormsg.Failed {
			continue
		}
		to := st.Previous
		if !to.CanFollow(mirrormsg.Failed) || to == mirrormsg.Unknown {
			to = mirrormsg.LogTruncation
		}
		if _, err := h.o.Cluster.Write(ctx, mirrorstate.Write{Key: k, State: to, LeaderEpoch: -1, StateEpoch: st.StateEpoch, StopWish: -1, RetryAttempt: 0}); err != nil {
			return err
		}
		if p := h.o.Manager.Partition(topic, int32(i)); p != nil {
			p.Reread() // a leader elsewhere looks by itself
		}
	}
	return nil
}
