package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"milena/internal/controller/mirrors"
	"milena/internal/coord/mirrorstate"
	"milena/internal/mirrormsg"
)

const (
	minISRKey  = "min.insync.replicas"
	uncleanKey = "unclean.leader.election.enable"
)

// Strength is what the source last said of a topic: its replicas, and its effective configs of what isn't synced (spec D16).
func (s *Source) Strength(topic string) mirrors.Strength {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.strength[topic]
}

// notCarried are the configs set on the source's topic that no mirror takes over (spec D7), by name.
func (s *Source) notCarried(topic string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left[topic]
}

// strengthen changes what is known of a topic.
func (s *Source) strengthen(topic string, set func(*mirrors.Strength)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.strength[topic]
	set(&x)
	s.strength[topic] = x
}

// compareStrength notes the topics that are weaker here than on the source.
func (mi *mirror) compareStrength(ctx context.Context, topics []string) error {
	if len(topics) == 0 {
		return nil // what was found out stays: the topics may have been stopped
	}
	var out []string
	rs, err := mi.mgr.opts.Local.DescribeTopicConfigs(ctx, topics...)
	for _, r := range rs {
		t := mi.mgr.topic(r.Name)
		if r.Err != nil || t == nil || len(t.Partitions) == 0 {
			continue
		}
		factor := len(t.Partitions[0].Replicas)
		for _, p := range t.Partitions {
			factor = min(factor, len(p.Replicas))
		}
		here := mirrors.Strength{ReplicationFactor: strconv.Itoa(factor)}
		for _, c := range r.Configs {
			switch c.Key {
			case minISRKey:
				here.MinISR = c.MaybeValue()
			case uncleanKey:
				here.Unclean = c.MaybeValue()
			}
		}
		for _, what := range mirrors.Weaker(mi.source.Strength(r.Name), here) {
			out = append(out, r.Name+": "+what)
		}
		for _, key := range mi.source.notCarried(r.Name) {
			out = append(out, r.Name+": "+key+" is not carried")
		}
	}
	slices.Sort(out)
	if err == nil {
		mi.mu.Lock()
		mi.weaker = out
		mi.mu.Unlock()
		return nil
	}
	return fmt.Errorf("own topic configs: %w", err)
}

// Notes are what only the broker knows that does a mirror's cluster-wide work.
type Notes struct {
	// Weaker is in what the topics are weaker here than on the source, and which of its configs are never carried, as TOPIC: WHAT.
	Weaker []string
	// GroupsGone are the groups that were deleted at the source and are kept here (spec D8).
	GroupsGone []string
	// Problems is why the last run of each kind of periodic work failed, as KIND: WHY, and why topics that the patterns match could not be
	// started.
	Problems []string
}

// Notes are what this broker has found out about a mirror: nothing where another one does its cluster-wide work.
func (m *Manager) Notes(name string) Notes {
	mi, err := m.mirror(name)
	if err != nil {
		return Notes{Problems: []string{"configs of the mirror: " + err.Error()}}
	}
	mi.mu.Lock()
	defer mi.mu.Unlock()
	var problems []string
	for _, topic := range slices.Sorted(maps.Keys(mi.refused)) {
		problems = append(problems, "topic "+topic+" is not mirrored: "+mi.refused[topic])
	}
	for _, p := range []struct{ kind, why string }{{"refresh", mi.health.RefreshError}, {"configs", mi.health.ConfigsError}, {"groups", mi.health.GroupsError}} {
		if p.why != "" {
			problems = append(problems, p.kind+": "+p.why)
		}
	}
	return Notes{slices.Clone(mi.weaker), slices.Sorted(maps.Keys(mi.gone)), problems}
}

// Notes asks the broker that does a mirror's cluster-wide work. Nobody knows for a moment after that broker has changed.
func (c *Cluster) Notes(ctx context.Context, mirror string, here func(mirror string) Notes) (Notes, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	t := c.o.Image().TopicByName(mirrorstate.Topic)
	if t == nil || len(t.Partitions) == 0 {
		return Notes{}, nil
	}
	owner := t.Partitions[mirrormsg.Slot(mirror, int32(len(t.Partitions)))].Leader
	switch {
	case owner < 0:
		return Notes{}, nil
	case owner == c.o.NodeID:
		return here(mirror), nil
	}
	resp, err := c.call(ctx, owner, &mirrormsg.ReadMirrorOffsetsRequest{MirrorName: mirror})
	if err != nil {
		return Notes{}, notReached(owner, err)
	}
	r := resp.(*mirrormsg.ReadMirrorOffsetsResponse)
	return Notes{r.Weaker, r.GroupsGone, r.Problems}, nil
}
