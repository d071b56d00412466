package machine

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Record is one record of a state machine's log. A nil Value is a tombstone.
// Records of the metadata log have a nil Key.
type Record struct{ Key, Value []byte }

// batchOverhead is the most that a batch adds to its records, in bytes.
const batchOverhead = 64

// size is the most that the record takes of a batch, in bytes: at most 23 for its
// lengths, offset and so on.
func (r Record) size() int { return len(r.Key) + len(r.Value) + 24 }

// Machine is a state machine. All methods are called on the goroutine that owns
// the machine: the runtime's run goroutine, or the simulation's.
type Machine interface {
	// Apply makes the record's change. It must depend on nothing but the
	// machine's state, the offset and the record, since a replay repeats it.
	// A malformed record is logged and ignored by the machine; see Vetter for one
	// that is only unknown.
	Apply(offset int64, r Record)
	// Loaded is called once, after the replay and before the first command. The
	// machine starts its timers here, one of them at once if it has to write.
	Loaded(now time.Time)
}

// Vetter is implemented by machines that must not serve what they don't wholly
// understand. Vet is called before Apply of each record of a replay. It returns
// nil, or an error that says which type or version of a record a newer release
// must have written: the replay then ends with an UnknownRecordError.
type Vetter interface{ Vet(r Record) error }

// UnknownRecordError ends the replay of a log with a record that this release
// doesn't know. Another replay meets it again.
type UnknownRecordError struct {
	Offset int64 // of the record
	Err    error // what Vet said
}

// Error implements error.
func (e *UnknownRecordError) Error() string {
	return fmt.Sprintf("offset %d has a record that this release doesn't know: %v", e.Offset, e.Err)
}

// Unwrap returns what Vet said.
func (e *UnknownRecordError) Unwrap() error { return e.Err }

// Binder is implemented by machines that use timers: Bind is called once, before
// the replay.
type Binder interface{ Bind(Timers) }

// Timers are commands that run later. The methods may be called only on the
// goroutine that owns the machine: in commands, in Apply and in Loaded.
type Timers interface {
	// After runs cmd once, d from now. It replaces the timer of that key, if any.
	// The command's records are appended like any other's, its reply goes nowhere.
	After(key string, d time.Duration, cmd Command)
	// Cancel drops the timer of that key. It is a no-op if there is none.
	Cancel(key string)
}

// Log is the log a machine lives in. The quorum's adapter and the replica's
// implement it. The runtime calls it on one goroutine only, and never
// concurrently.
type Log interface {
	// Append appends the records to the local log, at consecutive offsets that
	// begin at EndOffset, and returns the offset of the last. It doesn't wait for
	// the commit. An error means that the leadership is lost or the log broken:
	// what can be refused is refused by Options.Check before.
	Append(recs []Record) (lastOffset int64, err error)
	// Replay calls fn for every record the log holds, committed or not, from the
	// snapshot or the log's start, in offset order. Records of a snapshot carry
	// the offset of the snapshot's last record. An error of fn ends the replay
	// and is returned.
	Replay(fn func(offset int64, r Record) error) error
	// EndOffset is the offset that the next record will get.
	EndOffset() int64
	// HighWatermark is the commit point: every record below it is committed.
	HighWatermark() int64
}

// Command runs on the machine's goroutine and may read the machine freely, but
// changes it only through the records it returns. now is the time of the flush.
type Command func(now time.Time) Result

// Result is what a command wants done and answered.
type Result struct {
	// Records are applied and appended, in order and as a unit.
	Records []Record
	// Reply is handed to the caller, unless Err is set.
	Reply any
	// Err is handed to the caller instead of Reply. It waits like a reply, since
	// it may have been caused by what isn't committed yet.
	Err error
	// Entity names what the command read or wrote, for instance a group id. The
	// reply waits for the last write of that entity only. A command that names
	// nothing, in Entity or Entities, is taken to have read or written
	// everything: its reply waits for every earlier write, and its records hold
	// up the replies of all later commands.
	Entity string
	// Entities are further entities that the command read or wrote.
	Entities []string
	// NoWait hands out the reply without waiting for a commit: after the append
	// if there are records, else at once.
	NoWait bool
}

// Errors of the runtime.
var (
	// ErrLost says that the log's leadership was lost or the append failed. The
	// outcome of the command is unknown. It wraps the cause, if there is one.
	ErrLost = errors.New("machine: log leadership lost")
	// ErrLoading says that the machine is still replaying its log.
	ErrLoading = errors.New("machine: loading")
	// ErrTooLarge says that the command's records don't fit one batch.
	ErrTooLarge = errors.New("machine: records exceed the largest batch")
	// ErrClosed says that the runtime was closed by its owner.
	ErrClosed = errors.New("machine: closed")
)

// Options configure a Core or a Runtime.
type Options struct {
	Machine Machine
	Log     Log
	// Name is for the logger: the machine's kind and number, "group-12".
	Name   string
	Logger *slog.Logger // default: discards
	// Check is asked before a command runs whether the log would take an append
	// (leadership, min ISR, offline directory). Its error is the caller's answer
	// and the command doesn't run. Nil: always. Timers' commands are retried
	// after CheckRetry instead.
	Check func() error
	// CheckRetry is how long a timer's command waits after a failed Check.
	// Default 1 s.
	CheckRetry time.Duration
	// MaxBatchBytes is the log's limit for one batch, uncompressed: a flush is cut
	// so that none is larger. Default 1,000,000 (max.message.bytes is a little more).
	MaxBatchBytes int
	// Bookends, if not nil, returns the records to put around the records of a
	// command that doesn't fit one batch (the metadata log's
	// BeginTransactionRecord and EndTransactionRecord), so that a reader can take
	// them as a unit again. They are applied like any other record. Nil: such a
	// command gets ErrTooLarge and changes nothing.
	Bookends func() (begin, end Record)
	// Confirm, if not nil, confirms that the log's leader is still this node, for
	// replies that wait for no commit: one call per flush, done may be called on
	// any goroutine. The quorum's ReadIndex.
	Confirm func(done func(error))
	Hooks   Hooks
}

// Hooks are called on the machine's goroutine, for metrics. Any may be nil.
type Hooks struct {
	// Loaded follows the replay: how many records it had and how long it took.
	Loaded func(records int, d time.Duration)
	// Flushed follows an append.
	Flushed func(commands, records, bytes int)
	// Waited follows a reply that waited for a commit.
	Waited func(d time.Duration)
}
