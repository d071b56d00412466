package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"milena/internal/api"
	"milena/internal/client"
	"milena/internal/coord/mirrorstate"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
	"milena/internal/partlog"
	"milena/internal/replica"
	"milena/internal/wire"
)

// States reads and writes partition states at their coordinator.
type States interface {
	Read(ctx context.Context, k mirrorstate.Key, leaderEpoch int32) (mirrorstate.Status, error)
	Write(ctx context.Context, w mirrorstate.Write) (mirrorstate.Status, error)
}

// Controller sends a request to the active controller, as a broker does.
type Controller interface {
	Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Options configure a Manager. All but Dial and Registerer are required.
type Options struct {
	NodeID     int32
	ClusterID  string
	Replicas   *replica.Manager
	States     *Cluster
	Controller Controller
	// Local is an admin client on this cluster.
	Local LocalAdmin
	// ClampOffsets takes committed offsets of a partition beyond end back to it and returns their groups (spec D8).
	ClampOffsets func(ctx context.Context, topic string, id ids.UUID, partition int32, end int64, epoch int32) ([]string, error)
	FS           disk.FS
	// LogDirs are the log directories: what cuts take is set aside in each.
	LogDirs []string
	// CutRetention is mirror.cut.retention.*; asked each time, since it is dynamic. nil: everything is kept.
	CutRetention func() CutRetention
	Dial         client.Dialer // nil: the system's
	Links        Links         // nil: over the network, by Dial
	Tasks        Tasks         // nil: goroutines
	Retry        Retry
	// RefreshInterval is mirror.metadata.refresh.interval.ms; asked each time, since it is dynamic.
	RefreshInterval func() time.Duration
	// ReadOnly is what a client's write to a mirror topic is answered: POLICY_VIOLATION, the default, which clients of today
	// know, or READ_ONLY_TOPIC where the numbers are the prototype's (spec D10).
	ReadOnly api.Code
	// Fetchers is mirror.num.replica.fetchers; asked each time, since it is dynamic. nil: one.
	Fetchers func() int
	// FetchMemory is mirror.fetch.memory.bytes: what all mirrors of the process may hold of fetched bytes.
	FetchMemory int64
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
}

// Manager keeps the mirrors of this broker in line with metadata.
type Manager struct {
	opts        Options
	ctx         context.Context
	stop        context.CancelFunc
	tasks       Tasks
	work        crew
	pool        *wire.Pool
	memory      *semaphore.Weighted
	held        atomic.Int64 // of memory
	memoryLimit int64
	metrics     *metrics
	cuts        *cutStore

	image   atomic.Pointer[meta.Image]
	changes atomic.Pointer[chan struct{}] // closed and replaced at each change of metadata

	mu      sync.Mutex
	mirrors map[string]*mirror
	broken  map[string]error // mirrors whose configs can't be used
	parts   map[tp]*Partition
}

// New returns a Manager without mirrors: Apply brings them.
func New(o Options) (*Manager, error) {
	if o.ReadOnly == 0 {
		o.ReadOnly = api.PolicyViolation
	}
	m := &Manager{opts: o, tasks: orGoroutines(o.Tasks), work: crew{tasks: o.Tasks}, pool: &wire.Pool{}, memoryLimit: max(o.FetchMemory, 1<<20), mirrors: map[string]*mirror{}, broken: map[string]error{}, parts: map[tp]*Partition{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.memory = semaphore.NewWeighted(m.memoryLimit)
	m.image.Store(meta.Empty(o.ClusterID))
	ch := make(chan struct{})
	m.changes.Store(&ch)
	var err error
	m.cuts = newCutStore(o.FS, o.LogDirs, o.Logger)
	if m.metrics, err = newMetrics(m, o.Registerer); err != nil {
		m.stop()
		return nil, err
	}
	if err := m.registerFetch(o.Registerer); err != nil {
		m.stop()
		return nil, err
	}
	if o.CutRetention != nil {
		m.work.Go(m.expireLoop)
	}
	return m, nil
}

// Close stops all mirroring work and waits for it.
func (m *Manager) Close() {
	m.stop()
	m.mu.Lock()
	parts, mirrors := maps.Clone(m.parts), maps.Clone(m.mirrors)
	clear(m.parts)
	clear(m.mirrors)
	m.mu.Unlock()
	for _, p := range parts {
		p.end()
	}
	for _, mi := range mirrors {
		mi.close()
	}
	m.work.Wait()
}

// Gate is the append gate of a partition (spec 7.10), for replica.Manager.SetGateFactory; nil for a topic in no mirror.
func (m *Manager) Gate(t *meta.Topic, partition int32) replica.Gate {
	if t.MirrorName == "" {
		return nil
	}
	mirrorName, k := t.MirrorName, tp{t.Name, partition}
	wish := mirrormsg.State(t.MirrorDesired)
	return func(origin partlog.Origin) error {
		state := mirrormsg.Unknown
		if p := m.partition(k); p != nil && p.mirror == mirrorName {
			state = p.State()
		}
		switch {
		case origin == partlog.OriginMirror || origin == partlog.OriginReplication:
			if state == mirrormsg.Stopped || state == mirrormsg.Stopping {
				return fmt.Errorf("partition %s is %s: nothing is mirrored into it", k, state)
			}
			return nil
		case state == mirrormsg.Stopped, state == mirrormsg.Stopping && origin == partlog.OriginCoordinator:
			return nil
		case state == mirrormsg.Unknown && wish == mirrormsg.Stopped:
			// Right after a start or leader change: the state is being read. A client retries this.
			return api.Errorf(api.NotLeaderOrFollower, "the mirror state of %s is being read; try again", k)
		}
		return api.Errorf(m.opts.ReadOnly, "READ_ONLY_TOPIC: partition %s belongs to mirror %s and is %s; it takes writes after "+
			"milena mirrors stop %s --topics %s", k, mirrorName, state, mirrorName, k.topic)
	}
}

// partition is the mirror partition led here, nil if there is none.
func (m *Manager) partition(k tp) *Partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parts[k]
}

// Partition returns a mirror partition led here, nil if there is none.
func (m *Manager) Partition(topic string, partition int32) *Partition {
	return m.partition(tp{topic, partition})
}

// partitions returns the mirror partitions led here that match.
func (m *Manager) partitions(match func(*Partition) bool) []*Partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*Partition
	for _, p := range m.ordered() {
		if match(p) {
			out = append(out, p)
		}
	}
	return out
}

// ordered are the partitions led here in the order of their names. mu is held.
func (m *Manager) ordered() []*Partition {
	return slices.SortedFunc(maps.Values(m.parts), func(a, b *Partition) int { return a.tp.compare(b.tp) })
}

// fetchers is how many there are for each mirror and source broker.
func (m *Manager) fetchers() int32 {
	if m.opts.Fetchers == nil {
		return 1
	}
	return int32(max(m.opts.Fetchers(), 1))
}

func (m *Manager) topic(name string) *meta.Topic { return m.image.Load().TopicByName(name) }

// waitsForAll is mirror.support.unclean.leader.election of a topic: after a cut all replicas have to agree before the
// mirroring goes on.
func (m *Manager) waitsForAll(topic string) bool {
	return strings.EqualFold(m.image.Load().Config(meta.ResourceTopic, topic)["mirror.support.unclean.leader.election"], "true")
}

// changed is closed when metadata changes after this call.
func (m *Manager) changed() <-chan struct{} { return *m.changes.Load() }

// Apply brings the mirrors in line with d.Next. Deltas come in order, each after the replicas and coordinators took it.
func (m *Manager) Apply(d *meta.Delta) {
	m.image.Store(d.Next)
	for _, r := range d.Configs {
		if r.Type == meta.ResourceClusterMirror {
			m.applyMirror(r.Name, d.Next.Config(r.Type, r.Name))
		}
	}
	for _, td := range d.Topics {
		if td.Deleted() {
			m.applyTopic(td.Prev, nil, false)
		} else {
			m.applyTopic(td.Next, td.Next, wishChanged(td))
		}
	}
	m.refreshChanged(d)
	ch := make(chan struct{})
	close(*m.changes.Swap(&ch))
}

// wishChanged reports whether a topic's wish was recorded anew.
func wishChanged(td meta.TopicDelta) bool {
	return td.Prev == nil || td.Prev.MirrorName != td.Next.MirrorName || td.Prev.MirrorChangeOffset != td.Next.MirrorChangeOffset
}

// refreshChanged has mirrors refresh whose topics are wished otherwise, and all where the owners may have changed (spec D9).
func (m *Manager) refreshChanged(d *meta.Delta) {
	names, all := map[string]bool{}, false
	for _, td := range d.Topics {
		if td.Deleted() {
			continue
		}
		all = all || td.Next.Name == mirrorstate.Topic
		if td.Next.MirrorName != "" && wishChanged(td) {
			names[td.Next.MirrorName] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, mi := range m.mirrors {
		if all || names[name] {
			mi.refreshSoon()
		}
	}
	if all {
		for _, p := range m.ordered() {
			p.kick() // its coordinator may be another one now
		}
	}
}

// applyTopic starts, wakes and ends the partitions of a topic; now is nil if the topic is gone.
func (m *Manager) applyTopic(t, now *meta.Topic, wish bool) {
	var kick, end []*Partition
	m.mu.Lock()
	if m.ctx.Err() != nil {
		m.mu.Unlock()
		return
	}
	for i := range t.Partitions {
		k := tp{t.Name, int32(i)}
		led := now != nil && now.MirrorName != "" && now.Partitions[i].Leader == m.opts.NodeID
		old := m.parts[k]
		var before *Partition
		if old != nil && (!led || old.mirror != now.MirrorName || old.key.TopicID != now.ID) {
			end = append(end, old)
			delete(m.parts, k)
			before, old = old, nil
		}
		if led && old == nil {
			rep, err := m.opts.Replicas.Get(t.Name, int32(i))
			if err != nil {
				m.opts.Logger.Error("mirror partition has no replica here", "topic", t.Name, "partition", i, "error", err)
				continue
			}
			old = newPartition(m, now.MirrorName, now, int32(i), rep, before)
			m.parts[k] = old
		}
		if old != nil {
			kick = append(kick, old)
		}
	}
	m.mu.Unlock()
	for _, p := range end {
		p.end()
	}
	for _, p := range kick {
		if wish {
			p.wishChanged()
		} else {
			p.kick()
		}
	}
}

// applyMirror makes, changes or drops a mirror's runtime after a change of its configs.
func (m *Manager) applyMirror(name string, own map[string]string) {
	m.mu.Lock()
	old := m.mirrors[name]
	if old != nil && len(own) > 0 && sameConnection(old.own, own) {
		m.mu.Unlock()
		if err := old.change(own); err != nil {
			m.opts.Logger.Error("changed configs of a mirror can't be used", "mirror", name, "error", err)
		}
		return
	}
	delete(m.mirrors, name)
	delete(m.broken, name)
	if len(own) > 0 && m.ctx.Err() == nil {
		mi, err := newMirror(m, name, own)
		if err != nil {
			m.broken[name] = err
			m.opts.Logger.Error("the configs of a mirror can't be used", "mirror", name, "error", err)
		} else {
			m.mirrors[name] = mi
		}
	}
	m.mu.Unlock()
	if len(own) == 0 {
		m.metrics.forget(name)
	}
	mine := m.partitions(func(p *Partition) bool { return p.mirror == name })
	if old != nil {
		for _, p := range mine {
			if t := p.target.Load(); t != nil {
				t.remove()
			}
		}
		old.close()
	}
	for _, p := range mine {
		p.kick()
	}
}

// mirror is the runtime of a mirror that exists and whose configs can be used.
func (m *Manager) mirror(name string) (*mirror, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mi := m.mirrors[name]; mi != nil {
		return mi, nil
	}
	if err := m.broken[name]; err != nil {
		return nil, err
	}
	return nil, api.Errorf(api.UnknownClusterMirror, "there is no mirror %s", name)
}

func (m *Manager) hasMirror(name string) bool {
	return len(m.image.Load().Config(meta.ResourceClusterMirror, name)) > 0
}

// CoordinatorLoaded wakes the partitions whose states the freshly loaded partition of __mirror_state holds.
func (m *Manager) CoordinatorLoaded(partition int32) {
	t := m.topic(mirrorstate.Topic)
	if t == nil {
		return
	}
	n := int32(len(t.Partitions))
	for _, p := range m.partitions(func(p *Partition) bool { return mirrormsg.Slot(p.key.Slot(), n) == partition }) {
		p.kick()
	}
}

// owns reports whether this broker does a mirror's cluster-wide work: it leads the partition of __mirror_state that the
// mirror's name hashes to (spec 6.8).
func (m *Manager) owns(name string) bool {
	t := m.topic(mirrorstate.Topic)
	if t == nil || len(t.Partitions) == 0 {
		return false
	}
	return t.Partitions[mirrormsg.Slot(name, int32(len(t.Partitions)))].Leader == m.opts.NodeID
}

// bumpEpochs asks the controller for leader epochs above the given ones.
func (m *Manager) bumpEpochs(ctx context.Context, least map[tp]int32) error {
	req := &mirrormsg.BumpLeaderEpochsRequest{}
	at := map[string]int{}
	for _, k := range slices.SortedFunc(maps.Keys(least), tp.compare) {
		i, ok := at[k.topic]
		if !ok {
			i = len(req.Topics)
			at[k.topic] = i
			req.Topics = append(req.Topics, mirrormsg.BumpLeaderEpochsTopic{TopicName: k.topic})
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, mirrormsg.BumpLeaderEpochsPartition{PartitionIndex: k.partition, MinLeaderEpoch: least[k]})
	}
	resp, err := m.opts.Controller.Call(ctx, req)
	if err != nil {
		return err
	}
	r := resp.(*mirrormsg.BumpLeaderEpochsResponse)
	if r.ErrorCode != 0 {
		return api.Errorf(api.Code(r.ErrorCode), "%s", text(r.ErrorMessage))
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return api.Errorf(api.Code(p.ErrorCode), "%s-%d: %s", t.TopicName, p.PartitionIndex, text(p.ErrorMessage))
			}
		}
	}
	return nil
}

// SourceTopics asks a mirror's source for topics by name; those it doesn't know are missing in the result.
func (m *Manager) SourceTopics(ctx context.Context, name string, topics []string) (map[string]*SourceTopic, error) {
	mi, err := m.mirror(name)
	if err != nil {
		return nil, err
	}
	return mi.source.Refresh(ctx, topics)
}

// ListSource returns the topics of a mirror's source that are not internal.
func (m *Manager) ListSource(ctx context.Context, name string) ([]SourceTopic, error) {
	mi, err := m.mirror(name)
	if err != nil {
		return nil, err
	}
	return mi.source.List(ctx)
}
