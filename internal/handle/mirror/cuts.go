package mirror

import (
	"context"
	"errors"

	"milena/internal/api"
	"milena/internal/mirrormsg"
	"milena/internal/server"
)

// mostCutBytes bounds one answer with records that were set aside, but for a single batch that is bigger.
const mostCutBytes = 4 << 20

// cuts answers for what is set aside on this broker's disks (spec D4): a tool asks every broker. It does so whatever the level of
// mirror.version, since the records outlive the mirrors.
func (h *Handlers) cuts(_ context.Context, r *server.Request) {
	req := &mirrormsg.MirrorCutsRequest{}
	resp := &mirrormsg.MirrorCutsResponse{}
	err := r.Decode(req)
	if err == nil {
		err = h.answerCuts(req, resp)
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	reply(r, resp, resp.ErrorCode)
}

func (h *Handlers) answerCuts(req *mirrormsg.MirrorCutsRequest, resp *mirrormsg.MirrorCutsResponse) (err error) {
	switch req.Operation {
	case mirrormsg.ListCuts:
		for _, c := range h.o.Manager.Cuts() {
			resp.Cuts = append(resp.Cuts, mirrormsg.MirrorCut{
				Name: c.Name, Dir: c.Dir, MirrorName: c.Mirror, TopicName: c.Topic, TopicID: c.TopicID, PartitionIndex: c.Partition, FirstOffset: c.First,
				EndOffset: c.End, Records: c.Records, Bytes: c.Bytes, CreatedMs: c.CreatedMs, LeaderEpoch: c.LeaderEpoch, Reason: c.Reason,
			})
		}
		return nil
	case mirrormsg.ReadCut:
		if len(req.Names) != 1 {
			return api.Errorf(api.InvalidRequest, "one file is read at a time, not %d", len(req.Names))
		}
		resp.Data, err = h.o.Manager.ReadCut(req.Names[0], req.Position, min(max(int(req.MaxBytes), 0), mostCutBytes))
		return err
	case mirrormsg.PurgeCuts:
		var errs []error
		for _, name := range req.Names {
			errs = append(errs, h.o.Manager.PurgeCut(name))
		}
		return errors.Join(errs...)
	}
	return api.Errorf(api.InvalidRequest, "operation %d is not known", req.Operation)
}

// clamp takes committed offsets back for another broker, which has cut a partition (spec D8).
func (h *Handlers) clamp(ctx context.Context, r *server.Request) {
	req := &mirrormsg.ClampGroupOffsetsRequest{}
	resp := &mirrormsg.ClampGroupOffsetsResponse{}
	err := r.Decode(req)
	if err == nil {
		ctx, cancel := within(ctx, 0)
		defer cancel()
		resp.Groups, err = h.o.Clamp(ctx, req.TopicName, req.TopicID, req.PartitionIndex, req.EndOffset, req.LeaderEpoch)
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	reply(r, resp, resp.ErrorCode)
}
