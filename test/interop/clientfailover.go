package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
	"milena/internal/peertest/history"
)

// clientFailover moves idempotent producers and groups of Java, librdkafka, sarama and franz-go from a cluster to its mirror, by one address
// that leads to the other then. None is restarted. No group has a reset policy: a client that is told of lost data, or of an offset that
// isn't there, ends. Field cases 64, 68, 69 and 75.
type clientFailover struct {
	*part
	name             *forwarder
	src, dst         *peertest.Broker
	srcAddr, dstAddr string // where clients are let in
	srcAdm, dstAdm   *kadm.Client
	h                *history.History

	producers, consumers []*peertest.Process
	members              []*history.Member
	stopProbes           func()

	mu    sync.Mutex
	moved time.Time            // when the address was led to the mirror
	again map[string]time.Time // the first acknowledgement of each producer after that
}

const (
	movedTopic = "moved"
	movedParts = 3
	// probes are franz-go producers, beside one of each other kind.
	probes = 97
)

func failoverGroups() []string { return []string{"java", "librdkafka", "sarama", "franz-go"} }

func runClientFailover(ctx context.Context, p *part) error {
	m := &clientFailover{part: p, h: history.New(), again: map[string]time.Time{}}
	return p.steps(ctx,
		step{"start two nodes and a mirror", m.start},
		step{"start the clients", m.startClients},
		step{"switch over", m.failover},
		step{"every producer writes again", m.writing},
		step{"everything is there once, in order", m.finish},
	)
}

// forwarder is an address that leads to one server or another.
type forwarder struct {
	l  net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	to    string
	conns map[net.Conn]bool
}

func newForwarder() (*forwarder, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &forwarder{l: l, conns: map[net.Conn]bool{}}
	f.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.wg.Go(func() { f.serve(c) })
		}
	})
	return f, nil
}

// serve passes a connection on until either side or the direction ends it.
func (f *forwarder) serve(c net.Conn) {
	defer c.Close()
	f.mu.Lock()
	to := f.to
	f.mu.Unlock()
	s, err := net.DialTimeout("tcp", to, 5*time.Second)
	if err != nil {
		return
	}
	defer s.Close()
	f.mu.Lock()
	if f.to != to {
		f.mu.Unlock()
		return
	}
	f.conns[c], f.conns[s] = true, true
	f.mu.Unlock()
	done := make(chan struct{}, 2)
	for _, x := range [][2]net.Conn{{c, s}, {s, c}} {
		go func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := x[0].Read(buf)
				if n > 0 {
					if _, err := x[1].Write(buf[:n]); err != nil {
						break
					}
				}
				if err != nil {
					break
				}
			}
			done <- struct{}{}
		}()
	}
	<-done
	f.mu.Lock()
	delete(f.conns, c)
	delete(f.conns, s)
	f.mu.Unlock()
}

// lead has the address lead to a server, and ends the connections to the one before.
func (f *forwarder) lead(to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = to
	for c := range f.conns {
		_ = c.Close()
	}
}

func (f *forwarder) addr() string { return f.l.Addr().String() }

func (f *forwarder) close() error {
	err := f.l.Close()
	f.lead("")
	f.wg.Wait()
	return err
}

// node starts a node that tells its clients the forwarder's address, and others its own.
func (m *clientFailover) node(ctx context.Context, name string) (b *peertest.Broker, clients string, err error) {
	ports, err := peertest.FreePorts(2)
	if err != nil {
		return nil, "", err
	}
	own := peertest.Loopback(ports[0])
	clients = peertest.Loopback(ports[1])
	b, err = peertest.NewMilena(peertest.MilenaOptions{Binary: m.milena, Dir: filepath.Join(m.dir, name), Addr: own, Overrides: []string{
		"listeners=PLAINTEXT://" + own + ",CLIENTS://" + clients, "advertised.listeners=PLAINTEXT://" + own + ",CLIENTS://" + m.name.addr(),
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT", "inter.broker.listener.name=PLAINTEXT",
		"group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=5",
	}})
	if err != nil {
		return nil, "", err
	}
	m.addBroker(b)
	return b, clients, b.Start(ctx)
}

func (m *clientFailover) start(ctx context.Context) (err error) {
	if m.name, err = newForwarder(); err != nil {
		return err
	}
	m.onCleanUp(m.name.close)
	if m.src, m.srcAddr, err = m.node(ctx, "source"); err != nil {
		return err
	}
	if m.dst, m.dstAddr, err = m.node(ctx, "standby"); err != nil {
		return err
	}
	m.name.lead(m.srcAddr)
	if m.srcAdm, err = m.admin(m.src.Addr); err != nil {
		return err
	}
	if m.dstAdm, err = m.admin(m.dst.Addr); err != nil {
		return err
	}
	if _, err := m.srcAdm.CreateTopic(ctx, movedParts, 1, nil, movedTopic); err != nil {
		return err
	}
	var zero kadm.Offsets
	for p := range int32(movedParts) {
		zero.AddOffset(movedTopic, p, 0, -1)
	}
	for _, g := range failoverGroups() {
		rs, err := m.srcAdm.CommitOffsets(ctx, g, zero)
		if err = errors.Join(err, rs.Error()); err != nil {
			return err
		}
	}
	if _, err := m.run(ctx, m.dst.Addr, "mirrors", "create", "dr", "--source", m.src.Addr, "--topics", movedTopic,
		"--config", "mirror.groups.sync.interval.ms=200"); err != nil {
		return err
	}
	return m.awaitLevel(ctx, m.dst.Addr, "dr")
}

// awaitLevel waits until all partitions of the mirror are MIRRORING without lag.
func (m *clientFailover) awaitLevel(ctx context.Context, bootstrap, mirror string) error {
	return peertest.WaitFor(ctx, time.Minute, "mirror "+mirror+" is level", func(ctx context.Context) error {
		ms, err := m.mirrors(ctx, bootstrap, mirror)
		if err != nil {
			return err
		}
		if len(ms[0].Partitions) != movedParts {
			return fmt.Errorf("%d partitions", len(ms[0].Partitions))
		}
		for _, x := range ms[0].Partitions {
			if x.State != "MIRRORING" || x.Lag == nil || *x.Lag > 1000 {
				return fmt.Errorf("%+v", x)
			}
		}
		return nil
	})
}

// commands are the clients that are programs of their own.
func (m *clientFailover) commands(ctx context.Context) (producers, consumers map[string]peertest.Command, err error) {
	at := m.name.addr()
	java := func(tool string, props map[string]string, args ...string) (peertest.Command, error) {
		file := filepath.Join(m.dir, tool+".properties")
		if err := peertest.WriteProperties(file, props); err != nil {
			return peertest.Command{}, err
		}
		c := m.kafka.Command(tool, append([]string{"--bootstrap-server", at, "--topic", movedTopic, "--command-config", file}, args...)...)
		c.Env = []string{"KAFKA_HEAP=128m", "KAFKA_LOG_LEVEL=error"}
		return c, nil
	}
	// The tool itself asks for no retries, which an idempotent producer can't do without.
	jp, err := java("verifiable-producer", map[string]string{
		"enable.idempotence": "true", "retries": "2147483647", "linger.ms": "5", "request.timeout.ms": "4000",
	}, "--max-messages", "-1", "--throughput", "50", "--value-prefix", "7", "--repeating-keys", "20", "--acks", "-1")
	if err != nil {
		return nil, nil, err
	}
	jc, err := java("verifiable-consumer", map[string]string{}, "--group-id", "java", "--verbose", "--reset-policy", "none", "--session-timeout", "10000")
	if err != nil {
		return nil, nil, err
	}
	sarama := filepath.Join(m.dir, "sarama-client")
	build := peertest.Command{Path: "go", Args: []string{"build", "-o", sarama, "."}, Dir: filepath.Join(m.root, "test", "interop", "sarama"), Timeout: 4 * time.Minute}
	if _, err := peertest.Run(ctx, build); err != nil {
		return nil, nil, err
	}
	python := func(args ...string) peertest.Command {
		script := filepath.Join(m.root, "test", "chaos", "librdkafka_client.py")
		return peertest.Command{Path: filepath.Join(peertest.CacheDir(m.root), "venv", "bin", "python"), Args: append([]string{"-u", script}, args...)}
	}
	return map[string]peertest.Command{
			"java": jp, "librdkafka": python("produce", at, movedTopic, "r", "50"), "sarama": {Path: sarama, Args: []string{"keep-producing", at, movedTopic, "0"}},
		}, map[string]peertest.Command{
			"java": jc, "librdkafka": python("consume", at, movedTopic, "librdkafka", "error"), "sarama": {Path: sarama, Args: []string{"keep-consuming", at, movedTopic, "0"}},
		}, nil
}

func (m *clientFailover) startClients(ctx context.Context) error {
	producers, consumers, err := m.commands(ctx)
	if err != nil {
		return err
	}
	for kind, c := range producers {
		c.Lines = func(l string) {
			if strings.Contains(l, `"producer_send_success"`) {
				m.acked(kind)
			}
			m.h.Line(kind+"-producer", "", l)
		}
		p, err := m.part.start(kind+"-producer", c)
		if err != nil {
			return err
		}
		m.producers = append(m.producers, p)
	}
	for kind, c := range consumers {
		c.Lines = func(l string) { m.h.Line(kind+"-consumer", kind, l) }
		p, err := m.part.start(kind+"-consumer", c)
		if err != nil {
			return err
		}
		m.consumers = append(m.consumers, p)
	}
	member, err := history.StartMember([]string{m.name.addr()}, movedTopic, "franz-go", m.h)
	if err != nil {
		return err
	}
	m.members = append(m.members, member)
	m.onCleanUp(func() error { member.Close(); return nil })
	if err := m.startProbes(); err != nil {
		return err
	}
	return peertest.WaitFor(ctx, time.Minute, "each client is at work", func(context.Context) error {
		_, reads := m.h.Counts()
		for _, g := range failoverGroups() {
			if reads[g] < 20 {
				return fmt.Errorf("group %s has read %d records", g, reads[g])
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.again) < len(producers)+probes {
			return fmt.Errorf("%d producers have written", len(m.again))
		}
		return m.running()
	})
}

// startProbes starts many producers, as clients of a large site.
func (m *clientFailover) startProbes() error {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	m.stopProbes = sync.OnceFunc(func() { cancel(); wg.Wait() })
	m.onCleanUp(func() error { m.stopProbes(); return nil })
	for i := range probes {
		cl, err := kgo.NewClient(kgo.SeedBrokers(m.name.addr()), kgo.DefaultProduceTopic(movedTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer cl.Close()
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("franz%d.%d", i, n)
				r := &kgo.Record{Partition: int32(i % movedParts), Value: []byte(id)}
				switch err := cl.ProduceSync(context.WithoutCancel(ctx), r).FirstErr(); {
				case err == nil:
					m.acked(fmt.Sprintf("franz-go-%d", i))
					m.h.Ack(history.RecordID(id), history.Place{Partition: r.Partition, Offset: r.Offset})
				case errors.Is(err, kgo.ErrClientClosed):
					return
				}
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	return nil
}

// acked notes a producer's first acknowledgement, and the first since the address leads elsewhere.
func (m *clientFailover) acked(producer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.again[producer]; !ok || at.Before(m.moved) {
		m.again[producer] = time.Now()
	}
}

// running is nil as long as all programs run and nothing is broken.
func (m *clientFailover) running() error {
	for _, p := range append(m.producers, m.consumers...) {
		if err := p.Running(); err != nil {
			return err
		}
	}
	if broken := m.h.Broken(); len(broken) > 0 {
		return errors.New(strings.Join(broken, "\n"))
	}
	return nil
}

// failover is a planned one, so that what was acknowledged is there: a fence, the rest of the records, a stop. Then the address leads to the
// other cluster. Nobody tells the clients.
func (m *clientFailover) failover(ctx context.Context) error {
	out, err := m.run(ctx, m.dst.Addr, "mirrors", "switchover", "dr", "--yes", "--json")
	if err != nil {
		return err
	}
	var report struct {
		Complete bool
		Lost     *int64
		Steps    []struct {
			Step   string
			TookMs int64 `json:"took_ms"`
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || !report.Complete || report.Lost == nil || *report.Lost != 0 {
		return fmt.Errorf("switchover: %w: %s", err, out)
	}
	m.mu.Lock()
	m.moved = time.Now()
	m.mu.Unlock()
	m.name.lead(m.dstAddr)
	var took []string
	for _, s := range report.Steps {
		took = append(took, fmt.Sprintf("%s %d ms", s.Step, s.TookMs))
	}
	m.logf("switched over: %s", strings.Join(took, ", "))
	return nil
}

// writing waits for all producers and prints how long each kind took, and the figure of field case 64. Nothing is asked of the figure here: it
// is the machine's too.
func (m *clientFailover) writing(ctx context.Context) error {
	err := peertest.WaitFor(ctx, time.Minute, "all producers write again", func(context.Context) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		for who, at := range m.again {
			if at.Before(m.moved) {
				return fmt.Errorf("%s does not write", who)
			}
		}
		return m.running()
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []time.Duration
	for who, at := range m.again {
		all = append(all, at.Sub(m.moved))
		if !strings.HasPrefix(who, "franz-go") {
			m.logf("%s writes again after %s", who, at.Sub(m.moved).Round(time.Millisecond))
		}
	}
	slices.Sort(all)
	within := 0
	for _, d := range all {
		if d <= time.Second {
			within++
		}
	}
	m.logf("%d of %d clients wrote again within 1 s of the re-pointing: half after %s, 99%% after %s, the last after %s", within, len(all),
		all[len(all)/2].Round(time.Millisecond), all[len(all)*99/100-1].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	return nil
}

// finish checks that the groups find their coordinator and come to the end, and that every acknowledged record is there.
func (m *clientFailover) finish(ctx context.Context) error {
	for _, p := range m.producers {
		if err := p.Stop(30 * time.Second); err != nil {
			return fmt.Errorf("a producer did not deliver its last records: %w", err)
		}
	}
	m.stopProbes()
	listed, err := m.dstAdm.ListEndOffsets(ctx, movedTopic)
	if err != nil {
		return err
	}
	ends := map[int32]int64{}
	listed.Each(func(l kadm.ListedOffset) { ends[l.Partition] = l.Offset })
	watch, cancel := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() {
		watched <- history.WatchCommits(watch, []string{m.dst.Addr}, movedTopic, failoverGroups(), m.h)
	}()
	err = peertest.WaitFor(ctx, time.Minute, "the groups come to the end", func(context.Context) error { return m.h.Reached(ends, failoverGroups()...) })
	cancel()
	if err = errors.Join(err, <-watched); err != nil {
		return err
	}
	for _, p := range m.consumers {
		if err := p.Running(); err != nil {
			return err
		}
	}
	back, err := history.ReadTopic(ctx, []string{m.dst.Addr}, movedTopic, ends)
	if err != nil {
		return err
	}
	// The stop has written one control record into each partition, which no reader is given.
	resets := 0
	broken := slices.DeleteFunc(m.h.Check(ends, back), func(s string) bool {
		var at, next int64
		var part int32
		if n, _ := fmt.Sscanf(s, "franz-go read offset %d of partition %d where %d comes next", &at, &part, &next); n != 3 || at != next+1 || resets == movedParts {
			return false
		}
		resets++
		return true
	})
	if len(broken) > 0 {
		return errors.New(strings.Join(broken, "\n"))
	}
	acked, _ := m.h.Counts()
	m.logf("%d records acknowledged, ends %v", acked, ends)
	return nil
}
