package mirror

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"milena/internal/api"
	"milena/internal/coord/mirrorstate"
	"milena/internal/meta"
	"milena/internal/mirror"
	"milena/internal/mirrormsg"
	"milena/internal/server"
)

const (
	bootstrapKey = "bootstrap.servers"
	sourceIDKey  = "mirror.source.cluster.id"
)

// allOperations are those of a mirror, as bits: CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS. There are no
// access rules yet, so everybody may do all of them.
const allOperations int32 = 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11

// list answers from this broker's metadata (4.9).
func (h *Handlers) list(_ context.Context, r *server.Request) {
	req := &mirrormsg.ListClusterMirrorsRequest{}
	resp := &mirrormsg.ListClusterMirrorsResponse{}
	err := r.Decode(req)
	img := h.o.Image()
	if err == nil {
		err = h.featureError(img)
	}
	var states []mirrormsg.State
	for _, name := range req.DesiredMirrorStateFilter {
		s, bad := mirrormsg.ParseState(name)
		if bad != nil && err == nil {
			err = api.Errorf(api.InvalidRequest, "%v", bad)
		}
		states = append(states, s)
	}
	if len(states) == 0 {
		states = []mirrormsg.State{mirrormsg.Mirroring, mirrormsg.Paused}
	}
	if err == nil {
		for name, own := range img.Configs(meta.ResourceClusterMirror) {
			if len(req.MirrorNameFilter) > 0 && !slices.Contains(req.MirrorNameFilter, name) ||
				len(req.SourceClusterIDFilter) > 0 && !slices.Contains(req.SourceClusterIDFilter, own[sourceIDKey]) {
				continue
			}
			m := mirrormsg.ListedMirror{MirrorName: name, SourceBootstrap: own[bootstrapKey], SourceClusterID: own[sourceIDKey], TopicNames: []string{}}
			for t := range img.Topics() {
				if t.MirrorName != name {
					continue
				}
				s := mirrormsg.State(t.MirrorDesired)
				if s == mirrormsg.Mirroring {
					m.TopicCount++
				}
				if slices.Contains(states, s) {
					m.TopicNames = append(m.TopicNames, t.Name)
				}
			}
			resp.Mirrors = append(resp.Mirrors, m)
		}
	}
	resp.ErrorCode, resp.ErrorMessage = h.codeAndText(err)
	h.reply(r, resp, resp.ErrorCode)
}

// describe collects states and progress of the chosen partitions (4.10).
func (h *Handlers) describe(ctx context.Context, r *server.Request) {
	req := &mirrormsg.DescribeClusterMirrorsRequest{}
	resp := &mirrormsg.DescribeClusterMirrorsResponse{}
	err := r.Decode(req)
	img := h.o.Image()
	if err == nil {
		err = h.featureError(img)
	}
	if err == nil {
		ctx, cancel := within(ctx, req.TimeoutMs)
		defer cancel()
		names := req.MirrorNames
		if names == nil {
			for name := range img.Configs(meta.ResourceClusterMirror) {
				names = append(names, name)
			}
		}
		for _, name := range names {
			own := img.Config(meta.ResourceClusterMirror, name)
			if req.ClusterID != nil && len(own) > 0 && own[sourceIDKey] != *req.ClusterID {
				continue
			}
			resp.Mirrors = append(resp.Mirrors, h.describeMirror(ctx, img, name, own, req))
		}
	}
	resp.ErrorCode, resp.ErrorMessage = h.codeAndText(err)
	h.reply(r, resp, resp.ErrorCode)
}

func (h *Handlers) describeMirror(ctx context.Context, img *meta.Image, name string, own map[string]string, req *mirrormsg.DescribeClusterMirrorsRequest) mirrormsg.DescribedMirror {
	m := mirrormsg.NewDescribedMirror()
	m.MirrorName = name
	if len(own) == 0 {
		m.ErrorCode, m.ErrorMessage = h.codeAndText(api.Errorf(api.UnknownClusterMirror, "there is no mirror %s", name))
		return m
	}
	for key, at := range map[string]**string{bootstrapKey: &m.SourceBootstrap, sourceIDKey: &m.SourceClusterID} {
		if v, ok := own[key]; ok {
			*at = &v
		}
	}
	if req.IncludeAuthorizedOperations {
		m.AuthorizedOperations = allOperations
	}
	var parts []mirror.PartitionOf
	for t := range img.Topics() {
		if t.MirrorName != name {
			continue
		}
		chosen, ok := wanted(req.TopicPartitions, t)
		if !ok {
			continue
		}
		m.Topics = append(m.Topics, mirrormsg.DescribedMirrorTopic{TopicName: t.Name})
		for _, p := range chosen {
			parts = append(parts, mirror.PartitionOf{Topic: t, Partition: p})
		}
	}
	described, err := h.describePartitions(ctx, name, parts, req)
	if err != nil && req.ClusterID != nil {
		// A peer must not take a missing answer for "no last mirror epoch": it would cut everything.
		m.ErrorCode, m.ErrorMessage = h.codeAndText(err)
		m.Topics = nil
		return m
	}
	if req.IncludeMirrorState && req.ClusterID == nil {
		// That its owner doesn't answer shows in the states as well.
		notes, _ := h.o.Cluster.Notes(ctx, name, h.o.Manager.Notes)
		m.Weaker, m.GroupsGone, m.Problems = notes.Weaker, notes.GroupsGone, notes.Problems
	}
	at := 0
	for i, p := range parts {
		for m.Topics[at].TopicName != p.Topic.Name {
			at++
		}
		m.Topics[at].Partitions = append(m.Topics[at].Partitions, described[i])
	}
	return m
}

// wanted are the partitions of a topic that the filter asks for, all without one.
func wanted(filter []mirrormsg.DescribeMirrorTopicFilter, t *meta.Topic) ([]int32, bool) {
	all := make([]int32, len(t.Partitions))
	for i := range all {
		all[i] = int32(i)
	}
	if filter == nil {
		return all, true
	}
	for _, f := range filter {
		if f.TopicName != t.Name {
			continue
		}
		if len(f.Partitions) == 0 {
			return all, true
		}
		return slices.DeleteFunc(all, func(p int32) bool { return !slices.Contains(f.Partitions, p) }), true
	}
	return nil, false
}

// describePartitions asks the brokers that hold states and progress. What one of them doesn't answer is unknown, with the reason
// as the partition's error, and the first such error.
func (h *Handlers) describePartitions(ctx context.Context, name string, parts []mirror.PartitionOf, req *mirrormsg.DescribeClusterMirrorsRequest) ([]mirrormsg.DescribedMirrorPartition, error) {
	out := make([]mirrormsg.DescribedMirrorPartition, len(parts))
	keys := make([]mirrorstate.Key, len(parts))
	for i, p := range parts {
		out[i] = mirrormsg.NewDescribedMirrorPartition()
		out[i].PartitionIndex, out[i].StateValue = p.Partition, mirrormsg.Unknown.String()
		keys[i] = mirrorstate.Key{Mirror: name, TopicID: p.Topic.ID, Partition: p.Partition}
	}
	// Both at once: a broker that hangs costs one time-out then, not two.
	var offsets []mirrormsg.ReadMirrorOffsetsPartitionResult
	var asked sync.WaitGroup
	if req.IncludeMirrorLags {
		asked.Go(func() { offsets = h.o.Cluster.ReadOffsets(ctx, name, parts, h.offsets) })
	}
	var failed error
	if req.IncludeMirrorState || req.ClusterID != nil {
		for i, st := range h.o.Cluster.ReadAll(ctx, name, keys) {
			dp := &out[i]
			switch {
			case st.Err != nil:
				failed = cmp.Or(failed, st.Err)
				_, dp.ErrorMessage = h.codeAndText(st.Err)
				continue
			case st.Error != "":
				dp.ErrorMessage = &st.Error
			}
			dp.StateValue, dp.RetryAttempt = st.State.String(), st.RetryAttempt
			if req.ClusterID != nil {
				dp.LastMirrorEpoch, dp.LastMirrorOffset = st.LastMirrorEpoch, st.LastMirrorOffset
			}
		}
	}
	asked.Wait()
	for i, o := range offsets {
		dp := &out[i]
		dp.SourceOffset, dp.SourceOffsetAgeMs, dp.DestinationOffset = o.SourceOffset, o.SourceOffsetAgeMs, o.DestinationOffset
		dp.LastSourceOffset, dp.LastSourceOffsetAgeMs = o.LastSourceOffset, o.LastSourceOffsetAgeMs
		if dp.ErrorMessage == nil {
			dp.ErrorMessage = o.ErrorMessage
		}
	}
	return out, failed
}
