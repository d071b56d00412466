package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"milena/internal/coord/mirrorstate"
	"milena/internal/mirrormsg"
)

// heldOffset is a committed offset that the source's group holds.
type heldOffset struct {
	group string
	tp    tp
}

// groupsLoop syncs committed group offsets at the mirror's own interval, on the mirror's owner (spec 8.15, D8). The other
// brokers only ask the source which offsets are held, since each lets those expire that it coordinates, and more rarely.
func (mi *mirror) groupsLoop() {
	var looked time.Time
	for mi.ctx.Err() == nil {
		owner := mi.mgr.owns(mi.name)
		if owner || time.Since(looked) >= mi.mgr.opts.RefreshInterval() {
			looked = time.Now()
			sync := func(ctx context.Context) error { return mi.syncGroups(ctx, owner) }
			if !mi.turn("groups", sync, func(h *Health) (*time.Time, *string) { return &h.Groups, &h.GroupsError }) {
				return
			}
		}
		if !mi.every(time.Now(), func() time.Duration { return mi.set().GroupsInterval }, nil) {
			return
		}
	}
}

// syncGroups asks the source for its groups' offsets, and commits them here if this broker is the owner.
func (mi *mirror) syncGroups(ctx context.Context, owner bool) error {
	s := mi.set()
	all := map[string]bool{} // the mirror's topics; those that are mirrored now are true
	for _, n := range mi.topics(mirrormsg.Paused, mirrormsg.Stopped) {
		all[n] = false
	}
	active := mi.topics(mirrormsg.Mirroring)
	for _, n := range active {
		all[n] = true
	}
	if s.GroupsInclude.Empty() || len(active) == 0 || !owner {
		mi.keepAges(nil)
	}
	if s.GroupsInclude.Empty() {
		mi.held.Store(&map[heldOffset]bool{}) // nothing is synced, so nothing is held for the source
		return nil
	}
	if len(active) == 0 {
		return nil // what was held stays so: this may be a failover
	}
	if err := mi.source.Verify(ctx); err != nil {
		return err
	}
	names, err := mi.source.Groups(ctx)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(g string) bool { return !s.GroupsInclude.Match(g) || s.GroupsExclude.Match(g) })
	mi.noteGone(names)
	mi.keepAges(names)
	offsets, err := mi.source.GroupOffsets(ctx, names)
	errs := []error{err}
	var ends map[tp]bounds
	if owner {
		ends, err = mi.bounds(ctx, active)
		errs = append(errs, err)
	}
	held, skipped := map[heldOffset]bool{}, 0
	for _, g := range names {
		if _, ok := offsets[g]; !ok {
			mi.keepHeld(g, held) // not known this time
			continue
		}
		var wanted []GroupOffset
		for _, o := range offsets[g] {
			mirrored, ours := all[o.Topic]
			if ours {
				held[heldOffset{g, tp{o.Topic, o.Partition}}] = true
			}
			if mirrored {
				wanted = append(wanted, o)
			}
		}
		if !owner {
			continue
		}
		left, err := mi.syncGroup(ctx, g, wanted, ends)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("group %s: %w", g, err))
		default:
			mi.inStep(g)
		}
		if left {
			skipped++
		}
	}
	if owner {
		mi.noteSkipped(skipped)
	}
	mi.held.Store(&held)
	return errors.Join(errs...)
}

// inStep notes that a group's offsets are the source's.
func (mi *mirror) inStep(group string) {
	mi.mu.Lock()
	defer mi.mu.Unlock()
	if mi.health.ByGroup == nil {
		mi.health.ByGroup = map[string]time.Time{}
	}
	mi.health.ByGroup[group] = time.Now()
}

// noteSkipped notes how many groups a sync left alone.
func (mi *mirror) noteSkipped(n int) {
	mi.mu.Lock()
	defer mi.mu.Unlock()
	mi.health.SkippedGroups = n
}

// keepAges forgets when other groups than these were in step.
func (mi *mirror) keepAges(groups []string) {
	keep := map[string]bool{}
	for _, g := range groups {
		keep[g] = true
	}
	mi.mu.Lock()
	defer mi.mu.Unlock()
	maps.DeleteFunc(mi.health.ByGroup, func(g string, _ time.Time) bool { return !keep[g] })
}

// noteGone finds the groups that the source held committed offsets of and that it has no more. They stay here (spec D8), to expire as others
// do.
func (mi *mirror) noteGone(names []string) {
	there := map[string]bool{}
	for _, g := range names {
		there[g] = true
	}
	mi.mu.Lock()
	defer mi.mu.Unlock()
	maps.DeleteFunc(mi.gone, func(g string, _ bool) bool { return there[g] })
	old := mi.held.Load()
	if old == nil {
		return
	}
	for h := range *old {
		if there[h.group] || mi.gone[h.group] {
			continue
		}
		if mi.gone == nil {
			mi.gone = map[string]bool{}
		}
		mi.gone[h.group] = true
		mi.log.Warn("a group was deleted at the source; its offsets are kept here", "group", h.group)
	}
}

// keepHeld takes over what was held of a group.
func (mi *mirror) keepHeld(group string, into map[heldOffset]bool) {
	old := mi.held.Load()
	if old == nil {
		return
	}
	for h := range *old {
		if h.group == group {
			into[h] = true
		}
	}
}

// syncGroup commits what differs of one group. A group with members here is left alone: its coordinator refuses.
func (mi *mirror) syncGroup(ctx context.Context, group string, wanted []GroupOffset, ends map[tp]bounds) (left bool, err error) {
	if len(wanted) == 0 {
		return false, nil
	}
	have, err := mi.mgr.opts.Local.FetchOffsets(ctx, group)
	if err != nil {
		return false, err
	}
	commit := kadm.Offsets{}
	for _, o := range wanted {
		c, ok := clamp(o, ends)
		if !ok {
			continue
		}
		if old, ok := have.Lookup(o.Topic, o.Partition); ok && old.At == c.Offset && old.Metadata == c.Metadata {
			continue
		}
		commit.Add(kadm.Offset{Topic: o.Topic, Partition: o.Partition, At: c.Offset, LeaderEpoch: c.Epoch, Metadata: c.Metadata})
	}
	if len(commit) == 0 {
		return false, nil
	}
	rs, err := mi.mgr.opts.Local.CommitOffsets(ctx, group, commit)
	if err != nil {
		return false, err
	}
	for _, r := range rs.Sorted() {
		if errors.Is(r.Err, kerr.UnknownMemberID) {
			mi.log.Debug("group has members here, its offsets are left alone", "group", group)
			return true, nil
		}
		if r.Err != nil {
			return false, fmt.Errorf("%s-%d: %w", r.Topic, r.Partition, r.Err)
		}
	}
	return false, nil
}

// bounds are what committed offsets of a partition that is MIRRORING are clamped to.
type bounds struct {
	start, end           int64 // log start and high watermark
	startEpoch, endEpoch int32 // epochs of the records there and before, -1 if there is none
	leaderEpoch          int32
}

// bounds asks the leaders of the topics' partitions, here and elsewhere. Partitions in another state, and those whose leader or
// coordinator can't tell now, are left out: their offsets wait for the next sync.
func (mi *mirror) bounds(ctx context.Context, topics []string) (map[tp]bounds, error) {
	out := map[tp]bounds{}
	var others []PartitionOf
	var keys []mirrorstate.Key
	names := map[string]bool{}
	for _, name := range topics {
		t := mi.mgr.topic(name)
		if t == nil {
			continue
		}
		for i, p := range t.Partitions {
			k := tp{name, int32(i)}
			switch b, ok := mi.localBounds(k); {
			case ok:
				out[k] = b
			case p.Leader >= 0 && p.Leader != mi.mgr.opts.NodeID:
				others, names[name] = append(others, PartitionOf{t, int32(i)}), true
				keys = append(keys, mirrorstate.Key{Mirror: mi.name, TopicID: t.ID, Partition: int32(i)})
			}
		}
	}
	if len(others) == 0 {
		return out, nil
	}
	states := mi.mgr.opts.States.ReadAll(ctx, mi.name, keys)
	ask := slices.Sorted(maps.Keys(names))
	starts, err := mi.mgr.opts.Local.ListStartOffsets(ctx, ask...)
	ends, err2 := mi.mgr.opts.Local.ListEndOffsets(ctx, ask...)
	for i, p := range others {
		s, ok := starts.Lookup(p.Topic.Name, p.Partition)
		e, ok2 := ends.Lookup(p.Topic.Name, p.Partition)
		if !ok || !ok2 || s.Err != nil || e.Err != nil || states[i].Err != nil || states[i].State != mirrormsg.Mirroring {
			continue
		}
		out[tp{p.Topic.Name, p.Partition}] = bounds{s.Offset, e.Offset, s.LeaderEpoch, e.LeaderEpoch, p.Topic.Partitions[p.Partition].LeaderEpoch}
	}
	return out, errors.Join(err, err2)
}

// localBounds are the bounds of a partition that is MIRRORING and led here.
func (mi *mirror) localBounds(k tp) (bounds, bool) {
	p := mi.mgr.partition(k)
	if p == nil || p.State() != mirrormsg.Mirroring || p.rep.Log() == nil {
		return bounds{}, false
	}
	log := p.rep.Log()
	b := bounds{start: log.StartOffset(), end: p.rep.HighWatermark()}
	_, b.leaderEpoch, _ = p.rep.Leader()
	b.startEpoch, b.endEpoch = log.EpochFor(b.start), log.EpochFor(max(b.end-1, b.start))
	return b, true
}

// clamp brings a source group's offset into our log: not above the high watermark, not below the log start (spec D8).
func clamp(o GroupOffset, ends map[tp]bounds) (GroupOffset, bool) {
	b, ok := ends[tp{o.Topic, o.Partition}]
	if !ok || mutant == "clamp" {
		return o, ok
	}
	if at := max(min(o.Offset, b.end), b.start); at != o.Offset {
		o.Epoch = b.endEpoch
		if at > o.Offset {
			o.Epoch = b.startEpoch
		}
		if o.Offset, o.Metadata = at, ""; o.Epoch < 0 {
			return o, at == 0 // an empty log has no epoch to say
		}
	}
	// A committed epoch above our own leader epoch would make consumers wait for it; the next bump brings it.
	return o, o.Epoch <= b.leaderEpoch
}

// Held reports whether a committed offset must not expire: the mirror exists, and the source's group held it when the source
// was asked last (spec D8). Stopped topics included: right after a failover the old commits are all that consumers have.
// Before the first sync every offset of a topic in a mirror counts as held.
func (m *Manager) Held(group, topic string, partition int32) bool {
	t := m.topic(topic)
	if t == nil || t.MirrorName == "" {
		return false
	}
	mi, err := m.mirror(t.MirrorName)
	if err != nil {
		return true
	}
	held := mi.held.Load()
	return held == nil || (*held)[heldOffset{group, tp{topic, partition}}]
}
