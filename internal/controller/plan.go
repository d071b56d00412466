package controller

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"milena/internal/ids"
	"milena/internal/meta"
)

// election says which replicas a plan may choose as leader.
type election int

const (
	// electOnline keeps a leader that may lead, and else takes one from the ISR, the ELR, or
	// the sole last known leader.
	electOnline election = iota
	// electPreferred is electOnline, but moves to the first replica if that is in the ISR.
	electPreferred
	// electUnclean is electOnline, and in the end takes any replica that is there (KIP-106).
	electUnclean
)

// plan is one change of a partition on its way to a record. Its lists are the wished ones;
// record does what follows from them (KIP-966): completes a reassignment, keeps the ELR,
// and elects a leader.
type plan struct {
	topic     *meta.Topic
	partition int32
	old       *meta.Partition

	replicas         []int32
	dirs             []ids.UUID
	isr              []int32
	adding, removing []int32
	recovery         int8
	// distrusted is a broker whose log may lack what it had: it leaves the ELR; -1: none.
	distrusted int32
	// forgotten is a broker whose replica is new and empty: it is no last known leader
	// either; -1: none.
	forgotten int32
	// aligned are replicas of which the leader has seen that they hold nothing which the partition
	// has given up: those it wants in the ISR, and itself.
	aligned []int32
	// cut, if not nil, is where the leader has cut its log to.
	cut *int64

	election election
	minISR   int
	// mayLead says whether the broker, on which the replica lies in dir, may lead.
	mayLead func(broker int32, dir ids.UUID) bool
}

// plan starts the change of a partition that changes nothing yet.
func (s *State) plan(img *meta.Image, t *meta.Topic, partition int32) *plan {
	p := t.Partitions[partition]
	c := &plan{
		topic: t, partition: partition, old: p,
		replicas: p.Replicas, dirs: p.Dirs, isr: p.ISR, adding: p.Adding, removing: p.Removing,
		recovery: p.LeaderRecoveryState, distrusted: -1, forgotten: -1,
		minISR:  s.minISR(img, t.Name),
		mayLead: func(broker int32, dir ids.UUID) bool { return mayLead(img, broker, dir) },
	}
	if s.uncleanAllowed(img, t.Name) {
		c.election = electUnclean
	}
	return c
}

// mayLead reports whether the broker is active and the directory one that is online there.
func mayLead(img *meta.Image, broker int32, dir ids.UUID) bool {
	return active(img, broker) && img.Broker(broker).HasDir(dir)
}

// dir is where the wished replica of a broker lies, unassigned if that isn't known.
func (c *plan) dir(broker int32) ids.UUID {
	if i := slices.Index(c.replicas, broker); i >= 0 && i < len(c.dirs) {
		return c.dirs[i]
	}
	return ids.UnassignedDir
}

// candidate reports whether a replica may be elected, wherever it is listed.
func (c *plan) candidate(broker int32) bool {
	return slices.Contains(c.replicas, broker) && c.mayLead(broker, c.dir(broker))
}

// record returns the record of the change, nil if nothing changes.
func (c *plan) record() *meta.PartitionChangeRecord {
	c.completeReassignment()
	leader, lossy := c.elect()
	if leader != meta.NoLeader && (lossy || !slices.Contains(c.isr, leader)) {
		c.isr = []int32{leader} // it may lack what the others have; they come back as followers
	}
	elr := c.eligible()
	lastKnown := c.old.LastKnownELR
	switch {
	case lossy:
		elr, lastKnown, c.recovery = nil, nil, meta.LeaderRecovering
	case leader != meta.NoLeader:
		lastKnown = nil
	case len(c.isr) == 0:
		lastKnown = c.lastKnown(elr)
	}
	lastKnown = without(lastKnown, c.forgotten)
	return c.difference(leader, elr, lastKnown)
}

// lastKnown is whom a partition without leader and ISR falls back on when its ELR is empty
// too: the last leader, and if there was none before, whoever was there last.
func (c *plan) lastKnown(elr []int32) []int32 {
	p := c.old
	switch {
	case p.Leader != meta.NoLeader:
		return []int32{p.Leader}
	case len(p.LastKnownELR) > 0 || len(elr) > 0:
		return p.LastKnownELR
	case len(p.ELR) > 0:
		return p.ELR
	default:
		return p.ISR
	}
}

// completeReassignment lets the replicas that are to be removed go when all that are to be
// added are in the ISR, and one that stays may lead (KIP-455).
func (c *plan) completeReassignment() {
	if len(c.adding)+len(c.removing) == 0 {
		return
	}
	for _, r := range c.adding {
		if !slices.Contains(c.isr, r) {
			return
		}
	}
	stays := func(r int32) bool { return !slices.Contains(c.removing, r) }
	isr := filter(c.isr, stays)
	if !slices.ContainsFunc(isr, c.candidate) {
		return
	}
	c.setReplicas(filter(c.replicas, stays), func(int32) ids.UUID { return ids.UnassignedDir })
	c.isr, c.adding, c.removing = isr, nil, nil
}

// setReplicas changes the replicas; place says where one that is new goes.
func (c *plan) setReplicas(replicas []int32, place func(broker int32) ids.UUID) {
	dirs := make([]ids.UUID, 0, len(replicas))
	for _, r := range replicas {
		if i := slices.Index(c.replicas, r); i >= 0 && i < len(c.dirs) {
			dirs = append(dirs, c.dirs[i])
			continue
		}
		dirs = append(dirs, place(r))
	}
	c.replicas, c.dirs = replicas, dirs
	c.isr = filter(c.isr, func(r int32) bool { return slices.Contains(replicas, r) })
}

// elect chooses the leader; lossy says that it may lack records that were acknowledged.
func (c *plan) elect() (leader int32, lossy bool) {
	inISR := func(r int32) bool { return slices.Contains(c.isr, r) && c.candidate(r) }
	if c.election == electPreferred && len(c.replicas) > 0 && inISR(c.replicas[0]) {
		return c.replicas[0], false
	}
	if inISR(c.old.Leader) {
		return c.old.Leader, false
	}
	elr := c.eligible()
	for _, list := range [][]int32{c.isr, elr} {
		for _, r := range c.replicas {
			if slices.Contains(list, r) && c.candidate(r) {
				return r, false
			}
		}
	}
	if len(c.isr) == 0 && len(elr) == 0 && len(c.old.LastKnownELR) == 1 && c.candidate(c.old.LastKnownELR[0]) {
		return c.old.LastKnownELR[0], true
	}
	if c.election == electUnclean {
		if i := slices.IndexFunc(c.replicas, c.candidate); i >= 0 {
			return c.replicas[i], true
		}
	}
	return meta.NoLeader, false
}

// eligible is the ELR that goes with the wished ISR, in assignment order: while that is
// smaller than the min ISR, the high watermark stands, so whoever leaves it still has every
// record below.
func (c *plan) eligible() []int32 {
	if len(c.isr) >= min(c.minISR, len(c.replicas)) {
		return nil
	}
	return filter(c.replicas, func(r int32) bool {
		return r != c.distrusted && !slices.Contains(c.isr, r) && (slices.Contains(c.old.ISR, r) || slices.Contains(c.old.ELR, r))
	})
}

// difference is the record of what differs from the old partition, nil if nothing does.
func (c *plan) difference(leader int32, elr, lastKnown []int32) *meta.PartitionChangeRecord {
	p := c.old
	r := meta.NewPartitionChange(c.topic.ID, c.partition)
	changed := false
	set := func(field *[]int32, from, to []int32) {
		if !slices.Equal(from, to) {
			*field, changed = append([]int32{}, to...), true
		}
	}
	set(&r.ISR, p.ISR, c.isr)
	set(&r.ELR, p.ELR, elr)
	set(&r.LastKnownELR, p.LastKnownELR, lastKnown)
	set(&r.Replicas, p.Replicas, c.replicas)
	set(&r.Adding, p.Adding, c.adding)
	set(&r.Removing, p.Removing, c.removing)
	if !slices.Equal(p.Dirs, c.dirs) {
		r.Directories, changed = append([]ids.UUID{}, c.dirs...), true
	}
	if p.LeaderRecoveryState != c.recovery {
		r.LeaderRecoveryState, changed = c.recovery, true
	}
	if un := c.unaligned(); !slices.Equal(p.Unaligned, un) {
		r.Unaligned, changed = append([]meta.Unaligned{}, un...), true
	}
	gone := func(b int32) bool { return !slices.Contains(c.replicas, b) }
	switch {
	case p.LeaderEpoch == math.MaxInt32: // no epoch is left: better no change than another leader under the same one
		return nil
	case leader != p.Leader:
		r.Leader, r.LeaderEpoch, changed = leader, p.LeaderEpoch+1, true
	case slices.ContainsFunc(p.Replicas, gone): // so that it stops fetching
		r.LeaderEpoch, changed = p.LeaderEpoch+1, true
	}
	if !changed {
		return nil
	}
	return r
}

// unaligned is who has to be cut, and to where, after the change. An election takes nobody out: who is elected says itself, as the
// leader, when it has cut its log. They stay eligible, since no record that counts lies above a cut that hasn't reached them.
func (c *plan) unaligned() []meta.Unaligned {
	if len(c.old.Unaligned) == 0 && c.cut == nil {
		return nil
	}
	offsets := map[int32]int64{}
	lower := func(replica int32, to int64) {
		if old, ok := offsets[replica]; !ok || to < old {
			offsets[replica] = to
		}
	}
	for _, u := range c.old.Unaligned {
		if u.Replica == meta.AnyReplica || slices.Contains(c.replicas, u.Replica) {
			lower(u.Replica, u.Offset)
		}
	}
	if deepest, ok := offsets[meta.AnyReplica]; ok {
		for _, r := range c.replicas {
			if !slices.Contains(c.old.Replicas, r) {
				lower(r, deepest)
			}
		}
	}
	if c.cut != nil {
		lower(meta.AnyReplica, *c.cut)
		for _, r := range c.replicas {
			lower(r, *c.cut)
		}
	}
	for _, r := range c.aligned {
		delete(offsets, r)
	}
	var out []meta.Unaligned
	for _, r := range slices.Sorted(maps.Keys(offsets)) {
		out = append(out, meta.Unaligned{Replica: r, Offset: offsets[r]})
	}
	return out
}

// event is something that concerns one broker's replicas everywhere.
type event struct {
	// leaves is a broker that leaves the ISRs and leaderships, -1 for none.
	leaves int32
	// distrusted: what it had may be lost, so it leaves the ELRs as well.
	distrusted bool
	// joins is a broker that may lead from now on, -1 for none.
	joins int32
	// chosen restricts it to some partitions; nil: all.
	chosen func(p *meta.Partition) bool
}

// spread appends the changes that an event makes to partitions, in a fixed order.
func (s *State) spread(img *meta.Image, ev event, recs []meta.Record) []meta.Record {
	for t := range img.Topics() {
		for i, p := range t.Partitions {
			if !ev.concerns(p) || ev.chosen != nil && !ev.chosen(p) {
				continue
			}
			if r := s.planEvent(img, t, int32(i), ev).record(); r != nil {
				recs = append(recs, r)
			}
		}
	}
	return recs
}

func (ev event) concerns(p *meta.Partition) bool {
	if ev.leaves >= 0 && (p.Leader == ev.leaves || slices.Contains(p.ISR, ev.leaves) || ev.distrusted && slices.Contains(p.ELR, ev.leaves)) {
		return true
	}
	return ev.joins >= 0 && p.Leader == meta.NoLeader && slices.Contains(p.Replicas, ev.joins)
}

func (s *State) planEvent(img *meta.Image, t *meta.Topic, partition int32, ev event) *plan {
	c := s.plan(img, t, partition)
	c.mayLead = func(broker int32, dir ids.UUID) bool {
		switch broker {
		case ev.leaves:
			return false
		case ev.joins:
			b := img.Broker(broker)
			return b != nil && !b.ShuttingDown && b.HasDir(dir)
		default:
			return mayLead(img, broker, dir)
		}
	}
	if ev.leaves >= 0 {
		c.isr = without(c.isr, ev.leaves)
		if ev.distrusted {
			c.distrusted = ev.leaves
		}
	}
	return c
}

// Config keys that elections and ELRs depend on.
const (
	minISRKey  = "min.insync.replicas"
	uncleanKey = "unclean.leader.election.enable"
)

// setting is a topic's config as far as the metadata says it: the topic's own entry, or the
// cluster-wide one of the brokers; "" if there is neither.
func setting(img *meta.Image, topic, key string) string {
	if v, ok := img.Config(meta.ResourceTopic, topic)[key]; ok {
		return v
	}
	return img.Config(meta.ResourceBroker, "")[key]
}

// minISR is min.insync.replicas of a topic.
func (s *State) minISR(img *meta.Image, topic string) int {
	return s.parseMinISR(setting(img, topic, minISRKey))
}

func (s *State) parseMinISR(v string) int {
	if n, err := strconv.Atoi(strings.TrimSpace(v)); err == nil && n > 0 {
		return n
	}
	return s.o.MinISR
}

// uncleanAllowed is unclean.leader.election.enable of a topic.
func (s *State) uncleanAllowed(img *meta.Image, topic string) bool {
	if v := setting(img, topic, uncleanKey); v != "" {
		return strings.EqualFold(strings.TrimSpace(v), "true")
	}
	return s.o.UncleanElection
}

func filter(list []int32, keep func(int32) bool) []int32 {
	var out []int32
	for _, x := range list {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}
