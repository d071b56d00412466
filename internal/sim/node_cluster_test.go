//go:build synctests

package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"milena/internal/config"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/node"
	"milena/internal/quorum"
)

// machines are a cluster of whole nodes on a network in memory.
type machines struct {
	machinesOptions
	*verdict
	dynamic bool // the voters of the quorum change
	voters  int
	nodes   []*machineNode
	begin   time.Time
	hist    *history // guarded by verdict.mu
}

// machinesOptions say what cluster it is. Several may share a network, an event log and a verdict.
type machinesOptions struct {
	seed      uint64
	name      string // of its hosts, which have the node ids behind it
	clusterID string
	rnd       *rand.Rand // of the faults' goroutine
	net       *network
	more      map[string]string // of the nodes' configs
}

// verdict is what was found broken.
type verdict struct {
	log    eventLog
	mu     sync.Mutex
	failed []string
}

func newVerdict(echo io.Writer) *verdict {
	return &verdict{log: eventLog{begin: time.Now(), echo: echo}}
}

func (v *verdict) broken() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.failed) == 0 {
		return ""
	}
	return v.failed[0]
}

func (v *verdict) failf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failed = append(v.failed, fmt.Sprintf(format, args...))
	v.log.logf("BROKEN "+format, args...)
}

func (m *machines) logf(format string, args ...any) {
	m.log.logf("%s  "+format, append([]any{m.name}, args...)...)
}

// eventLog is what happened, in virtual time.
type eventLog struct {
	mu    sync.Mutex
	begin time.Time
	lines []string
	echo  io.Writer
}

func (l *eventLog) logf(format string, args ...any) {
	line := fmt.Sprintf("%10.4f  ", time.Since(l.begin).Seconds()) + fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.echo != nil {
		_, _ = fmt.Fprintln(l.echo, line)
	}
	l.lines = append(l.lines, line)
}

// machineNode is a machine with a disk, and while it is up a node.
type machineNode struct {
	m    *machines
	id   int
	fs   *disk.Mem
	mu   sync.Mutex
	node *node.Node
	gone chan struct{} // closed when node is ended
	gen  int
	disk badDisk
	turn chan struct{} // taken by who starts or stops it
}

func (n *machineNode) host() string { return fmt.Sprintf("%s%d", n.m.name, n.id) }

func newMachines(o machinesOptions, v *verdict, nodes int) (*machines, error) {
	m := &machines{machinesOptions: o, verdict: v, dynamic: o.seed%2 == 0, voters: min(nodes, firstVoters), begin: time.Now()}
	m.hist = newHistory(func(rule, format string, args ...any) {
		m.failed = append(m.failed, rule+": "+fmt.Sprintf(format, args...)) // mu is held by who writes the history
	})
	for i := range nodes {
		fs := disk.NewMem(o.seed*100 + 10*uint64(o.name[0]-'a') + uint64(i))
		m.nodes = append(m.nodes, &machineNode{m: m, id: i + 1, fs: fs, turn: make(chan struct{}, 1)})
	}
	var voters []quorum.Voter
	for _, n := range m.nodes[:m.voters] {
		voters = append(voters, n.voter())
	}
	for _, n := range m.nodes {
		dir := dirID(n.id)
		err := logdir.Format(logdir.FormatOptions{
			FS: n.fs, Dirs: logDirs, NodeID: int32(n.id), ClusterID: o.clusterID, NewID: func() (ids.UUID, error) { defer func() { dir[1]++ }(); return dir, nil },
		})
		if err == nil && m.dynamic && n.id <= m.voters {
			err = quorum.Format(n.fs, metadataDir, voters)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// logDirs are the log directories of each node; the metadata are in the first one.
var logDirs = []string{"/data", "/more"}

const metadataDir = "/data/quorum"

// history lets fn write the history.
func (m *machines) history(fn func(h *history)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.failed)
	fn(m.hist)
	for _, f := range m.failed[before:] {
		m.logf("BROKEN %s", f)
	}
}

func (m *machines) seeds() []string {
	var out []string
	for _, n := range m.nodes {
		out = append(out, n.host()+":9092")
	}
	return out
}

func (n *machineNode) props() map[string]string {
	var voters, bootstrap []string
	for _, v := range n.m.nodes[:n.m.voters] {
		bootstrap = append(bootstrap, v.host()+":9093")
		voters = append(voters, fmt.Sprintf("%d@%s:9093", v.id, v.host()))
	}
	p := map[string]string{
		"node.id": fmt.Sprint(n.id), "log.dirs": strings.Join(logDirs, ","), "milena.http.listen": "off", "auto.create.topics.enable": "false",
		"process.roles": "broker", "listeners": fmt.Sprintf("PLAINTEXT://%s:9092", n.host()), "controller.listener.names": "CONTROLLER",
		"offsets.topic.num.partitions": "2", "mirror.state.topic.num.partitions": "1",
		"group.initial.rebalance.delay.ms": "0", "log.segment.bytes": "1048576", "log.cleaner.backoff.ms": "2000",
		"default.replication.factor": "3", "min.insync.replicas": "2", "broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300",
		"replica.lag.time.max.ms": "3000", "replica.fetch.wait.max.ms": "200", "replica.fetch.backoff.ms": "50",
		"controller.quorum.request.timeout.ms": "1000",
	}
	maps.Copy(p, n.m.more)
	if p["replica.selector.class"] != "" {
		p["broker.rack"] = n.host()
	}
	if n.m.dynamic {
		p["controller.quorum.bootstrap.servers"] = strings.Join(bootstrap, ",")
	} else {
		p["controller.quorum.voters"] = strings.Join(voters, ",")
	}
	if n.id <= n.m.voters || n.m.dynamic {
		p["process.roles"] = "broker,controller"
		p["listeners"] += fmt.Sprintf(",CONTROLLER://%s:9093", n.host())
	}
	return p
}

// start starts the node and returns when it serves, or with the error that kept it from it.
func (n *machineNode) start(ctx context.Context) error {
	conf, notice, err := config.Load(n.props(), config.Env{Hostname: func() (string, error) { return n.host(), nil }})
	if err != nil {
		return err
	}
	if len(notice.Unknown) > 0 {
		return fmt.Errorf("unknown keys %v", notice.Unknown)
	}
	n.m.logf("node %d: start", n.id)
	var seed [32]byte
	seed[0], seed[1], seed[2], seed[3] = byte(n.m.seed), byte(n.m.seed>>8), byte(n.id), byte(n.gen)
	copy(seed[4:], n.m.name) // clusters side by side must not make the same ids
	nd, err := node.Start(ctx, node.Options{
		Config: conf, FS: disk.Faulty(n.fs, n.disk.rule), Listen: n.m.net.listen(n.host()), Dial: n.m.net.dialer(n.host()),
		Random: &lockedReader{r: rand.NewChaCha8(seed)}, Logger: n.logger(), Version: "sim",
	})
	gone := make(chan struct{})
	n.mu.Lock()
	n.gen++
	n.node, n.gone = nd, gone
	n.mu.Unlock()
	if err != nil {
		n.m.logf("node %d: not started: %v", n.id, err)
		return err
	}
	n.m.logf("node %d: serves", n.id)
	go func() {
		select {
		case <-nd.Failed():
			n.m.logf("node %d: failed: %v", n.id, nd.Err())
			n.stop(kill)
		case <-gone:
		}
	}()
	return nil
}

// ensure starts the node if it is down, one start at a time.
func (n *machineNode) ensure(ctx context.Context) error {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if n.current() != nil {
		return nil
	}
	return n.start(ctx)
}

// stop ends the node, when no start or stop is under way.
func (n *machineNode) stop(how stop) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	n.end(how)
}

// end ends the node's process: the network is gone first, then the disk, then the process.
func (n *machineNode) end(how stop) {
	n.mu.Lock()
	nd, gone := n.node, n.gone
	n.node, n.gone = nil, nil
	n.mu.Unlock()
	if nd == nil {
		return
	}
	close(gone)
	n.m.logf("node %d: %s", n.id, how)
	if how == leave {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := nd.Shutdown(ctx); err != nil {
			n.m.logf("node %d: shutdown: %v", n.id, err)
		}
		n.m.net.down(n.host())
		n.fs.Kill()
		return
	}
	n.m.net.down(n.host())
	switch how {
	case kill:
		n.fs.Kill()
	case power:
		n.fs.Crash()
	case torn:
		n.fs.CrashTorn()
	}
	nd.Kill()
}

// current is the running node, nil if none is.
func (n *machineNode) current() *node.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.node
}

func (n *machineNode) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(nodeLog{n}, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

type nodeLog struct{ n *machineNode }

func (w nodeLog) Write(p []byte) (int, error) {
	w.n.m.logf("node %d: | %s", w.n.id, strings.TrimSpace(string(p)))
	return len(p), nil
}

// lockedReader is a source of randomness for several goroutines.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}
