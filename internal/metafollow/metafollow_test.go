package metafollow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/record"
)

// batch is a batch of metadata records from the offset on.
func batch(t *testing.T, offset int64, epoch int32, recs ...meta.Record) []byte {
	t.Helper()
	var rs []record.Record
	for i, r := range recs {
		v, err := meta.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, record.Record{Offset: offset + int64(i), Value: v})
	}
	b, err := record.Build(record.BuilderOptions{BaseOffset: offset, LeaderEpoch: epoch}, rs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func topicRec(n byte) meta.Record {
	return &meta.TopicRecord{TopicName: fmt.Sprintf("t%d", n), TopicID: ids.UUID{0: 1, 15: n}}
}

// script answers requests one after the other; when it is at its end, calls wait.
type script struct {
	mu    sync.Mutex
	steps []func(req kmsg.Request) (kmsg.Response, error)
	seen  []kmsg.Request
}

func (s *script) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	s.mu.Lock()
	s.seen = append(s.seen, req)
	if len(s.steps) == 0 {
		s.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	step := s.steps[0]
	s.steps = s.steps[1:]
	s.mu.Unlock()
	return step(req)
}

func fetched(edit func(p *kmsg.FetchResponseTopicPartition)) func(kmsg.Request) (kmsg.Response, error) {
	return func(kmsg.Request) (kmsg.Response, error) {
		p := kmsg.NewFetchResponseTopicPartition()
		edit(&p)
		tp := kmsg.NewFetchResponseTopic()
		tp.Partitions = append(tp.Partitions, p)
		resp := kmsg.NewPtrFetchResponse()
		resp.Topics = append(resp.Topics, tp)
		return resp, nil
	}
}

func data(b []byte, hw int64) func(kmsg.Request) (kmsg.Response, error) {
	return fetched(func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches, p.HighWatermark = b, hw })
}

func failing(err error) func(kmsg.Request) (kmsg.Response, error) {
	return func(kmsg.Request) (kmsg.Response, error) { return nil, err }
}

// follow runs a follower over the script until it stands still, and returns what the
// subscribers saw (topic counts) and Run's error.
func follow(t *testing.T, s *script) (counts []int, f *Follower, err error) {
	synctest.Test(t, func(t *testing.T) {
		f = New(Options{NodeID: 1, ClusterID: "c", Controller: s})
		f.Subscribe(func(d *meta.Delta) {
			if f.Image() != d.Prev {
				t.Error("the image moved before the subscribers took the delta")
			}
			counts = append(counts, d.Next.TopicCount())
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		cancel()
		err = <-done
	})
	return counts, f, err
}

func TestFollow(t *testing.T) {
	first := batch(t, 0, 1, topicRec(0), topicRec(1))
	second := batch(t, 2, 1, topicRec(2))
	third := batch(t, 3, 2, topicRec(3), topicRec(4))
	cut := batch(t, 5, 2, topicRec(5))
	cut[len(cut)-1] ^= 1
	for _, tt := range []struct {
		name   string
		steps  []func(kmsg.Request) (kmsg.Response, error)
		counts []int
		offset int64
		fails  string
	}{
		{"the first image is that of the present", []func(kmsg.Request) (kmsg.Response, error){data(first, 3), data(second, 3), data(third, 5)}, []int{3, 5}, 4, ""},
		{"several batches make one delta", []func(kmsg.Request) (kmsg.Response, error){data(slices.Concat(first, second, third), 5)}, []int{5}, 4, ""},
		{"records that are known already are skipped", []func(kmsg.Request) (kmsg.Response, error){data(slices.Concat(first, second), 3), data(slices.Concat(first, second, third), 5)}, []int{3, 5}, 4, ""},
		{"errors are tried again", []func(kmsg.Request) (kmsg.Response, error){
			failing(errors.New("broken")), fetched(func(p *kmsg.FetchResponseTopicPartition) { p.ErrorCode = int16(api.NotLeaderOrFollower) }),
			data(first, 2), failing(errors.New("broken")), data(second, 3),
		}, []int{2, 3}, 2, ""},
		{"a gap", []func(kmsg.Request) (kmsg.Response, error){data(first, 2), data(third, 5)}, []int{2}, 1, "offset 3 follows offset 1"},
		{"damage", []func(kmsg.Request) (kmsg.Response, error){data(first, 2), data(cut, 6)}, []int{2}, 1, "damaged"},
		{"a record that doesn't fit", []func(kmsg.Request) (kmsg.Response, error){data(first, 2), data(batch(t, 2, 1, topicRec(1)), 3)}, []int{2}, 1, "topic t1 exists"},
		{"divergence", []func(kmsg.Request) (kmsg.Response, error){data(first, 2), fetched(func(p *kmsg.FetchResponseTopicPartition) {
			p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 0, 1
		})}, []int{2}, 1, "ends epoch 0 at offset 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			counts, f, err := follow(t, &script{steps: tt.steps})
			if !slices.Equal(counts, tt.counts) || f.Image().Offset != tt.offset {
				t.Errorf("saw %v topics up to offset %d, want %v up to %d", counts, f.Image().Offset, tt.counts, tt.offset)
			}
			if tt.fails == "" && !errors.Is(err, context.Canceled) || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// A broker's first image holds its registration, though the controller that is read from is behind and has another past.
func TestFirstImageIsNotOfThePast(t *testing.T) {
	snap := batch(t, 0, 3, topicRec(1), topicRec(9))
	needed := fetched(func(p *kmsg.FetchResponseTopicPartition) { p.SnapshotID.EndOffset, p.SnapshotID.Epoch = 100, 3 })
	for name, steps := range map[string][]func(kmsg.Request) (kmsg.Response, error){
		"records":  {data(batch(t, 0, 1, topicRec(0), topicRec(1)), 2), data(batch(t, 2, 1, topicRec(2)), 3)},
		"snapshot": {needed, snapshotPart(0, int64(len(snap)), snap), data(batch(t, 100, 4, topicRec(5)), 101)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := New(Options{NodeID: 1, ClusterID: "c", Controller: &script{steps: steps}})
				f.NotBefore(map[string]int64{"records": 2, "snapshot": 100}[name])
				var created []string
				f.Subscribe(func(d *meta.Delta) {
					created = append(created, fmt.Sprintf("up to %d:", d.Next.Offset))
					for _, td := range d.Topics {
						created = append(created, td.Topic().Name)
					}
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- f.Run(ctx) }()
				synctest.Wait()
				cancel()
				<-done
				slices.Sort(created)
				want := map[string]string{"records": "t0 t1 t2 up to 2:", "snapshot": "t1 t5 t9 up to 100:"}[name]
				if got := strings.Join(created, " "); got != want {
					t.Errorf("saw %q, want %q", got, want)
				}
			})
		})
	}
}

func TestFetchSaysWhatItHas(t *testing.T) {
	s := &script{steps: []func(kmsg.Request) (kmsg.Response, error){data(batch(t, 0, 7, topicRec(0), topicRec(1)), 2)}}
	if _, _, err := follow(t, s); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	part := func(i int) kmsg.FetchRequestTopicPartition {
		req := s.seen[i].(*kmsg.FetchRequest)
		if ids.UUID(req.Topics[0].TopicID) != ids.MetadataTopic || req.ReplicaState.ID != 1 {
			t.Errorf("fetch %d: topic id %x, replica %d", i, req.Topics[0].TopicID, req.ReplicaState.ID)
		}
		return req.Topics[0].Partitions[0]
	}
	if p := part(0); p.FetchOffset != 0 || p.LastFetchedEpoch != -1 {
		t.Errorf("the first fetch: offset %d epoch %d", p.FetchOffset, p.LastFetchedEpoch)
	}
	if p := part(1); p.FetchOffset != 2 || p.LastFetchedEpoch != 7 {
		t.Errorf("the second fetch: offset %d epoch %d", p.FetchOffset, p.LastFetchedEpoch)
	}
}

func snapshotPart(position, size int64, b []byte) func(kmsg.Request) (kmsg.Response, error) {
	return func(kmsg.Request) (kmsg.Response, error) {
		p := kmsg.NewFetchSnapshotResponseTopicPartition()
		p.Position, p.Size, p.Bytes = position, size, b
		tp := kmsg.NewFetchSnapshotResponseTopic()
		tp.Partitions = append(tp.Partitions, p)
		resp := kmsg.NewPtrFetchSnapshotResponse()
		resp.Topics = append(resp.Topics, tp)
		return resp, nil
	}
}

func TestFollowFromSnapshots(t *testing.T) {
	snap := batch(t, 0, 3, topicRec(1), topicRec(9))
	size := int64(len(snap))
	needed := fetched(func(p *kmsg.FetchResponseTopicPartition) { p.SnapshotID.EndOffset, p.SnapshotID.Epoch = 100, 3 })
	s := &script{steps: []func(kmsg.Request) (kmsg.Response, error){
		data(batch(t, 0, 1, topicRec(0), topicRec(1)), 2),
		needed, snapshotPart(0, size, snap[:40]), snapshotPart(7, size, snap[40:]), // a wrong part: from the start again
		needed, snapshotPart(0, size, snap[:40]), snapshotPart(40, size, snap[40:]),
		data(batch(t, 100, 4, topicRec(5)), 101),
	}}
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{NodeID: 1, ClusterID: "c", Controller: s})
		var deltas []string
		f.Subscribe(func(d *meta.Delta) {
			text := fmt.Sprintf("%d:", d.Next.Offset)
			for _, td := range d.Topics {
				text += fmt.Sprintf(" %s created %v deleted %v", td.Topic().Name, td.Created(), td.Deleted())
			}
			deltas = append(deltas, text)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		if err := f.WaitOffset(ctx, 100); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-done
		want := []string{
			"1: t0 created true deleted false t1 created true deleted false",
			"99: t0 created false deleted true t9 created true deleted false",
			"100: t5 created true deleted false",
		}
		if !slices.Equal(deltas, want) {
			t.Errorf("deltas\n%s\nwant\n%s", strings.Join(deltas, "\n"), strings.Join(want, "\n"))
		}
	})
}

type fakeConn struct {
	id     int32
	broken atomic.Bool
	closed atomic.Bool
}

func (c *fakeConn) Call(context.Context, kmsg.Request) (kmsg.Response, error) {
	if c.broken.Load() || c.closed.Load() {
		return nil, errors.New("broken")
	}
	r := kmsg.NewPtrBrokerHeartbeatResponse()
	r.ThrottleMillis = c.id
	return r, nil
}
func (c *fakeConn) Close() error { c.closed.Store(true); return nil }

func TestLinkDialsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		var last atomic.Pointer[fakeConn]
		refuse := atomic.Bool{}
		l := NewLink(func(context.Context) (Conn, error) {
			time.Sleep(time.Second) // of the bubble's clock
			if refuse.Load() {
				return nil, errors.New("refused")
			}
			c := &fakeConn{id: dials.Add(1)}
			last.Store(c)
			return c, nil
		})
		call := func() (int32, error) {
			r, err := l.Call(t.Context(), kmsg.NewPtrBrokerHeartbeatRequest())
			if err != nil {
				return 0, err
			}
			return r.(*kmsg.BrokerHeartbeatResponse).ThrottleMillis, nil
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if n, err := call(); n != 1 || err != nil {
					t.Errorf("connection %d, %v; want the one that was dialled", n, err)
				}
			})
		}
		wg.Wait()
		first := last.Load()
		first.broken.Store(true)
		if _, err := call(); err == nil || errors.Is(err, ErrNotConnected) {
			t.Errorf("on a broken connection: %v", err)
		}
		if n, err := call(); n != 2 || err != nil || !first.closed.Load() {
			t.Errorf("after it broke: connection %d, %v, the old one closed: %v", n, err, first.closed.Load())
		}
		l.Reset()
		refuse.Store(true)
		if _, err := call(); !errors.Is(err, ErrNotConnected) {
			t.Errorf("refused: %v", err)
		}
		refuse.Store(false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.get(ctx); err != nil && !errors.Is(err, ErrNotConnected) {
			t.Errorf("with an ended context: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := call(); !errors.Is(err, ErrNotConnected) {
			t.Errorf("a closed link: %v", err)
		}
	})
}

// controllerDouble answers registrations and heartbeats by its fields.
type controllerDouble struct {
	mu            sync.Mutex
	registrations []error // errors to answer first
	epoch         int64
	beats         []kmsg.BrokerHeartbeatRequest
	beat          func(*kmsg.BrokerHeartbeatRequest) *kmsg.BrokerHeartbeatResponse
	registered    func(epoch int64)
}

func (c *controllerDouble) Call(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r := req.(type) {
	case *kmsg.BrokerRegistrationRequest:
		resp := kmsg.NewPtrBrokerRegistrationResponse()
		if len(c.registrations) > 0 {
			err := c.registrations[0]
			c.registrations = c.registrations[1:]
			var e *api.Error
			if !errors.As(err, &e) {
				return nil, err
			}
			resp.ErrorCode = int16(e.Code)
			return resp, nil
		}
		c.epoch += 10
		resp.BrokerEpoch = c.epoch
		c.registered(c.epoch)
		return resp, nil
	case *kmsg.BrokerHeartbeatRequest:
		c.beats = append(c.beats, *r)
		return c.beat(r), nil
	default:
		return nil, fmt.Errorf("unexpected %T", req)
	}
}

// heartbeats returns the heartbeats that came so far.
func (c *controllerDouble) heartbeats() []kmsg.BrokerHeartbeatRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.beats)
}

// imageOf makes the follower's image show the broker.
func imageOf(f *Follower, offset int64, epoch int64, fenced bool) {
	d := f.Image().Draft()
	_ = d.Apply(offset, 1, &meta.RegisterBrokerRecord{BrokerID: 1, BrokerEpoch: epoch, Fenced: fenced})
	f.publish(d.Delta())
}

func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{NodeID: 1, ClusterID: "c"})
		beatCode, shouldStop := api.NoError, false
		c := &controllerDouble{
			registrations: []error{errors.New("no connection"), &api.Error{Code: api.NotController}, &api.Error{Code: api.DuplicateBrokerRegistration}},
			registered:    func(epoch int64) { imageOf(f, epoch, epoch, true) },
		}
		c.beat = func(r *kmsg.BrokerHeartbeatRequest) *kmsg.BrokerHeartbeatResponse {
			resp := kmsg.NewPtrBrokerHeartbeatResponse()
			resp.ErrorCode, resp.IsFenced, resp.ShouldShutdown = int16(beatCode), false, shouldStop && r.WantShutdown
			beatCode = api.NoError
			if resp.ErrorCode == 0 && f.Image().Broker(1).Fenced {
				imageOf(f, c.epoch+1, c.epoch, false)
			}
			return resp
		}
		s := NewSession(SessionOptions{
			NodeID: 1, ClusterID: "c", Controller: c, Follower: f, PreviousEpoch: 7,
			OfflineDirs: func() []ids.UUID { return []ids.UUID{{0: 3}} },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		<-s.Ready()
		if s.Epoch() != 10 || s.LastContact().IsZero() {
			t.Errorf("ready with epoch %d, last contact %v", s.Epoch(), s.LastContact())
		}
		if b := c.heartbeats()[0]; b.BrokerEpoch != 10 || b.CurrentMetadataOffset != 10 || len(b.OfflineLogDirs) != 1 || b.WantShutdown {
			t.Errorf("the first heartbeat is %+v", b)
		}
		before := len(c.heartbeats())
		time.Sleep(10 * time.Second) // of the bubble's clock
		synctest.Wait()
		if n := len(c.heartbeats()) - before; n < 4 || n > 6 {
			t.Errorf("%d heartbeats in 10 s, want one each 2 s", n)
		}
		c.mu.Lock()
		beatCode = api.StaleBrokerEpoch
		c.mu.Unlock()
		time.Sleep(5 * time.Second) // of the bubble's clock
		synctest.Wait()
		if s.Epoch() != 20 || f.Image().Broker(1).Fenced {
			t.Errorf("after STALE_BROKER_EPOCH the epoch is %d, want a new registration's 20", s.Epoch())
		}
		short, stop := context.WithTimeout(ctx, time.Second)
		if err := s.Shutdown(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a shutdown the controller doesn't agree to: %v", err)
		}
		stop()
		c.mu.Lock()
		shouldStop = true
		c.mu.Unlock()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func TestARefusedRegistrationIsFinal(t *testing.T) {
	f := New(Options{NodeID: 1, ClusterID: "c"})
	c := &controllerDouble{registrations: []error{&api.Error{Code: api.InconsistentClusterID}}}
	err := NewSession(SessionOptions{NodeID: 1, ClusterID: "c", Controller: c, Follower: f}).Run(t.Context())
	if !errors.Is(err, &api.Error{Code: api.InconsistentClusterID}) {
		t.Errorf("another cluster's controller: %v", err)
	}
}

// A broker leads only while its heartbeats are answered: the session counts from when the last answered one was sent.
func TestSessionSuspendsAndResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{NodeID: 1, ClusterID: "c"})
		c := &controllerDouble{registered: func(epoch int64) { imageOf(f, epoch, epoch, true) }}
		answers, offset := true, int64(11)
		c.beat = func(*kmsg.BrokerHeartbeatRequest) *kmsg.BrokerHeartbeatResponse {
			resp := kmsg.NewPtrBrokerHeartbeatResponse()
			if !answers {
				resp.ErrorCode = int16(api.NotController)
				return resp
			}
			resp.IsFenced = false
			SetMetadataOffset(&resp.UnknownTags, offset)
			return resp
		}
		begun := time.Now()
		var mu sync.Mutex
		var events []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf("%s at %.1f s", what, time.Since(begun).Seconds()))
		}
		noted := func() string {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(events)
		}
		s := NewSession(SessionOptions{NodeID: 1, ClusterID: "c", Controller: c, Follower: f, PreviousEpoch: -1, Heartbeat: 2 * time.Second, Timeout: 9 * time.Second,
			Suspend: func(string) { note("suspended") }, Resume: func() { note("resumed") }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		at := func(seconds float64) {
			time.Sleep(time.Duration(seconds*float64(time.Second)) - time.Since(begun)) // of the bubble's clock
			synctest.Wait()
		}
		set := func(f func()) {
			c.mu.Lock()
			defer c.mu.Unlock()
			f()
		}
		at(3) // it is answered as unfenced, but its own metadata isn't there yet
		if got := noted(); got != "[]" {
			t.Errorf("before the metadata shows it: %s", got)
		}
		if s.Current() {
			t.Error("the metadata is behind the controller's and counts as that of now")
		}
		imageOf(f, 11, 10, false)
		at(5) // heartbeats at 0, 2, 4
		if !s.Current() {
			t.Error("the metadata is the controller's and counts as outdated")
		}
		set(func() { answers = false }) // the last answered one was sent at 4
		at(12.9)                        // 4 + 9 = 13
		set(func() {})                  // a point in time with nothing new
		before := noted()               // only resumed so far
		if s.Current() {
			t.Error("the metadata of a broker that heard nothing for 9 s counts as that of now")
		}
		at(14) // suspended at 13
		set(func() { answers, offset = true, 12 })
		at(18) // answered again, but the metadata has moved on to 12
		middle := noted()
		imageOf(f, 12, 10, false)
		at(19)
		if before != "[resumed at 3.0 s]" || middle != "[resumed at 3.0 s suspended at 13.0 s]" || noted() != "[resumed at 3.0 s suspended at 13.0 s resumed at 18.0 s]" {
			t.Errorf("%s, %s, %s", before, middle, noted())
		}
		cancel()
		<-done
	})
}
