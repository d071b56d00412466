package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"milena/internal/record"
)

// Log is one side of a comparison.
type Log interface {
	// Read returns batches in order, beginning with the one that holds an offset, or the next one where there is none. None at all
	// means that the log shows nothing from there on. A log that begins above the offset is a *ShrunkError. The batches stay
	// valid.
	Read(ctx context.Context, at int64) ([]record.Batch, error)
	// End is the offset at which what the log shows ends now.
	End(ctx context.Context) (int64, error)
}

// ErrShrunk says that the log begins above the offset that was to be read.
var ErrShrunk = errors.New("the log begins later now")

// ShrunkError is ErrShrunk with where the log begins.
type ShrunkError struct{ Start int64 }

func (e *ShrunkError) Error() string { return fmt.Sprintf("%v, at %d", ErrShrunk, e.Start) }
func (e *ShrunkError) Unwrap() error { return ErrShrunk }

// Stream reads the batches of a log that hold offsets before an end, one read ahead of its user.
type Stream struct {
	// Start is the log's start where the stream found that it had moved above what was to be read; else 0.
	Start int64

	side    string
	log     Log
	to      int64
	parent  context.Context
	cancel  context.CancelFunc
	answers chan answer
	queue   []record.Batch
}

// answer is what a read brought.
type answer struct {
	batches []record.Batch
	err     error
}

// NewStream begins to read; side names the log in errors. It has to be closed.
func NewStream(ctx context.Context, side string, log Log, from, to int64) *Stream {
	s := &Stream{side: side, log: log, to: to, parent: ctx}
	s.begin(from)
	return s
}

func (s *Stream) begin(from int64) {
	ctx, cancel := context.WithCancel(s.parent)
	s.cancel, s.answers, s.queue = cancel, make(chan answer), nil
	go s.read(ctx, s.answers, from)
}

// Close ends the reading and waits for it.
func (s *Stream) Close() {
	s.cancel()
	for range s.answers {
		continue // until the reader has closed it
	}
}

// Next is the next batch, nil at the end. ErrShrunk comes with Start set.
func (s *Stream) Next() (record.Batch, error) {
	for len(s.queue) == 0 {
		a, ok := <-s.answers
		var shrunk *ShrunkError
		switch {
		case !ok:
			return nil, s.parent.Err()
		case errors.As(a.err, &shrunk):
			s.Start = max(s.Start, shrunk.Start)
			return nil, a.err
		case a.err != nil:
			return nil, fmt.Errorf("reading the %s: %w", s.side, a.err)
		default:
			s.queue = a.batches
		}
	}
	b := s.queue[0]
	s.queue = s.queue[1:]
	return b, nil
}

// unread makes Next return a batch once more.
func (s *Stream) unread(b record.Batch) {
	if b != nil {
		s.queue = slices.Insert(slices.Clone(s.queue), 0, b)
	}
}

// skipTo goes on with the first batch that ends above an offset; last is what Next gave out last.
func (s *Stream) skipTo(offset int64, last record.Batch) {
	if last != nil && last.NextOffset() > offset {
		s.unread(last)
		return
	}
	s.queue = slices.DeleteFunc(s.queue, func(b record.Batch) bool { return b.NextOffset() <= offset })
	if len(s.queue) == 0 {
		s.Close()
		s.begin(offset)
	}
}

// read hands on what the log has up to the end. It closes answers when it is done.
func (s *Stream) read(ctx context.Context, answers chan<- answer, from int64) {
	defer close(answers)
	hand := func(a answer) bool {
		select {
		case answers <- a:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for at := from; at < s.to; {
		batches, err := s.log.Read(ctx, at)
		if err != nil {
			hand(answer{err: err})
			return
		}
		out, next, end := trim(batches, at, s.to)
		if len(out) > 0 && !hand(answer{batches: out}) || end || next == at {
			return
		}
		at = next
	}
}

// trim leaves the batches that hold offsets from at to before to, and says where to read on, and whether that was the end.
func trim(batches []record.Batch, at, to int64) ([]record.Batch, int64, bool) {
	var out []record.Batch
	for _, b := range batches {
		if b.BaseOffset() >= to {
			return out, at, true
		}
		if b.NextOffset() <= at {
			continue
		}
		out = append(out, b)
		at = b.NextOffset()
	}
	return out, at, at >= to
}
