package follow_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"milena/internal/partlog"
	"milena/internal/replica"
)

// step is one event of a random history.
type step struct {
	What   int
	Node   int32
	Amount int
}

// Kinds of steps.
const (
	doProduce = iota
	doProduceMore
	doWait
	doMove
	doCrash
	doStop
	doStart
	doCut
	doJoin
	doDelay
	doDelete
	doSuspend
	kinds
)

// history is what a random test knows must hold.
type history struct {
	c     *cluster
	topic string
	rnd   *rand.Rand

	mu    sync.Mutex
	acked map[int64]string // base offset of acknowledged batches
	// read is what was seen below a high watermark.
	read map[int64]entry
	n    int
}

// Random leader moves, crashes and cut connections: acknowledged records stay,
// replicas agree below their high watermarks, nothing below a high watermark
// ever changes, epochs rise and the caches have exactly them (invariants 1 to 4).
func TestRandomHistories(t *testing.T) {
	gen := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.IntRange(0, kinds-1).Draw(t, "what"), rapid.Int32Range(1, 3).Draw(t, "node"), rapid.IntRange(1, 50).Draw(t, "amount")}
	}), 5, 40)
	rapid.Check(t, func(rt *rapid.T) {
		steps := gen.Draw(rt, "steps")
		seed := rapid.Uint64().Draw(rt, "seed")
		if err := runHistory(t, steps, seed); err != nil {
			rt.Fatal(err)
		}
	})
}

func runHistory(t *testing.T, steps []step, seed uint64) (err error) {
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if r := recover(); r != nil {
				f, ok := r.(fatal)
				if !ok {
					panic(r)
				}
				err = f.err
			}
		}()
		c := newCluster(soft{t}, 2, func(c *cluster) { c.seed = seed })
		defer c.close()
		c.add(1, 2, 3)
		c.waitAlive(1, 2, 3)
		h := &history{c: c, topic: c.topic(1, nil, 1, 2, 3), rnd: rand.New(rand.NewPCG(seed, 1)), acked: map[int64]string{}, read: map[int64]entry{}}
		for i, s := range steps {
			h.step(s)
			if err = h.look(); err != nil {
				err = fmt.Errorf("after step %d, %+v: %w%s", i, s, err, c.describe())
				return
			}
		}
		err = h.heal()
	})
	return err
}

// soft is a test whose failures rapid shrinks.
type soft struct{ *testing.T }

type fatal struct{ err error }

func (soft) Fatalf(format string, args ...any) { panic(fatal{fmt.Errorf(format, args...)}) }

func (h *history) step(s step) {
	c, n := h.c, h.c.nodes[s.Node]
	switch s.What {
	case doProduce, doProduceMore:
		for range s.Amount % 5 {
			h.produce()
		}
	case doWait:
		time.Sleep(time.Duration(s.Amount*s.Amount) * time.Millisecond)
	case doMove: // the controller gives the broker up, wrongly
		if n.up {
			n.fenced()
		}
	case doCrash, doStop:
		if n.up && h.others(s.Node) {
			n.halt(s.What == doCrash)
			if s.Amount%2 == 0 {
				n.fenced()
			}
		}
	case doStart:
		if !n.up {
			n.start()
		}
	case doCut:
		n.cut.Store(true)
	case doJoin:
		n.cut.Store(false)
		n.poke()
	case doDelay:
		n.late.Store(int64(s.Amount%10) * int64(10*time.Millisecond))
	case doDelete:
		if _, p := c.leader(h.topic); p != nil {
			p.DeleteRecords(p.LogStartOffset()+int64(s.Amount%3), func(int64, error) {})
		}
	case doSuspend:
		if n.up {
			n.m.Suspend("test")
			time.Sleep(time.Duration(s.Amount) * time.Millisecond)
			n.m.Resume()
		}
	}
}

// others reports whether the two others have everything that is committed and
// stay: one broker at a time loses what it didn't flush.
func (h *history) others(id int32) bool {
	img := h.c.img.Load()
	for _, n := range h.c.nodes {
		b := img.Broker(n.id)
		if n.id != id && (!n.up || n.cut.Load() || b == nil || b.Epoch != n.epoch.Load() || !slices.Contains(h.c.partition(h.topic).ISR, n.id)) {
			return false
		}
	}
	return true
}

// produce sends a batch to whoever believes to lead.
func (h *history) produce() {
	var leads []*replica.Partition
	for id := int32(1); id <= 3; id++ {
		if n := h.c.nodes[id]; n.up {
			if p, err := n.m.Get(h.topic, 0); err == nil {
				if _, _, self := p.Leader(); self {
					leads = append(leads, p)
				}
			}
		}
	}
	if len(leads) == 0 {
		return
	}
	h.n++
	value := fmt.Sprintf("v%d", h.n)
	h.c.produce(leads[h.rnd.IntN(len(leads))], value, 1+h.rnd.IntN(3), func(info partlog.AppendInfo, err error) {
		if err != nil {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.acked[info.FirstOffset] = value + "/0"
	})
}

// look checks what has to hold at every moment.
func (h *history) look() error {
	synctest.Wait()
	if err := h.c.checkReplicas(h.topic); err != nil {
		return err
	}
	for _, n := range h.c.nodes {
		if !n.up {
			continue
		}
		p, err := n.m.Get(h.topic, 0)
		if err != nil {
			continue
		}
		hw := p.HighWatermark()
		es, err := batches(p, hw)
		if err != nil {
			return fmt.Errorf("node %d: %w", n.id, err)
		}
		for _, e := range es {
			if e.last >= hw {
				return fmt.Errorf("node %d: high watermark %d inside of %+v", n.id, hw, e)
			}
			if old, ok := h.read[e.base]; ok && old != e {
				return fmt.Errorf("node %d: offset %d was %+v below a high watermark and now is %+v", n.id, e.base, old, e)
			}
			h.read[e.base] = e
		}
	}
	return nil
}

// heal lets everything come back and checks the end.
func (h *history) heal() error {
	c := h.c
	for _, n := range c.nodes {
		n.late.Store(0)
		n.cut.Store(false)
		if !n.up {
			n.start()
		}
		n.poke()
	}
	began := time.Now()
	c.mustProduce(h.topic, "last", 1)
	if took := time.Since(began); took > 10*time.Second {
		return fmt.Errorf("writable after %s", took)
	}
	c.waitISR(h.topic, 1, 2, 3)
	c.settled(h.topic)
	if err := h.look(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	_, p := c.leader(h.topic)
	es, err := batches(p, p.LogEndOffset())
	if err != nil {
		return err
	}
	have := map[int64]string{}
	for _, e := range es {
		have[e.base] = e.value
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for off, v := range h.acked {
		if off >= p.LogStartOffset() && have[off] != v {
			return fmt.Errorf("acknowledged %s at offset %d is lost: there is %q%s", v, off, have[off], c.describe())
		}
	}
	return nil
}
