package quorum

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"milena/internal/record"
)

// maxMessageBytes bounds the entries in one message to another voter.
const maxMessageBytes = 1 << 20

// maxStrangers bounds the members that a voter learns from messages.
const maxStrangers = 16

// driver drives raft. Owned by the run goroutine.
type driver struct {
	n     *Node
	raft  *raft.RawNode
	log   *raftLog
	store *store

	leader    uint64 // 0: none known
	role      raft.StateType
	term      uint64
	hardDirty bool // the commit index on disk is older than raft's

	members map[uint64]Voter // by raft id: all that are sent messages
	heard   map[uint64]Voter // those that say of themselves that they are elsewhere now
	confs   []confAt         // since the newest snapshot, in order

	change  *change // of the voters, under way
	idle    int     // ticks that learners have been there without a change
	follows map[uint64]*follower

	reads    map[uint64][]chan error // by ReadIndex context
	readSeq  uint64
	waiting  []indexRead // confirmed, wait until applied
	snapper  snapper
	sentSnap map[uint64]int // ticks since a snapshot was offered to that voter
}

// confAt is the membership after the entry at index.
type confAt struct {
	index   uint64
	conf    *pb.ConfState
	members []Voter // voters and learners
}

// voters are the members with a vote.
func (c confAt) voters() []Voter {
	var vs []Voter
	for _, m := range c.members {
		if slices.Contains(c.conf.GetVoters(), raftID(m.Member)) {
			vs = append(vs, m)
		}
	}
	return vs
}

// learner returns the learner with that id.
func (c confAt) learner(id uint64) (Voter, bool) {
	for _, m := range c.members {
		if raftID(m.Member) == id && slices.Contains(c.conf.GetLearners(), id) {
			return m, true
		}
	}
	return Voter{}, false
}

type indexRead struct {
	index uint64
	done  []chan error
}

func newDriver(n *Node, log *raftLog) (*driver, error) {
	d := &driver{
		n: n, log: log, store: n.store,
		members:  map[uint64]Voter{},
		heard:    map[uint64]Voter{},
		follows:  map[uint64]*follower{},
		reads:    map[uint64][]chan error{},
		sentSnap: map[uint64]int{},
	}
	d.snapper.last = time.Now()
	d.setConf()
	rn, err := raft.NewRawNode(&raft.Config{
		ID:                        n.id,
		ElectionTick:              n.o.ElectionTicks,
		HeartbeatTick:             1,
		Storage:                   n.store,
		Applied:                   n.store.applied,
		MaxSizePerMsg:             maxMessageBytes,
		MaxCommittedSizePerReady:  16 << 20,
		MaxInflightMsgs:           64,
		CheckQuorum:               true,
		PreVote:                   true,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{n.o.Logger},
	})
	if err != nil {
		return nil, err
	}
	d.raft = rn
	d.term = n.store.hard.GetTerm()
	d.publish()
	return d, nil
}

// setConf begins the membership with the newest snapshot's.
func (d *driver) setConf() {
	clear(d.members)
	d.confs = nil
	snap := d.store.snap
	if snap == nil {
		return
	}
	c := confAt{index: snap.at.index, conf: snap.conf, members: d.configured(snap.members)}
	for _, m := range c.members {
		d.members[raftID(m.Member)] = m
	}
	d.confs = []confAt{c}
}

// configured gives the voters of a static quorum the endpoints of the configuration.
func (d *driver) configured(vs []Voter) []Voter {
	if !d.n.static {
		return vs
	}
	vs = slices.Clone(vs)
	for i := range vs {
		for _, v := range d.n.o.Voters {
			if v.Member == vs[i].Member {
				vs[i] = v
			}
		}
	}
	return vs
}

// conf is the newest membership.
func (d *driver) conf() (c confAt, ok bool) {
	if len(d.confs) == 0 {
		return confAt{conf: &pb.ConfState{}}, false
	}
	return d.confs[len(d.confs)-1], true
}

// alone says whether this node is the only voter.
func (d *driver) alone() bool {
	conf, ok := d.conf()
	if !ok {
		return false
	}
	c := conf.conf
	return len(c.GetVotersOutgoing()) == 0 && len(c.GetVoters()) == 1 && c.GetVoters()[0] == d.n.id
}

// turn handles what came in. Proposals are looked at when nothing is unsaved, so
// the store's end is the log's.
func (d *driver) turn(in input, ticked bool) error {
	if ticked {
		d.raft.Tick()
		if err := d.tick(); err != nil {
			return err
		}
	}
	for _, m := range in.messages {
		d.step(m)
	}
	if err := d.ready(); err != nil {
		return err
	}
	d.propose(in.proposals)
	d.askReadIndex(in.reads)
	if err := d.ready(); err != nil {
		return err
	}
	for _, f := range in.calls {
		if err := f(); err != nil {
			return err
		}
	}
	if err := d.ready(); err != nil {
		return err
	}
	if d.advance() {
		return d.ready()
	}
	return nil
}

func (d *driver) step(r received) {
	m := r.m
	known, ok := d.members[m.GetFrom()]
	switch {
	case !ok && len(d.confs) == 0 && len(d.members) < maxStrangers:
		d.members[m.GetFrom()] = r.from // a waiting voter knows nobody, but must answer
	case !ok:
		// The voter set that is known here may be behind, and a new voter need this one's vote to lead.
		if len(d.heard) >= maxStrangers {
			clear(d.heard)
		}
		d.heard[m.GetFrom()] = r.from
	case ok && len(r.from.Endpoints) > 0 && !slices.Equal(r.from.Endpoints, known.Endpoints):
		d.heard[m.GetFrom()] = r.from // it has moved, and the voter set doesn't say so yet
	case ok:
		delete(d.heard, m.GetFrom())
	}
	if m.GetType() == pb.MsgSnap {
		d.fetchSnapshot(r)
		return
	}
	// Only ErrStepPeerNotFound can come: a reply from a removed voter.
	if err := d.raft.Step(m); err != nil {
		d.n.o.Logger.Debug("raft message ignored", "type", m.GetType(), "error", err)
	}
	if t := m.GetType(); d.role == raft.StateLeader && (t == pb.MsgAppResp || t == pb.MsgHeartbeatResp) {
		d.heardFrom(m.GetFrom())
	}
}

// propose appends each proposal of the current epoch.
func (d *driver) propose(ps []*proposal) {
	if len(ps) == 0 {
		return
	}
	st := d.raft.BasicStatus()
	_, _, next, _ := d.store.state()
	for _, p := range ps {
		if st.RaftState != raft.StateLeader || st.GetTerm() != uint64(p.epoch) {
			p.done <- proposed{err: fmt.Errorf("%w of epoch %d", ErrNotLeader, p.epoch)}
			continue
		}
		if p.base >= 0 && p.base != next {
			p.done <- proposed{err: fmt.Errorf("quorum: the log ends at offset %d, not %d: it has another writer", next, p.base)}
			continue
		}
		end := next
		entries := make([]*pb.Entry, len(p.batches))
		for i, b := range p.batches {
			b.SetBaseOffset(end)
			b.SetLeaderEpoch(p.epoch)
			end = b.NextOffset()
			entries[i] = &pb.Entry{Data: b}
		}
		err := d.raft.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(d.n.id), Entries: entries})
		if err != nil {
			p.done <- proposed{err: fmt.Errorf("%w of epoch %d: %w", ErrNotLeader, p.epoch, err)}
			continue
		}
		next = end
		p.done <- proposed{last: end - 1}
	}
}

// ready saves, sends and applies until raft has nothing more.
func (d *driver) ready() error {
	changed := false
	for d.raft.HasReady() {
		rd := d.raft.Ready()
		if err := d.save(&rd); err != nil {
			return err
		}
		d.send(rd.Messages)
		if err := d.apply(rd.CommittedEntries); err != nil {
			return err
		}
		d.raft.Advance(rd)
		d.confirmReads(rd.ReadStates)
		changed = true
	}
	if changed {
		d.publish()
		d.releaseReads()
		return d.maybeSnapshot()
	}
	return nil
}

// save makes durable what raft will vouch for.
func (d *driver) save(rd *raft.Ready) error {
	if rd.SoftState != nil {
		if d.role != raft.StateLeader {
			clear(d.follows)
		}
		d.leader, d.role = rd.SoftState.Lead, rd.SoftState.RaftState
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		if err := d.installSnapshot(rd.Snapshot); err != nil {
			return err
		}
	}
	hard := (*pb.HardState)(nil)
	if !raft.IsEmptyHardState(rd.HardState) {
		if d.term != rd.GetTerm() {
			d.term = rd.GetTerm()
		}
		hard = rd.HardState
		d.store.hard = hard
	}
	if len(rd.Entries) == 0 && !rd.MustSync {
		// The commit index alone can wait: raft finds it again.
		d.hardDirty = d.hardDirty || hard != nil
		return nil
	}
	if hard == nil && d.hardDirty {
		hard = d.store.hard
	}
	d.hardDirty = false
	begin := time.Now()
	if err := d.log.append(rd.Entries, hard, rd.MustSync); err != nil {
		return err
	}
	d.n.observeSync(time.Since(begin), len(rd.Entries))
	return d.store.append(rd.Entries)
}

// saveHardState writes the commit index if it is newer than the disk's.
func (d *driver) saveHardState() error {
	if !d.hardDirty {
		return nil
	}
	d.hardDirty = false
	return d.log.append(nil, d.store.hard, false)
}

func (d *driver) send(ms []*pb.Message) {
	for _, m := range ms {
		to, ok := d.members[m.GetTo()]
		if elsewhere, heard := d.heard[m.GetTo()]; heard {
			to, ok = elsewhere, true
		}
		if !ok || d.n.o.Transport == nil {
			continue
		}
		b, err := proto.Marshal(m)
		if err != nil {
			d.n.o.Logger.Error("raft message not sent", "type", m.GetType(), "error", err)
			continue
		}
		if m.GetType() == pb.MsgSnap {
			d.sentSnap[m.GetTo()] = 0
		}
		d.n.o.Transport.Send(to, b)
	}
}

func (d *driver) apply(entries []*pb.Entry) error {
	for _, e := range entries {
		switch e.GetType() {
		case pb.EntryConfChange, pb.EntryConfChangeV2:
			if err := d.applyConf(e); err != nil {
				return err
			}
		case pb.EntryNormal:
		}
	}
	if n := len(entries); n > 0 {
		d.snapper.bytes += d.store.setApplied(entries[n-1].GetIndex())
	}
	if d.snapper.newcomers {
		return d.refreshSnapshot()
	}
	return nil
}

// applyConf applies a membership change, whose context holds the members that it
// adds.
func (d *driver) applyConf(e *pb.Entry) error {
	var cc pb.ConfChangeI
	var added []byte
	if e.GetType() == pb.EntryConfChange {
		c := &pb.ConfChange{}
		if err := proto.Unmarshal(e.GetData(), c); err != nil {
			return fmt.Errorf("%w: membership change at raft index %d: %w", ErrCorrupt, e.GetIndex(), err)
		}
		cc, added = c, c.GetContext()
	} else {
		c := &pb.ConfChangeV2{}
		if err := proto.Unmarshal(e.GetData(), c); err != nil {
			return fmt.Errorf("%w: membership change at raft index %d: %w", ErrCorrupt, e.GetIndex(), err)
		}
		cc, added = c, c.GetContext()
	}
	vs, err := parseChange(added)
	if err != nil {
		return fmt.Errorf("membership change at raft index %d: %w", e.GetIndex(), err)
	}
	for _, v := range vs {
		d.members[raftID(v.Member)] = v
		delete(d.heard, raftID(v.Member))
	}
	conf := d.raft.ApplyConfChange(cc)
	in := slices.Concat(conf.GetVoters(), conf.GetVotersOutgoing(), conf.GetLearners(), conf.GetLearnersNext())
	c := confAt{index: e.GetIndex(), conf: conf}
	for id, m := range d.members {
		if !slices.Contains(in, id) {
			delete(d.members, id)
			continue
		}
		c.members = append(c.members, m)
	}
	sortVoters(c.members)
	d.confs = append(d.confs, c)
	d.snapper.newcomers = d.snapper.newcomers || !containsAll(d.store.snap.members, c.members)
	d.store.setStale(d.snapper.newcomers)
	return nil
}

// containsAll compares the members only.
func containsAll(set, want []Voter) bool {
	for _, v := range want {
		if !slices.ContainsFunc(set, func(o Voter) bool { return o.Member == v.Member }) {
			return false
		}
	}
	return true
}

// publish makes the state visible if it has changed.
func (d *driver) publish() {
	start, hw, end, snap := d.store.state()
	s := Status{
		Epoch:         int32(d.term),
		Leader:        Member{ID: -1},
		IsLeader:      d.role == raft.StateLeader,
		HighWatermark: hw,
		EndOffset:     end,
		LogStart:      start,
	}
	var leader Voter
	if v, ok := d.members[d.leader]; ok && d.leader != raft.None {
		if elsewhere, ok := d.heard[d.leader]; ok {
			v = elsewhere
		}
		leader, s.Leader, s.HasLeader = v, v.Member, true
	}
	if snap != nil && snap.id.EndOffset > 0 {
		s.Snapshot, s.HasSnapshot = snap.id, true
	}
	c, _ := d.conf()
	voters := c.voters()
	if snap != nil {
		s.Generation = snap.generation
	}
	s.IsVoter = slices.Contains(c.conf.GetVoters(), d.n.id)
	old := d.n.replace(&published{Status: s, voters: voters, leader: leader, next: make(chan struct{})})
	if old == nil {
		return
	}
	if old.Epoch != s.Epoch || old.Leader != s.Leader {
		d.n.o.Logger.Info("metadata quorum leader", "leader", s.Leader.ID, "epoch", s.Epoch, "self", s.IsLeader, "offset", s.EndOffset)
	}
	if !s.IsLeader || old.Epoch != s.Epoch {
		d.failReads(ErrNotLeader) // there are some only if it was the leader
	}
}

// askReadIndex asks raft to confirm the leadership once for all the reads.
func (d *driver) askReadIndex(reads []chan error) {
	if len(reads) == 0 {
		return
	}
	if d.raft.BasicStatus().RaftState != raft.StateLeader {
		for _, r := range reads {
			r <- ErrNotLeader
		}
		return
	}
	d.readSeq++
	d.reads[d.readSeq] = reads
	d.raft.ReadIndex(binary.BigEndian.AppendUint64(nil, d.readSeq))
}

func (d *driver) confirmReads(states []raft.ReadState) {
	for _, s := range states {
		if len(s.RequestCtx) != 8 {
			continue
		}
		id := binary.BigEndian.Uint64(s.RequestCtx)
		if done, ok := d.reads[id]; ok {
			delete(d.reads, id)
			d.waiting = append(d.waiting, indexRead{index: s.Index, done: done})
		}
	}
}

// releaseReads answers the reads whose index is applied.
func (d *driver) releaseReads() {
	left := d.waiting[:0]
	for _, r := range d.waiting {
		if r.index > d.store.applied {
			left = append(left, r)
			continue
		}
		for _, done := range r.done {
			done <- nil
		}
	}
	d.waiting = left
}

func (d *driver) failReads(err error) {
	for _, r := range d.waiting {
		for _, done := range r.done {
			done <- err
		}
	}
	d.waiting = nil
	for _, reads := range d.reads {
		for _, done := range reads {
			done <- err
		}
	}
	clear(d.reads)
}

// tick does what is due from time to time.
func (d *driver) tick() error {
	if err := d.saveHardState(); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(d.sentSnap)) {
		// A voter that took the snapshot says so itself; one that didn't within
		// this time is probed again.
		if d.sentSnap[id]++; d.sentSnap[id] > 5*d.n.o.ElectionTicks {
			delete(d.sentSnap, id)
			d.raft.ReportSnapshot(id, raft.SnapshotFailure)
		}
	}
	d.dropIdleLearners()
	return d.maybeSnapshot()
}

// eachRecord calls fn for each record of a batch.
func eachRecord(b record.Batch, fn func(record.Record) error) error {
	for r, err := range b.Records(0) {
		if err != nil {
			return err
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}
