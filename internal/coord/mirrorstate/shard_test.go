package mirrorstate

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"milena/internal/api"
	"milena/internal/coord"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// logged is a shard with its log in memory: commands apply and keep their records at once.
type logged struct {
	*Shard
	records []machine.Record
}

func newLogged() *logged {
	return &logged{Shard: NewShard(Options{MaxAttempts: 3, Logger: slog.New(slog.DiscardHandler)})}
}

func (l *logged) run(cmd machine.Command) machine.Result {
	r := cmd(time.Unix(0, 0))
	for _, rec := range r.Records {
		l.Apply(int64(len(l.records)), rec)
		l.records = append(l.records, rec)
	}
	return r
}

func (l *logged) writeOne(w Write) (Status, error) {
	r := l.run(l.Write([]Write{w})).Reply.([]WriteResult)[0]
	return r.Status, r.Err
}

func (l *logged) replayed() *logged {
	n := newLogged()
	for i, r := range l.records {
		n.Apply(int64(i), r)
	}
	return n
}

func key(p int32) Key { return Key{"dr", ids.UUID{1}, p} }

func to(s mirrormsg.State, leader, state int32) Write {
	return Write{Key: key(0), State: s, LeaderEpoch: leader, StateEpoch: state, StopWish: -1, RetryAttempt: -1}
}

func codeOf(err error) api.Code {
	c, _ := api.CodeOf(err)
	return c
}

// 136. Stale leader write after a new leader's read (JR67 example): fenced.
//
// The worked example of spec 7.8: the read of the new leader fences the delayed write of the old one, which has the
// current state epoch.
func TestScenario136(t *testing.T) {
	l := newLogged()
	for _, s := range []mirrormsg.State{mirrormsg.LogTruncation, mirrormsg.Mirroring} {
		if _, err := l.writeOne(to(s, 1, -1)); err != nil {
			t.Fatal(err)
		}
	}
	st := l.run(l.Read([]Key{key(0)}, []int32{2})).Reply.([]Status)[0]
	if st.StateEpoch != 2 || st.LeaderEpoch != 2 {
		t.Fatalf("read %+v, want state epoch 2 and leader epoch 2", st)
	}
	if _, err := l.writeOne(to(mirrormsg.EpochFencing, 1, 2)); codeOf(err) != api.FencedLeaderEpoch {
		t.Fatalf("the old leader's write: %v, want FENCED_LEADER_EPOCH", err)
	}
	// The fence holds for whoever loads the log after this.
	if _, err := l.replayed().writeOne(to(mirrormsg.EpochFencing, 1, 2)); codeOf(err) != api.FencedLeaderEpoch {
		t.Fatalf("the old leader's write after a reload: %v, want FENCED_LEADER_EPOCH", err)
	}
	got, err := l.writeOne(to(mirrormsg.Pausing, 2, 2))
	if err != nil || got.State != mirrormsg.Pausing || got.StateEpoch != 3 {
		t.Fatalf("the new leader's write: %+v, %v", got, err)
	}
	// A read without a newer epoch writes nothing.
	if r := l.run(l.Read([]Key{key(0)}, []int32{-1})); len(r.Records) != 0 {
		t.Errorf("a plain read wrote %d records", len(r.Records))
	}
}

func TestRefusedWritesChangeNothing(t *testing.T) {
	l := newLogged()
	if _, err := l.writeOne(to(mirrormsg.LogTruncation, 5, -1)); err != nil {
		t.Fatal(err)
	}
	before := l.status(key(0))
	for _, tc := range []struct {
		w    Write
		want api.Code
	}{
		{to(mirrormsg.Mirroring, 4, -1), api.FencedLeaderEpoch},
		{to(mirrormsg.Mirroring, 5, 0), api.FencedStateEpoch},
		{to(mirrormsg.Mirroring, 5, 9), api.FencedStateEpoch},
		{to(mirrormsg.Paused, 5, 1), api.InvalidClusterMirrorStates},
		{to(mirrormsg.Stopping, 5, 1), api.InvalidClusterMirrorStates}, // an unaligned log has no last mirror epoch (JR63.1)
		{to(mirrormsg.State(42), 5, 1), api.InvalidRequest},
	} {
		n := len(l.records)
		if _, err := l.writeOne(tc.w); codeOf(err) != tc.want {
			t.Errorf("%s at epochs %d/%d: %v, want %s", tc.w.State, tc.w.LeaderEpoch, tc.w.StateEpoch, err, tc.want.Name())
		}
		if len(l.records) != n || l.status(key(0)) != before {
			t.Errorf("%s: a refused write changed something", tc.w.State)
		}
	}
}

// Spec D2: the last mirror epoch is captured once per stop wish; a second write for the same wish is answered with the
// stored value.
func TestLastMirrorEpochIsCapturedOncePerWish(t *testing.T) {
	l := newLogged()
	stop := func(wish int64, epoch int32, offset int64) Status {
		w := to(mirrormsg.Unknown, -1, -1)
		w.StopWish, w.LastMirrorEpoch, w.LastMirrorOffset = wish, epoch, offset
		st, err := l.writeOne(w)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	if st := stop(10, 4, 100); st.LastMirrorEpoch != 4 || st.LastMirrorOffset != 100 {
		t.Fatalf("first capture: %+v", st)
	}
	// The retry would see the bumped epoch of its own first attempt.
	if st := stop(10, 15, 103); st.LastMirrorEpoch != 4 || st.LastMirrorOffset != 100 {
		t.Fatalf("second capture of the same wish overwrote the first: %+v", st)
	}
	if st := stop(20, -1, 0); st.LastMirrorEpoch != -1 || st.StopWish != 20 {
		t.Fatalf("capture of an empty log for a later wish: %+v", st)
	}
	if got := l.replayed().status(key(0)); got != l.status(key(0)) {
		t.Errorf("replayed %+v, live %+v", got, l.status(key(0)))
	}
}

func TestFailureFields(t *testing.T) {
	l := newLogged()
	fail := func(text string, final bool) Status {
		w := to(mirrormsg.Failed, -1, -1)
		w.Error, w.NonRetryable = text, final
		st, err := l.writeOne(w)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	for _, s := range []mirrormsg.State{mirrormsg.LogTruncation, mirrormsg.Mirroring} {
		if _, err := l.writeOne(to(s, -1, -1)); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []int16{1, 2, 3, 3} { // the counter stops at MaxAttempts
		if st := fail("no route", false); st.RetryAttempt != want || st.Previous != mirrormsg.Mirroring || st.Error != "no route" {
			t.Fatalf("failure %d: %+v, want attempt %d from MIRRORING", i+1, st, want)
		}
	}
	if st := fail("source topic deleted", true); st.RetryAttempt != -1 || st.Previous != mirrormsg.Mirroring {
		t.Fatalf("final failure: %+v", st)
	}
	if st := fail("no route", false); st.RetryAttempt != -1 {
		t.Fatalf("a later failure made a final one retryable: %+v", st)
	}
	st, err := l.writeOne(to(mirrormsg.Mirroring, -1, -1))
	if err != nil || st.RetryAttempt != -1 {
		t.Fatalf("MIRRORING keeps the counter until the first fetch: %+v, %v", st, err)
	}
	w := to(mirrormsg.Mirroring, -1, -1)
	w.RetryAttempt = 0
	if st, err = l.writeOne(w); err != nil || st.RetryAttempt != 0 || st.Error != "" || st.Previous != mirrormsg.Unknown {
		t.Fatalf("after the first fetch: %+v, %v", st, err)
	}
}

// A retry that begins at LOG_TRUNCATION goes on counting; the alignment that succeeds ends the failure, and a new start does.
func TestRetriesOfTheAlignmentAreCounted(t *testing.T) {
	l := newLogged()
	do := func(s mirrormsg.State) Status {
		t.Helper()
		w := to(s, -1, -1)
		if s == mirrormsg.Failed {
			w.Error = "no route"
		}
		st, err := l.writeOne(w)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	do(mirrormsg.LogTruncation)
	for n := range int16(3) {
		if st := do(mirrormsg.Failed); st.RetryAttempt != n+1 || st.Previous != mirrormsg.LogTruncation {
			t.Fatalf("failure %d: %+v", n+1, st)
		}
		if st := do(mirrormsg.LogTruncation); st.RetryAttempt != n+1 || st.Error == "" {
			t.Fatalf("retry %d: %+v", n+1, st)
		}
	}
	if st := do(mirrormsg.Mirroring); st.RetryAttempt != 0 || st.Error != "" || st.Previous != mirrormsg.Unknown {
		t.Fatalf("aligned: %+v", st)
	}
	do(mirrormsg.Failed)
	do(mirrormsg.Stopping)
	do(mirrormsg.Stopped)
	if st := do(mirrormsg.LogTruncation); st.RetryAttempt != 0 || st.Error != "" {
		t.Fatalf("started again: %+v", st)
	}
}

// Deletion of a mirror: two tombstones a partition, the state's first (spec 6.7), and nothing is left of it.
func TestForget(t *testing.T) {
	l := newLogged()
	for p := range int32(3) {
		w := to(mirrormsg.LogTruncation, 1, -1)
		w.Key = key(p)
		if _, err := l.writeOne(w); err != nil {
			t.Fatal(err)
		}
	}
	other := to(mirrormsg.LogTruncation, 1, -1)
	other.Key = Key{"other", ids.UUID{1}, 0}
	if _, err := l.writeOne(other); err != nil {
		t.Fatal(err)
	}
	n := len(l.records)
	r := l.run(l.Forget(func(k Key) bool { return k.Mirror == "dr" }))
	if r.Reply.(int) != 3 || len(l.records)-n != 6 {
		t.Fatalf("forgot %v partitions with %d records", r.Reply, len(l.records)-n)
	}
	for i, rec := range l.records[n:] {
		k, err := mirrormsg.ParseKey(rec.Key)
		want := mirrormsg.MirrorPartitionStateType
		if i%2 == 1 {
			want = mirrormsg.LastMirrorEpochsType
		}
		if err != nil || rec.Value != nil || k.Type != want || k.Partition != int32(i/2) {
			t.Errorf("record %d: %+v, value %v, %v", i, k, rec.Value, err)
		}
	}
	for _, s := range []*logged{l, l.replayed()} {
		if d := cmp.Diff([]Key{other.Key}, s.Keys("")); d != "" {
			t.Errorf("left (-want +got):\n%s", d)
		}
	}
}

// Whatever is written, states move along legal transitions, epochs never go back, and a replay gives the same state.
func TestShardProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLogged()
		for range rapid.IntRange(1, 60).Draw(rt, "writes") {
			k := key(rapid.Int32Range(0, 2).Draw(rt, "partition"))
			before := l.status(k)
			if rapid.IntRange(0, 4).Draw(rt, "kind") == 0 {
				l.run(l.Read([]Key{k}, []int32{rapid.Int32Range(-1, 6).Draw(rt, "reader")}))
			} else {
				w := Write{Key: k, State: mirrormsg.State(rapid.Int8Range(-1, 8).Draw(rt, "state")), LeaderEpoch: rapid.Int32Range(-1, 6).Draw(rt, "leader"),
					StateEpoch: rapid.SampledFrom([]int32{-1, before.StateEpoch, before.StateEpoch - 1}).Draw(rt, "epoch"),
					StopWish:   rapid.Int64Range(-1, 3).Draw(rt, "wish"), LastMirrorEpoch: rapid.Int32Range(-1, 9).Draw(rt, "lme"), LastMirrorOffset: 5,
					Error: "e", NonRetryable: rapid.Bool().Draw(rt, "final"), RetryAttempt: rapid.Int16Range(-1, 2).Draw(rt, "attempt")}
				st, err := l.writeOne(w)
				var coded *api.Error
				if err != nil && !errors.As(err, &coded) {
					rt.Fatalf("an error without a code: %v", err)
				}
				if err == nil && w.LeaderEpoch != -1 && w.LeaderEpoch < before.LeaderEpoch {
					rt.Fatalf("accepted leader epoch %d below %d", w.LeaderEpoch, before.LeaderEpoch)
				}
				if st != l.status(k) {
					rt.Fatalf("answered %+v, holds %+v", st, l.status(k))
				}
			}
			after := l.status(k)
			if !after.State.CanFollow(before.State) {
				rt.Fatalf("%s -> %s", before.State, after.State)
			}
			if after.LeaderEpoch < before.LeaderEpoch || after.StateEpoch < before.StateEpoch {
				rt.Fatalf("epochs went back: %+v after %+v", after, before)
			}
		}
		again := l.replayed()
		for p := range int32(3) {
			if got, want := again.status(key(p)), l.status(key(p)); got != want {
				rt.Fatalf("replayed %+v, live %+v", got, want)
			}
		}
	})
}

// memLog is a log that commits at once.
type memLog struct{ recs []machine.Record }

func (l *memLog) Append(recs []machine.Record) (int64, error) {
	l.recs = append(l.recs, recs...)
	return int64(len(l.recs)) - 1, nil
}

func (l *memLog) Replay(fn func(int64, machine.Record) error) error {
	for i, r := range l.recs {
		if err := fn(int64(i), r); err != nil {
			return err
		}
	}
	return nil
}

func (l *memLog) EndOffset() int64     { return int64(len(l.recs)) }
func (l *memLog) HighWatermark() int64 { return int64(len(l.recs)) }
func (l *memLog) Close()               {}

// A log with a record of a newer release is not served, by name: neither reads nor writes guess what the state is.
func TestRecordsOfNewerReleasesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ key, value, want string }{
		"newer type":    {"\x00\x07rest", "\x00\x00rest", "type 7 version 0"},
		"newer version": {string(stateRecord(key(0), NoStatus()).Key), "\x00\x01rest", "type 2 version 1"},
		"tombstone":     {"\x00\x07rest", "", ""},
		"damaged":       {"\x00", "\x00\x00", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			rec := machine.Record{Key: []byte(c.key), Value: []byte(c.value)}
			if c.value == "" {
				rec.Value = nil
			}
			l := &memLog{recs: []machine.Record{rec}}
			s := NewService(ServiceOptions{
				NodeID: 1, WriteTimeout: time.Second, MaxAttempts: 3, Logger: slog.New(slog.DiscardHandler),
				Open: func(int32, int32, func(int64), func(error)) (coord.Log, error) { return l, nil },
			})
			defer s.Close()
			s.hosts.Apply(leads(t, 1))
			synctest.Wait()
			_, err := s.Read(t.Context(), key(0), 3)
			if c.want == "" {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				return
			}
			for _, want := range []string{"__mirror_state-0", "offset 0 ", c.want} {
				if codeOf(err) != api.CoordinatorNotAvailable || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the error is not COORDINATOR_NOT_AVAILABLE with %q: %v", name, want, err)
				}
			}
		})
	}
}

// leads is a change of metadata after which the broker leads the only partition of __mirror_state.
func leads(t *testing.T, broker int32) *meta.Delta {
	t.Helper()
	d := meta.Empty("c").Draft()
	for i, r := range []meta.Record{
		&meta.TopicRecord{TopicName: Topic, TopicID: ids.UUID{9}},
		&meta.PartitionRecord{TopicID: ids.UUID{9}, Leader: broker, Replicas: []int32{broker}, ISR: []int32{broker}, Directories: []ids.UUID{{1}}},
	} {
		if err := d.Apply(int64(i), 1, r); err != nil {
			t.Fatal(err)
		}
	}
	return meta.Diff(meta.Empty("c"), d.Image())
}
