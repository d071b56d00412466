package metafollow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// quorumDouble are controllers 1 to 3 at addresses c1:1 to c3:3. Each says who it believes to lead.
type quorumDouble struct {
	mu      sync.Mutex
	leader  map[int32]int32 // by controller, -1: it knows none
	epoch   map[int32]int32
	down    map[int32]bool // dialling fails
	hangs   map[int32]bool // dialling and calls wait
	dials   map[int32]int
	calls   map[int32]int // heartbeats
	refuses map[int32]bool
}

func newQuorum(leader, epoch int32) *quorumDouble {
	q := &quorumDouble{leader: map[int32]int32{}, epoch: map[int32]int32{}, down: map[int32]bool{}, hangs: map[int32]bool{}, dials: map[int32]int{}, calls: map[int32]int{}, refuses: map[int32]bool{}}
	for id := range int32(3) {
		q.believe(id+1, leader, epoch)
	}
	return q
}

func (q *quorumDouble) believe(id, leader, epoch int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leader[id], q.epoch[id] = leader, epoch
}

func (q *quorumDouble) with(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
}

func (q *quorumDouble) dial(ctx context.Context, addr, _ string) (Conn, error) {
	id := int32(1) // the one inside
	if addr != "" {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		id = int32(n)
	}
	q.mu.Lock()
	q.dials[id]++
	down, hangs := q.down[id], q.hangs[id]
	q.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if down {
		return nil, fmt.Errorf("dial %s: refused", addr)
	}
	return &controllerConn{q: q, id: id, closed: make(chan struct{})}, nil
}

type controllerConn struct {
	q      *quorumDouble
	id     int32
	once   sync.Once
	closed chan struct{}
}

func (c *controllerConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (c *controllerConn) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	c.q.mu.Lock()
	down, hangs, leader, epoch, refuses := c.q.down[c.id], c.q.hangs[c.id], c.q.leader[c.id], c.q.epoch[c.id], c.q.refuses[c.id]
	c.q.mu.Unlock()
	select {
	case <-c.closed:
		return nil, errors.New("closed")
	default:
	}
	switch {
	case hangs:
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.closed:
			return nil, errors.New("closed")
		}
	case down:
		return nil, errors.New("broken")
	}
	switch req.(type) {
	case *kmsg.FetchRequest:
		p := kmsg.NewFetchResponseTopicPartition()
		p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = leader, epoch
		tp := kmsg.NewFetchResponseTopic()
		tp.Partitions = append(tp.Partitions, p)
		resp := kmsg.NewPtrFetchResponse()
		resp.Topics = append(resp.Topics, tp)
		if leader > 0 {
			b := kmsg.NewFetchResponseBroker()
			b.NodeID, b.Host, b.Port = leader, fmt.Sprintf("c%d", leader), leader
			resp.Brokers = append(resp.Brokers, b)
		}
		return resp, nil
	case *kmsg.BrokerHeartbeatRequest:
		c.q.with(func() { c.q.calls[c.id]++ })
		resp := kmsg.NewPtrBrokerHeartbeatResponse()
		if leader != c.id || refuses {
			resp.ErrorCode = int16(api.NotController)
		}
		resp.ThrottleMillis = c.id
		return resp, nil
	}
	return nil, fmt.Errorf("unexpected %T", req)
}

func bootstrapFinder(q *quorumDouble, addrs ...string) *Finder {
	return NewFinder(FinderOptions{NodeID: 9, ClusterID: "c", Dial: q.dial, Bootstrap: addrs})
}

// beatOver sends a heartbeat and returns which controller answered.
func beatOver(t *testing.T, c Caller) int32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := c.Call(ctx, kmsg.NewPtrBrokerHeartbeatRequest())
	if err != nil {
		t.Fatal(err)
	}
	return r.(*kmsg.BrokerHeartbeatResponse).ThrottleMillis
}

func TestFinderLearnsFromOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuorum(3, 5)
		f := bootstrapFinder(q, "c2:2")
		defer f.Close()
		if id := beatOver(t, f.Active("x")); id != 3 {
			t.Errorf("controller %d answered, 3 leads", id)
		}
		if c, epoch, ok := f.Leader(); !ok || c != (Controller{ID: 3, Addr: "c3:3"}) || epoch != 5 {
			t.Errorf("the finder knows %v of epoch %d", c, epoch)
		}
	})
}

// One controller that hangs, and one that is down, delay nobody.
func TestFinderAsksAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuorum(3, 5)
		q.hangs[1], q.down[2] = true, true
		f := bootstrapFinder(q, "c1:1", "c2:2", "c3:3")
		defer f.Close()
		begun := time.Now()
		if id := beatOver(t, f.Active("x")); id != 3 || time.Since(begun) > 0 {
			t.Errorf("controller %d answered after %s", id, time.Since(begun))
		}
	})
}

// After a failover calls reach the new leader, whatever those say that don't know of it yet.
func TestFinderFollowsAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuorum(3, 5)
		f := bootstrapFinder(q, "c1:1", "c2:2", "c3:3")
		defer f.Close()
		link := Retry{Link: f.Active("x")}
		beatOver(t, link)
		q.with(func() { q.down[3] = true })
		go func() {
			time.Sleep(300 * time.Millisecond) // of the bubble's clock
			q.believe(2, 2, 6)                 // 1 still believes in 3
		}()
		begun := time.Now()
		if id := beatOver(t, link); id != 2 || time.Since(begun) > time.Second {
			t.Errorf("controller %d answered after %s, 2 leads since 300 ms", id, time.Since(begun))
		}
		f.Learn(3, 5, nil) // old news
		if c, _, _ := f.Leader(); c.ID != 2 {
			t.Errorf("an older epoch's leader replaced %d", c.ID)
		}
	})
}

// A call that hangs at a leader that is cut off is cut too, once another is known to lead.
func TestLinkLeavesAnOldLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuorum(3, 5)
		f := bootstrapFinder(q, "c1:1", "c2:2", "c3:3")
		defer f.Close()
		link := Retry{Link: f.Active("x")}
		beatOver(t, link)
		q.with(func() { q.hangs[3] = true })
		got := make(chan int32)
		go func() { got <- beatOver(t, link) }()
		synctest.Wait()
		q.believe(1, 1, 6)
		begun := time.Now()
		f.Learn(1, 6, []Controller{{1, "c1:1"}})
		if id := <-got; id != 1 || time.Since(begun) > 100*time.Millisecond {
			t.Errorf("controller %d answered %s after it was known to lead", id, time.Since(begun))
		}
	})
}

// NOT_CONTROLLER makes the next attempt look again; the error of a call that ran out of time says what was tried.
func TestRetryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuorum(3, 5)
		q.refuses[3] = true
		f := bootstrapFinder(q, "c3:3")
		defer f.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := Retry{Link: f.Active("x")}.Call(ctx, kmsg.NewPtrBrokerHeartbeatRequest())
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "NOT_CONTROLLER") {
			t.Errorf("error %v", err)
		}
		if n := q.calls[3]; n < 5 || n > 30 {
			t.Errorf("%d attempts in 2 s", n)
		}
		q.with(func() { q.leader[3] = -1 })
		ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err = Retry{Link: f.Active("y")}.Call(ctx, kmsg.NewPtrBrokerHeartbeatRequest())
		if err == nil || !strings.Contains(err.Error(), "no controller says that it is the active one") {
			t.Errorf("without a leader: %v", err)
		}
	})
}

// The one in the process comes first, then the others in turn.
func TestAnyTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuorum(1, 5)
		f := NewFinder(FinderOptions{NodeID: 1, ClusterID: "c", Dial: q.dial, Inside: true, Voters: func() []Controller {
			return []Controller{{1, "c1:1"}, {2, "c2:2"}, {3, "c3:3"}}
		}})
		defer f.Close()
		l := f.Any("x")
		var order []int32
		for range 4 {
			c, err := l.Pin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			order = append(order, c.(*controllerConn).id)
			l.Reset()
		}
		if fmt.Sprint(order) != "[1 2 3 1]" {
			t.Errorf("turns %v", order)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Pin(t.Context()); !errors.Is(err, ErrNotConnected) {
			t.Errorf("a closed link: %v", err)
		}
	})
}

func TestNotController(t *testing.T) {
	heartbeat := kmsg.NewPtrBrokerHeartbeatResponse()
	if NotController(heartbeat) {
		t.Error("a heartbeat without an error")
	}
	heartbeat.ErrorCode = int16(api.NotController)
	topics := kmsg.NewPtrCreateTopicsResponse()
	topics.Topics = append(topics.Topics, kmsg.NewCreateTopicsResponseTopic())
	if NotController(topics) {
		t.Error("a created topic")
	}
	topics.Topics[0].ErrorCode = int16(api.NotController)
	if !NotController(heartbeat) || !NotController(topics) || NotController((*kmsg.FetchResponse)(nil)) {
		t.Error("NOT_CONTROLLER isn't seen, or where it isn't")
	}
}

// A follower leaves a controller that knows no leader, one that hangs, and one that stays behind what heartbeats tell.
func TestFollowerMovesOn(t *testing.T) {
	for _, tt := range []struct {
		name string
		hurt func(q *quorumDouble, f *Follower)
	}{
		{"no leader", func(q *quorumDouble, _ *Follower) { q.leader[1] = -1 }},
		{"an old leader", func(q *quorumDouble, f *Follower) {
			f.o.Finder.mu.Lock()
			f.o.Finder.epoch = 9
			f.o.Finder.mu.Unlock()
			q.epoch[2], q.epoch[3] = 9, 9
		}},
		{"hangs", func(q *quorumDouble, _ *Follower) { q.hangs[1] = true }},
		{"behind", func(_ *quorumDouble, f *Follower) { f.Expect(100) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQuorum(1, 5)
				find := NewFinder(FinderOptions{NodeID: 1, ClusterID: "c", Inside: true, Dial: func(ctx context.Context, addr, id string) (Conn, error) {
					c, err := q.dial(ctx, addr, id)
					return slowConn{c}, err
				}, Voters: func() []Controller { return []Controller{{2, "c2:2"}, {3, "c3:3"}} }})
				l := find.Any("metadata")
				f := New(Options{NodeID: 1, ClusterID: "c", Controller: l, Finder: find})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- f.Run(ctx) }()
				time.Sleep(time.Second) // of the bubble's clock
				q.with(func() {
					if q.dials[2] != 0 {
						t.Error("another controller was asked though the first was of use")
					}
					tt.hurt(q, f)
				})
				time.Sleep(4 * time.Second) // of the bubble's clock
				q.with(func() {
					if q.dials[2] == 0 {
						t.Error("the follower stays with a controller that is of no use")
					}
				})
				cancel()
				<-done
				_ = l.Close()
				find.Close()
			})
		})
	}
}

// slowConn answers fetches late, as a long poll does.
type slowConn struct{ Conn }

func (c slowConn) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if _, ok := req.(*kmsg.FetchRequest); ok {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return c.Conn.Call(ctx, req)
}
