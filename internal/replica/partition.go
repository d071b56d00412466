package replica

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/partlog"
)

// Gate decides whether an append of the given origin is admitted; its error
// is what the client gets. It is called with the partition locked and must
// neither block nor call the partition.
type Gate func(origin partlog.Origin) error

// state is what metadata says of a partition; immutable, replaced as a whole.
type state struct {
	leader   int32 // -1: none
	epoch    int32 // leader epoch
	self     bool  // this broker leads
	replicas []int32
	isr      []int32 // committed: by metadata, or by the controller's answer
	// version is the partition epoch that isr is of.
	version int32
	// epochStart is the log end when this broker began to lead at epoch.
	// While the high watermark is below it, offsets that consumers ask for
	// could go backwards and are refused.
	epochStart int64
	// unaligned are the replicas that have to be cut first; with this broker's own among them it doesn't lead.
	unaligned []meta.Unaligned
	// gone is set once the partition can't serve any more: the error of every
	// request from then on.
	gone error
}

// Partition is one local replica. Its methods may be called from any goroutine.
type Partition struct {
	m     *Manager
	topic *topic
	index int32

	hw       atomic.Int64
	st       atomic.Pointer[state]
	settings atomic.Pointer[Settings]
	damaged  atomic.Int64 // when damage was last logged, ns; 0: never
	// lp is the log; nil: its directory was offline when it should have been
	// opened. With mu held alone it is replaced by a move to another directory.
	lp atomic.Pointer[partlog.Log]
	// reopen: lp is what was there before a move that got stuck; the copy has yet to be put in place.
	reopen atomic.Bool
	// moving is the move to another directory under way, nil: none.
	moving atomic.Pointer[move]

	// mu orders appends, which hold it shared, against truncations and changes
	// of st and gate, which hold it alone.
	mu   sync.RWMutex
	gate Gate

	// hwMu guards what the high watermark is computed from. It is taken with
	// mu held, shared or alone.
	hwMu      sync.Mutex
	followers map[int32]*follower // nil unless leading others
	unseen    int                 // bytes appended since the high watermark last moved
	// proposal is the change of the ISR that the controller is asked for, nil if none is.
	proposal *proposal

	// wmu guards the waiters. It is the innermost lock here and not held while
	// a waiter is called.
	wmu     sync.Mutex
	waiters []*waiter // by offset
	watches []*FetchPart
	// listeners are told of every move of the high watermark: machines.
	listeners []*MachineLog
	// lows wait for the log starts of all replicas.
	lows lowWaiters

	// align is the partition's part in a mirror, nil: none.
	align atomic.Pointer[Alignment]
	// opened is the leader that has said, to this follower, that no cut is under way; notOpen: none.
	opened atomic.Int32
	// turn counts what followers have to be told of cuts.
	turn atomic.Int64
	// marked is set when AlignFollowers was called since this broker began to lead.
	marked atomic.Bool
	// note is what the controller has yet to note of cuts; guarded by hwMu.
	note      note
	onAligned atomic.Pointer[func()]
}

// Topic is the topic's name.
func (p *Partition) Topic() string { return p.topic.name }

// TopicID is the topic's id.
func (p *Partition) TopicID() ids.UUID { return p.topic.id }

// Index is the partition's number.
func (p *Partition) Index() int32 { return p.index }

// Leader returns the leader's node id (-1: none), the leader epoch, and
// whether this broker is that leader.
func (p *Partition) Leader() (id, epoch int32, self bool) {
	s := p.st.Load()
	return s.leader, s.epoch, s.self && s.gone == nil
}

// InSync is the in-sync replicas by metadata. It must not be changed.
func (p *Partition) InSync() []int32 { return p.st.Load().isr }

// l is the log.
func (p *Partition) l() *partlog.Log { return p.lp.Load() }

// lost reports whether there is no log yet that could be used: it could not be opened, or put in place.
func (p *Partition) lost() bool { return p.l() == nil || p.reopen.Load() }

// Log is the partition's log; nil when its directory is offline. After a move
// to another directory it is another one.
func (p *Partition) Log() *partlog.Log { return p.l() }

// Settings are the topic's current settings.
func (p *Partition) Settings() Settings { return *p.settings.Load() }

// HighWatermark is the first offset that isn't committed.
func (p *Partition) HighWatermark() int64 { return p.hw.Load() }

// LogEndOffset is the offset the next record gets.
func (p *Partition) LogEndOffset() int64 {
	if p.l() == nil {
		return 0
	}
	return p.l().EndOffset()
}

// LogStartOffset is the first offset that may be read.
func (p *Partition) LogStartOffset() int64 {
	if p.l() == nil {
		return 0
	}
	return p.l().StartOffset()
}

// LastStableOffset is the first offset of an open transaction below the high
// watermark, or the high watermark.
func (p *Partition) LastStableOffset() int64 {
	hw := p.hw.Load()
	if p.l() == nil {
		return hw
	}
	return p.l().LastStableOffset(hw)
}

// SetGate replaces the append gate; nil admits everything. When it returns,
// no append that g refuses is under way.
func (p *Partition) SetGate(g Gate) {
	p.mu.Lock()
	p.gate = g
	p.mu.Unlock()
}

// errNotLeader is the answer of a replica that doesn't lead.
func (p *Partition) errNotLeader() error {
	return api.Errorf(api.NotLeaderOrFollower, "this broker doesn't lead %s-%d; refresh the metadata", p.topic.name, p.index)
}

// leading returns the state if this broker leads at epoch (-1: any).
func (p *Partition) leading(epoch int32) (*state, error) {
	s := p.st.Load()
	if s.gone != nil {
		return nil, s.gone
	}
	switch {
	case epoch >= 0 && epoch < s.epoch:
		return nil, api.Errorf(api.FencedLeaderEpoch, "leader epoch %d of %s-%d is older than %d", epoch, p.topic.name, p.index, s.epoch)
	case epoch >= 0 && epoch > s.epoch:
		return nil, api.Errorf(api.UnknownLeaderEpoch, "leader epoch %d of %s-%d is newer than %d, which this broker knows", epoch, p.topic.name, p.index, s.epoch)
	case !s.self:
		return nil, p.errNotLeader()
	}
	return s, nil
}

// CheckEpoch compares a request's current leader epoch (-1: not given) with
// the partition's: FENCED_LEADER_EPOCH below, UNKNOWN_LEADER_EPOCH above,
// NOT_LEADER_OR_FOLLOWER if this broker doesn't lead.
func (p *Partition) CheckEpoch(current int32) error {
	_, err := p.leading(current)
	return err
}

// apply brings the partition in line with the metadata and returns the event
// for subscribers, if its role changed. With again set the role is looked at
// anew although the metadata is the same.
func (p *Partition) apply(mp *meta.Partition, again bool) (e Event, changed bool) {
	now := time.Now()
	p.mu.Lock()
	old := p.st.Load()
	if old.gone != nil || mp.PartitionEpoch < old.version || !again && mp.PartitionEpoch == old.version && mp.LeaderEpoch == old.epoch {
		p.mu.Unlock() // the controller's answer to a change of the ISR came first
		return Event{}, false
	}
	next := &state{
		leader: mp.Leader, epoch: mp.LeaderEpoch, self: mp.Leader == p.m.opts.NodeID && !p.m.suspended,
		replicas: mp.Replicas, isr: mp.ISR, version: mp.PartitionEpoch, epochStart: old.epochStart, unaligned: mp.Unaligned,
	}
	if _, must := mp.UnalignedAt(p.m.opts.NodeID); must {
		next.self = false // not before it has cut its log and said so: see selfAligner
	}
	led := next.self && (!old.self || next.epoch != old.epoch)
	resigned := old.self && (!next.self || next.epoch != old.epoch)
	if led {
		next.epochStart = p.l().EndOffset()
		p.flushTail()
		p.elected(next.epoch)
	}
	if led && !old.self {
		p.unmark()
	}
	if next.version > old.version || next.epoch != old.epoch || !next.self {
		p.withdraw()
	}
	if next.leader != old.leader {
		p.opened.Store(notOpen)
	}
	if mutant == "truncate" && !next.self && next.epoch != old.epoch {
		_, _ = p.l().TruncateTo(p.hw.Load())
	}
	p.st.Store(next)
	p.syncFollowers(next, old, now)
	woken := p.takeFailed(next, resigned)
	lost := p.takeListeners(listenEpoch(next))
	mv := p.advance(next, 0)
	p.lookAgain(next)
	lows := p.takeLow(!next.self)
	p.mu.Unlock()
	fail(woken, p.waitError(next))
	loseAll(lost, p.errNotLeader())
	p.announce(mv)
	lows.tell(p, next)
	if led || resigned || next.leader != old.leader {
		p.touchAll()
	}
	if fn := p.onAligned.Load(); led && !old.self && fn != nil {
		(*fn)()
	}
	return Event{Partition: p, Leader: next.self, Epoch: next.epoch}, led || resigned
}

// resettle acts on changed settings: a smaller min.insync.replicas may let the
// high watermark move, a larger one ends waits.
func (p *Partition) resettle() {
	p.mu.Lock()
	s := p.st.Load()
	woken := p.takeFailed(s, false)
	mv := p.advance(s, 0)
	p.mu.Unlock()
	fail(woken, p.waitError(s))
	p.announce(mv)
}

// takeFailed takes the waiters whose wait is over with a state: all if this
// broker leads no longer, or if there are too few in-sync replicas for the high
// watermark to move. mu is held alone.
func (p *Partition) takeFailed(s *state, resigned bool) []*waiter {
	if resigned && !s.self || s.self && underMinISR(s, p.settings.Load().MinISR) {
		return p.takeWaiters(func(*waiter) bool { return true })
	}
	return nil
}

// waitError says why waiting for the high watermark is pointless in s, nil if
// it isn't.
func (p *Partition) waitError(s *state) error {
	switch {
	case s.gone != nil:
		return s.gone
	case !s.self:
		return p.errNotLeader()
	}
	return p.checkMinISR(s)
}

// flushTail makes a new leader's log durable where only durable records
// count. An error has taken the directory offline. mu is held.
func (p *Partition) flushTail() {
	if !p.settings.Load().durable() {
		return
	}
	if err := p.l().Flush(-1); err != nil {
		p.m.log.Error("flush of a new leader's log failed", "topic", p.topic.name, "partition", p.index, "error", err)
	}
}

// listenEpoch is the leadership that machines may be running in: none but
// this broker's own.
func listenEpoch(s *state) int32 {
	if s.self {
		return s.epoch
	}
	return -1
}

// retire makes the partition unusable with err: deleted, moved away, or its
// directory failed. All waiters get err. It reports whether it was usable.
func (p *Partition) retire(err error) bool {
	p.mu.Lock()
	old := p.st.Load()
	if old.gone != nil {
		p.mu.Unlock()
		return false
	}
	next := *old
	next.gone = err
	p.withdraw()
	p.st.Store(&next)
	p.syncFollowers(&next, old, time.Time{})
	woken := p.takeWaiters(func(*waiter) bool { return true })
	lost := p.takeListeners(-1)
	lows := p.takeLow(true)
	p.mu.Unlock()
	fail(woken, err)
	loseAll(lost, err)
	lows.tell(p, &next)
	p.touchAll()
	return true
}

// storageError takes the log's directory offline if err says that its disk
// failed, and turns err into what the client gets.
func (p *Partition) storageError(err error) error {
	var coded *api.Error
	if err == nil || errors.As(err, &coded) {
		return err
	}
	if errors.Is(err, partlog.ErrClosed) {
		if s := p.st.Load(); s.gone != nil {
			return s.gone
		}
		return &api.Error{Code: api.KafkaStorageError, Message: "the log of " + p.name() + " is closed", Err: err}
	}
	return &api.Error{Code: api.KafkaStorageError, Message: "I/O error on the log of " + p.name(), Err: err}
}
