package quorum

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/record"
)

var errTest = errors.New("test")

func testMember(id int32) Member { return Member{ID: id, Directory: ids.UUID{15: byte(id), 0: 7}} }

// voterList are test members without endpoints.
func voterList(ids ...int32) []Voter {
	var vs []Voter
	for _, id := range ids {
		vs = append(vs, Voter{Member: testMember(id)})
	}
	return vs
}

// testLogger writes to the test's log.
func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// single returns options for a quorum of one in the file system. A storage error
// fails the test.
func single(t testing.TB, fsys disk.FS) Options {
	return Options{
		FS: fsys, Dir: "/meta", Self: testMember(1), Voters: voterList(1),
		Logger: testLogger(t), Fatal: func(err error) { t.Errorf("fatal: %v", err) },
	}
}

// await polls the node's state until it is as wanted.
func await(t testing.TB, n *Node, what string, ok func(*Status) bool) *Status {
	t.Helper()
	deadline := time.After(5 * time.Second)
	for {
		s, changed := n.Changed()
		if ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no %s: %+v", what, *s)
		}
	}
}

func isLeader(s *Status) bool { return s.IsLeader }

// startSingle opens and starts a node and returns when it leads.
func startSingle(t testing.TB, o Options) (*Node, int32) {
	t.Helper()
	n, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	n.Start()
	return n, await(t, n, "leader", isLeader).Epoch
}

// batch builds a batch of n records whose values say where they belong.
func batch(t testing.TB, first, n int) []byte {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{})
	for i := range n {
		b.Append(record.Record{Value: fmt.Appendf(nil, "record %d", first+i)})
	}
	out, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// mustPropose proposes n records that begin at offset first and waits for their
// commit.
func mustPropose(t testing.TB, nd *Node, epoch int32, first, n int) {
	t.Helper()
	last, err := nd.Propose(t.Context(), epoch, batch(t, first, n))
	if err != nil {
		t.Fatal(err)
	}
	if last != int64(first+n-1) {
		t.Fatalf("last offset %d, want %d", last, first+n-1)
	}
	await(t, nd, "commit", func(s *Status) bool { return s.HighWatermark > last })
}

// checkBatches reads whole batches and checks that they hold the records from
// first on, and returns the offset after the last.
func checkBatches(t testing.TB, b []byte, first int64) int64 {
	t.Helper()
	next := first
	for bt, err := range record.Batches(b) {
		if err == nil {
			err = bt.CheckCRC()
		}
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range bt.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Offset < first {
				continue
			}
			if r.Offset != next || string(r.Value) != fmt.Sprintf("record %d", r.Offset) {
				t.Fatalf("record %q at offset %d, want offset %d", r.Value, r.Offset, next)
			}
			next++
		}
	}
	return next
}

// readAll reads all committed records from an offset on.
func readAll(t testing.TB, n *Node, from int64) int64 {
	t.Helper()
	for {
		b, err := n.ReadCommitted(from, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) == 0 {
			return from
		}
		from = checkBatches(t, b, from)
	}
}

// lister is a machine that keeps every record: its snapshot is the list.
type lister struct {
	mu   sync.Mutex
	vals []string
	end  int64
}

func (l *lister) Apply(offset int64, r machine.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.vals = append(l.vals, string(r.Value))
	l.end = offset + 1
}

func (l *lister) Loaded(time.Time) {}

func (l *lister) values() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.vals)
}

// observer follows the committed log as a standby controller does, and writes
// snapshots of it.
type observer struct {
	lister
	n *Node
}

// catchUp applies what is committed.
func (o *observer) catchUp() error {
	for {
		o.mu.Lock()
		from := o.end
		o.mu.Unlock()
		b, err := o.n.ReadCommitted(from, 1<<20)
		var need *SnapshotNeededError
		if errors.As(err, &need) {
			if err := o.load(need.Snapshot); err != nil {
				return err
			}
			continue
		}
		if err != nil || len(b) == 0 {
			return err
		}
		for bt, err := range record.Batches(b) {
			if err != nil {
				return err
			}
			for r, err := range bt.Records(0) {
				if err != nil {
					return err
				}
				if r.Offset >= from {
					o.Apply(r.Offset, machine.Record{Value: r.Value})
				}
			}
		}
	}
}

func (o *observer) load(id SnapshotID) error {
	r := &snapshotReader{n: o.n, id: id}
	var vals []string
	err := DecodeRecords(r, func(r machine.Record) error {
		vals = append(vals, string(r.Value))
		return nil
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.vals, o.end = vals, id.EndOffset
	return err
}

// snapshot is Options.Snapshot.
func (o *observer) snapshot(w io.Writer) (int64, error) {
	if err := o.catchUp(); err != nil {
		return 0, err
	}
	vals := o.values()
	return int64(len(vals)), EncodeRecords(w, 1, func(yield func(machine.Record) bool) {
		for _, v := range vals {
			if !yield(machine.Record{Value: []byte(v)}) {
				return
			}
		}
	})
}

// snapshotReader reads a snapshot in small pieces.
type snapshotReader struct {
	n   *Node
	id  SnapshotID
	pos int64
}

func (r *snapshotReader) Read(b []byte) (int, error) {
	data, size, err := r.n.ReadSnapshot(r.id, r.pos, min(len(b), 777))
	if err != nil {
		return 0, err
	}
	if r.pos == size {
		return 0, io.EOF
	}
	r.pos += int64(len(data))
	return copy(b, data), nil
}

func wantValues(t testing.TB, got []string, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%d records, want %d", len(got), n)
	}
	for i, v := range got {
		if v != fmt.Sprintf("record %d", i) {
			t.Fatalf("record %d is %q", i, v)
		}
	}
}
