package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/handle/cluster"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/peer"
	"milena/internal/peertest"
	"milena/internal/quorum"
	"milena/internal/quorum/transport"
	"milena/internal/record"
	"milena/internal/server"
)

const testCluster = "AAAAAAAAAAAAAAAAAAAACQ"

// rig is a quorum whose voters talk over loopback sockets.
type rig struct {
	t     testing.TB
	nodes map[int32]*member
	tune  func(*quorum.Options)

	mu  sync.Mutex
	cut map[string]bool // addresses of nodes that reach nobody and are reached by nobody
}

// member is a controller with its disk and its port.
type member struct {
	id      int32
	voter   quorum.Voter
	cluster string // id
	mem     *disk.Mem
	join    bool
	addr    string

	down   *atomic.Bool // of this start
	node   *quorum.Node // nil while down
	link   *transport.Transport
	server *server.Server
	conns  *conns
	stop   context.CancelFunc
	done   chan struct{}
	list   *lister
}

func newRig(t testing.TB, tune func(*quorum.Options)) *rig {
	r := &rig{t: t, nodes: map[int32]*member{}, cut: map[string]bool{}, tune: tune}
	t.Cleanup(func() {
		for _, m := range r.nodes {
			r.kill(m)
		}
	})
	return r
}

// add makes a controller with a fresh disk and a port of its own.
func (r *rig) add(id int32, disc byte) *member {
	r.t.Helper()
	ports, err := peertest.FreePorts(1)
	if err != nil {
		r.t.Fatal(err)
	}
	m := &member{id: id, cluster: testCluster, mem: disk.NewMem(uint64(id)*256 + uint64(disc)), addr: peertest.Loopback(ports[0])}
	m.voter = quorum.Voter{Member: quorum.Member{ID: id, Directory: ids.UUID{0: 7, 1: disc, 15: byte(id)}}, Endpoints: []quorum.Endpoint{endpoint(r.t, m.addr)}}
	r.nodes[id] = m
	return m
}

func endpoint(t testing.TB, addr string) quorum.Endpoint {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return quorum.Endpoint{Name: "CONTROLLER", Host: a.IP.String(), Port: uint16(a.Port)}
}

func (r *rig) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func (r *rig) isCut(addr string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut[addr]
}

// isolate cuts a node off from all others, or heals it.
func (r *rig) isolate(m *member, cut bool) {
	r.mu.Lock()
	r.cut[m.addr] = cut
	r.mu.Unlock()
	if cut {
		m.conns.closeAll()
	}
}

// start opens a node and its listener.
func (r *rig) start(m *member, first []quorum.Voter) {
	r.t.Helper()
	down := new(atomic.Bool)
	m.down = down
	m.conns = &conns{}
	m.list = &lister{}
	m.link = transport.New(transport.Options{
		ClusterID: m.cluster, Endpoints: m.voter.Endpoints, AutoJoin: m.join, Bootstrap: r.others(m), Logger: r.logger(),
		Dial: func(ctx context.Context, e quorum.Endpoint) (*peer.Conn, error) {
			return peer.Dial(ctx, peer.Options{Addr: e.Addr(), RequestTimeout: time.Second, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if r.isCut(m.addr) || r.isCut(addr) {
					return nil, errors.New("no route to host")
				}
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err == nil {
					m.conns.add(c)
				}
				return c, err
			}})
		},
	})
	o := quorum.Options{
		FS: m.mem, Dir: "/meta/quorum", Self: m.voter.Member, Endpoints: m.voter.Endpoints, Voters: first, Transport: m.link,
		Logger: r.logger(),
		Fatal: func(err error) {
			if !down.Load() {
				r.t.Errorf("controller %d: %v", m.id, err)
			}
		},
		Snapshot: func(w io.Writer) (int64, error) { return m.list.snapshot(w) },
	}
	if r.tune != nil {
		r.tune(&o)
	}
	n, err := quorum.Open(o)
	if err != nil {
		r.t.Fatal(err)
	}
	m.node, m.list.n = n, n
	m.link.Attach(n)
	table := server.Table{}
	cluster.NewController(cluster.ControllerOptions{NodeID: m.id, ClusterID: m.cluster, Quorum: n, RequestTimeout: 5 * time.Second, Logger: r.logger()}).Register(table)
	table[api.ApiVersions] = apiVersions(table)
	ln, err := net.Listen("tcp", m.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	m.server, err = server.New(server.Options{
		Listeners: []server.Listener{{Listener: gate{ln, r, m}, Name: "CONTROLLER", Protocol: "PLAINTEXT"}},
		Table:     func(string) server.Table { return table }, Logger: r.logger(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop, m.done = cancel, make(chan struct{})
	var wg sync.WaitGroup
	srv, link := m.server, m.link
	wg.Go(func() { _ = srv.Serve() }) // ends with Shutdown
	wg.Go(func() { _ = link.Run(ctx) })
	go func() { wg.Wait(); close(m.done) }()
	n.Start()
}

// kill ends a node as a crash does.
func (r *rig) kill(m *member) {
	if m.node == nil || m.server == nil { // not started
		return
	}
	m.down.Store(true)
	m.mem.CrashTorn()
	n := m.node
	m.node = nil
	m.stop()
	m.conns.closeAll()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // now
	_ = m.server.Shutdown(ctx)
	_ = n.Close() // its disk is gone
	_ = m.link.Close()
	<-m.done
}

func (r *rig) others(m *member) []quorum.Endpoint {
	var out []quorum.Endpoint
	for _, o := range r.nodes {
		if o != m {
			out = append(out, o.voter.Endpoints[0])
		}
	}
	return out
}

// gate is a listener that lets nobody in while its node is cut off.
type gate struct {
	net.Listener
	r *rig
	m *member
}

func (g gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil || !g.r.isCut(g.m.addr) {
			if err == nil {
				g.m.conns.add(c)
			}
			return c, err
		}
		_ = c.Close() // cut off
	}
}

// conns are a node's connections, to be cut.
type conns struct {
	mu  sync.Mutex
	all []net.Conn
}

func (c *conns) add(nc net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, nc)
}

func (c *conns) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, nc := range c.all {
		_ = nc.Close() // cut
	}
	c.all = nil
}

func apiVersions(table server.Table) server.Handler {
	return func(_ context.Context, r *server.Request) {
		if r.UnsupportedVersion {
			r.Reply(server.VersionsFallback())
			return
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		for _, v := range table.APIs(api.Milena) {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = v.Key, v.Min, v.Max
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		r.Reply(server.Response{Msg: resp})
	}
}

// lister is the state that the log makes: a list of its records.
type lister struct {
	n    *quorum.Node
	mu   sync.Mutex
	vals []string
}

func (l *lister) catchUp() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		b, err := l.n.ReadCommitted(int64(len(l.vals)), 1<<20)
		var need *quorum.SnapshotNeededError
		if errors.As(err, &need) {
			if err := l.load(need.Snapshot); err != nil {
				return err
			}
			continue
		}
		if err != nil || len(b) == 0 {
			return err
		}
		for bt, err := range record.Batches(b) {
			if err != nil {
				return err
			}
			for rec, err := range bt.Records(0) {
				if err != nil {
					return err
				}
				if rec.Offset == int64(len(l.vals)) {
					l.vals = append(l.vals, string(rec.Value))
				}
			}
		}
	}
}

func (l *lister) load(id quorum.SnapshotID) error {
	data, _, err := l.n.ReadSnapshot(id, 0, 100<<20)
	if err != nil {
		return err
	}
	l.vals = nil
	return quorum.DecodeRecords(bytes.NewReader(data), func(r machine.Record) error {
		l.vals = append(l.vals, string(r.Value))
		return nil
	})
}

func (l *lister) snapshot(w io.Writer) (int64, error) {
	if err := l.catchUp(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	vals := slices.Clone(l.vals)
	l.mu.Unlock()
	return int64(len(vals)), quorum.EncodeRecords(w, 1, func(yield func(machine.Record) bool) {
		for _, v := range vals {
			if !yield(machine.Record{Value: []byte(v)}) {
				return
			}
		}
	})
}

// await waits for a state of a node.
func (r *rig) await(m *member, what string, ok func(*quorum.Status) bool) *quorum.Status {
	r.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		s, changed := m.node.Changed()
		if ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("controller %d: no %s: %+v", m.id, what, *s)
		}
	}
}

// leader waits until one of the nodes leads.
func (r *rig) leader(among ...*member) *member {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	found := make(chan *member, len(among))
	for _, m := range among {
		n := m.node
		go func() {
			for {
				s, changed := n.Changed()
				if s.IsLeader {
					found <- m
					return
				}
				select {
				case <-changed:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	select {
	case m := <-found:
		return m
	case <-ctx.Done():
		r.t.Fatal("no leader")
		return nil
	}
}

// write commits n records, the first of which gets the offset from, at whoever leads.
func (r *rig) write(from, n int, among ...*member) *member {
	r.t.Helper()
	for {
		m := r.leader(among...)
		s := m.node.Status()
		b := record.NewBuilder(record.BuilderOptions{})
		for i := range n {
			b.Append(record.Record{Value: fmt.Appendf(nil, "record %d", from+i)})
		}
		batch, err := b.Batch()
		if err != nil {
			r.t.Fatal(err)
		}
		last, err := m.node.Propose(r.t.Context(), s.Epoch, batch)
		if errors.Is(err, quorum.ErrNotLeader) {
			continue
		}
		if err != nil || last != int64(from+n-1) {
			r.t.Fatalf("proposed up to %d, want %d: %v", last, from+n-1, err)
		}
		after := r.await(m, "commit", func(s2 *quorum.Status) bool { return s2.HighWatermark > last || s2.Epoch != s.Epoch })
		if after.HighWatermark <= last {
			r.t.Fatalf("leader %d lost epoch %d before the commit of %d", m.id, s.Epoch, last)
		}
		return m
	}
}

// same waits until all have the records up to end, and checks them.
func (r *rig) same(end int, all ...*member) {
	r.t.Helper()
	for _, m := range all {
		r.await(m, fmt.Sprintf("high watermark %d", end), func(s *quorum.Status) bool { return s.HighWatermark >= int64(end) })
		l := &lister{n: m.node}
		if err := l.catchUp(); err != nil {
			r.t.Fatal(err)
		}
		if len(l.vals) != end {
			r.t.Fatalf("controller %d has %d records, want %d", m.id, len(l.vals), end)
		}
		for i, v := range l.vals {
			if v != fmt.Sprintf("record %d", i) {
				r.t.Fatalf("controller %d: record %d is %q", m.id, i, v)
			}
		}
	}
}

// without returns the members but one.
func without(all []*member, m *member) []*member {
	var out []*member
	for _, o := range all {
		if o != m {
			out = append(out, o)
		}
	}
	return out
}

// begin starts a quorum of n voters.
func (r *rig) begin(n int) []*member {
	r.t.Helper()
	var all []*member
	var first []quorum.Voter
	for i := range n {
		m := r.add(int32(i+1), 0)
		all, first = append(all, m), append(first, m.voter)
	}
	for _, m := range all {
		if err := quorum.Format(m.mem, "/meta/quorum", first); err != nil {
			r.t.Fatal(err)
		}
		r.start(m, nil)
	}
	return all
}

// quick makes elections short, so that tests are.
func quick(o *quorum.Options) { o.Tick, o.ElectionTicks = 10*time.Millisecond, 10 }

func compacting(o *quorum.Options) {
	quick(o)
	o.SnapshotBytes, o.SegmentBytes, o.KeepEntries = 3000, 2000, 2
}
