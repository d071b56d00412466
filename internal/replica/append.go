package replica

import (
	"errors"
	"fmt"

	"milena/internal/api"
	"milena/internal/partlog"
)

// ErrEpochAboveLeader is in the error of AppendAsIs when a batch carries a
// leader epoch above the partition's own: nothing was appended.
var ErrEpochAboveLeader = errors.New("replica: batch epoch above the leader epoch")

// AnyEpoch is for appends that don't depend on the leader epoch.
const AnyEpoch int32 = -1

// AppendOptions say how to append.
type AppendOptions struct {
	Origin partlog.Origin
	// Acks is the produce request's: with -1 too few in-sync replicas refuse
	// the append (NOT_ENOUGH_REPLICAS).
	Acks int16
	// Epoch must be the partition's leader epoch, or AnyEpoch.
	Epoch int32
	// TxnVersion is the transaction version of the request (KIP-890).
	TxnVersion int16
}

// Append appends batches as the leader: offsets and epoch are stamped into
// batches in place. It doesn't wait for replication: see AwaitHW. Errors
// carry a Kafka code; a gate's error is returned as it is.
func (p *Partition) Append(batches []byte, o AppendOptions) (partlog.AppendInfo, error) {
	p.mu.RLock()
	s, err := p.admit(o.Epoch, o.Origin, len(batches))
	if err == nil && o.Acks == -1 {
		if minISR := p.settings.Load().MinISR; underMinISR(s, minISR) {
			err = api.Errorf(api.NotEnoughReplicas, "%s has %d in-sync replicas, min.insync.replicas is %d", p.name(), len(s.isr), minISR)
		}
	}
	if err != nil {
		p.mu.RUnlock()
		return partlog.AppendInfo{FirstOffset: -1}, err
	}
	epoch := s.epoch
	if mutant == "epoch" {
		epoch = max(p.l().LatestEpoch(), 0)
	}
	info, err := p.l().Append(batches, partlog.AppendOptions{LeaderEpoch: epoch, Origin: o.Origin, MaxEpoch: -1, TxnVersion: o.TxnVersion})
	return p.appended(s, info, err)
}

// admit says whether origin may append so many bytes now. mu is held.
func (p *Partition) admit(epoch int32, origin partlog.Origin, bytes int) (*state, error) {
	s, err := p.leading(epoch)
	if err != nil {
		return nil, err
	}
	if origin == partlog.OriginClient {
		if err := p.fenced(); err != nil {
			return nil, err
		}
	}
	if p.gate != nil {
		if err := p.gate(origin); err != nil {
			return nil, err
		}
	}
	if origin == partlog.OriginClient || origin == partlog.OriginMirror {
		if err := p.m.opts.Dirs.CheckSpace(p.l(), int64(bytes)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// fenced is the answer to clients that would change a fenced topic's log, nil if it isn't fenced.
func (p *Partition) fenced() error {
	if !p.settings.Load().Fenced {
		return nil
	}
	return api.Errorf(api.PolicyViolation, "topic %s is fenced against writes (milena.write.fence=true); milena mirrors unfence --topics %s lifts the fence", p.topic.name, p.topic.name)
}

// appended finishes an append: it moves the high watermark and wakes. mu is
// held shared and released.
func (p *Partition) appended(s *state, info partlog.AppendInfo, err error) (partlog.AppendInfo, error) {
	if err != nil || info.Duplicate {
		p.mu.RUnlock()
		return info, p.storageError(err)
	}
	if len(s.replicas) > 1 {
		p.hwMu.Lock()
		for _, f := range p.followers {
			f.outgrown(info.FirstOffset, p.m.began)
		}
		p.hwMu.Unlock()
	}
	mv := p.advance(s, int(info.Bytes))
	p.mu.RUnlock()
	if len(s.replicas) > 1 {
		p.touchAppended(int(info.Bytes))
	}
	p.announce(mv)
	return info, nil
}

// AsIsOptions say how AppendAsIs appends.
type AsIsOptions struct {
	// Epoch must be the partition's leader epoch, or AnyEpoch.
	Epoch int32
	// LogStart, if above the log start offset, becomes it (at most the high
	// watermark).
	LogStart int64
}

// AppendAsIs appends batches that carry offsets and epochs, as the leader of
// a partition that copies another cluster's; the gate is asked for
// OriginMirror. Every batch's epoch must be at most the leader epoch, else
// the error has ErrEpochAboveLeader in it and nothing is appended.
func (p *Partition) AppendAsIs(batches []byte, o AsIsOptions) (partlog.AppendInfo, error) {
	p.mu.RLock()
	s, err := p.admit(o.Epoch, partlog.OriginMirror, len(batches))
	if err != nil {
		p.mu.RUnlock()
		return partlog.AppendInfo{FirstOffset: -1}, err
	}
	if p.align.Load() != nil && !p.marked.Load() {
		p.mu.RUnlock()
		return partlog.AppendInfo{FirstOffset: -1}, api.Errorf(api.NotLeaderOrFollower, "%s has a new leader, whose followers are to be aligned first; try again", p.name())
	}
	most := s.epoch
	if mutant == "ahead" {
		most = -1
	}
	info, err := p.l().AppendAsIs(batches, partlog.AppendOptions{MaxEpoch: most, Origin: partlog.OriginMirror})
	switch {
	case errors.Is(err, partlog.ErrEpochAbove):
		p.mu.RUnlock()
		return partlog.AppendInfo{FirstOffset: -1}, fmt.Errorf("%s at leader epoch %d: %w: %w", p.name(), s.epoch, ErrEpochAboveLeader, err)
	case errors.Is(err, partlog.ErrCorrupt), errors.Is(err, partlog.ErrOffsetOrder), errors.Is(err, partlog.ErrEpochOrder):
		p.mu.RUnlock()
		return partlog.AppendInfo{FirstOffset: -1}, fmt.Errorf("%s: %w", p.name(), err)
	}
	info, err = p.appended(s, info, err)
	if err == nil {
		p.countReplicated(info)
	}
	if err == nil && o.LogStart > p.l().StartOffset() {
		err = p.AdvanceLogStart(o.LogStart)
	}
	return info, err
}

// AdvanceLogStart moves the log start up to off, at most the high watermark.
func (p *Partition) AdvanceLogStart(off int64) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if s := p.st.Load(); s.gone != nil {
		return s.gone
	}
	moved, err := p.l().AdvanceStart(min(off, p.hw.Load()))
	if moved {
		p.touchStart()
	}
	return p.storageError(err)
}

// DeleteRecords moves the log start to off (-1: the high watermark). fn is
// called once: with the lowest log start of the live replicas when they all
// have reached off, or with an error. That may be before DeleteRecords
// returns; fn must not block. cancel ends the wait with REQUEST_TIMED_OUT, if
// it isn't over. Errors carry OFFSET_OUT_OF_RANGE above the high watermark,
// POLICY_VIOLATION where the topic doesn't delete.
func (p *Partition) DeleteRecords(off int64, fn func(low int64, err error)) (cancel func()) {
	off, err := p.deleteTo(off)
	if err != nil {
		fn(-1, err)
		return func() {}
	}
	stop := p.awaitLow(off, fn)
	return func() {
		if stop() {
			fn(-1, p.errLowTimeout())
		}
	}
}

// deleteTo moves the leader's log start and returns where it is to be.
func (p *Partition) deleteTo(off int64) (int64, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if _, err := p.leading(-1); err != nil {
		return -1, err
	}
	if err := p.fenced(); err != nil {
		return -1, err
	}
	if p.gate != nil {
		if err := p.gate(partlog.OriginClient); err != nil {
			return -1, err
		}
	}
	if !p.settings.Load().Log.Delete {
		return -1, api.Errorf(api.PolicyViolation, "records of %s can't be deleted: cleanup.policy doesn't contain delete", p.topic.name)
	}
	hw := p.hw.Load()
	if off == -1 {
		off = hw
	}
	if off < 0 || off > hw {
		return -1, api.Errorf(api.OffsetOutOfRange, "offset %d of %s is above the high watermark %d", off, p.name(), hw)
	}
	if _, err := p.l().AdvanceStart(off); err != nil {
		return -1, p.storageError(err)
	}
	p.touchStart()
	return off, nil
}

// TruncateTo cuts everything at or above off; the high watermark becomes at
// most off. Produces that wait for what is cut fail.
func (p *Partition) TruncateTo(off int64) error {
	return p.truncate(nil, func() (int64, error) { _, err := p.l().TruncateTo(off); return off, err })
}

// TruncateFullyAndStartAt empties the log, which then starts at off.
func (p *Partition) TruncateFullyAndStartAt(off int64) error {
	return p.truncate(nil, func() (int64, error) { return off, p.l().TruncateFullyAndStartAt(off) })
}

// truncate runs cut, which returns where it cut, unless check refuses.
func (p *Partition) truncate(check func() error, cut func() (int64, error)) error {
	p.mu.Lock()
	s := p.st.Load()
	err := s.gone
	if err == nil && check != nil {
		err = check()
	}
	if err != nil {
		p.mu.Unlock()
		return err
	}
	off, err := cut()
	if err != nil {
		p.mu.Unlock()
		return p.storageError(err)
	}
	if mv := p.moving.Load(); mv != nil {
		mv.restart.Store(true)
	}
	end := p.l().EndOffset()
	p.markFollowers(s)
	if s.epochStart > end { // what the leadership began with is gone: nothing above end is to be waited for
		next := *s
		next.epochStart = end
		p.st.Store(&next)
	}
	p.hwMu.Lock()
	if old := p.hw.Load(); old > end || old < p.l().StartOffset() {
		hw := max(min(old, end), p.l().StartOffset())
		p.hw.Store(hw)
		p.l().UpdateHighWatermark(hw)
	}
	p.unseen = 0
	p.hwMu.Unlock()
	woken := p.takeWaiters(func(w *waiter) bool { return w.offset > end })
	p.mu.Unlock()
	fail(woken, api.Errorf(api.NotLeaderOrFollower, "%s was truncated to %d; send the records again", p.name(), off))
	p.AlignmentChanged()
	return nil
}
