package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Unix(1_000_000, 0)

func loadedCore(t interface{ Fatal(...any) }, m Machine, l Log, o Options) *Core {
	o.Machine, o.Log = m, l
	c := NewCore(o)
	if _, err := c.Load(epoch, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCommandsOfOneFlushShareOneBatch(t *testing.T) {
	m, l := newToy(), &memLog{}
	c := loadedCore(t, m, l, Options{})
	var a, b, other, again, all answer
	c.Exec(epoch, m.incr("x", 2), a.take)
	c.Exec(epoch, m.incr("x", 1), b.take) // sees the first
	c.Exec(epoch, m.get("y"), other.take) // nothing pending: at once
	c.Exec(epoch, m.get("x"), again.take)
	c.Exec(epoch, m.get(""), all.take)
	if !other.got || other.value != 0 {
		t.Errorf("read of an entity without pending writes: %+v", other)
	}
	if err := c.Flush(epoch); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.batches, []int{3}) {
		t.Errorf("batches of %v records, want one of 3", l.batches)
	}
	c.Committed(epoch, l.commit(2))
	if !a.got || a.value != 2 || b.got || again.got || all.got {
		t.Errorf("at commit of the first command: %+v %+v %+v %+v", a, b, again, all)
	}
	c.Committed(epoch, l.commit(3))
	if b.value != 3 || again.value != 3 || all.value != 3 {
		t.Errorf("at commit of the second: %+v %+v %+v", b, again, all)
	}
}

func TestUnnamedWriteHoldsUpEveryRead(t *testing.T) {
	m, l := newToy(), &memLog{}
	c := loadedCore(t, m, l, Options{})
	var w, r, multi answer
	c.Exec(epoch, func(time.Time) Result { return Result{Records: []Record{{Key: []byte("k")}}} }, w.take)
	c.Exec(epoch, m.get("other"), r.take)
	c.Exec(epoch, func(time.Time) Result { return Result{Entities: []string{"a", "b"}, Err: errTest} }, multi.take)
	if err := c.Flush(epoch); err != nil {
		t.Fatal(err)
	}
	if w.got || r.got || multi.got {
		t.Fatal("replied before the commit")
	}
	c.Committed(epoch, l.commit(1))
	if !w.got || !r.got || !errors.Is(multi.err, errTest) {
		t.Errorf("after the commit: %+v %+v %+v", w, r, multi)
	}
}

func TestNoWait(t *testing.T) {
	m, l := newToy(), &memLog{}
	c := loadedCore(t, m, l, Options{})
	var w, beat, write answer
	c.Exec(epoch, m.incr("x", 1), w.take)
	c.ExecNow(epoch, m.get("x"), beat.take)
	if !beat.got || beat.value != 1 {
		t.Errorf("heartbeat: %+v", beat)
	}
	c.ExecNow(epoch, m.incr("x", 1), write.take)
	if write.got {
		t.Error("a write replied before its append")
	}
	if err := c.Flush(epoch); err != nil {
		t.Fatal(err)
	}
	if !write.got || write.value != 2 {
		t.Errorf("a NoWait write after its append: %+v", write)
	}
	if w.got {
		t.Error("a waiting write replied before its commit")
	}
}

// vetting is a machine that knows no record with the key "new".
type vetting struct{ *toy }

func (vetting) Vet(r Record) error {
	if string(r.Key) == "new" {
		return errors.New("type new")
	}
	return nil
}

// A replay ends at a record that the machine says is a newer release's, before the machine has applied it.
func TestReplayStopsAtAnUnknownRecord(t *testing.T) {
	m := newToy()
	l := &memLog{recs: []Record{{Key: []byte("a")}, {Key: []byte("new")}, {Key: []byte("a")}}, hw: 3}
	_, err := NewCore(Options{Machine: vetting{m}, Log: l}).Load(epoch, nil)
	var unknown *UnknownRecordError
	if !errors.As(err, &unknown) || unknown.Offset != 1 || !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "type new") {
		t.Errorf("load: %v", err)
	}
	if m.records != 1 {
		t.Errorf("%d records were applied", m.records)
	}
}

func TestReadsAfterLoadWaitForTheUncommittedTail(t *testing.T) {
	m, l := newToy(), &memLog{recs: []Record{{Key: []byte("x")}, {Key: []byte("x")}}, hw: 1}
	c := loadedCore(t, m, l, Options{})
	var r answer
	c.Exec(epoch, m.get("x"), r.take)
	if r.got {
		t.Fatal("replied before the tail was committed")
	}
	c.Committed(epoch, l.commit(2))
	if r.value != 2 {
		t.Errorf("got %+v", r)
	}
}

func TestFailedAppendEndsTheCore(t *testing.T) {
	m, l := newToy(), &memLog{}
	c := loadedCore(t, m, l, Options{})
	var held, w, nowait, after answer
	c.Exec(epoch, m.incr("x", 1), held.take)
	if err := c.Flush(epoch); err != nil {
		t.Fatal(err)
	}
	l.fail = errTest
	c.Exec(epoch, m.incr("x", 1), w.take)
	c.ExecNow(epoch, m.incr("x", 1), nowait.take)
	if err := c.Flush(epoch); !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	c.Exec(epoch, m.incr("x", 1), after.take)
	for i, a := range []answer{held, w, nowait, after} {
		if !errors.Is(a.err, ErrLost) || !errors.Is(a.err, errTest) {
			t.Errorf("reply %d: %+v", i, a)
		}
	}
	if m.counts["x"] != 3 {
		t.Errorf("a command ran after the end")
	}
	c.Committed(epoch, 10)
}

func TestForeignAppendEndsTheCore(t *testing.T) {
	m, l := newToy(), &memLog{}
	c := loadedCore(t, m, l, Options{})
	l.recs = append(l.recs, Record{})
	var w answer
	c.Exec(epoch, m.incr("x", 1), w.take)
	if err := c.Flush(epoch); !errors.Is(err, ErrLost) || !errors.Is(w.err, ErrLost) {
		t.Errorf("%v, %+v", err, w)
	}
	if len(l.recs) != 1 {
		t.Error("appended behind a record the machine doesn't know")
	}
}

func TestCheckRefusesBeforeTheCommandRuns(t *testing.T) {
	m, l := newToy(), &memLog{}
	var refuse error
	c := loadedCore(t, m, l, Options{Check: func() error { return refuse }, CheckRetry: time.Minute})
	refuse = errTest
	var a answer
	c.Exec(epoch, m.incr("x", 1), a.take)
	if !errors.Is(a.err, errTest) || m.records != 0 {
		t.Errorf("%+v, %d records", a, m.records)
	}
	// A timer's command is tried again later.
	c.After("t", time.Second, m.incr("x", 1))
	c.Tick(epoch.Add(time.Second))
	refuse = nil
	if at, ok := c.NextTimer(); !ok || !at.Equal(epoch.Add(61*time.Second)) || m.records != 0 {
		t.Fatalf("retry at %v (%v), %d records", at, ok, m.records)
	}
	c.Tick(epoch.Add(61 * time.Second))
	if m.records != 1 {
		t.Error("the timer's command did not run")
	}
}

func TestLargeCommandGetsBookends(t *testing.T) {
	m, l := newToy(), &memLog{}
	bookends := func() (Record, Record) { return Record{Value: []byte("begin")}, Record{Value: []byte("end")} }
	c := loadedCore(t, m, l, Options{MaxBatchBytes: 264, Bookends: bookends})
	var a, b, d answer
	c.Exec(epoch, m.incr("x", 3), a.take)
	c.Exec(epoch, m.incr("x", 20), b.take)
	c.Exec(epoch, m.incr("x", 1), d.take)
	if err := c.Flush(epoch); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.batches, []int{3, 22, 1}) {
		t.Fatalf("batches of %v records", l.batches)
	}
	if string(l.recs[3].Value) != "begin" || string(l.recs[24].Value) != "end" {
		t.Errorf("around the large command: %q, %q", l.recs[3].Value, l.recs[24].Value)
	}
	c.Committed(epoch, l.commit(24))
	if !a.got || b.got {
		t.Error("the large command must wait for its last record")
	}
	c.Committed(epoch, l.commit(26))
	if !b.got || !d.got {
		t.Error("no reply at the commit")
	}
}

func TestTooLargeCommandChangesNothing(t *testing.T) {
	m, l := newToy(), &memLog{}
	c := loadedCore(t, m, l, Options{MaxBatchBytes: 264})
	var a, b, d answer
	c.Exec(epoch, m.incr("x", 3), a.take)
	c.Exec(epoch, m.incr("x", 20), b.take)
	c.Exec(epoch, m.incr("x", 1), d.take)
	_ = c.Flush(epoch)
	c.Committed(epoch, l.commit(4))
	if a.value != 3 || !errors.Is(b.err, ErrTooLarge) || d.value != 4 || m.records != 4 {
		t.Errorf("%+v %+v %+v", a, b, d)
	}
}

func TestConfirm(t *testing.T) {
	m, l := newToy(), &memLog{}
	var asked []func(error)
	c := loadedCore(t, m, l, Options{Confirm: func(done func(error)) { asked = append(asked, done) }})
	var a, b, d answer
	c.Exec(epoch, m.get("x"), a.take)
	c.Exec(epoch, m.get("y"), b.take)
	if a.got || b.got || len(asked) != 0 {
		t.Fatal("a read replied unconfirmed")
	}
	_ = c.Flush(epoch)
	c.Exec(epoch, m.get("x"), d.take)
	_ = c.Flush(epoch)
	if len(asked) != 2 {
		t.Fatalf("%d confirmations asked for, want one per flush", len(asked))
	}
	asked[1](errTest)
	asked[0](nil)
	if a.err != nil || b.err != nil || !a.got || !b.got || !errors.Is(d.err, ErrLost) {
		t.Errorf("%+v %+v %+v", a, b, d)
	}
	var e answer
	c.Exec(epoch, m.get("x"), e.take)
	_ = c.Flush(epoch)
	c.Lost(errTest)
	asked[2](nil)
	if !errors.Is(e.err, ErrLost) {
		t.Errorf("unconfirmed read at the end: %+v", e)
	}
}

func TestTimers(t *testing.T) {
	m, l := newToy(), &memLog{}
	var order []string
	note := func(s string) Command {
		return func(now time.Time) Result {
			order = append(order, fmt.Sprintf("%s@%v", s, now.Sub(epoch)))
			return Result{}
		}
	}
	m.onLoad = func() {
		m.After("a", 3*time.Second, note("a"))
		m.After("b", time.Second, note("b1"))
		m.After("b", 2*time.Second, note("b2")) // replaces
		m.After("c", 3*time.Second, note("c"))  // after a
		m.After("d", time.Second, note("d"))
		m.After("loop", 0, func(now time.Time) Result {
			order = append(order, "loop")
			m.After("loop", 0, note("loop2"))
			m.Cancel("d")
			m.Cancel("none")
			return Result{}
		})
	}
	c := loadedCore(t, m, l, Options{})
	c.Tick(epoch)
	c.Tick(epoch)
	c.Tick(epoch.Add(time.Second))
	c.Tick(epoch.Add(4 * time.Second))
	want := []string{"loop", "loop2@0s", "b2@4s", "a@4s", "c@4s"}
	if !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
	if _, ok := c.NextTimer(); ok {
		t.Error("a timer is left")
	}
}

// TestReplyBeforeCommitNeverHappens runs random histories against a model that
// knows, for each command, the commit point its reply has to wait for.
func TestReplyBeforeCommitNeverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, l := newToy(), &memLog{}
		c := loadedCore(t, m, l, Options{MaxBatchBytes: 450})
		type pending struct {
			answer
			need   int64 // the commit point the reply needs; 0: none
			append int64 // the end offset that must be appended first
			want   any
		}
		var cmds []*pending
		known := int64(0) // the commit point the core was told of
		lastAll, lastBarrier, lastOf := int64(0), int64(0), map[string]int64{}
		keys := []string{"a", "b", "c"}
		seen := func(key string) int64 {
			if key == "" {
				return lastAll
			}
			return max(lastBarrier, lastOf[key])
		}
		check := func() {
			for i, p := range cmds {
				if p.got && p.err == nil && (p.need > known || p.need > l.hw) {
					t.Fatalf("command %d replied at commit point %d, needs %d", i, known, p.need)
				}
				if p.got && p.append > int64(len(l.recs)) {
					t.Fatalf("command %d replied before its append", i)
				}
				if !p.got && p.need <= known && p.append <= int64(len(l.recs)) {
					t.Fatalf("command %d has no reply at commit point %d, needs %d", i, known, p.need)
				}
				if p.got && p.err == nil && p.value != p.want {
					t.Fatalf("command %d replied %v, want %v", i, p.value, p.want)
				}
			}
		}
		add := func(cmd Command, p *pending, now bool) {
			cmds = append(cmds, p)
			if now {
				c.ExecNow(epoch, cmd, p.take)
			} else {
				c.Exec(epoch, cmd, p.take)
			}
			known = max(known, c.hw)
		}
		write := func(t *rapid.T, now bool) {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			n := rapid.IntRange(1, 12).Draw(t, "records")
			named := rapid.Bool().Draw(t, "named")
			end := m.last + 1 + int64(n)
			p := &pending{need: end, append: end, want: m.counts[key] + n}
			if now {
				p.need = 0
			}
			cmd := m.incr(key, n)
			add(func(at time.Time) Result {
				res := cmd(at)
				if !named {
					res.Entity = ""
				}
				return res
			}, p, now)
			lastAll = end
			if named {
				lastOf[key] = end
			} else {
				lastBarrier = end
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"":          func(*rapid.T) { check() },
			"write":     func(t *rapid.T) { write(t, false) },
			"write now": func(t *rapid.T) { write(t, true) },
			"read": func(t *rapid.T) {
				key := rapid.SampledFrom(append(keys, "")).Draw(t, "key")
				want := m.counts[key]
				if key == "" {
					want = m.records
				}
				add(m.get(key), &pending{need: seen(key), want: want}, false)
			},
			"heartbeat": func(t *rapid.T) {
				key := rapid.SampledFrom(keys).Draw(t, "key")
				add(m.get(key), &pending{want: m.counts[key]}, true)
			},
			"flush": func(t *rapid.T) {
				if err := c.Flush(epoch); err != nil {
					t.Fatal(err)
				}
				known = max(known, c.hw)
			},
			"commit": func(t *rapid.T) {
				hw := l.commit(l.hw + rapid.Int64Range(0, 20).Draw(t, "records"))
				if rapid.Bool().Draw(t, "told") {
					c.Committed(epoch, hw)
					known = hw
				}
			},
		})
		if rapid.Bool().Draw(t, "lost") {
			c.Lost(errTest)
			for i, p := range cmds {
				if !p.got {
					t.Fatalf("command %d was forgotten", i)
				}
			}
			return
		}
		_ = c.Flush(epoch)
		c.Committed(epoch, l.commit(int64(len(l.recs))))
		for i, p := range cmds {
			if !p.got || p.err != nil {
				t.Fatalf("command %d: %+v", i, p.answer)
			}
		}
		if len(c.writes.entity) != 0 || len(c.writes.pending) != 0 || len(c.waiters.h) != 0 {
			t.Fatal("something is kept of what is committed")
		}
		again := newToy()
		loadedCore(t, again, l, Options{})
		if again.hash != m.hash {
			t.Fatal("the replay makes another state than the commands did")
		}
	})
}
