package partlog

import (
	"errors"
	"fmt"
	"io"

	"milena/internal/record"
)

// Read returns the bytes of the batches from the one that holds offset, up to
// maxBytes and below upTo, in at most a few spans. The last batch may be cut.
// A first batch that is bigger than maxBytes is returned whole with minOne, and
// not at all without (then FirstTooBig is set). offset at the log end gives no
// spans. Offsets outside the log are ErrOffsetOutOfRange.
func (l *Log) Read(offset int64, maxBytes int, upTo int64, minOne bool) (ReadInfo, error) {
	for attempt := 0; ; attempt++ {
		v := l.view.Load()
		info, err := l.readView(v, offset, maxBytes, upTo, minOne)
		if err == nil {
			return info, nil
		}
		info.Release()
		// A truncation, deletion or compaction may have taken away what the
		// view shows: then there is a newer one.
		if attempt < readAttempts && l.view.Load() != v && !errors.Is(err, ErrOffsetOutOfRange) {
			continue
		}
		return ReadInfo{FirstOffset: -1}, l.readError(offset, err)
	}
}

const readAttempts = 5

func (l *Log) readView(v *view, offset int64, maxBytes int, upTo int64, minOne bool) (ReadInfo, error) {
	info := ReadInfo{FirstOffset: -1}
	if start := l.start.Load(); offset < start || offset > v.end {
		return info, fmt.Errorf("%w: %d of %s is not in [%d, %d]", ErrOffsetOutOfRange, offset, l.name, start, v.end)
	}
	upTo = min(upTo, v.end)
	left := int64(maxBytes)
	for i := v.find(offset); offset < upTo && i < len(v.segs); i++ {
		if i < 0 {
			return info, fmt.Errorf("%w: %d of %s is not there any more", ErrOffsetOutOfRange, offset, l.name)
		}
		more, err := l.readSegment(v, i, &info, offset, upTo, &left, minOne)
		if err != nil || !more {
			return info, err
		}
		offset = max(offset, v.next(i))
	}
	return info, nil
}

// readError tells apart a segment that went away (the offset is out of range
// now), damage, and a failing disk.
func (l *Log) readError(offset int64, err error) error {
	switch {
	case errors.Is(err, ErrOffsetOutOfRange):
		return err
	case offset < l.start.Load():
		return fmt.Errorf("%w: %d of %s was removed", ErrOffsetOutOfRange, offset, l.name)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrClosed):
		return err
	}
	return l.failOpen("read", err)
}

// readSegment adds what segment i has. more says that reading may go on in the next one.
func (l *Log) readSegment(v *view, i int, info *ReadInfo, offset, upTo int64, left *int64, minOne bool) (more bool, err error) {
	s, end := v.segs[i], v.bytes(i)
	p, ok, err := s.locate(offset, end)
	if err != nil {
		return false, err
	}
	if !ok {
		return true, nil // the segment ends in a gap
	}
	limit := end
	if upTo < v.next(i) {
		q, found, err := s.locate(upTo, end)
		if err != nil {
			return false, err
		}
		if found {
			limit = q.pos
		}
	}
	n := limit - p.pos
	if n <= 0 {
		return false, nil
	}
	if n > *left {
		n = *left
		if n < p.size && len(info.Spans) == 0 {
			if !minOne {
				info.FirstTooBig = true
				return false, nil
			}
			n = p.size
		}
	}
	if n <= 0 {
		return false, nil
	}
	f, err := s.log.acquire()
	if err != nil {
		return false, err
	}
	span, err := record.FileSpan(f, p.pos, n)
	_ = f.Release() // the span has its own reference
	if err != nil {
		return false, err
	}
	if len(info.Spans) == 0 {
		info.FirstOffset = p.base
	}
	info.Spans = append(info.Spans, span)
	info.Bytes += int(n)
	*left -= n
	return p.pos+n == end && *left > 0, nil
}

// AbortedTxns lists aborted transactions with data at or above from and below to.
func (l *Log) AbortedTxns(from, to int64) ([]AbortedTxn, error) {
	v := l.view.Load()
	var out []AbortedTxn
	for i := max(v.find(from), 0); i < len(v.segs); i++ {
		list, err := v.segs[i].aborted()
		if err != nil {
			return nil, l.readError(from, err)
		}
		for _, e := range list {
			if e.last >= from && e.first < to {
				out = append(out, AbortedTxn{e.producerID, e.first})
			}
			if e.stable >= to {
				return out, nil
			}
		}
	}
	return out, nil
}
