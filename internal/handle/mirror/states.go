package mirror

import (
	"context"
	"time"

	"milena/internal/api"
	"milena/internal/coord/mirrorstate"
	"milena/internal/mirrormsg"
	"milena/internal/server"
)

// readStates answers other brokers for the partitions this one coordinates (4.11).
func (h *Handlers) readStates(ctx context.Context, r *server.Request) {
	req := &mirrormsg.ReadMirrorStatesRequest{}
	resp := &mirrormsg.ReadMirrorStatesResponse{}
	err := r.Decode(req)
	img := h.o.Image()
	if err == nil {
		err = h.mirrorError(img, req.MirrorName)
	}
	if err == nil {
		for _, rt := range req.Topics {
			t := img.TopicByName(rt.TopicName)
			out := mirrormsg.ReadMirrorStatesTopicResult{TopicName: rt.TopicName}
			for _, rp := range rt.Partitions {
				res := mirrormsg.NewReadMirrorStatesPartitionResult()
				res.PartitionIndex, res.State = rp.PartitionIndex, int8(mirrormsg.Unknown)
				var perr error
				if t == nil {
					perr = api.Errorf(api.UnknownTopicOrPartition, "there is no topic %s", rt.TopicName)
				} else {
					var st mirrorstate.Status
					st, perr = h.o.States.Read(ctx, mirrorstate.Key{Mirror: req.MirrorName, TopicID: t.ID, Partition: rp.PartitionIndex}, rp.LeaderEpoch)
					res.State, res.LeaderEpoch, res.StateEpoch, res.RetryAttempt, res.PreviousState = int8(st.State), st.LeaderEpoch, st.StateEpoch, st.RetryAttempt, int8(st.Previous)
					res.LastMirrorEpoch, res.LastMirrorOffset = st.LastMirrorEpoch, st.LastMirrorOffset
					if st.Error != "" {
						res.ErrorMessage = &st.Error
					}
				}
				if perr != nil {
					res.ErrorCode, res.ErrorMessage = codeAndText(perr)
				}
				out.Partitions = append(out.Partitions, res)
			}
			resp.Topics = append(resp.Topics, out)
		}
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	reply(r, resp, resp.ErrorCode)
}

// writeStates stores what other brokers' mirror leaders decided (4.12).
func (h *Handlers) writeStates(ctx context.Context, r *server.Request) {
	req := &mirrormsg.WriteMirrorStatesRequest{}
	resp := &mirrormsg.WriteMirrorStatesResponse{}
	err := r.Decode(req)
	img := h.o.Image()
	if err == nil {
		err = h.mirrorError(img, req.MirrorName)
	}
	if err == nil {
		for _, rt := range req.Topics {
			t := img.TopicByName(rt.TopicName)
			out := mirrormsg.WriteMirrorStatesTopicResult{TopicName: rt.TopicName}
			for _, rp := range rt.Partitions {
				res := mirrormsg.NewWriteMirrorStatesPartitionResult()
				res.PartitionIndex = rp.PartitionIndex
				var perr error
				if t == nil {
					perr = api.Errorf(api.UnknownTopicOrPartition, "there is no topic %s", rt.TopicName)
				} else {
					var st mirrorstate.Status
					st, perr = h.o.States.Write(ctx, stateWrite(mirrorstate.Key{Mirror: req.MirrorName, TopicID: t.ID, Partition: rp.PartitionIndex}, &rp))
					if perr == nil {
						res.StateEpoch, res.LastMirrorEpoch, res.LastMirrorOffset = st.StateEpoch, st.LastMirrorEpoch, st.LastMirrorOffset
					}
				}
				res.ErrorCode, res.ErrorMessage = codeAndText(perr)
				out.Partitions = append(out.Partitions, res)
			}
			resp.Topics = append(resp.Topics, out)
		}
	}
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
	err := r.Decode(req)
	if err == nil {
		err = h.mirrorError(h.o.Image(), req.MirrorName)
	}
	if err == nil {
		now := time.Now()
		for _, rt := range req.Topics {
			out := mirrormsg.ReadMirrorOffsetsTopicResult{TopicName: rt.TopicName}
			for _, p := range rt.Partitions {
				res := mirrormsg.NewReadMirrorOffsetsPartitionResult()
				res.PartitionIndex = p
				if mp := h.o.Manager.Partition(rt.TopicName, p); mp != nil {
					pr := mp.Progress(now)
					res.DestinationOffset = pr.DestinationOffset
					if pr.SourceOffset >= 0 && pr.Age >= 0 {
						res.SourceOffset, res.SourceOffsetAgeMs = pr.SourceOffset, pr.Age.Milliseconds()
					}
				}
				out.Partitions = append(out.Partitions, res)
			}
			resp.Topics = append(resp.Topics, out)
		}
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	reply(r, resp, resp.ErrorCode)
}

// recover takes FAILED partitions back to the state they failed in, with a fresh count of retries (4.16).
func (h *Handlers) recover(ctx context.Context, r *server.Request) {
	req := &mirrormsg.RecoverMirrorTopicsRequest{}
	resp := &mirrormsg.RecoverMirrorTopicsResponse{}
	err := r.Decode(req)
	img := h.o.Image()
	if err == nil {
		err = h.mirrorError(img, req.MirrorName)
	}
	if err == nil {
		for _, rt := range req.Topics {
			out := mirrormsg.RecoverMirrorTopicResult{Name: rt.TopicName}
			out.ErrorCode, out.ErrorMessage = codeAndText(h.recoverTopic(ctx, req.MirrorName, rt.TopicName))
			resp.Topics = append(resp.Topics, out)
		}
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	reply(r, resp, resp.ErrorCode)
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
		st, err := h.o.States.Read(ctx, k, -1)
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
		if _, err := h.o.States.Write(ctx, mirrorstate.Write{Key: k, State: to, LeaderEpoch: -1, StateEpoch: st.StateEpoch, StopWish: -1, RetryAttempt: 0}); err != nil {
			return err
		}
		if p := h.o.Manager.Partition(topic, int32(i)); p != nil {
			p.Reread()
		}
	}
	return nil
}
