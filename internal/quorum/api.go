package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/disk"
)

// SnapshotID names a snapshot as Kafka does: it holds what the records below
// EndOffset made, and Epoch is the epoch of the last of them.
type SnapshotID struct {
	EndOffset int64
	Epoch     int32
}

// Errors of the quorum. A storage error reaches Options.Fatal and then every
// caller, wrapped in ErrClosed.
var (
	// ErrNotLeader says that this node doesn't lead the epoch the caller named.
	ErrNotLeader = errors.New("quorum: not the leader")
	// ErrClosed says that the node was closed or failed.
	ErrClosed = errors.New("quorum: closed")
	// ErrOffsetOutOfRange says that the offset lies above the high watermark.
	ErrOffsetOutOfRange = errors.New("quorum: offset out of range")
	// ErrSnapshotNotFound says that the named snapshot is gone or never was.
	ErrSnapshotNotFound = errors.New("quorum: snapshot not found")
	// ErrStatic says that the voters of a static quorum can't be changed.
	ErrStatic = errors.New("quorum: the voters are fixed by controller.quorum.voters")
	// ErrDuplicateVoter says that a voter with that node id is there already.
	ErrDuplicateVoter = errors.New("quorum: duplicate voter")
	// ErrVoterNotFound says that there is no such voter.
	ErrVoterNotFound = errors.New("quorum: voter not found")
	// ErrLastVoter says that the only voter can't be removed.
	ErrLastVoter = errors.New("quorum: the last voter can't be removed")
	// ErrChangePending says that another change of the voters is under way, or that the
	// leader is so new that it has committed nothing yet.
	ErrChangePending = errors.New("quorum: another change of the voters is pending")
	// ErrNotReady says that a node can't be made a voter now: it isn't reached, or stopped answering.
	ErrNotReady = errors.New("quorum: the new voter is not ready")
	// ErrNoMajority says that a removal would leave voters that can't agree on anything: too many of them don't answer.
	ErrNoMajority = errors.New("quorum: the remaining voters would have no majority")
	// ErrTooLarge says that a record batch exceeds Options.MaxEntryBytes.
	ErrTooLarge = errors.New("quorum: batch too large")
	// ErrCorrupt says that a file of the raft log or a snapshot is damaged. The
	// wrapping error names file and position.
	ErrCorrupt = errors.New("quorum: corrupt")
)

// SnapshotNeededError says that the log no longer holds the offset: read the
// snapshot, then the log from its end offset.
type SnapshotNeededError struct{ Snapshot SnapshotID }

func (e *SnapshotNeededError) Error() string {
	return fmt.Sprintf("quorum: offset is below the log start, use the snapshot at offset %d epoch %d",
		e.Snapshot.EndOffset, e.Snapshot.Epoch)
}

// Options configure a Node.
type Options struct {
	FS  disk.FS
	Dir string // the raft log's directory; made if missing
	// Self is this node, with the id of the directory's disk. A directory written by
	// another member is refused. Node.Self is without the directory id in a static quorum.
	Self Member
	// Endpoints are this node's controller listeners as others reach them.
	Endpoints []Endpoint
	// Voters are the first voters, used only when Dir is empty. All of them must
	// start with the same list. Without directory ids they make a static quorum, whose
	// voters never change, but are given at each start, with their endpoints. Empty:
	// the voters that Format wrote; without such, this node waits to be added.
	Voters []Voter
	// Transport carries messages to other voters. Nil if there is one voter only.
	Transport Transport
	Logger    *slog.Logger // default: discards
	// Registerer gets the node's metrics. Nil: none are registered.
	Registerer prometheus.Registerer
	// Fatal is told once that storage failed; the node has stopped by then and the
	// process should end. Close returns only after it, so it must not call Close. Required.
	Fatal func(error)
	// Snapshot writes the state made by all committed records below some end
	// offset to w, and returns that end offset. It is called on a goroutine of
	// its own when one of the thresholds below is passed, never twice at a time.
	// Returning the end offset of an existing snapshot means there is nothing to do.
	// EncodeRecords writes what MachineLog.Replay reads. Nil: no snapshots.
	Snapshot func(w io.Writer) (endOffset int64, err error)
	// SnapshotBytes is how many bytes of committed batches since the last snapshot
	// call for a new one. Default 20 MiB (metadata.log.max.record.bytes.between.snapshots).
	SnapshotBytes int64
	// SnapshotInterval is the longest time committed records stay without a
	// snapshot. Default 1 h (metadata.log.max.snapshot.interval.ms).
	SnapshotInterval time.Duration
	// SegmentBytes is the size from which a new log file is begun. Default 8 MiB.
	SegmentBytes int64
	// MaxEntryBytes is the largest batch that is accepted. Default 8 MiB.
	MaxEntryBytes int
	// Tick is raft's unit of time. Default 50 ms. See Ticks.
	Tick time.Duration
	// ElectionTicks is how many ticks without word from a leader start an
	// election, after a random part of the same time. Default 10.
	ElectionTicks int
	// KeepEntries is how many entries before a snapshot stay in the log, so that
	// slow readers and voters needn't fetch the snapshot. Default 10000.
	KeepEntries uint64
}

// Transport carries messages between voters. Messages may be lost, repeated or
// reordered. It may also be a Fetcher and a Prober.
type Transport interface {
	// Send sends the message, or drops it. It must not block.
	Send(to Voter, message []byte)
}

// Status is a state of the node, immutable.
type Status struct {
	Leader        Member // of Epoch; meaningful if HasLeader
	HasLeader     bool
	IsLeader      bool // this node leads Epoch
	IsVoter       bool // this node is a voter by what it knows to be committed
	Epoch         int32
	Generation    uint64 // of the quorum: another one after it was restored from a backup
	HighWatermark int64  // committed metadata offset, exclusive
	EndOffset     int64  // of the local log
	LogStart      int64  // the first offset that ReadCommitted still has
	Snapshot      SnapshotID
	HasSnapshot   bool // of records: Snapshot.EndOffset > 0
}

// Open recovers the log in Options.Dir, or makes it, and returns a node that
// takes no part in the quorum before Start.
func Open(o Options) (*Node, error) { return open(o) }

// Start starts the node's goroutine. A single voter elects itself at once.
func (n *Node) Start() { n.start() }

// Close stops the node without a word to others and waits for its goroutines.
func (n *Node) Close() error { return n.close() }

// Resign hands the leadership to the voter whose log is the longest and returns when
// this node doesn't lead any more, or ctx ends. Meant for a stop in good order; a node
// that doesn't lead, or has nobody to hand over to, returns at once.
func (n *Node) Resign(ctx context.Context) error { return n.resign(ctx) }

// Step hands the node a message that the Transport of the voter from sent. An error
// says that the message makes no sense or the node is closed.
func (n *Node) Step(ctx context.Context, from Voter, message []byte) error {
	return n.step(ctx, from, message)
}

// Status returns the newest state.
func (n *Node) Status() *Status { return n.status() }

// Changed returns the newest state and a channel that is closed when there is a
// newer one.
func (n *Node) Changed() (*Status, <-chan struct{}) { return n.changed() }

// Propose appends the record batches, which must lie one after another in
// batches and are stamped in place, to the log of the leader's epoch, and returns
// the offset of the last record. It returns before they are committed: watch the high
// watermark. Errors: ErrNotLeader, ErrTooLarge, ErrClosed, the context's.
// The node owns batches from then on.
func (n *Node) Propose(ctx context.Context, epoch int32, batches []byte) (last int64, err error) {
	return n.propose(ctx, epoch, -1, batches)
}

// ReadIndex returns the high watermark that held at some moment during the call,
// confirmed by a majority: what this node has applied below it is current.
// Errors: ErrNotLeader, ErrClosed, the context's.
func (n *Node) ReadIndex(ctx context.Context) (hw int64, err error) { return n.readIndex(ctx) }

// ReadCommitted returns whole committed batches, the first of which contains the
// offset from. At least one if there is any, else at most about maxBytes; nothing
// if from is the high watermark. Errors: *SnapshotNeededError,
// ErrOffsetOutOfRange. The bytes must not be changed.
func (n *Node) ReadCommitted(from int64, maxBytes int) ([]byte, error) {
	return n.readCommitted(from, maxBytes)
}

// EpochEnd returns the largest epoch in the log that is not above epoch, and the offset
// after its last record: what a broker's fetch is checked against. -1, -1 if the
// log (with its snapshot) has none.
func (n *Node) EpochEnd(epoch int32) (int32, int64) { return n.epochEnd(epoch) }

// ReadSnapshot reads the content of a snapshot at a position. It returns the bytes,
// at most maxBytes, and the whole size. Error: ErrSnapshotNotFound.
func (n *Node) ReadSnapshot(id SnapshotID, position int64, maxBytes int) (data []byte, size int64, err error) {
	return n.readSnapshot(id, position, maxBytes)
}

// Self is this node as a member of the quorum.
func (n *Node) Self() Member { return n.o.Self }

// Static reports whether the voters are fixed by configuration.
func (n *Node) Static() bool { return n.static }

// Voters returns the current voters.
func (n *Node) Voters() []Member { return members(n.state.Load().voters) }

// VoterSet returns the current voters with their endpoints, in the order of their ids.
// Empty: this node was never added and hasn't heard of them.
func (n *Node) VoterSet() []Voter { return slices.Clone(n.state.Load().voters) }

// Leader returns the leader of the newest epoch and that epoch; ok is false if none is
// known. The endpoints may be empty for the leader itself, if it has no listener.
func (n *Node) Leader() (leader Voter, epoch int32, ok bool) {
	p := n.state.Load()
	return p.leader, p.Epoch, p.HasLeader
}

// AddVoter makes v a voter, and returns when that is committed. A Transport that is a Prober
// looks at v first: nothing is changed for one that doesn't answer or belongs elsewhere. Then v is
// fed the log, and becomes a voter only once it has caught up. At the leader only, one change
// at a time. If ctx ends before v has caught up, or v stops answering, the change is taken back.
// Errors: ErrNotLeader, ErrStatic, ErrDuplicateVoter, ErrChangePending, ErrNotReady, ErrClosed,
// the Prober's, the context's.
func (n *Node) AddVoter(ctx context.Context, v Voter) error {
	return n.add(ctx, &change{kind: addVoter, voter: v, ack: true})
}

// BeginAddVoter is AddVoter, but returns once v has caught up and the leader has written
// the new voter set.
func (n *Node) BeginAddVoter(ctx context.Context, v Voter) error {
	return n.add(ctx, &change{kind: addVoter, voter: v})
}

// RemoveVoter makes m no voter any more and returns when that is committed. A leader that
// removes itself steps down then. It is refused if too few of the others answer to go on without
// m. Errors: those of AddVoter, ErrVoterNotFound, ErrLastVoter, ErrNoMajority.
func (n *Node) RemoveVoter(ctx context.Context, m Member) error {
	return n.change(ctx, &change{kind: removeVoter, voter: Voter{Member: m}, ack: true})
}

// UpdateVoter changes the endpoints of a voter and returns when that is committed. Errors:
// those of AddVoter, ErrVoterNotFound.
func (n *Node) UpdateVoter(ctx context.Context, v Voter) error {
	return n.change(ctx, &change{kind: updateVoter, voter: v, ack: true})
}

// Describe tells how far voters and observers are. Offsets and times of others are known
// to the leader only.
func (n *Node) Describe() (Description, error) { return n.describe() }

// Observed notes that a member which is no voter has fetched the log from offset on: its
// log ends there. At any controller; a follower's Observers are for the leader.
func (n *Node) Observed(m Member, offset int64) { n.observers.fetched(m, offset, n.Status().EndOffset) }
