package partlog

import (
	"errors"
	"io"

	"milena/internal/record"
)

// A snapshot holds the last batch of each producer, but a client may send again any of the last five: without the others a log that was
// opened or truncated would take what it has for a gap. They are read from the log when such a batch comes, so that opening stays free of
// reads.
const (
	recallStep  = 1 << 20  // bytes of log that are read first; then twice as many, and so on
	recallBytes = 64 << 20 // and altogether, between two snapshots that are loaded
)

// behind says whether b comes before the batches that are remembered, and could be remembered too.
func (p *producer) behind(b record.Batch) bool {
	if p.n == 0 || p.n == keptBatches || b.ProducerEpoch() != p.epoch {
		return false
	}
	ahead := (int64(p.batches[0].firstSeq()) - int64(b.BaseSequence())) & (1<<31 - 1) // sequences go on at 0
	return ahead > 0 && ahead < 1<<30
}

// recall remembers the batches of older that come right before those of p.
func (p *producer) recall(older *producer) {
	for i := int(older.n) - 1; i >= 0 && p.n < keptBatches; i-- {
		m, next := older.batches[i], p.batches[0]
		if record.AddSequence(m.lastSeq, 1) != next.firstSeq() {
			return // the producer began anew in between
		}
		copy(p.batches[1:], p.batches[:p.n])
		p.batches[0] = m
		p.n++
	}
}

// recall reads the log below what the producer state was built from until it has found b, or all that may be remembered of b's producer.
// The caller holds the log's lock.
func (l *Log) recall(b record.Batch) error {
	ps, v := l.producers, l.view.Load()
	for step := int64(recallStep); ; step = min(2*step, recallBytes) {
		ps.mu.Lock()
		below, left := ps.unseen, ps.recallLeft
		p := ps.byID[b.ProducerID()]
		more := below >= 0 && p != nil && p.behind(b)
		ps.mu.Unlock()
		if !more {
			return nil
		}
		if err := l.recallBelow(v, below, min(step, left)); err != nil {
			return err
		}
	}
}

// recallBelow takes in the batches of about the last n bytes below an offset, all in one segment.
func (l *Log) recallBelow(v *view, below, n int64) error {
	ps := l.producers
	r := recalled{ps: ps, from: -1, byID: map[int64]*producer{}}
	i := v.find(below - 1)
	if i >= 0 && n > 0 {
		if err := r.read(v.segs[i], v.bytes(i), below, n); errors.Is(err, ErrCorrupt) || errors.Is(err, io.ErrUnexpectedEOF) {
			l.log.Error("segment or its index is damaged; older batches of its producers are not known again", "file", v.segs[i].log.path(), "error", err)
			r.from, r.byID = -1, nil
		} else if err != nil {
			return l.failOpen("read", err)
		}
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for id, older := range r.byID {
		if p := ps.byID[id]; p != nil && p.epoch == older.epoch {
			p.recall(older)
		}
	}
	ps.unseen = r.from
	ps.recallLeft -= r.bytes
	return nil
}

// recalled is what a run of the log says of producers that have forgotten batches.
type recalled struct {
	ps    *producers
	byID  map[int64]*producer
	from  int64 // where the run begins, -1: nothing below counts
	bytes int64
}

// read reads the last n bytes of a segment below an offset.
func (r *recalled) read(s *segment, size, below, n int64) error {
	p, ok, err := s.locate(below, size)
	if err != nil {
		return err
	}
	if ok {
		size = p.pos
	}
	start := int64(0)
	if size > n {
		e, _, err := s.index.search(func(e indexEntry) bool { return e.val > size-n })
		if err != nil {
			return err
		}
		start = e.val
	}
	r.from, r.bytes = s.base, size-start
	if start > 0 {
		r.from = -1
	}
	reset := false
	var inner error
	err = s.walkHeaders(start, size, func(h record.Batch, pos int64) bool {
		if r.from < 0 {
			r.from = h.BaseOffset()
		}
		if h.IsControl() {
			var b record.Batch
			if b, inner = s.readBatch(place{pos: pos, size: h.Len()}); inner != nil {
				return false
			}
			if c, found, err := b.Control(); err == nil && found && c.Type == record.ControlMirrorPIDReset {
				clear(r.byID)
				reset = true
			}
			return true
		}
		r.note(h)
		return true
	})
	if reset {
		r.from = -1
	}
	return errors.Join(err, inner)
}

func (r *recalled) note(h record.Batch) {
	if !h.HasProducerID() {
		return
	}
	id := h.ProducerID()
	r.ps.mu.Lock()
	p := r.ps.byID[id]
	wanted := p != nil && p.n > 0 && p.n < keptBatches && p.epoch == h.ProducerEpoch() &&
		h.LastOffset() < p.batches[0].lastOffset // the last batch itself is below the snapshot too
	r.ps.mu.Unlock()
	if !wanted {
		return
	}
	older := r.byID[id]
	if older == nil {
		older = &producer{epoch: h.ProducerEpoch()}
		r.byID[id] = older
	}
	older.add(metaOf(h))
}
