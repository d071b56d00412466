package mirror

import (
	"cmp"
	"context"
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/controller/mirrors"
	"milena/internal/coord/mirrorstate"
	"milena/internal/meta"
	"milena/internal/mirror"
	"milena/internal/mirrormsg"
	"milena/internal/server"
)

// settle is the pause before a state on its way to another is read again.
const settle = 50 * time.Millisecond

// sourceTimeout bounds how long a start asks the source about its topics: without an answer it goes on.
const sourceTimeout = 5 * time.Second

// check compares the actual state of every partition of topics with the states that allow a request. A partition that is on its way
// from one steady state to another is waited for, until ctx ends.
func (h *Handlers) check(ctx context.Context, name string, topics []*meta.Topic, valid ...mirrormsg.State) error {
	if h.o.Image().TopicByName(mirrorstate.Topic) == nil {
		return nil // every partition is UNKNOWN, which passes (spec 7.9)
	}
	var open []mirror.PartitionOf
	for _, t := range topics {
		for i := range t.Partitions {
			open = append(open, mirror.PartitionOf{Topic: t, Partition: int32(i)})
		}
	}
	for {
		var why error
		var err error
		if open, why, err = h.unsettled(ctx, name, open, valid); err != nil || len(open) == 0 {
			return err
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return why
		}
	}
}

// unsettled are the partitions that are not in a valid state yet, and what to answer if that doesn't change in time. The error is of
// one that won't come to such a state by itself.
func (h *Handlers) unsettled(ctx context.Context, name string, ps []mirror.PartitionOf, valid []mirrormsg.State) (open []mirror.PartitionOf, why, err error) {
	keys := make([]mirrorstate.Key, len(ps))
	for i, p := range ps {
		keys[i] = mirrorstate.Key{Mirror: name, TopicID: p.Topic.ID, Partition: p.Partition}
	}
	for i, st := range h.o.Cluster.ReadAll(ctx, name, keys) {
		p := ps[i]
		switch {
		case st.Err != nil:
			why = cmp.Or(why, error(api.Errorf(api.RequestTimedOut, "the state of %s-%d could not be read in time: %v", p.Topic.Name, p.Partition, st.Err)))
		case slices.Contains(valid, st.State):
			continue
		case !passing(st.State, valid):
			return nil, nil, api.Errorf(api.InvalidClusterMirrorStates, "partition %s-%d of mirror %s is %s; the request needs one of %v", p.Topic.Name, p.Partition, name, st.State, valid)
		default:
			why = cmp.Or(why, error(api.Errorf(api.InvalidClusterMirrorStates, "partition %s-%d of mirror %s is %s still; the request needs one of %v", p.Topic.Name, p.Partition, name, st.State, valid)))
		}
		open = append(open, p)
	}
	return open, why, nil
}

// passing says whether a partition leaves a state by itself, towards one of the valid states. LOG_TRUNCATION allows neither stop
// nor pause, but is over soon: with MIRRORING, or FAILED if the source is gone.
func passing(s mirrormsg.State, valid []mirrormsg.State) bool {
	switch s {
	case mirrormsg.LogTruncation, mirrormsg.EpochFencing, mirrormsg.ULELogTruncation:
		return slices.Contains(valid, mirrormsg.Mirroring)
	case mirrormsg.Pausing:
		return slices.Contains(valid, mirrormsg.Paused)
	case mirrormsg.Stopping:
		return slices.Contains(valid, mirrormsg.Stopped)
	default:
		return false
	}
}

// behind is how long a broker whose metadata doesn't have a mirror waits for it: another one may have created it just now.
const behind = time.Second

// knownMirror returns metadata that has the mirror.
func (h *Handlers) knownMirror(ctx context.Context, name string) (*meta.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, behind)
	defer cancel()
	for {
		img := h.o.Image()
		err := h.mirrorError(img, name)
		if code, _ := api.CodeOf(err); code != api.UnknownClusterMirror || !several(img) {
			return img, err
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return img, err
		}
	}
}

// several says whether the cluster has more than one broker.
func several(img *meta.Image) bool {
	n := 0
	for range img.Brokers() {
		n++
	}
	return n > 1
}

// start checks that the topics are not being mirrored, fills in what the client didn't know of the source's topics, and
// forwards (4.4).
func (h *Handlers) start(ctx context.Context, r *server.Request) {
	req := mirrormsg.NewStartMirrorTopicsRequest()
	err := r.Decode(&req)
	if err == nil {
		err = h.prepareStart(ctx, &req)
	}
	if err == nil {
		h.pass(ctx, r, &req)
		return
	}
	resp := &mirrormsg.StartMirrorTopicsResponse{}
	resp.ErrorCode, resp.ErrorMessage = h.codeAndText(err)
	h.reply(r, resp, resp.ErrorCode)
}

func (h *Handlers) prepareStart(ctx context.Context, req *mirrormsg.StartMirrorTopicsRequest) error {
	ctx, cancel := within(ctx, req.TimeoutMs)
	defer cancel()
	img, err := h.knownMirror(ctx, req.MirrorName)
	if err != nil {
		return err
	}
	if err := h.addMatches(ctx, img, req); err != nil {
		return err
	}
	var unknown []string
	var here []*meta.Topic
	for _, rt := range req.Topics {
		if rt.TopicID.IsZero() || rt.NumPartitions <= 0 {
			unknown = append(unknown, rt.TopicName)
		}
		t := img.TopicByName(rt.TopicName)
		if t == nil {
			continue // it will be created
		}
		if s := mirrormsg.State(t.MirrorDesired); t.MirrorName == req.MirrorName && s != mirrormsg.Stopped && s != mirrormsg.Unknown {
			return api.Errorf(api.InvalidClusterMirrorStates, "topic %s of mirror %s is wished to be %s already", t.Name, req.MirrorName, s)
		}
		here = append(here, t)
	}
	if err := h.check(ctx, req.MirrorName, here, mirrormsg.Stopped, mirrormsg.Unknown); err != nil {
		return err
	}
	if len(unknown) > 0 {
		// A source that can't be asked now is no error: the refresh creates the topics later.
		ask, cancel := context.WithTimeout(ctx, sourceTimeout)
		found, err := h.o.Manager.SourceTopics(ask, req.MirrorName, unknown)
		cancel()
		if err != nil {
			h.o.Logger.Warn("the source could not be asked for topics to start", "mirror", req.MirrorName, "error", err)
		}
		for i := range req.Topics {
			if s := found[req.Topics[i].TopicName]; s != nil && s.Err == nil {
				req.Topics[i].TopicID, req.Topics[i].NumPartitions = s.ID, s.Partitions
			}
		}
	}
	req.StateOffset = img.Offset
	return nil
}

// addMatches adds the topics of the source that the request's patterns match to those it names, so that a start by pattern is
// answered per topic as well, and its client needs no access to the source. Topics that are being mirrored or paused are left as
// they are. What can't be found now, the refresh finds.
func (h *Handlers) addMatches(ctx context.Context, img *meta.Image, req *mirrormsg.StartMirrorTopicsRequest) error {
	if len(req.IncludePatterns) == 0 {
		return nil
	}
	match, bad := mirrors.Discovers(img, req.MirrorName, req.IncludePatterns, req.ExcludePatterns)
	if bad != nil {
		return bad
	}
	ask, cancel := context.WithTimeout(ctx, sourceTimeout)
	all, err := h.o.Manager.ListSource(ask, req.MirrorName)
	cancel()
	if err != nil {
		h.o.Logger.Warn("the source could not be asked for topics to start", "mirror", req.MirrorName, "error", err)
		return nil
	}
	for _, s := range all {
		if !match(s.Name) || slices.ContainsFunc(req.Topics, func(t mirrormsg.StartMirrorTopic) bool { return t.TopicName == s.Name }) {
			continue
		}
		if t := img.TopicByName(s.Name); t != nil && t.MirrorName != "" && mirrormsg.State(t.MirrorDesired) != mirrormsg.Stopped {
			continue
		}
		req.Topics = append(req.Topics, mirrormsg.StartMirrorTopic{TopicName: s.Name, TopicID: s.ID, NumPartitions: s.Partitions})
	}
	return nil
}

// change validates the topics of Stop, Pause and Resume and returns the metadata offset it looked at.
func (h *Handlers) change(ctx context.Context, mirror string, names []string, timeoutMs int32, already mirrormsg.State, valid ...mirrormsg.State) (int64, error) {
	ctx, cancel := within(ctx, timeoutMs)
	defer cancel()
	img, err := h.knownMirror(ctx, mirror)
	if err != nil {
		return -1, err
	}
	var topics []*meta.Topic
	for _, n := range names {
		t := img.TopicByName(n)
		if t == nil || t.MirrorName != mirror || mirrormsg.State(t.MirrorDesired) == already {
			continue // the controller answers, per topic
		}
		topics = append(topics, t)
	}
	if err := h.check(ctx, mirror, topics, valid...); err != nil {
		return -1, err
	}
	return img.Offset, nil
}

// stoppable are the states that a stop is taken in. The spec has MIRRORING, PAUSED and FAILED; the others here hold an aligned log
// too, and a failover must not wait until a source that is gone lets a partition out of them. LOG_TRUNCATION is waited out.
func stoppable() []mirrormsg.State {
	return []mirrormsg.State{mirrormsg.Mirroring, mirrormsg.Paused, mirrormsg.Failed, mirrormsg.EpochFencing, mirrormsg.ULELogTruncation, mirrormsg.Pausing}
}

// stop (4.5).
func (h *Handlers) stop(ctx context.Context, r *server.Request) {
	req := mirrormsg.NewStopMirrorTopicsRequest()
	err := r.Decode(&req)
	if err == nil {
		names := make([]string, len(req.Topics))
		for i, t := range req.Topics {
			names[i] = t.TopicName
		}
		req.StateOffset, err = h.change(ctx, req.MirrorName, names, req.TimeoutMs, mirrormsg.Stopped, stoppable()...)
	}
	if err == nil {
		h.pass(ctx, r, &req)
		return
	}
	resp := &mirrormsg.StopMirrorTopicsResponse{}
	resp.ErrorCode, resp.ErrorMessage = h.codeAndText(err)
	h.reply(r, resp, resp.ErrorCode)
}

// pause (4.6).
func (h *Handlers) pause(ctx context.Context, r *server.Request) {
	req := mirrormsg.NewPauseMirrorTopicsRequest()
	err := r.Decode(&req)
	if err == nil {
		names := make([]string, len(req.Topics))
		for i, t := range req.Topics {
			names[i] = t.TopicName
		}
		req.StateOffset, err = h.change(ctx, req.MirrorName, names, req.TimeoutMs, mirrormsg.Unknown, mirrormsg.Mirroring)
	}
	if err == nil {
		h.pass(ctx, r, &req)
		return
	}
	resp := &mirrormsg.PauseMirrorTopicsResponse{}
	resp.ErrorCode, resp.ErrorMessage = h.codeAndText(err)
	h.reply(r, resp, resp.ErrorCode)
}

// resume (4.7).
func (h *Handlers) resume(ctx context.Context, r *server.Request) {
	req := mirrormsg.NewResumeMirrorTopicsRequest()
	err := r.Decode(&req)
	if err == nil {
		names := make([]string, len(req.Topics))
		for i, t := range req.Topics {
			names[i] = t.TopicName
		}
		req.StateOffset, err = h.change(ctx, req.MirrorName, names, req.TimeoutMs, mirrormsg.Unknown, mirrormsg.Paused)
	}
	if err == nil {
		h.pass(ctx, r, &req)
		return
	}
	resp := &mirrormsg.ResumeMirrorTopicsResponse{}
	resp.ErrorCode, resp.ErrorMessage = h.codeAndText(err)
	h.reply(r, resp, resp.ErrorCode)
}

// delete (4.8): every partition of the mirror has to be stopped.
func (h *Handlers) delete(ctx context.Context, r *server.Request) {
	req := mirrormsg.NewDeleteClusterMirrorRequest()
	err := r.Decode(&req)
	if err == nil {
		var names []string
		for t := range h.o.Image().Topics() {
			if t.MirrorName == req.MirrorName {
				names = append(names, t.Name)
			}
		}
		req.StateOffset, err = h.change(ctx, req.MirrorName, names, req.TimeoutMs, mirrormsg.Unknown, mirrormsg.Stopped)
	}
	if err == nil {
		h.pass(ctx, r, &req)
		return
	}
	resp := &mirrormsg.DeleteClusterMirrorResponse{}
	resp.ErrorCode, resp.ErrorMessage = h.codeAndText(err)
	h.reply(r, resp, resp.ErrorCode)
}
