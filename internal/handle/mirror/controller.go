package mirror

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/controller/mirrors"
	"milena/internal/handle/cluster"
	"milena/internal/mirrormsg"
	"time"

	"milena/internal/machine"
)

// ControllerOptions configure the controller's side of the mirror APIs.
type ControllerOptions struct {
	// Do runs a command on the controller's state.
	Do       func(ctx context.Context, cmd controller.Command) (any, error)
	Commands mirrors.Commands
	// CodePoints are the numbers of mirror errors that clients use. Brokers talk among themselves by Milena's.
	CodePoints api.CodePoints
}

// ControllerAPIs are the mirror APIs that the controller answers.
func ControllerAPIs(o ControllerOptions) map[api.Key]cluster.ControllerAPI {
	return map[api.Key]cluster.ControllerAPI{
		api.CreateClusterMirror: o.create, api.StartMirrorTopics: o.start, api.StopMirrorTopics: o.stop, api.PauseMirrorTopics: o.pause,
		api.ResumeMirrorTopics: o.resume, api.DeleteClusterMirror: o.delete, api.BumpLeaderEpochs: o.bump,
	}
}

// run decodes the request and runs the command made of it; the result's top-level error is err.
func (o ControllerOptions) run(ctx context.Context, r *cluster.ControllerRequest, req kmsg.Request, cmd func() controller.Command, timeoutMs func() int32) (mirrors.Result, error) {
	if err := r.Decode(req); err != nil {
		return mirrors.Result{}, err
	}
	ctx, cancel := within(ctx, timeoutMs())
	defer cancel()
	out, err := o.Do(ctx, cmd())
	if err != nil {
		return mirrors.Result{}, err
	}
	res := out.(mirrors.Result)
	if res.Err != nil {
		return res, res.Err
	}
	return res, nil
}

// checked is run for requests that a broker has checked against the actual states, or asks by itself: nobody but a broker sees them.
func (o ControllerOptions) checked(ctx context.Context, r *cluster.ControllerRequest, req kmsg.Request, cmd func() controller.Command, timeoutMs func() int32) (mirrors.Result, error) {
	if !r.Forwarded && !r.Node {
		return mirrors.Result{}, api.Errorf(api.InvalidRequest, "%s is sent to a broker, which checks the states of partitions, not to a controller", r.Key)
	}
	return o.run(ctx, r, req, cmd, timeoutMs)
}

func defaultTimeout() int32 { return 30000 }

// codeAndText is an error in the numbers of who asked: a client, whose request a broker has passed on, or a broker.
func (o ControllerOptions) codeAndText(r *cluster.ControllerRequest, err error) (int16, *string) {
	code, text := codeAndText(err)
	if r.Forwarded {
		code = o.CodePoints.WireCode(api.Code(code))
	}
	return code, text
}

// topicError is what became of a topic; a success may have words too.
func (o ControllerOptions) topicError(r *cluster.ControllerRequest, t mirrors.TopicResult) (int16, *string) {
	if t.Err != nil {
		return o.codeAndText(r, t.Err)
	}
	if t.Note != "" {
		return 0, &t.Note
	}
	return 0, nil
}

func (o ControllerOptions) create(ctx context.Context, r *cluster.ControllerRequest) kmsg.Response {
	req := &mirrormsg.CreateClusterMirrorRequest{}
	resp := &mirrormsg.CreateClusterMirrorResponse{}
	_, err := o.run(ctx, r, req, func() controller.Command { return o.Commands.Create(req) }, defaultTimeout)
	resp.ErrorCode, resp.ErrorMessage = o.codeAndText(r, err)
	return resp
}

func (o ControllerOptions) start(ctx context.Context, r *cluster.ControllerRequest) kmsg.Response {
	req := mirrormsg.NewStartMirrorTopicsRequest()
	resp := &mirrormsg.StartMirrorTopicsResponse{}
	res, err := o.checked(ctx, r, &req, func() controller.Command {
		if r.Own() { // what a mirror's owner has found
			return o.Commands.StartFound(&req)
		}
		return o.Commands.Start(&req)
	}, func() int32 { return req.TimeoutMs })
	for _, t := range res.Topics {
		x := mirrormsg.StartMirrorTopicResult{Name: t.Name}
		x.ErrorCode, x.ErrorMessage = o.topicError(r, t)
		resp.Topics = append(resp.Topics, x)
	}
	resp.ErrorCode, resp.ErrorMessage = o.codeAndText(r, err)
	return resp
}

func (o ControllerOptions) stop(ctx context.Context, r *cluster.ControllerRequest) kmsg.Response {
	req := mirrormsg.NewStopMirrorTopicsRequest()
	resp := &mirrormsg.StopMirrorTopicsResponse{}
	res, err := o.checked(ctx, r, &req, func() controller.Command {
		if r.Own() {
			return o.Commands.StopExcluded(&req)
		}
		return o.Commands.Stop(&req)
	}, func() int32 { return req.TimeoutMs })
	for _, t := range res.Topics {
		x := mirrormsg.StopMirrorTopicResult{Name: t.Name}
		x.ErrorCode, x.ErrorMessage = o.topicError(r, t)
		resp.Topics = append(resp.Topics, x)
	}
	resp.ErrorCode, resp.ErrorMessage = o.codeAndText(r, err)
	return resp
}

func (o ControllerOptions) pause(ctx context.Context, r *cluster.ControllerRequest) kmsg.Response {
	req := mirrormsg.NewPauseMirrorTopicsRequest()
	resp := &mirrormsg.PauseMirrorTopicsResponse{}
	res, err := o.checked(ctx, r, &req, func() controller.Command { return o.Commands.Pause(&req) }, func() int32 { return req.TimeoutMs })
	for _, t := range res.Topics {
		x := mirrormsg.PauseMirrorTopicResult{Name: t.Name}
		x.ErrorCode, x.ErrorMessage = o.topicError(r, t)
		resp.Topics = append(resp.Topics, x)
	}
	resp.ErrorCode, resp.ErrorMessage = o.codeAndText(r, err)
	return resp
}

func (o ControllerOptions) resume(ctx context.Context, r *cluster.ControllerRequest) kmsg.Response {
	req := mirrormsg.NewResumeMirrorTopicsRequest()
	resp := &mirrormsg.ResumeMirrorTopicsResponse{}
	res, err := o.checked(ctx, r, &req, func() controller.Command { return o.Commands.Resume(&req) }, func() int32 { return req.TimeoutMs })
	for _, t := range res.Topics {
		x := mirrormsg.ResumeMirrorTopicResult{Name: t.Name}
		x.ErrorCode, x.ErrorMessage = o.topicError(r, t)
		resp.Topics = append(resp.Topics, x)
	}
	resp.ErrorCode, resp.ErrorMessage = o.codeAndText(r, err)
	return resp
}

func (o ControllerOptions) delete(ctx context.Context, r *cluster.ControllerRequest) kmsg.Response {
	req := mirrormsg.NewDeleteClusterMirrorRequest()
	resp := &mirrormsg.DeleteClusterMirrorResponse{}
	_, err := o.checked(ctx, r, &req, func() controller.Command { return o.Commands.Delete(&req) }, func() int32 { return req.TimeoutMs })
	resp.ErrorCode, resp.ErrorMessage = o.codeAndText(r, err)
	return resp
}

// bump raises leader epochs (4.14).
func (o ControllerOptions) bump(ctx context.Context, r *cluster.ControllerRequest) kmsg.Response {
	req := &mirrormsg.BumpLeaderEpochsRequest{}
	resp := &mirrormsg.BumpLeaderEpochsResponse{}
	err := r.Decode(req)
	if err == nil {
		err = o.bumpAll(ctx, req, resp)
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	return resp
}

func (o ControllerOptions) bumpAll(ctx context.Context, req *mirrormsg.BumpLeaderEpochsRequest, resp *mirrormsg.BumpLeaderEpochsResponse) error {
	var bumps []controller.EpochBump
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			bumps = append(bumps, controller.EpochBump{Topic: t.TopicName, Partition: p.PartitionIndex, Min: p.MinLeaderEpoch})
		}
	}
	ctx, cancel := within(ctx, defaultTimeout())
	defer cancel()
	out, err := o.Do(ctx, func(st *controller.State, now time.Time) machine.Result { return st.BumpLeaderEpochs(now, bumps) })
	if err != nil {
		return err
	}
	errs := out.([]*api.Error)
	i := 0
	for _, t := range req.Topics {
		rt := mirrormsg.BumpLeaderEpochsTopicResult{TopicName: t.TopicName}
		for _, p := range t.Partitions {
			rp := mirrormsg.BumpLeaderEpochsPartitionResult{PartitionIndex: p.PartitionIndex}
			if errs[i] != nil {
				rp.ErrorCode, rp.ErrorMessage = codeAndText(errs[i])
			}
			i++
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return nil
}
