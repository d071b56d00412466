package replica

import (
	"errors"
	"fmt"

	"milena/internal/partlog"
	"milena/internal/record"
)

// ErrNotFollowing says that the partition doesn't follow that leader at that
// epoch any more: what was fetched from it is of no use.
var ErrNotFollowing = errors.New("replica: not following that leader any more")

// Following returns the leader that this replica copies and the leader epoch;
// ok is false while it copies nobody.
func (p *Partition) Following() (leader, epoch int32, ok bool) {
	s := p.st.Load()
	return s.leader, s.epoch, s.gone == nil && s.leader >= 0 && s.leader != p.m.opts.NodeID
}

// following returns the state if this replica follows leader at epoch.
func (p *Partition) following(leader, epoch int32) (*state, error) {
	s := p.st.Load()
	switch {
	case s.gone != nil:
		return nil, s.gone
	case s.leader != leader || s.epoch != epoch || leader == p.m.opts.NodeID:
		return nil, fmt.Errorf("%w: %s, leader %d at epoch %d", ErrNotFollowing, p.name(), leader, epoch)
	}
	return s, nil
}

// Position is what a follower tells its leader with a fetch.
type Position struct {
	Offset        int64 // log end: what to fetch
	LastEpoch     int32 // of the last batch, -1: there never was one
	LogStart      int64
	HighWatermark int64
}

// Position is where the replica stands. Its offset vouches for everything
// below: where only durable records count they are on disk by then.
func (p *Partition) Position() (Position, error) {
	end := p.l().EndOffset()
	if p.settings.Load().durable() && p.l().RecoveryPoint() < end {
		if err := p.l().Flush(end); err != nil {
			return Position{}, p.storageError(err)
		}
	}
	return Position{Offset: end, LastEpoch: p.l().LatestEpoch(), LogStart: p.l().StartOffset(), HighWatermark: p.hw.Load()}, nil
}

// Undurable reports whether Position has to sync first.
func (p *Partition) Undurable() bool {
	return !p.lost() && p.settings.Load().durable() && p.l().RecoveryPoint() < p.l().EndOffset()
}

// Fetched is what a follower got from its leader.
type Fetched struct {
	Leader, Epoch int32  // the leader that was asked, and the leader epoch it was asked with
	Batches       []byte // whole batches, the first of them holding the log end; may be empty
	HighWatermark int64
	LogStart      int64
}

// AppendFetched appends what a follower got, as it is, and takes over the
// leader's high watermark and log start as far as the log goes. The error is
// ErrNotFollowing after a change of leader; ErrCorrupt, ErrOffsetOrder and
// ErrEpochOrder of partlog and ErrEpochAboveLeader say that the batches don't
// belong here; others carry a Kafka code.
func (p *Partition) AppendFetched(f Fetched) (partlog.AppendInfo, error) {
	p.mu.RLock()
	info := partlog.AppendInfo{FirstOffset: -1, LastOffset: -1}
	if _, err := p.following(f.Leader, f.Epoch); err != nil {
		p.mu.RUnlock()
		return info, err
	}
	if len(f.Batches) > 0 {
		var err error
		info, err = p.l().AppendAsIs(f.Batches, partlog.AppendOptions{MaxEpoch: f.Epoch, Origin: partlog.OriginReplication})
		if err != nil {
			p.mu.RUnlock()
			return info, p.appendError(err)
		}
		p.countReplicated(info)
	}
	p.hear(f.Leader, f.HighWatermark)
	hw, grown, held := p.follow(f.HighWatermark, int(info.Bytes))
	moved, err := false, error(nil)
	if f.LogStart > p.l().StartOffset() {
		moved, err = p.l().AdvanceStart(min(f.LogStart, p.hw.Load()))
	}
	p.mu.RUnlock()
	if hw >= 0 {
		p.touchCommitted(grown, held, hw)
	}
	if moved {
		p.touchStart()
	}
	return info, p.storageError(err)
}

// appendError is the error of an append of batches as they are.
func (p *Partition) appendError(err error) error {
	switch {
	case errors.Is(err, partlog.ErrEpochAbove):
		return fmt.Errorf("%s: %w: %w", p.name(), ErrEpochAboveLeader, err)
	case errors.Is(err, partlog.ErrCorrupt), errors.Is(err, partlog.ErrOffsetOrder), errors.Is(err, partlog.ErrEpochOrder):
		return fmt.Errorf("%s: %w", p.name(), err)
	}
	return p.storageError(err)
}

// follow raises the high watermark to the leader's, at most to the log end. hw
// is -1 if it didn't move. mu is held, shared or alone.
func (p *Partition) follow(leaderHW int64, appended int) (hw int64, grown int, held bool) {
	p.hwMu.Lock()
	defer p.hwMu.Unlock()
	p.unseen += appended
	old := p.hw.Load()
	hw = min(leaderHW, p.l().EndOffset())
	if hw <= old {
		return -1, 0, false
	}
	grown, held = p.unseen, p.l().LastStableOffset(old) < old
	p.unseen = 0
	p.hw.Store(hw)
	p.l().UpdateHighWatermark(hw)
	return hw, grown, held
}

// divergingPoint is where a follower's log has to be cut when the leader says
// that its own log has epoch, or the largest below the one it was asked about,
// up to leaderEnd; ownEpoch and ownEnd are the same of the follower's log, end
// is its end. If the follower doesn't have that epoch it is cut to where the
// next smaller ends and asks again from there.
func divergingPoint(epoch int32, leaderEnd int64, ownEpoch int32, ownEnd, end int64) int64 {
	if ownEnd < 0 || ownEpoch < 0 {
		return min(leaderEnd, end)
	}
	if ownEpoch != epoch {
		return min(ownEnd, end)
	}
	return min(leaderEnd, ownEnd, end)
}

// TruncateDiverging cuts the log to where it may still agree with the leader's,
// which answered a fetch with a diverging epoch and where that ends (KIP-595).
// It returns the new log end.
func (p *Partition) TruncateDiverging(leader, leaderEpoch, epoch int32, end int64) (int64, error) {
	return p.cutFollower(leader, leaderEpoch, func() (int64, error) {
		ownEpoch, ownEnd := p.l().EpochEnd(epoch)
		to := divergingPoint(epoch, end, ownEpoch, ownEnd, p.l().EndOffset())
		_, err := p.l().TruncateTo(to)
		return to, err
	})
}

// TruncateToLeader cuts the log to the leader's end, which lies below: the
// leader was elected uncleanly and never had what goes.
func (p *Partition) TruncateToLeader(leader, leaderEpoch int32, end int64) error {
	_, err := p.cutFollower(leader, leaderEpoch, func() (int64, error) {
		_, err := p.l().TruncateTo(end)
		return end, err
	})
	return err
}

// RestartAt empties the log and lets it begin at off: the leader's log begins
// there, above our end.
func (p *Partition) RestartAt(leader, leaderEpoch int32, off int64) error {
	_, err := p.cutFollower(leader, leaderEpoch, func() (int64, error) {
		return off, p.l().TruncateFullyAndStartAt(off)
	})
	return err
}

func (p *Partition) cutFollower(leader, epoch int32, cut func() (int64, error)) (to int64, err error) {
	before, hw := p.l().EndOffset(), p.hw.Load()
	err = p.truncate(func() error { _, err := p.following(leader, epoch); return err }, func() (int64, error) {
		if to, err = cut(); err != nil {
			return to, err
		}
		to, err = p.wholeBatches(to)
		return to, err
	})
	switch {
	case err != nil:
		return -1, err
	case to < hw:
		p.m.log.Warn("replica cut below its high watermark: the leader doesn't have what was committed here", "topic", p.topic.name,
			"partition", p.index, "leader", leader, "epoch", epoch, "from", before, "to", to, "high_watermark", hw)
	case to < before:
		p.m.log.Info("replica truncated to what the leader has", "topic", p.topic.name, "partition", p.index, "leader", leader, "epoch", epoch, "from", before, "to", to)
	}
	return to, nil
}

// wholeBatches cuts the rest of a batch that was cut inside: all of it goes, to be fetched again from its beginning. It returns
// where the log ends. mu is held alone.
func (p *Partition) wholeBatches(to int64) (int64, error) {
	tail := max(p.l().Tail(), p.l().StartOffset())
	if tail >= p.l().EndOffset() {
		return to, nil
	}
	_, err := p.l().TruncateTo(tail)
	return tail, err
}

// cutWhole cuts the log to an offset, between two batches. mu is held alone.
func (p *Partition) cutWhole(to int64) (int64, error) {
	if _, err := p.l().TruncateTo(to); err != nil {
		return to, err
	}
	return p.wholeBatches(to)
}

// Align makes room for a batch of the leader's that begins below the log end
// and ends above it, and reports whether it fits now. That comes about where a
// truncation, or the log start, lies inside a batch. It also does where the
// leader has deleted the end of an epoch: then the epochs can't tell that our
// last records aren't the leader's, but the overlap does.
func (p *Partition) Align(leader, epoch int32, first record.Batch) (bool, error) {
	base, end := first.BaseOffset(), p.l().EndOffset()
	if base < 0 || base >= end || first.LastOffset() < end {
		return false, nil
	}
	if base <= p.l().StartOffset() {
		return true, p.RestartAt(leader, epoch, base)
	}
	to, err := p.cutFollower(leader, epoch, func() (int64, error) {
		_, err := p.l().TruncateTo(base)
		return base, err
	})
	return err == nil && to == base, err
}
