package partlog

import (
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
)

// Log is one partition's log. All methods may be called from any goroutine.
type Log struct {
	opts Options
	name string // topic-partition, for messages
	log  *slog.Logger
	cfg  atomic.Pointer[Config]

	view     atomic.Pointer[view]
	start    atomic.Int64
	hw       atomic.Int64
	recovery atomic.Int64
	idled    atomic.Int64 // time of the last CloseIdle, Unix ns
	flushed  atomic.Int64 // time of the last flush, Unix ns

	epochs    *epochCache
	producers *producers

	// mu serialises writers: appends, rolls, truncations, deletions, the swap
	// at the end of a compaction.
	mu        sync.Mutex
	closed    bool
	closing   atomic.Bool // a compaction stops
	topicID   ids.UUID
	tail      int64      // offset after the last batch; base of the active segment if it is empty
	unflushed int64      // records since the last flush by count
	sinceSnap int64      // bytes since the last producer snapshot
	deleted   []*segment // renamed to .deleted, to be removed

	// flushMu serialises flushes and is taken before mu. dirDirty says that
	// names in the directory are not durable yet.
	flushMu  sync.Mutex
	dirDirty atomic.Bool
	failed   atomic.Pointer[failure]

	asides atomic.Bool // recovery has set files aside, now or in an earlier life

	// cleanMu is held by a compaction, and by what it must not meet:
	// truncation and deletion. It is taken before flushMu and mu.
	cleanMu   sync.Mutex
	stopClean atomic.Int32 // waiters that a compaction makes way for
	cleanedTo atomic.Int64
}

type failure struct{ err error }

// view is what readers see of the log. It is immutable.
type view struct {
	segs []*segment // by base offset; the last one is active; at least one
	end  int64      // log end offset
	size int64      // bytes of the active segment below end
}

func (v *view) active() *segment { return v.segs[len(v.segs)-1] }

// find is the position of the segment that may hold offset: the last one with
// a base of at most offset, -1 if there is none.
func (v *view) find(offset int64) int {
	return sort.Search(len(v.segs), func(i int) bool { return v.segs[i].base > offset }) - 1
}

// bytes is how much of segment i is visible.
func (v *view) bytes(i int) int64 {
	if i == len(v.segs)-1 {
		return v.size
	}
	return v.segs[i].size.Load()
}

// next is the first offset above segment i.
func (v *view) next(i int) int64 {
	if i == len(v.segs)-1 {
		return v.end
	}
	return v.segs[i+1].base
}

// StartOffset is the first offset that may be read.
func (l *Log) StartOffset() int64 { return l.start.Load() }

// EndOffset is the offset the next record gets.
func (l *Log) EndOffset() int64 { return l.view.Load().end }

// RecoveryPoint is the offset below which everything is on disk.
func (l *Log) RecoveryPoint() int64 { return l.recovery.Load() }

// UpdateHighWatermark tells the log the high watermark, which bounds
// retention and compaction. It may go down.
func (l *Log) UpdateHighWatermark(hw int64) { l.hw.Store(hw) }

// LastStableOffset is the first offset at or below hw of a transaction that is
// undecided or whose marker isn't below hw; else hw. hw must not be below an
// earlier one unless the log was truncated in between.
func (l *Log) LastStableOffset(hw int64) int64 { return l.producers.stable(hw) }

// EpochEnd answers a query for the end of epoch (spec A.3 and D1): (epoch,
// log end) for the latest; (latest, log end) for one above it, (-1, log end)
// if there is none; the caller compares with the leader's own epoch first.
// (-1, -1) is undefined (epoch is negative).
func (l *Log) EpochEnd(epoch int32) (int32, int64) {
	return l.epochs.end(epoch, l.EndOffset())
}

// EpochFor is the leader epoch of the batch at offset by the epoch cache; -1: none.
func (l *Log) EpochFor(offset int64) int32 { return l.epochs.at(offset) }

// LatestEpoch is the leader epoch of the last batch; -1 if there never was one.
func (l *Log) LatestEpoch() int32 { return l.epochs.latest() }

// Epochs is a copy of the epoch cache.
func (l *Log) Epochs() []EpochEntry { return append([]EpochEntry(nil), l.epochs.entries()...) }

// ProducerStates lists the producers with state, by id.
func (l *Log) ProducerStates() []ProducerState {
	list := l.producers.list()
	out := make([]ProducerState, len(list))
	for i := range list {
		p := &list[i]
		out[i] = ProducerState{
			ID: p.id, Epoch: p.epoch, CoordinatorEpoch: p.coordEpoch,
			LastSequence: p.lastSeq(), LastTimestamp: p.lastTime, TxnStart: p.txnStart,
		}
	}
	return out
}

// SetConfig replaces the configuration.
func (l *Log) SetConfig(c Config) { l.cfg.Store(&c) }

// Config returns the configuration.
func (l *Log) Config() Config { return *l.cfg.Load() }

// Size is the size of all segments in bytes.
func (l *Log) Size() int64 {
	v := l.view.Load()
	var n int64
	for i := range v.segs {
		n += v.bytes(i)
	}
	return n
}

// SegmentCount is the number of segments.
func (l *Log) SegmentCount() int { return len(l.view.Load().segs) }

// Segments describes the segments, oldest first.
func (l *Log) Segments() []SegmentInfo {
	v := l.view.Load()
	out := make([]SegmentInfo, len(v.segs))
	for i, s := range v.segs {
		out[i] = SegmentInfo{Base: s.base, Next: v.next(i), Size: v.bytes(i), MaxTimestamp: -1, Name: s.log.path()}
		if m, err := s.largest(); err == nil {
			out[i].MaxTimestamp = m.key
		}
	}
	return out
}

// Topic, Partition, TopicID and Dir name the log.
func (l *Log) Topic() string { return l.opts.Topic }

// Partition is the partition's number.
func (l *Log) Partition() int32 { return l.opts.Partition }

// Dir is the partition's directory.
func (l *Log) Dir() string { return l.opts.Dir }

// TopicID is the id in partition.metadata; zero if not known.
func (l *Log) TopicID() ids.UUID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.topicID
}

// check refuses work on a log that is closed or whose disk failed. The caller holds mu.
func (l *Log) check() error {
	if f := l.failed.Load(); f != nil {
		return &api.Error{Code: api.KafkaStorageError, Message: "the log directory of " + l.name + " failed", Err: errors.Join(ErrClosed, f.err)}
	}
	if l.closed {
		return fmt.Errorf("%s: %w", l.name, ErrClosed)
	}
	return nil
}

// fail notes an I/O error: nothing is written any more, and the owner of the
// directory is told. It returns the error with Kafka's code.
func (l *Log) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	var coded *api.Error
	if errors.As(err, &coded) || errors.Is(err, ErrClosed) {
		return err
	}
	err = fmt.Errorf("%s of %s: %w", op, l.name, err)
	first := l.failed.CompareAndSwap(nil, &failure{err})
	if first {
		l.log.Error("log failed", "topic", l.opts.Topic, "partition", l.opts.Partition, "dir", l.opts.Dir, "op", op, "error", err)
		if l.opts.OnError != nil {
			l.opts.OnError(err)
		}
	}
	return &api.Error{Code: api.KafkaStorageError, Message: err.Error(), Err: err}
}

// failOpen is fail for what leaves the log as it was when a file can't be opened
// because too many are: that is retriable, and no reason to give up the disk.
func (l *Log) failOpen(op string, err error) error {
	if disk.OutOfFiles(err) && !errors.Is(err, errUndo) && !errors.Is(err, errLost) {
		return &api.Error{Code: api.KafkaStorageError, Message: op + " of " + l.name + ": too many open files: raise the limit (ulimit -n)", Err: err}
	}
	return l.fail(op, err)
}

// failWrite is failOpen for what leaves the log as it was when there is no space
// too: that refuses the append, the flush or the truncation (retriable) and
// nothing else.
func (l *Log) failWrite(op string, err error) error {
	if disk.Full(err) && !errors.Is(err, errUndo) && !errors.Is(err, errLost) {
		return &api.Error{Code: api.KafkaStorageError, Message: op + " of " + l.name + ": the disk of " + l.opts.Dir + " is full", Err: err}
	}
	return l.failOpen(op, err)
}

var (
	// errUndo says that what a failed append or another change wrote is still there
	// in part: in the file, or in what is known of its batches.
	errUndo = errors.New("partlog: a failed change could not be undone")
	// errLost says that the disk may have dropped bytes that it had taken.
	errLost = errors.New("partlog: written bytes may be lost")
)

// synced is the error of a file's Sync.
func synced(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// Failed is the I/O error that stopped the log, or nil.
func (l *Log) Failed() error {
	if f := l.failed.Load(); f != nil {
		return f.err
	}
	return nil
}

func partitionName(topic string, partition int32) string {
	return topic + "-" + strconv.Itoa(int(partition))
}
