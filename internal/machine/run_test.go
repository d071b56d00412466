package machine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// startRuntime starts a runtime and waits until it is loaded.
func startRuntime(t *testing.T, m Machine, l Log, o Options) *Runtime {
	t.Helper()
	o.Machine, o.Log = m, l
	rt := New(o)
	rt.Start()
	<-rt.Ready()
	if err := rt.Err(); err != nil {
		t.Fatal(err)
	}
	return rt
}

func TestDoWaitsForTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := newToy(), &memLog{}
		rt := startRuntime(t, m, l, Options{})
		defer rt.Close()
		var a answer
		go func() { a.take(rt.Do(t.Context(), m.incr("x", 1))) }()
		synctest.Wait()
		if l.EndOffset() != 1 || a.got {
			t.Fatalf("end offset %d, replied %v", l.EndOffset(), a.got)
		}
		if v, err := rt.DoNow(t.Context(), m.get("x")); v != 1 || err != nil {
			t.Errorf("heartbeat: %v, %v", v, err)
		}
		rt.Committed(l.commit(1))
		rt.Committed(0) // late news
		synctest.Wait()
		if a.value != 1 || a.err != nil {
			t.Errorf("after the commit: %+v", a)
		}
	})
}

func TestDeadlineEndsTheWaitNotTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := newToy(), &memLog{}
		rt := startRuntime(t, m, l, Options{})
		defer rt.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		var submitted answer
		rt.Submit(ctx, m.incr("y", 1), submitted.take)
		if _, err := rt.Do(ctx, m.incr("x", 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if !errors.Is(submitted.err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("got %+v after %v", submitted, time.Since(begin))
		}
		rt.Committed(l.commit(2))
		if v, err := rt.Do(t.Context(), m.get("x")); v != 1 || err != nil {
			t.Errorf("the write is gone: %v, %v", v, err)
		}
		if _, err := rt.Do(ctx, m.incr("x", 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		rt.Submit(ctx, m.incr("x", 1), func(_ any, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		if m.counts["x"] != 1 {
			t.Error("a command ran after its deadline")
		}
	})
}

func TestLostAnswersEveryone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := newToy(), &memLog{}
		rt := startRuntime(t, m, l, Options{})
		answers := make([]answer, 10)
		for i := range answers {
			rt.Submit(t.Context(), m.incr("x", 1), answers[i].take)
		}
		synctest.Wait()
		rt.Lost(errTest)
		<-rt.Done()
		for i, a := range answers {
			if !errors.Is(a.err, ErrLost) || !errors.Is(a.err, errTest) {
				t.Errorf("reply %d: %+v", i, a)
			}
		}
		if _, err := rt.Do(t.Context(), m.get("x")); !errors.Is(err, ErrLost) {
			t.Errorf("after the end: %v", err)
		}
		rt.Close()
		if err := rt.Err(); !errors.Is(err, ErrLost) || errors.Is(err, ErrClosed) {
			t.Errorf("ended with %v", err)
		}
	})
}

// slowLog blocks the replay until it is told to go on.
type slowLog struct {
	memLog
	gate chan struct{}
}

func (l *slowLog) Replay(fn func(int64, Record) error) error {
	<-l.gate
	return l.memLog.Replay(fn)
}

func TestLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newToy()
		l := &slowLog{gate: make(chan struct{})}
		l.recs, l.hw = make([]Record, 5), 5
		loaded := 0
		rt := New(Options{Machine: m, Log: l, Hooks: Hooks{Loaded: func(n int, d time.Duration) { loaded = n }}})
		rt.Start()
		rt.Start()
		if _, err := rt.Do(t.Context(), m.get("x")); !errors.Is(err, ErrLoading) {
			t.Errorf("while loading: %v", err)
		}
		close(l.gate)
		<-rt.Ready()
		if v, err := rt.Do(t.Context(), m.get("")); v != 5 || err != nil || loaded != 5 {
			t.Errorf("loaded: %v, %v, hook %d", v, err, loaded)
		}
		rt.Close()
		if _, err := rt.Do(t.Context(), m.get("x")); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestCloseWhileLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowLog{gate: make(chan struct{})}
		l.recs = make([]Record, 5)
		m := newToy()
		rt := New(Options{Machine: m, Log: l})
		rt.Start()
		go rt.Close()
		synctest.Wait()
		close(l.gate)
		<-rt.Done()
		<-rt.Ready()
		if err := rt.Err(); !errors.Is(err, ErrClosed) || m.records != 0 {
			t.Errorf("%v, %d records applied", err, m.records)
		}
		never := New(Options{Machine: newToy(), Log: l})
		never.Close()
		<-never.Ready()
		never.Start()
		if err := never.Err(); !errors.Is(err, ErrClosed) {
			t.Errorf("never started: %v", err)
		}
	})
}

func TestRuntimeTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := newToy(), &memLog{}
		begin := time.Now()
		var fired []time.Duration
		m.onLoad = func() {
			var again Command
			again = func(now time.Time) Result {
				fired = append(fired, now.Sub(begin))
				if len(fired) < 3 {
					m.After("t", time.Duration(len(fired))*time.Minute, again)
				}
				return Result{Entity: "t", Records: []Record{{Key: []byte("t")}}}
			}
			m.After("t", time.Second, again)
		}
		rt := startRuntime(t, m, l, Options{})
		defer rt.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []time.Duration{time.Second, 61 * time.Second, 181 * time.Second}
		if len(fired) != 3 || fired[0] != want[0] || fired[1] != want[1] || fired[2] != want[2] {
			t.Errorf("fired at %v, want %v", fired, want)
		}
		if l.EndOffset() != 3 {
			t.Errorf("end offset %d", l.EndOffset())
		}
	})
}

func TestUrgentOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := newToy(), &memLog{}
		rt := startRuntime(t, m, l, Options{})
		defer rt.Close()
		var order []string
		note := func(s string) Command {
			return func(time.Time) Result { order = append(order, s); return Result{} }
		}
		hold, held := make(chan struct{}), make(chan struct{})
		rt.Submit(t.Context(), func(time.Time) Result { close(held); <-hold; return Result{} }, func(any, error) {})
		<-held
		ignore := func(any, error) {}
		rt.Submit(t.Context(), note("first"), ignore)
		rt.Submit(t.Context(), note("second"), ignore)
		rt.SubmitNow(t.Context(), note("heartbeat"), ignore)
		close(hold)
		synctest.Wait()
		if len(order) != 3 || order[0] != "heartbeat" || order[1] != "first" {
			t.Errorf("order %v", order)
		}
	})
}

func TestConfirmThroughTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := newToy(), &memLog{}
		var fail error
		rt := startRuntime(t, m, l, Options{Confirm: func(done func(error)) {
			go func() { time.Sleep(time.Second); done(fail) }()
		}})
		defer rt.Close()
		begin := time.Now()
		if v, err := rt.Do(t.Context(), m.get("x")); v != 0 || err != nil || time.Since(begin) != time.Second {
			t.Errorf("%v, %v after %v", v, err, time.Since(begin))
		}
		fail = errTest
		if _, err := rt.Do(t.Context(), m.get("x")); !errors.Is(err, ErrLost) {
			t.Errorf("unconfirmed: %v", err)
		}
	})
}

// TestManyCallers runs callers against a log that commits a little later, with
// the race detector's help: each reply must be committed when it arrives.
func TestManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := newToy(), &memLog{}
		commands, records := 0, 0
		rt := startRuntime(t, m, l, Options{Hooks: Hooks{Flushed: func(c, r, _ int) { commands += c; records += r }}})
		stop := make(chan struct{})
		var committer, callers sync.WaitGroup
		committer.Go(func() {
			tick := time.NewTicker(3 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					rt.Committed(l.commit(l.EndOffset()))
				}
			}
		})
		for i := range 8 {
			key := string(rune('a' + i))
			callers.Go(func() {
				for n := 1; n <= 50; n++ {
					v, err := rt.Do(t.Context(), func(now time.Time) Result {
						res := m.incr(key, 1)(now)
						res.Reply = m.last + 2 // the end of this write
						return res
					})
					if err != nil || v.(int64) > l.HighWatermark() {
						t.Errorf("reply %v, %v at commit point %d", v, err, l.HighWatermark())
						return
					}
				}
			})
		}
		callers.Wait()
		close(stop)
		committer.Wait()
		rt.Close()
		if m.records != 400 || commands != 400 || records != 400 {
			t.Errorf("%d records, flushed %d commands with %d records", m.records, commands, records)
		}
		again := newToy()
		loadedCore(t, again, l, Options{})
		if again.hash != m.hash {
			t.Error("the replay makes another state than the commands did")
		}
	})
}
