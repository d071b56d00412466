package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"milena/internal/disk"
	"milena/internal/record"
)

// Node is a member of the quorum. Its methods are safe for concurrent use.
type Node struct {
	o       Options
	id      uint64
	static  bool // the voters are those of the configuration
	lock    io.Closer
	snaps   snapshotDir
	store   *store
	driver  *driver // owned by the run goroutine once started
	metrics *metrics

	wake chan struct{}
	done chan struct{}
	jobs sync.WaitGroup // snapshot writer and fetcher; added to by the run goroutine
	ctx  context.Context
	stop context.CancelFunc

	taken     input     // what the turn under way handles; of the run goroutine
	spaceless time.Time // when it was last said that the disk is full; of the run goroutine

	state     atomic.Pointer[published] // stored by who holds show
	observers observers

	show    sync.Mutex  // guards the fields below and the storing of state; never held across a wait
	turning bool        // the run goroutine handles something
	stalled bool        // it hangs meanwhile, and state says so
	watch   *time.Timer // shows that it hangs; nil without a run goroutine

	mu      sync.Mutex
	in      input
	started bool
	manual  bool  // driven by hand: see Manual; not changed after the start
	err     error // set once the node is closing or failed
}

// published is a Status and what is closed when there is a newer one.
type published struct {
	Status
	voters []Voter
	leader Voter
	next   chan struct{}
}

// input is what waits for the run goroutine.
type input struct {
	messages  []received
	bytes     int // of messages
	proposals []*proposal
	reads     []chan error
	calls     []func() error
}

// maxWaitingBytes bounds the messages that wait for the run goroutine.
const maxWaitingBytes = 64 << 20

// received is a message from another voter.
type received struct {
	m    *pb.Message
	from Voter
}

// proposal is a Propose call.
type proposal struct {
	epoch   int32
	base    int64 // the offset that the batches must begin at; -1: any
	batches []record.Batch
	done    chan proposed // with room for one
}

type proposed struct {
	last int64
	err  error
}

func (o *Options) setDefaults() error {
	if o.Fatal == nil || o.FS == nil || o.Dir == "" {
		return errors.New("quorum: Options.FS, Dir and Fatal are required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&o.SnapshotBytes, 20<<20)
	setDefault(&o.SnapshotInterval, time.Hour)
	setDefault(&o.SegmentBytes, 8<<20)
	setDefault(&o.MaxEntryBytes, 8<<20)
	setDefault(&o.Tick, defaultElectionTimeout/defaultElectionTicks)
	setDefault(&o.ElectionTicks, defaultElectionTicks)
	setDefault(&o.KeepEntries, 10_000)
	return nil
}

func setDefault[T int | int64 | uint64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

func open(o Options) (_ *Node, err error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	if err := makeDir(o.FS, o.Dir); err != nil {
		return nil, err
	}
	lock, err := o.FS.Lock(filepath.Join(o.Dir, ".quorum.lock"))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close() // the first error matters more
		}
	}()
	n := &Node{
		o:     o,
		lock:  lock,
		snaps: snapshotDir{fs: o.FS, dir: o.Dir},
		wake:  make(chan struct{}, 1),
		done:  make(chan struct{}),
	}
	known, err := n.identify()
	if err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	snap, err := n.snaps.newest()
	if err == nil && snap != nil {
		err = n.snaps.check(snap)
	}
	if err == nil {
		err = n.snaps.clean(keepSnapshots)
	}
	if err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	if err := n.settle(snap); err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	n.id = raftID(n.o.Self)
	before := position{}
	if snap != nil {
		before = snap.at
	}
	log, rec, err := openRaftLog(o.FS, o.Dir, o.SegmentBytes, before)
	if err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	defer func() {
		if err != nil {
			_ = log.close() // the first error matters more
		}
	}()
	if known && log.fresh {
		return nil, fmt.Errorf("quorum: %w: the raft log of %s is missing: restore its raft-*.log files; without them this voter has forgotten what it agreed to",
			ErrCorrupt, o.Dir)
	}
	if !known {
		if err := n.claim(); err != nil {
			return nil, fmt.Errorf("quorum: %w", err)
		}
	}
	if err := n.mark(); err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	if n.store, err = joinLog(log, rec, snap); err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	n.ctx, n.stop = context.WithCancel(context.Background())
	if n.driver, err = newDriver(n, log); err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	if err := n.register(); err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	return n, nil
}

// makeDir makes a directory and its missing parents, durably.
func makeDir(fsys disk.FS, dir string) error {
	var names []string // whose names must be made durable
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		ok, err := disk.Exists(fsys, d)
		if err != nil {
			return err
		}
		if ok || d == filepath.Dir(d) {
			break
		}
		names = append(names, d)
	}
	if err := fsys.Mkdir(dir); err != nil {
		return err
	}
	if len(names) == 0 { // a crash may have come before the sync below
		names = append(names, filepath.Clean(dir))
	}
	for _, name := range slices.Backward(names) {
		if err := fsys.SyncDir(filepath.Dir(name)); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.started {
		n.started = true
		go n.run()
	}
}

func (n *Node) close() error {
	n.mu.Lock()
	if n.err == nil {
		n.err = ErrClosed
	}
	started := n.started
	n.started = true
	n.mu.Unlock()
	n.stop()
	n.poke()
	if !started {
		n.finish()
		return nil
	}
	<-n.done
	if err := n.failure(); err != ErrClosed { //nolint:errorlint // exactly that one: a failure wraps it
		return err
	}
	return nil
}

func (n *Node) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// failure returns why the node is closing, nil if it is not.
func (n *Node) failure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// send gives the run goroutine something to do.
func (n *Node) send(add func(*input)) error {
	n.mu.Lock()
	err := n.err
	if err == nil {
		add(&n.in)
	}
	n.mu.Unlock()
	if err == nil {
		n.poke()
	}
	return err
}

func (n *Node) take() input {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken, n.in = n.in, input{}
	return n.taken
}

func (n *Node) status() *Status { return &n.state.Load().Status }

func (n *Node) changed() (*Status, <-chan struct{}) {
	p := n.state.Load()
	return &p.Status, p.next
}

func (n *Node) propose(ctx context.Context, epoch int32, base int64, batches []byte) (int64, error) {
	p := &proposal{epoch: epoch, base: base, done: make(chan proposed, 1)}
	size := 0
	for b, err := range record.Batches(batches) {
		if err == nil {
			err = b.Validate()
		}
		if err != nil {
			return 0, err
		}
		if len(b) > n.o.MaxEntryBytes {
			return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(b), n.o.MaxEntryBytes)
		}
		size += len(b)
		p.batches = append(p.batches, b)
	}
	if size == 0 || size != len(batches) {
		return 0, fmt.Errorf("%w: %d bytes are not whole record batches", record.ErrCorrupt, len(batches))
	}
	if err := n.send(func(in *input) { in.proposals = append(in.proposals, p) }); err != nil {
		return 0, err
	}
	n.turnByHand()
	select {
	case r := <-p.done:
		return r.last, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (n *Node) readIndex(ctx context.Context) (int64, error) {
	done := make(chan error, 1)
	if err := n.send(func(in *input) { in.reads = append(in.reads, done) }); err != nil {
		return 0, err
	}
	select {
	case err := <-done:
		if err != nil {
			return 0, err
		}
		_, hw, _, _ := n.store.state()
		return hw, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// call runs f on the run goroutine, when all that came before is durable.
func (n *Node) call(f func()) error {
	done := make(chan struct{})
	if err := n.send(func(in *input) { in.calls = append(in.calls, func() error { f(); close(done); return nil }) }); err != nil {
		return err
	}
	n.turnByHand()
	select {
	case <-done:
		return nil
	case <-n.done:
		return n.failure()
	}
}

func (n *Node) step(ctx context.Context, from Voter, message []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m := &pb.Message{}
	if err := proto.Unmarshal(message, m); err != nil {
		return fmt.Errorf("quorum: message: %w", err)
	}
	switch {
	case m.GetFrom() != raftID(from.Member):
		return fmt.Errorf("quorum: message of raft member %x came from %s", m.GetFrom(), from.Member)
	case m.GetTo() != n.id:
		return fmt.Errorf("quorum: message for raft member %x, this is %x (%s)", m.GetTo(), n.id, n.o.Self)
	case raft.IsLocalMsg(m.GetType()) || m.GetType() == pb.MsgProp || m.GetType() == pb.MsgReadIndex ||
		m.GetType() == pb.MsgReadIndexResp || m.GetType() == pb.MsgTransferLeader:
		return fmt.Errorf("quorum: message of type %v is not accepted from others", m.GetType())
	}
	for _, e := range m.GetEntries() {
		if err := checkEntry(e); err != nil {
			return fmt.Errorf("quorum: message: %w", err)
		}
	}
	return n.send(func(in *input) {
		if in.bytes += len(message); in.bytes <= maxWaitingBytes { // else it is lost: the disk is stuck
			in.messages = append(in.messages, received{m: m, from: from})
		}
	})
}
