package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"milena/internal/mirrormsg"
)

// heldOffset is a committed offset that the source's group holds.
type heldOffset struct {
	group string
	tp    tp
}

// groupsLoop syncs committed group offsets at the mirror's own interval, on the mirror's owner (spec 8.15, D8).
func (mi *mirror) groupsLoop() {
	for mi.ctx.Err() == nil {
		if mi.mgr.owns(mi.name) {
			ctx, cancel := context.WithTimeout(mi.ctx, 2*mi.set().Client.RequestTimeout)
			err := mi.syncGroups(ctx)
			cancel()
			if mi.ctx.Err() != nil {
				return
			}
			mi.mu.Lock()
			if err == nil {
				mi.health.Groups, mi.health.GroupsError = time.Now(), ""
			} else {
				mi.health.GroupsError = err.Error()
			}
			mi.mu.Unlock()
			if err != nil {
				mi.log.Warn("sync of group offsets failed", "error", err)
				mi.mgr.metrics.syncErrors.WithLabelValues(mi.name, "groups").Add(1)
			}
		}
		if !mi.pause(mi.set().GroupsInterval, nil) {
			return
		}
	}
}

func (mi *mirror) syncGroups(ctx context.Context) error {
	s := mi.set()
	all := map[string]bool{} // the mirror's topics; those that are mirrored now are true
	for _, n := range mi.topics(mirrormsg.Paused, mirrormsg.Stopped) {
		all[n] = false
	}
	active := mi.topics(mirrormsg.Mirroring)
	for _, n := range active {
		all[n] = true
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
	offsets, err := mi.source.GroupOffsets(ctx, names)
	errs := []error{err}
	held := map[heldOffset]bool{}
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
		if err := mi.syncGroup(ctx, g, wanted); err != nil {
			errs = append(errs, fmt.Errorf("group %s: %w", g, err))
		}
	}
	mi.held.Store(&held)
	return errors.Join(errs...)
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
func (mi *mirror) syncGroup(ctx context.Context, group string, wanted []GroupOffset) error {
	if len(wanted) == 0 {
		return nil
	}
	have, err := mi.mgr.opts.Local.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	commit := kadm.Offsets{}
	for _, o := range wanted {
		c, ok := mi.clamp(o)
		if !ok {
			continue
		}
		if old, ok := have.Lookup(o.Topic, o.Partition); ok && old.At == c.Offset && old.Metadata == c.Metadata {
			continue
		}
		commit.Add(kadm.Offset{Topic: o.Topic, Partition: o.Partition, At: c.Offset, LeaderEpoch: c.Epoch, Metadata: c.Metadata})
	}
	if len(commit) == 0 {
		return nil
	}
	rs, err := mi.mgr.opts.Local.CommitOffsets(ctx, group, commit)
	if err != nil {
		return err
	}
	for _, r := range rs.Sorted() {
		if errors.Is(r.Err, kerr.UnknownMemberID) {
			mi.log.Debug("group has members here, its offsets are left alone", "group", group)
			return nil
		}
		if r.Err != nil {
			return fmt.Errorf("%s-%d: %w", r.Topic, r.Partition, r.Err)
		}
	}
	return nil
}

// clamp brings a source group's offset into our log: not above the high watermark, not below the log start (spec D8).
func (mi *mirror) clamp(o GroupOffset) (GroupOffset, bool) {
	rep, err := mi.mgr.opts.Replicas.Get(o.Topic, o.Partition)
	if err != nil || rep.Log() == nil {
		return o, false
	}
	p := mi.mgr.partition(tp{o.Topic, o.Partition})
	if p == nil || p.State() != mirrormsg.Mirroring {
		return o, false
	}
	log := rep.Log()
	at := max(min(o.Offset, rep.HighWatermark()), log.StartOffset())
	if at != o.Offset {
		o.Offset, o.Metadata = at, ""
		if o.Epoch = log.EpochFor(max(at-1, log.StartOffset())); o.Epoch < 0 {
			return o, at == 0 // an empty log has no epoch to say
		}
	}
	// A committed epoch above our own leader epoch would make consumers wait for it; the next bump brings it.
	if _, epoch, _ := rep.Leader(); o.Epoch > epoch {
		return o, false
	}
	return o, true
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
