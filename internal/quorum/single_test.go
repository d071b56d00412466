package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/raft/v3/raftpb"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/record"
)

func TestSingleVoterLeadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		n, epoch := startSingle(t, single(t, disk.NewMem(1)))
		if took := time.Since(begin); took != 0 || epoch != 2 {
			t.Errorf("leader of epoch %d after %v of virtual time", epoch, took)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	n, err := Open(Options{FS: disk.OS(), Dir: t.TempDir(), Self: testMember(1), Voters: voterList(1),
		Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	n.Start()
	await(t, n, "leader", isLeader)
	t.Logf("leader after %v on the real file system", time.Since(begin))
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestProposeCommitReadRestart(t *testing.T) {
	mem := disk.NewMem(1)
	o := single(t, mem)
	n, epoch := startSingle(t, o)
	mustPropose(t, n, epoch, 0, 3)
	two := append(batch(t, 3, 2), batch(t, 5, 1)...)
	if last, err := n.Propose(t.Context(), epoch, two); last != 5 || err != nil {
		t.Fatalf("two batches: %d, %v", last, err)
	}
	await(t, n, "commit", func(s *Status) bool { return s.HighWatermark == 6 })
	if end := readAll(t, n, 0); end != 6 {
		t.Errorf("read up to %d", end)
	}
	if b, err := n.ReadCommitted(4, 1); err != nil || checkBatches(t, b, 4) != 5 {
		t.Errorf("one batch from the middle: %v", err)
	}
	if _, err := n.ReadCommitted(7, 1); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("above the high watermark: %v", err)
	}
	if _, err := n.ReadCommitted(-1, 1); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("negative: %v", err)
	}
	if _, err := n.Propose(t.Context(), epoch-1, batch(t, 6, 1)); !errors.Is(err, ErrNotLeader) {
		t.Errorf("old epoch: %v", err)
	}
	if _, err := n.Propose(t.Context(), epoch, []byte("rubbish")); err == nil {
		t.Error("rubbish was accepted")
	}
	if hw, err := n.ReadIndex(t.Context()); hw != 6 || err != nil {
		t.Errorf("read index %d, %v", hw, err)
	}
	if vs := n.Voters(); len(vs) != 1 || vs[0] != o.Self {
		t.Errorf("voters %v", vs)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Propose(t.Context(), epoch, batch(t, 6, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := n.ReadIndex(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}

	n, again := startSingle(t, o)
	if again <= epoch {
		t.Errorf("epoch %d after %d", again, epoch)
	}
	mustPropose(t, n, again, 6, 1)
	if end := readAll(t, n, 0); end != 7 {
		t.Errorf("read up to %d", end)
	}
	for _, c := range []struct {
		ask, epoch int32
		end        int64
	}{{-1, -1, -1}, {0, -1, -1}, {1, -1, -1}, {epoch, epoch, 6}, {again, again, 7}, {99, again, 7}} {
		if e, end := n.EpochEnd(c.ask); e != c.epoch || end != c.end {
			t.Errorf("EpochEnd(%d) = %d, %d, want %d, %d", c.ask, e, end, c.epoch, c.end)
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	mem := disk.NewMem(1)
	o := single(t, mem)
	n, _ := startSingle(t, o)
	if _, err := Open(o); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("second user: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	other := o
	other.Self.Directory = ids.UUID{1}
	if _, err := Open(other); err == nil || !strings.Contains(err.Error(), "belongs to voter "+o.Self.String()) {
		t.Errorf("another member's directory: %v", err)
	}
	if err := disk.WriteFileAtomic(mem, "/meta/identity", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o); !errors.Is(err, ErrCorrupt) {
		t.Errorf("damaged identity: %v", err)
	}
	if _, err := Open(Options{}); err == nil {
		t.Error("empty options were accepted")
	}
}

func TestCloseBeforeStart(t *testing.T) {
	n, err := Open(single(t, disk.NewMem(1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	n.Start()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestStorageErrorIsFatalOnce(t *testing.T) {
	for _, op := range []disk.Op{disk.OpWrite, disk.OpSync} {
		t.Run(string(op), func(t *testing.T) {
			fail := make(chan struct{})
			o := single(t, disk.Faulty(disk.NewMem(1), func(did disk.Op, name string) error {
				select {
				case <-fail:
					if did == op && strings.Contains(name, "raft-") {
						return fmt.Errorf("%w: %w", errTest, fs.ErrInvalid)
					}
				default:
				}
				return nil
			}))
			fatal := make(chan error, 2)
			o.Fatal = func(err error) { fatal <- err }
			n, epoch := startSingle(t, o)
			close(fail)
			hold := n.MachineLog(epoch, MachineLogOptions{})
			lost := make(chan error, 1)
			hold.Watch(func(int64) {}, func(err error) { lost <- err })
			if _, err := n.Propose(t.Context(), epoch, batch(t, 0, 1)); err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("propose: %v", err)
			}
			if err := <-fatal; !errors.Is(err, errTest) {
				t.Errorf("fatal: %v", err)
			}
			if err := <-lost; !errors.Is(err, ErrClosed) {
				t.Errorf("lost: %v", err)
			}
			if err := n.Close(); !errors.Is(err, errTest) {
				t.Errorf("close: %v", err)
			}
			if s := n.Status(); s.HighWatermark != 0 || s.IsLeader {
				t.Errorf("after the failure: %+v", *s)
			}
			hold.Close()
			if len(fatal) != 0 {
				t.Error("fatal twice")
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	o := single(t, disk.NewMem(1))
	o.Registerer = reg
	n, epoch := startSingle(t, o)
	mustPropose(t, n, epoch, 0, 5)
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	if got["kafka_server_raft_metrics_high_watermark"] != 5 || got["kafka_server_raft_metrics_current_leader"] != 1 {
		t.Errorf("metrics %v", got)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if families, _ := reg.Gather(); len(families) != 0 {
		t.Error("metrics are left after Close")
	}
}

// machineOn runs a machine on the node's current leadership.
func machineOn(t testing.TB, n *Node, epoch int32, m machine.Machine, max int) (*machine.Runtime, func()) {
	t.Helper()
	l := n.MachineLog(epoch, MachineLogOptions{MaxBatchBytes: max})
	rt := machine.New(machine.Options{Machine: m, Log: l, MaxBatchBytes: max, Confirm: l.Confirm, Logger: testLogger(t)})
	rt.Start()
	l.Watch(rt.Committed, rt.Lost)
	<-rt.Ready()
	if err := rt.Err(); err != nil {
		t.Fatal(err)
	}
	return rt, func() { rt.Close(); l.Close() }
}

// add returns a command that appends k records to a lister.
func (l *lister) add(k int) machine.Command {
	return func(time.Time) machine.Result {
		at := len(l.values())
		res := machine.Result{Reply: at + k}
		for i := range k {
			res.Records = append(res.Records, machine.Record{Value: fmt.Appendf(nil, "record %d", at+i)})
		}
		return res
	}
}

func (l *lister) count(time.Time) machine.Result { return machine.Result{Reply: len(l.values())} }

func TestMachineOverQuorum(t *testing.T) {
	mem := disk.NewMem(1)
	o := single(t, mem)
	n, epoch := startSingle(t, o)
	m := &lister{}
	rt, stop := machineOn(t, n, epoch, m, 500)
	for i := range 5 {
		if v, err := rt.Do(t.Context(), m.add(3)); v != 3*i+3 || err != nil {
			t.Fatalf("%v, %v", v, err)
		}
		if hw := n.Status().HighWatermark; hw != int64(3*i+3) {
			t.Fatalf("replied at high watermark %d", hw)
		}
	}
	// The log cuts what exceeds a batch.
	l := n.MachineLog(epoch, MachineLogOptions{MaxBatchBytes: 200})
	if err := l.Replay(func(int64, machine.Record) error { return nil }); err != nil || l.EndOffset() != 15 {
		t.Fatalf("end offset %d, %v", l.EndOffset(), err)
	}
	if last, err := l.Append(m.add(50)(time.Time{}).Records); last != 64 || err != nil || l.EndOffset() != 65 {
		t.Fatalf("last offset %d, %v", last, err)
	}
	if v, err := rt.Do(t.Context(), m.add(1)); !errors.Is(err, machine.ErrLost) {
		t.Fatalf("a machine whose log another has written to: %v, %v", v, err)
	}
	stop()
	l.Close()
	m = &lister{}
	rt, stop = machineOn(t, n, epoch, m, 500)
	if v, err := rt.Do(t.Context(), m.count); v != 65 || err != nil {
		t.Fatalf("%v, %v", v, err)
	}
	if end := readAll(t, n, 0); end != 65 {
		t.Errorf("read up to %d", end)
	}
	stop()
	// Another machine in the same epoch, then one after a restart.
	again := &lister{}
	_, stop = machineOn(t, n, epoch, again, 500)
	wantValues(t, again.values(), 65)
	stop()
	rt, stop = machineOn(t, n, epoch, &lister{}, 500)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	<-rt.Done()
	if err := rt.Err(); !errors.Is(err, machine.ErrLost) || !errors.Is(err, ErrClosed) {
		t.Errorf("the node's end: %v", err)
	}
	stop()
	if err := n.MachineLog(epoch, MachineLogOptions{}).Replay(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("replay of a closed node: %v", err)
	}

	n, epoch = startSingle(t, o)
	if err := n.MachineLog(epoch-1, MachineLogOptions{}).Replay(nil); !errors.Is(err, ErrNotLeader) {
		t.Errorf("replay in an old epoch: %v", err)
	}
	last := &lister{}
	_, stop = machineOn(t, n, epoch, last, 500)
	wantValues(t, last.values(), 65)
	stop()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestOneFlushIsOneBatch: what the runtime thinks fits a batch does, so that the
// records of a command never come apart without bookends.
func TestOneFlushIsOneBatch(t *testing.T) {
	n, epoch := startSingle(t, single(t, disk.NewMem(1)))
	const max = 700
	rt, stop := machineOn(t, n, epoch, nothing{}, max)
	from := int64(0)
	for size := range 80 {
		for count := 1; ; count++ {
			recs := make([]machine.Record, count)
			for i := range recs {
				recs[i] = machine.Record{Value: make([]byte, size)}
			}
			_, err := rt.Do(t.Context(), func(time.Time) machine.Result { return machine.Result{Records: recs} })
			if errors.Is(err, machine.ErrTooLarge) {
				if count == 1 {
					t.Fatalf("a record of %d bytes does not fit", size)
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			b, err := n.ReadCommitted(from, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			batches := 0
			for bt := range record.Batches(b) {
				batches++
				if len(bt) > max {
					t.Fatalf("%d records of %d bytes: batch of %d bytes", count, size, len(bt))
				}
			}
			if batches != 1 {
				t.Fatalf("%d records of %d bytes make %d batches", count, size, batches)
			}
			from += int64(count)
		}
	}
	stop()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestSnapshotAndRestart(t *testing.T) {
	mem := disk.NewMem(1)
	o := single(t, mem)
	obs := &observer{}
	o.Snapshot = obs.snapshot
	o.SnapshotBytes = 2000
	o.SegmentBytes = 1500
	o.KeepEntries = 3
	n, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	obs.n = n
	n.Start()
	epoch := await(t, n, "leader", isLeader).Epoch
	const total = 200
	for i := range total / 2 {
		mustPropose(t, n, epoch, 2*i, 2)
	}
	s := await(t, n, "snapshot", func(s *Status) bool { return s.HasSnapshot && s.Snapshot.EndOffset > total/2 })
	if s.LogStart <= 0 || s.LogStart > s.Snapshot.EndOffset || s.Snapshot.Epoch != epoch {
		t.Errorf("status %+v", *s)
	}
	var need *SnapshotNeededError
	if _, err := n.ReadCommitted(0, 1); !errors.As(err, &need) || need.Snapshot.EndOffset < s.Snapshot.EndOffset {
		t.Errorf("read below the log start: %v", err)
	}
	if _, _, err := n.ReadSnapshot(SnapshotID{EndOffset: 1, Epoch: 1}, 0, 1); !errors.Is(err, ErrSnapshotNotFound) {
		t.Errorf("no such snapshot: %v", err)
	}
	if e, end := n.EpochEnd(epoch); e != epoch || end != total {
		t.Errorf("EpochEnd = %d, %d", e, end)
	}
	m := &lister{}
	rt, stop := machineOn(t, n, epoch, m, 500)
	wantValues(t, m.values(), total)
	if v, err := rt.Do(t.Context(), m.add(1)); v != total+1 || err != nil {
		t.Fatal(v, err)
	}
	stop()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := mem.ReadDir("/meta")
	if err != nil {
		t.Fatal(err)
	}
	segments, snapshots := 0, 0
	for _, e := range names {
		if _, ok := parseSegmentName(e.Name()); ok {
			segments++
		}
		if strings.HasSuffix(e.Name(), ".checkpoint") {
			snapshots++
		}
	}
	if segments > 5 || snapshots > keepSnapshots {
		t.Errorf("%d segments and %d snapshots are left", segments, snapshots)
	}

	// A damaged content is found at once.
	content := snapshotDir{dir: "/meta"}.content(n.Status().Snapshot)
	b, err := disk.ReadFile(mem, content)
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte(nil), b...)
	bad[len(bad)/2] ^= 1
	if err := disk.WriteFileAtomic(mem, content, bad); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), content) {
		t.Errorf("damaged snapshot: %v", err)
	}
	if err := disk.WriteFileAtomic(mem, content, b); err != nil {
		t.Fatal(err)
	}

	o.Snapshot = nil
	n, epoch = startSingle(t, o)
	m = &lister{}
	_, stop = machineOn(t, n, epoch, m, 500)
	wantValues(t, m.values(), total+1)
	stop()
	mustPropose(t, n, epoch, total+1, 1)
	fresh := &observer{n: n}
	if err := fresh.catchUp(); err != nil {
		t.Fatal(err)
	}
	wantValues(t, fresh.values(), total+2)
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestSnapshotByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := single(t, disk.NewMem(1))
		obs := &observer{}
		calls := 0
		o.Snapshot = func(w io.Writer) (int64, error) {
			if calls++; calls == 1 {
				return 0, errTest // tried again later
			}
			return obs.snapshot(w)
		}
		o.SnapshotInterval = time.Minute
		n, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		obs.n = n
		n.Start()
		epoch := await(t, n, "leader", isLeader).Epoch
		time.Sleep(10 * time.Minute)
		if calls != 0 {
			t.Error("a snapshot of nothing")
		}
		mustPropose(t, n, epoch, 0, 2)
		time.Sleep(2 * time.Minute)
		if s := n.Status(); s.Snapshot.EndOffset != 2 || calls != 2 {
			t.Errorf("%+v after %d calls", *s, calls)
		}
		time.Sleep(10 * time.Minute)
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestProposeDeadline(t *testing.T) {
	n, err := Open(single(t, disk.NewMem(1)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Not started: nobody answers.
	if _, err := n.Propose(ctx, 1, batch(t, 0, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("propose: %v", err)
	}
	if _, err := n.ReadIndex(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("read index: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestHighWatermarkIsTheCommitPoint: entries that are in the log but not committed
// are no reader's business.
func TestHighWatermarkIsTheCommitPoint(t *testing.T) {
	data := func(index uint64, offset int64, n int) *pb.Entry {
		b := record.Batch(batch(t, int(offset), n))
		b.SetBaseOffset(offset)
		return &pb.Entry{Index: new(index), Term: new(uint64(2)), Data: b}
	}
	snap := &snapshot{at: position{1, 1}, conf: &pb.ConfState{}}
	s, err := newStore(&recovered{before: position{1, 1}, hard: hard(2, 1)}, snap)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.append([]*pb.Entry{data(2, 0, 3), data(3, 3, 2), data(4, 5, 1)}); err != nil {
		t.Fatal(err)
	}
	check := func(hw, end int64) {
		t.Helper()
		if _, h, e, _ := s.state(); h != hw || e != end {
			t.Errorf("high watermark %d, end %d, want %d and %d", h, e, hw, end)
		}
		b, err := s.readCommitted(0, 1<<20)
		if got := checkBatches(t, b, 0); err != nil || got != hw {
			t.Errorf("read up to %d, %v, want %d", got, err, hw)
		}
		if _, err := s.readCommitted(hw+1, 1<<20); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("read above the high watermark: %v", err)
		}
	}
	check(0, 6)
	s.setApplied(3)
	check(5, 6)
	// The uncommitted entry is replaced.
	if err := s.append([]*pb.Entry{data(4, 5, 4)}); err != nil {
		t.Fatal(err)
	}
	check(5, 9)
	s.setApplied(4)
	check(9, 9)
	if err := s.append([]*pb.Entry{data(5, 8, 1)}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a batch with a wrong offset: %v", err)
	}
}

func TestMissingRaftLogIsDamage(t *testing.T) {
	mem := disk.NewMem(1)
	o := single(t, mem)
	n, epoch := startSingle(t, o)
	mustPropose(t, n, epoch, 0, 3)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := mem.ReadDir(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range names {
		if _, ok := parseSegmentName(e.Name()); ok {
			if err := mem.Remove(o.Dir + "/" + e.Name()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := Open(o); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "missing") {
		t.Fatalf("opened without its raft log: %v", err)
	}
}

// A turn that fails before it comes to what waits for it leaves nobody waiting for ever.
func TestFailedTurnAnswersAll(t *testing.T) {
	var broken atomic.Bool
	fsys := disk.Faulty(disk.NewMem(1), func(op disk.Op, _ string) error {
		if broken.Load() && op == disk.OpWrite {
			return errTest
		}
		return nil
	})
	n, err := Open(single(t, fsys))
	if err != nil {
		t.Fatal(err)
	}
	m, err := n.Manual()
	if err != nil {
		t.Fatal(err)
	}
	epoch := n.Status().Epoch
	if _, err := n.Propose(t.Context(), epoch, batch(t, 0, 1)); err != nil { // its commit index waits for a tick to be written
		t.Fatal(err)
	}
	broken.Store(true)
	p := &proposal{epoch: epoch, base: -1, batches: []record.Batch{batch(t, 1, 1)}, done: make(chan proposed, 1)}
	if err := n.send(func(in *input) { in.proposals = append(in.proposals, p) }); err != nil {
		t.Fatal(err)
	}
	read, err := m.Confirm()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Turn(true); !errors.Is(err, errTest) {
		t.Fatalf("the turn ends with %v", err)
	}
	select {
	case r := <-p.done:
		if !errors.Is(r.err, ErrClosed) {
			t.Errorf("the proposal was answered with %+v", r)
		}
	default:
		t.Error("the proposal was never answered")
	}
	select {
	case err := <-read:
		if !errors.Is(err, ErrClosed) {
			t.Errorf("the read was answered with %v", err)
		}
	default:
		t.Error("the read was never answered")
	}
}

// A voter whose log is gone doesn't come back as the same member: it has forgotten what it agreed to. A format or restore
// begins another quorum.
func TestAVoterWithoutItsLogIsRefused(t *testing.T) {
	mem := disk.NewMem(1)
	n, epoch := startSingle(t, single(t, mem))
	mustPropose(t, n, epoch, 0, 2)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mem.RemoveAll("/meta"); err != nil {
		t.Fatal(err)
	}
	for _, voters := range [][]Voter{nil, voterList(1)} { // one that would wait to be added, too
		o := single(t, mem)
		o.Voters = voters
		if _, err := Open(o); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "milena quorum remove --controller-id 1") {
			t.Errorf("it is opened: %v", err)
		}
	}
	if err := Format(mem, "/meta", voterList(1)); err != nil {
		t.Fatal(err)
	}
	n, _ = startSingle(t, single(t, mem))
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}
