package quorum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/disk"
	"milena/internal/machine"
	"milena/internal/record"
)

// cluster is a quorum on an in-memory network. All its methods run in a synctest
// bubble.
type cluster struct {
	t       testing.TB
	mu      sync.Mutex
	nodes   map[int32]*voter
	cut     map[[2]int32]bool // from, to
	rnd     *rand.Rand        // delays and losses
	loss    int               // percent
	leaders map[int32]int32   // by epoch
	tune    func(*Options)
}

// voter is a node with its disk.
type voter struct {
	c    *cluster
	self Member
	mem  *disk.Mem
	node *Node // nil while down
	obs  *observer
}

func newCluster(t testing.TB, size int, tune func(*Options)) *cluster {
	c := &cluster{t: t, nodes: map[int32]*voter{}, cut: map[[2]int32]bool{}, leaders: map[int32]int32{},
		rnd: rand.New(rand.NewPCG(1, 1)), tune: tune}
	var first []Voter
	for i := range size {
		first = append(first, voterList(int32(i+1))...)
	}
	for _, v := range first {
		c.add(v.Member)
		c.start(v.ID, first)
	}
	return c
}

func (c *cluster) add(m Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[m.ID] = &voter{c: c, self: m, mem: disk.NewMem(uint64(m.ID))}
}

func (c *cluster) start(id int32, first []Voter) {
	c.mu.Lock()
	v := c.nodes[id]
	c.mu.Unlock()
	obs := &observer{}
	var n *Node
	o := Options{
		FS: v.mem, Dir: "/meta", Self: v.self, Voters: first, Transport: v,
		Logger: slog.New(slog.DiscardHandler),
		Fatal: func(err error) {
			if c.up(id) == n { // not killed
				c.t.Errorf("voter %d: %v", id, err)
			}
		},
		Snapshot: obs.snapshot,
	}
	if c.tune != nil {
		c.tune(&o)
	}
	var err error
	if n, err = Open(o); err != nil {
		c.t.Fatal(err)
	}
	obs.n = n
	c.mu.Lock()
	v.node, v.obs = n, obs
	c.mu.Unlock()
	n.Start()
}

// kill ends a node as a power failure does: nothing is sent or written in time.
func (c *cluster) kill(id int32) {
	v := c.nodes[id]
	c.mu.Lock()
	n := v.node
	v.node = nil
	c.mu.Unlock()
	v.mem.CrashTorn()
	_ = n.Close() // it may have noticed
}

func (c *cluster) up(id int32) *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.nodes[id]; v != nil {
		return v.node
	}
	return nil
}

func (c *cluster) close() {
	for _, id := range c.ids() {
		if n := c.up(id); n != nil {
			if err := n.Close(); err != nil {
				c.t.Errorf("voter %d: %v", id, err)
			}
		}
	}
	synctest.Wait() // messages under way
}

func (c *cluster) ids() []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []int32
	for id := range c.nodes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// isolate cuts a node off, or heals it.
func (c *cluster) isolate(id int32, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other := range c.nodes {
		c.cut[[2]int32{id, other}] = cut
		c.cut[[2]int32{other, id}] = cut
	}
}

// reachable says whether a message gets through, and when.
func (c *cluster) reachable(from, to int32) (*Node, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.nodes[to]
	if v == nil || v.node == nil || c.cut[[2]int32{from, to}] || c.rnd.IntN(100) < c.loss {
		return nil, 0
	}
	return v.node, time.Duration(100+c.rnd.IntN(4000)) * time.Microsecond
}

// Send implements Transport: messages may overtake each other.
func (v *voter) Send(to Voter, message []byte) {
	n, delay := v.c.reachable(v.self.ID, to.ID)
	if n == nil {
		return
	}
	time.AfterFunc(delay, func() {
		if v.c.up(to.ID) != n {
			return
		}
		if err := n.Step(context.Background(), Voter{Member: v.self}, message); err != nil && !errors.Is(err, ErrClosed) {
			v.c.t.Errorf("step: %v", err)
		}
	})
}

// FetchSnapshot implements Fetcher.
func (v *voter) FetchSnapshot(ctx context.Context, from Voter, id SnapshotID, position int64, maxBytes int) ([]byte, error) {
	n, delay := v.c.reachable(v.self.ID, from.ID)
	if n == nil {
		return nil, errTest
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b, _, err := n.ReadSnapshot(id, position, min(maxBytes, 1000))
	return b, err
}

// leader waits until a node that isn't in except leads, and returns it.
func (c *cluster) leader(except ...int32) (int32, int32) {
	c.t.Helper()
	for range 3000 {
		for _, id := range c.ids() {
			if n := c.up(id); n != nil && !slices.Contains(except, id) {
				if s := n.Status(); s.IsLeader {
					return id, s.Epoch
				}
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatal("no leader after 30 s")
	return 0, 0
}

// checkLeaders checks that no epoch has had two leaders.
func (c *cluster) checkLeaders() {
	for _, id := range c.ids() {
		if n := c.up(id); n != nil {
			if s := n.Status(); s.IsLeader {
				if other, ok := c.leaders[s.Epoch]; ok && other != id {
					c.t.Fatalf("epoch %d has leaders %d and %d", s.Epoch, other, id)
				}
				c.leaders[s.Epoch] = id
			}
		}
	}
}

// converged waits until all running voters have the same committed log and returns its
// end.
func (c *cluster) converged(ids ...int32) int64 {
	c.t.Helper()
	var states []string
	for range 3000 {
		states = states[:0]
		var logs [][]byte
		end := int64(-1)
		same := true
		for _, id := range ids {
			n := c.up(id)
			s := n.Status()
			states = append(states, fmt.Sprintf("%d: %+v", id, *s))
			if end == -1 {
				end = s.HighWatermark
			}
			same = same && s.HasLeader && s.HighWatermark == end && s.EndOffset == end
			b, err := n.ReadCommitted(max(s.LogStart, s.HighWatermark-50), 1<<20)
			if err != nil {
				c.t.Fatal(err)
			}
			if len(b) > 0 { // else the snapshot holds all
				logs = append(logs, lastBatch(b))
			}
		}
		for _, l := range logs {
			same = same && bytes.Equal(l, logs[0])
		}
		if same {
			return end
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatalf("not converged after 30 s: %v", states)
	return 0
}

func lastBatch(b []byte) []byte {
	var last []byte
	for bt := range record.Batches(b) {
		last = bt
	}
	return last
}

func TestThreeVotersElectAndReplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := newCluster(t, 3, nil)
		defer c.close()
		id, epoch := c.leader()
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("first leader after %v", took)
		}
		n := c.up(id)
		for i := range 20 {
			mustPropose(t, n, epoch, 2*i, 2)
		}
		if end := c.converged(1, 2, 3); end != 40 {
			t.Errorf("converged at %d", end)
		}
		for _, other := range c.ids() {
			if end := readAll(t, c.up(other), 0); end != 40 {
				t.Errorf("voter %d has records up to %d", other, end)
			}
			hw, err := c.up(other).ReadIndex(t.Context())
			if other == id && (hw != 40 || err != nil) {
				t.Errorf("read index %d, %v", hw, err)
			}
			if other != id {
				if !errors.Is(err, ErrNotLeader) {
					t.Errorf("read index of a follower: %v", err)
				}
				if _, err := c.up(other).Propose(t.Context(), epoch, batch(t, 40, 1)); !errors.Is(err, ErrNotLeader) {
					t.Errorf("proposal at a follower: %v", err)
				}
				if s := c.up(other).Status(); s.Leader != c.nodes[id].self || s.Epoch != epoch {
					t.Errorf("voter %d sees %+v", other, *s)
				}
			}
		}
	})
}

func TestLeaderKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		defer c.close()
		old, epoch := c.leader()
		mustPropose(t, c.up(old), epoch, 0, 10)
		c.kill(old)
		begin := time.Now()
		id, next := c.leader(old)
		t.Logf("new leader after %v", time.Since(begin))
		if next <= epoch || time.Since(begin) > 5*time.Second {
			t.Errorf("epoch %d after %v", next, time.Since(begin))
		}
		mustPropose(t, c.up(id), next, 10, 10)
		c.start(old, nil)
		if end := c.converged(1, 2, 3); end != 20 {
			t.Errorf("converged at %d", end)
		}
		if end := readAll(t, c.up(old), 0); end != 20 {
			t.Errorf("the old leader has records up to %d", end)
		}
	})
}

// TestCutOffLeader: a machine on a leader that is cut off answers nothing that the
// majority doesn't know, and loses its leadership; what it had appended is
// replaced.
func TestCutOffLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		defer c.close()
		old, epoch := c.leader()
		m := &lister{}
		rt, stop := machineOn(t, c.up(old), epoch, m, 0)
		if v, err := rt.Do(t.Context(), m.add(5)); v != 5 || err != nil {
			t.Fatal(v, err)
		}
		c.converged(1, 2, 3)
		c.isolate(old, true)
		if _, err := rt.Do(t.Context(), m.add(7)); !errors.Is(err, machine.ErrLost) {
			t.Errorf("a write on a leader that is cut off: %v", err)
		}
		if len(m.values()) != 12 {
			t.Errorf("%d records applied", len(m.values()))
		}
		stop()
		id, next := c.leader(old)
		again := &lister{}
		rt, stop = machineOn(t, c.up(id), next, again, 0)
		wantValues(t, again.values(), 5)
		if v, err := rt.Do(t.Context(), again.add(1)); v != 6 || err != nil {
			t.Error(v, err)
		}
		c.isolate(old, false)
		if end := c.converged(1, 2, 3); end != 6 {
			t.Errorf("converged at %d", end)
		}
		if end := readAll(t, c.up(old), 0); end != 6 {
			t.Errorf("the old leader has records up to %d", end)
		}
		if e, _ := c.leader(); e != id {
			t.Errorf("the return moved the leadership from %d to %d", id, e)
		}
		stop()
	})
}

// TestReadOnACutOffLeaderIsNotConfirmed: a leader that doesn't know yet that it is
// deposed answers no read.
func TestReadOnACutOffLeaderIsNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		defer c.close()
		old, epoch := c.leader()
		m := &lister{}
		rt, stop := machineOn(t, c.up(old), epoch, m, 0)
		if _, err := rt.Do(t.Context(), m.add(5)); err != nil {
			t.Fatal(err)
		}
		if v, err := rt.Do(t.Context(), m.count); v != 5 || err != nil {
			t.Error(v, err)
		}
		c.isolate(old, true)
		if v, err := rt.Do(t.Context(), m.count); !errors.Is(err, machine.ErrLost) {
			t.Error(v, err)
		}
		stop()
	})
}

func compacting(o *Options) {
	o.SnapshotBytes, o.SegmentBytes, o.KeepEntries = 3000, 2000, 2
}

func TestSnapshotCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, compacting)
		defer c.close()
		id, epoch := c.leader()
		late := id%3 + 1
		mustPropose(t, c.up(id), epoch, 0, 1)
		c.kill(late)
		const total = 301
		for i := 1; i < total; i += 5 {
			mustPropose(t, c.up(id), epoch, i, 5)
		}
		await(t, c.up(id), "snapshot", func(s *Status) bool { return s.LogStart > 100 })
		c.start(late, nil)
		if end := c.converged(1, 2, 3); end != total {
			t.Errorf("converged at %d", end)
		}
		s := c.up(late).Status()
		if !s.HasSnapshot || s.LogStart < 100 {
			t.Errorf("no snapshot was taken: %+v", *s)
		}
		for range 2 { // also after a restart
			obs := &observer{n: c.up(late)}
			if err := obs.catchUp(); err != nil {
				t.Fatal(err)
			}
			wantValues(t, obs.values(), total)
			c.kill(late)
			c.start(late, nil)
			c.converged(1, 2, 3)
		}
		mustPropose(t, c.up(id), epoch, total, 3)
		if end := c.converged(1, 2, 3); end != total+3 {
			t.Errorf("converged at %d", end)
		}
	})
}

func TestChangeVoters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, compacting)
		defer c.close()
		id, epoch := c.leader()
		for i := range 60 {
			mustPropose(t, c.up(id), epoch, 5*i, 5)
		}
		await(t, c.up(id), "snapshot", func(s *Status) bool { return s.LogStart > 0 })
		two, three := testMember(2), testMember(3)
		for _, m := range []Member{two, three} {
			c.add(m)
			c.start(m.ID, nil) // waits to be added
			if err := c.up(id).AddVoter(t.Context(), endpointed(m)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.up(id).AddVoter(t.Context(), Voter{Member: Member{ID: 3}}); !errors.Is(err, ErrDuplicateVoter) {
			t.Errorf("node 3 twice: %v", err)
		}
		if err := c.up(id).RemoveVoter(t.Context(), Member{ID: 3}); !errors.Is(err, ErrVoterNotFound) {
			t.Errorf("node 3 with another disk removed: %v", err)
		}
		if end := c.converged(1, 2, 3); end != 300 {
			t.Errorf("converged at %d", end)
		}
		want := []Voter{{Member: testMember(1)}, endpointed(two), endpointed(three)}
		await(t, c.up(3), "three voters", func(*Status) bool { return len(c.up(3).Voters()) == 3 })
		if vs := c.up(3).VoterSet(); !slices.EqualFunc(vs, want, Voter.Equal) {
			t.Errorf("voters %v", vs)
		}
		// The first voter is removed, and steps down when that is committed.
		if err := c.up(id).RemoveVoter(t.Context(), testMember(1)); err != nil {
			t.Fatal(err)
		}
		next, epoch := c.leader(1)
		c.kill(1)
		await(t, c.up(next), "two voters", func(*Status) bool { return len(c.up(next).Voters()) == 2 })
		mustPropose(t, c.up(next), epoch, 300, 5)
		for _, id := range []int32{2, 3} {
			c.kill(id)
			c.start(id, nil)
		}
		next, epoch = c.leader()
		mustPropose(t, c.up(next), epoch, 305, 60)
		if end := c.converged(2, 3); end != 365 {
			t.Errorf("converged at %d", end)
		}
		if err := c.up(5-next).RemoveVoter(t.Context(), two); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a change at a follower: %v", err)
		}
		if vs := c.up(5 - next).VoterSet(); !slices.EqualFunc(vs, want[1:], Voter.Equal) {
			t.Errorf("voters after restarts %v", vs)
		}
	})
}

// TestVoterThatMissedAChange: a voter that was away while another was added votes for it: nobody else could lead.
func TestVoterThatMissedAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		defer c.close()
		id, _ := c.leader()
		var others []int32
		for _, o := range c.ids() {
			if o != id {
				others = append(others, o)
			}
		}
		away, gone := others[0], others[1]
		c.add(testMember(4))
		c.start(4, nil)
		c.isolate(away, true)
		if err := c.up(id).AddVoter(t.Context(), endpointed(testMember(4))); err != nil {
			t.Fatal(err)
		}
		if err := c.up(id).RemoveVoter(t.Context(), testMember(gone)); err != nil {
			t.Fatal(err)
		}
		await(t, c.up(4), "three voters", func(*Status) bool { return len(c.up(4).Voters()) == 3 })
		c.kill(id)
		c.kill(gone)
		c.isolate(away, false)
		if next, _ := c.leader(); next != 4 {
			t.Errorf("voter %d leads", next)
		}
	})
}

// TestLeaderDiesWhileAVoterIsAdded: the learner that it leaves behind has no vote and goes
// after a while, or becomes a voter when it is asked for again.
func TestLeaderDiesWhileAVoterIsAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		defer c.close()
		old, epoch := c.leader()
		mustPropose(t, c.up(old), epoch, 0, 3)
		added := make(chan error, 1)
		n := c.up(old)
		go func() { added <- n.AddVoter(context.Background(), endpointed(testMember(4))) }() // it never starts
		learns := func(n *Node) bool {
			d, err := n.Describe()
			return err == nil && len(d.Observers) == 1 && d.Observers[0].ID == 4
		}
		for _, id := range c.ids() { // known to all
			for !learns(c.up(id)) {
				time.Sleep(10 * time.Millisecond)
			}
		}
		c.kill(old)
		if err := <-added; !errors.Is(err, ErrClosed) {
			t.Errorf("the dead leader says %v", err)
		}
		next, _ := c.leader(old)
		if vs := c.up(next).Voters(); len(vs) != 3 {
			t.Errorf("voters %v", vs)
		}
		begin := time.Now()
		for learns(c.up(next)) {
			time.Sleep(100 * time.Millisecond)
			if time.Since(begin) > time.Minute {
				t.Fatal("the learner stays")
			}
		}
		c.start(old, nil)
		c.converged(1, 2, 3)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		go func() {
			time.Sleep(5 * time.Second)
			c.add(testMember(4))
			c.start(4, nil)
		}()
		next, _ = c.leader()
		if err := c.up(next).AddVoter(ctx, endpointed(testMember(4))); err != nil {
			t.Error(err)
		}
		c.converged(1, 2, 3, 4)
	})
}

// A new voter that stops answering while it is fed doesn't hold up other changes until its time-out, and a removal
// that would leave no majority of voters that answer is refused.
func TestChangesThatCannotGoWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		defer c.close()
		id, epoch := c.leader()
		mustPropose(t, c.up(id), epoch, 0, 3)
		begin := time.Now()
		if err := c.up(id).AddVoter(t.Context(), endpointed(testMember(4))); !errors.Is(err, ErrNotReady) {
			t.Errorf("a node that never answers was added: %v", err)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("refused after %v", took)
		}
		down, other := id%3+1, (id+1)%3+1
		c.kill(down)
		time.Sleep(2 * time.Second)
		if err := c.up(id).RemoveVoter(t.Context(), testMember(other)); !errors.Is(err, ErrNoMajority) {
			t.Errorf("removing one of two that answer: %v", err)
		}
		if err := c.up(id).RemoveVoter(t.Context(), testMember(down)); err != nil {
			t.Error(err)
		}
		c.converged(id, other)
	})
}

// endpointed is the member with an endpoint of its own.
func endpointed(m Member) Voter {
	return Voter{Member: m, Endpoints: []Endpoint{{Name: "CONTROLLER", Host: fmt.Sprintf("host-%d", m.ID), Port: 9093}}}
}

// TestChaos kills, cuts off and restarts voters at random while records are
// proposed, over a network that loses and reorders messages. What was seen
// committed must be in every voter's log at the end, at its offset.
func TestChaos(t *testing.T) {
	const seeds = 5
	total := 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			c := newCluster(t, 3, compacting)
			defer c.close()
			c.loss = 5
			acked := map[int64]string{}
			unique := 0
			down := map[int32]bool{}
			for range 150 {
				c.checkLeaders()
				id := int32(1 + rnd.IntN(3))
				switch rnd.IntN(12) {
				case 0:
					if down[id] {
						c.start(id, nil)
					} else {
						c.kill(id)
					}
					down[id] = !down[id]
				case 1:
					c.mu.Lock()
					c.cut[[2]int32{id, int32(1 + rnd.IntN(3))}] = true
					c.mu.Unlock()
				case 2:
					c.mu.Lock()
					clear(c.cut)
					c.mu.Unlock()
				default:
					unique++
					value := fmt.Sprintf("value %d of seed %d", unique, seed)
					for _, id := range c.ids() {
						if at := c.write(id, value); at >= 0 {
							acked[at] = value
						}
					}
				}
				time.Sleep(time.Duration(rnd.IntN(600)) * time.Millisecond)
			}
			c.mu.Lock()
			clear(c.cut)
			c.loss = 0
			c.mu.Unlock()
			for id, d := range down {
				if d {
					c.start(id, nil)
				}
			}
			end := c.converged(1, 2, 3)
			total += len(acked)
			for _, id := range c.ids() {
				obs := &observer{n: c.up(id)}
				if err := obs.catchUp(); err != nil {
					t.Fatal(err)
				}
				vals := obs.values()
				if int64(len(vals)) != end {
					t.Fatalf("voter %d has %d records, the high watermark is %d", id, len(vals), end)
				}
				for at, want := range acked {
					if at >= end || vals[at] != want {
						t.Errorf("seed %d: voter %d lost %q at offset %d", seed, id, want, at)
					}
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	if total < 10*seeds {
		t.Errorf("only %d records were committed", total)
	}
}

// write proposes a value at a node, if that leads, and waits a little for the
// commit. It returns the value's offset, -1 if it isn't known to be committed.
func (c *cluster) write(id int32, value string) int64 {
	n := c.up(id)
	if n == nil || !n.Status().IsLeader {
		return -1
	}
	epoch := n.Status().Epoch
	b, err := record.Build(record.BuilderOptions{}, record.Record{Value: []byte(value)})
	if err != nil {
		c.t.Fatal(err)
	}
	last, err := n.Propose(context.Background(), epoch, b)
	if err != nil {
		return -1
	}
	deadline := time.After(time.Second)
	for {
		s, changed := n.Changed()
		if !s.IsLeader || s.Epoch != epoch {
			return -1
		}
		if s.HighWatermark > last {
			return last
		}
		select {
		case <-changed:
		case <-deadline:
			return -1
		}
	}
}
