package replica

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/machine"
	"milena/internal/partlog"
	"milena/internal/record"
)

// replayBytes is how much of the log a replay reads at once.
const replayBytes = 1 << 20

// MachineLog runs a machine over a partition, for one leadership: it
// implements machine.Log. Every record of the machine is appended with
// OriginCoordinator.
type MachineLog struct {
	p           *Partition
	epoch       int32
	onCommitted func(hw int64)
	onLost      func(error)
}

var _ machine.Log = (*MachineLog)(nil)

// MachineLog returns the log of a machine on p while this broker leads p at
// epoch. committed is told the high watermark whenever it moved, lost at most
// once when the leadership at epoch ends; neither may block, and lost may be
// called before MachineLog returns. Close ends both.
func (p *Partition) MachineLog(epoch int32, committed func(hw int64), lost func(error)) *MachineLog {
	l := &MachineLog{p: p, epoch: epoch, onCommitted: committed, onLost: lost}
	p.mu.RLock()
	_, err := p.leading(epoch)
	if err == nil {
		p.wmu.Lock()
		p.listeners = append(slices.Clip(p.listeners), l)
		p.wmu.Unlock()
	}
	p.mu.RUnlock()
	if err != nil {
		lost(err)
	}
	return l
}

// Close ends the notifications.
func (l *MachineLog) Close() {
	l.p.wmu.Lock()
	defer l.p.wmu.Unlock()
	if i := slices.Index(l.p.listeners, l); i >= 0 {
		// A new slice: notifications walk the old one without the lock.
		l.p.listeners = slices.Concat(l.p.listeners[:i], l.p.listeners[i+1:])
	}
}

// takeListeners removes and returns the machines whose leadership isn't epoch.
func (p *Partition) takeListeners(epoch int32) []*MachineLog {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	var lost, kept []*MachineLog
	for _, l := range p.listeners {
		if l.epoch == epoch {
			kept = append(kept, l)
		} else {
			lost = append(lost, l)
		}
	}
	p.listeners = kept
	return lost
}

func loseAll(ls []*MachineLog, err error) {
	for _, l := range ls {
		l.onLost(err)
	}
}

// Check says whether an append would be admitted now: leadership, in-sync
// replicas, directory. It is machine.Options.Check.
func (l *MachineLog) Check() error {
	s, err := l.p.leading(l.epoch)
	if err != nil {
		return err
	}
	if minISR := l.p.settings.Load().MinISR; underMinISR(s, minISR) {
		return api.Errorf(api.NotEnoughReplicas, "%s has %d in-sync replicas, min.insync.replicas is %d", l.p.name(), len(s.isr), minISR)
	}
	return nil
}

// Append implements machine.Log: recs become one batch.
func (l *MachineLog) Append(recs []machine.Record) (lastOffset int64, err error) {
	b := record.NewBuilder(record.BuilderOptions{LeaderEpoch: l.epoch})
	now := time.Now().UnixMilli()
	for _, r := range recs {
		b.Append(record.Record{Timestamp: now, Key: r.Key, Value: r.Value})
	}
	batch, err := b.Batch()
	if err != nil {
		return -1, fmt.Errorf("batch of %d records for %s: %w", len(recs), l.p.name(), err)
	}
	info, err := l.p.Append(batch, AppendOptions{Origin: partlog.OriginCoordinator, Acks: -1, Epoch: l.epoch})
	if err != nil {
		return -1, err
	}
	return info.LastOffset, nil
}

// EndOffset implements machine.Log.
func (l *MachineLog) EndOffset() int64 { return l.p.LogEndOffset() }

// HighWatermark implements machine.Log.
func (l *MachineLog) HighWatermark() int64 { return l.p.HighWatermark() }

// Replay implements machine.Log: every record from the log start to the log
// end. Control batches are passed over.
func (l *MachineLog) Replay(fn func(offset int64, r machine.Record) error) error {
	log := l.p.l()
	if log == nil {
		return l.p.st.Load().gone
	}
	reader := record.Reader{}
	off, end := log.StartOffset(), log.EndOffset()
	for off < end {
		if _, err := l.p.leading(l.epoch); err != nil {
			return err
		}
		info, err := log.Read(off, replayBytes, end, true)
		if errors.Is(err, partlog.ErrOffsetOutOfRange) && off < log.StartOffset() {
			off = log.StartOffset() // retention went past
			continue
		}
		if err != nil {
			return l.p.storageError(err)
		}
		next, err := replaySpans(info, &reader, off, fn)
		if err != nil {
			return fmt.Errorf("replay of %s: %w", l.p.name(), err)
		}
		if next <= off {
			break // no batch left below end: compaction took the last ones
		}
		off = next
	}
	return nil
}

// replaySpans hands the records at or above from to fn and returns the offset
// behind the last whole batch; from if there is none.
func replaySpans(info partlog.ReadInfo, reader *record.Reader, from int64, fn func(offset int64, r machine.Record) error) (int64, error) {
	defer info.Release()
	next := from
	for _, span := range info.Spans {
		buf, err := span.Bytes()
		if err != nil {
			return next, err
		}
		for b, err := range record.Batches(buf) {
			if err != nil {
				return next, fmt.Errorf("batch behind offset %d: %w", next, err)
			}
			if err := b.CheckCRC(); err != nil {
				return next, fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
			}
			if !b.IsControl() {
				if err := replayBatch(b, reader, from, fn); err != nil {
					return next, err
				}
			}
			next = b.NextOffset()
		}
	}
	return next, nil
}

func replayBatch(b record.Batch, reader *record.Reader, from int64, fn func(offset int64, r machine.Record) error) error {
	if err := reader.Reset(b, 0); err != nil {
		return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	var rec record.Record
	for {
		ok, err := reader.Next(&rec)
		if err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
		}
		if !ok {
			return nil
		}
		if rec.Offset < from {
			continue
		}
		if err := fn(rec.Offset, machine.Record{Key: rec.Key, Value: rec.Value}); err != nil {
			return err
		}
	}
}
