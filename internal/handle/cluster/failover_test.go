package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/controller"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/metafollow"
	"milena/internal/quorum"
)

// voters are controllers whose messages take 1 to 5 ms, in a synctest bubble.
type voters struct {
	t        *testing.T
	tick     time.Duration
	election int
	first    []quorum.Voter

	mu  sync.Mutex
	up  map[int32]*voter
	mem map[int32]*disk.Mem
}

type voter struct {
	c       *voters
	id      int32
	quorum  *quorum.Node
	service *controller.Service
	ctl     *Controller
	stop    context.CancelFunc
	done    chan struct{}
	killed  chan struct{}
}

func newVoters(t *testing.T, conf *config.Node) *voters {
	c := &voters{t: t, up: map[int32]*voter{}, mem: map[int32]*disk.Mem{}}
	c.tick, c.election = quorum.Ticks(conf.Quorum.FetchTimeout, conf.Quorum.ElectionTimeout)
	for id := int32(1); id <= 3; id++ {
		c.first = append(c.first, quorum.Voter{Member: quorum.Member{ID: id, Directory: ids.UUID{0: 7, 15: byte(id)}}, Endpoints: []quorum.Endpoint{{Name: "C", Host: "c", Port: uint16(id)}}})
		c.mem[id] = disk.NewMem(uint64(id))
	}
	for id := int32(1); id <= 3; id++ {
		c.start(id)
	}
	return c
}

func (c *voters) start(id int32) {
	time.Sleep(rand.N(c.tick)) // processes don't tick at the same time
	v := &voter{c: c, id: id, done: make(chan struct{}), killed: make(chan struct{})}
	var err error
	v.quorum, err = quorum.Open(quorum.Options{
		FS: c.mem[id], Dir: "/meta", Self: c.first[id-1].Member, Endpoints: c.first[id-1].Endpoints, Voters: c.first, Transport: v, Tick: c.tick, ElectionTicks: c.election,
		Fatal: func(error) {},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	v.service = controller.NewService(controller.ServiceOptions{Node: v.quorum, State: controller.Options{
		ClusterID: testCluster, Random: rand.NewChaCha8([32]byte{byte(id)}), Configs: rules{}, DeleteTopics: true, Bootstrap: controller.Bootstrap(),
		Defaults: func(*meta.Image) (int32, int16) { return 1, 1 },
	}})
	v.ctl = NewController(ControllerOptions{NodeID: id, ClusterID: testCluster, Service: v.service, Quorum: v.quorum})
	var ctx context.Context
	ctx, v.stop = context.WithCancel(context.Background())
	c.mu.Lock()
	c.up[id] = v
	c.mu.Unlock()
	v.quorum.Start()
	go func() { _ = v.service.Run(ctx); close(v.done) }()
}

// kill ends a controller as kill -9 does: its connections break, and what it had written is there.
func (c *voters) kill(id int32) {
	v := c.running(id)
	c.mu.Lock()
	delete(c.up, id)
	c.mu.Unlock()
	close(v.killed)
	c.mem[id].Kill()
	v.stop()
	_ = v.quorum.Close() // its disk is gone
	<-v.done
}

func (c *voters) close() {
	for id := range c.mem {
		if c.running(id) != nil {
			c.kill(id)
		}
	}
	synctest.Wait()
}

func (c *voters) running(id int32) *voter {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up[id]
}

func delay() time.Duration { return time.Millisecond + rand.N(4*time.Millisecond) }

// Send implements quorum.Transport.
func (v *voter) Send(to quorum.Voter, message []byte) {
	time.AfterFunc(delay(), func() {
		if o := v.c.running(to.ID); o != nil && v.c.running(v.id) == v {
			_ = o.quorum.Step(context.Background(), quorum.Voter{Member: v.quorum.Self()}, message) // a lost message is one
		}
	})
}

// conn is a connection to a controller that breaks when that is killed.
type conn struct{ v *voter }

func (x conn) Close() error { return nil }

func (x conn) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	time.Sleep(delay())
	type answer struct {
		resp kmsg.Response
		err  error
	}
	got := make(chan answer, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		resp, err := loop{x.v.ctl}.Call(ctx, req)
		got <- answer{resp, err}
	}()
	select {
	case a := <-got:
		time.Sleep(delay())
		return a.resp, a.err
	case <-x.v.killed:
		return nil, errors.New("connection reset")
	}
}

func (c *voters) finder(conf *config.Node) *metafollow.Finder {
	return metafollow.NewFinder(metafollow.FinderOptions{
		NodeID: 9, ClusterID: testCluster, Bootstrap: []string{"c:1", "c:2", "c:3"}, Timeout: conf.Quorum.RequestTimeout, Backoff: conf.Quorum.RetryBackoff,
		Dial: func(_ context.Context, addr, _ string) (metafollow.Conn, error) {
			time.Sleep(delay())
			var id int32
			if _, err := fmt.Sscanf(addr, "c:%d", &id); err != nil {
				return nil, err
			}
			if v := c.running(id); v != nil {
				return conn{v}, nil
			}
			return nil, errors.New("connection refused")
		},
	})
}

// register makes a broker that no process stands for, to carry partitions.
func (c *voters) register(active metafollow.Caller) {
	reg := kmsg.NewPtrBrokerRegistrationRequest()
	reg.BrokerID, reg.ClusterID, reg.IncarnationID, reg.PreviousBrokerEpoch = 9, testCluster, [16]byte{1}, -1
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "PLAINTEXT", "b", 9092
	reg.Listeners = append(reg.Listeners, l)
	for _, f := range controller.Features() {
		kf := kmsg.NewBrokerRegistrationRequestFeature()
		kf.Name, kf.MinSupportedVersion, kf.MaxSupportedVersion = f.Name, f.Min, f.Max
		reg.Features = append(reg.Features, kf)
	}
	resp, err := active.Call(c.t.Context(), reg)
	if err != nil || resp.(*kmsg.BrokerRegistrationResponse).ErrorCode != 0 {
		c.t.Fatal(resp, err)
	}
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	beat.BrokerID, beat.BrokerEpoch = 9, resp.(*kmsg.BrokerRegistrationResponse).BrokerEpoch
	beat.CurrentMetadataOffset = beat.BrokerEpoch
	if r, err := active.Call(c.t.Context(), beat); err != nil || r.(*kmsg.BrokerHeartbeatResponse).IsFenced {
		c.t.Fatal(r, err)
	}
}

func (c *voters) createTopics(active metafollow.Caller, partitions int32, names ...string) {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 60_000
	for _, name := range names {
		tp := kmsg.NewCreateTopicsRequestTopic()
		tp.Topic, tp.NumPartitions, tp.ReplicationFactor = name, partitions, 1
		req.Topics = append(req.Topics, tp)
	}
	r, err := active.Call(c.t.Context(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, res := range r.(*kmsg.CreateTopicsResponse).Topics {
		// The answer to a request that was carried out may have been lost with the controller.
		if res.ErrorCode != 0 && api.Code(res.ErrorCode) != api.TopicAlreadyExists {
			c.t.Fatalf("topic %s: %v", res.Topic, api.Code(res.ErrorCode))
		}
	}
}

// active is the controller that leads, which must be one.
func (c *voters) active() *voter {
	c.t.Helper()
	for range 1000 {
		for id := int32(1); id <= 3; id++ {
			if v := c.running(id); v != nil && v.service.Active() {
				return v
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatal("no controller is active")
	return nil
}

// With the default time-outs another controller takes over in less than 2 s from the kill of the active one to the first change that is
// accepted, in a cluster of 10,000 partitions, and no accepted one is lost. The clock is the bubble's: what counts is everything that
// waits, for elections, connections, commits; what a controller computes takes no time here, and is what BenchmarkControllerFailover is for.
// With Kafka's time-out of fetches it takes longer: the keys drive it.
func TestControllerFailover(t *testing.T) {
	for name, tt := range map[string]struct {
		props   map[string]string
		rounds  int
		timeout time.Duration // the larger one
		most    time.Duration
	}{
		"default":        {nil, 5, 500 * time.Millisecond, 2 * time.Second},
		"fetch 2000":     {map[string]string{"controller.quorum.fetch.timeout.ms": "2000"}, 2, 2 * time.Second, 8 * time.Second},
		"election 2000":  {map[string]string{"controller.quorum.election.timeout.ms": "2000"}, 2, 2 * time.Second, 8 * time.Second},
		"shorter by far": {map[string]string{"controller.quorum.fetch.timeout.ms": "100", "controller.quorum.election.timeout.ms": "100"}, 2, 100 * time.Millisecond, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				props := map[string]string{"controller.listener.names": "CONTROLLER", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.quorum.bootstrap.servers": "c:1"}
				maps.Copy(props, tt.props)
				conf, _, err := config.Load(props, config.Env{Hostname: func() (string, error) { return "h", nil }})
				if err != nil {
					t.Fatal(err)
				}
				c := newVoters(t, conf)
				defer c.close()
				finder := c.finder(conf)
				defer finder.Close()
				active := metafollow.Retry{Link: finder.Active("test"), Timeout: time.Minute}
				c.active()
				c.register(active)
				var made []string
				for i := range 100 {
					made = append(made, fmt.Sprintf("many-%d", i))
				}
				c.createTopics(active, 100, made...)
				for i := range tt.rounds {
					victim := c.active().id
					epoch := c.active().quorum.Status().Epoch
					before := fmt.Sprintf("before-%d", i)
					c.createTopics(active, 1, before)
					c.kill(victim)
					begun := time.Now()
					after := fmt.Sprintf("after-%d", i)
					c.createTopics(active, 1, after)
					took := time.Since(begun)
					// An election takes up to two time-outs. It may end without a leader, if both that are left begin it in the same
					// milliseconds; twice in a row is so rare that it may take longer.
					elections := time.Duration(c.active().quorum.Status().Epoch - epoch)
					// What comes on top doesn't depend on the keys: looking for the new one, and connecting to it.
					most := max(tt.most, elections*2*tt.timeout+time.Second)
					t.Logf("%v after the kill a change was accepted; %d elections", took, elections)
					if took < tt.timeout/2 || took > most || elections < 1 {
						t.Errorf("the first change was accepted %v after the kill, not within %v to %v; %d elections", took, tt.timeout/2, most, elections)
					}
					made = append(made, before, after)
					c.start(victim)
					time.Sleep(5 * time.Second)
				}
				c.have(made)
			})
		})
	}
}

// have checks that the active controller knows the topics, with all their partitions.
func (c *voters) have(topics []string) {
	c.t.Helper()
	_, err := c.active().service.Do(c.t.Context(), func(st *controller.State, _ time.Time) (res machine.Result) {
		partitions := 0
		for _, name := range topics {
			t := st.Image().TopicByName(name)
			if t == nil {
				c.t.Errorf("topic %s is lost", name)
				continue
			}
			partitions += len(t.Partitions)
		}
		if partitions < 10_000 {
			c.t.Errorf("%d partitions", partitions)
		}
		return res
	})
	if err != nil {
		c.t.Error(err)
	}
}
