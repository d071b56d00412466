package replica

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/partlog"
)

// Settings are what a topic's configuration decides for its partitions.
type Settings struct {
	Log    partlog.Config
	MinISR int // min.insync.replicas
	// Fenced: clients can't write nor delete records (milena.write.fence).
	Fenced bool
	// LeaderThrottled, FollowerThrottled and MirrorThrottled say which replicas the
	// throttles of replication (KIP-73) and mirroring concern; nil: none.
	LeaderThrottled, FollowerThrottled, MirrorThrottled func(partition, broker int32) bool
}

// durable reports whether a record counts only once it is on disk:
// flush.messages is 1, every append is flushed before it is acknowledged.
func (s *Settings) durable() bool { return s.Log.FlushMessages <= 1 }

// Dirs is what a Manager needs of the log directories; *logdir.Set has it.
type Dirs interface {
	// GetOrCreate returns the log of a partition, in the directory with that id
	// if it is to be created there. One of another topic id under the same name
	// is deleted. It is called for several partitions at once.
	GetOrCreate(id ids.UUID, topic string, partition int32, c partlog.Config, dir ids.UUID) (*partlog.Log, error)
	Delete(topic string, partition int32) error
	SetConfig(topic string, c partlog.Config)
	// CheckSpace refuses a write of n bytes while the log's directory is nearly full.
	CheckSpace(l *partlog.Log, n int64) error
	// DirOf is the id of the directory that holds the partition's log, zero if none.
	DirOf(topic string, partition int32) ids.UUID
	// HighWatermark is the checkpointed high watermark at start, 0 if none.
	HighWatermark(topic string, partition int32) int64
	CheckpointHighWatermarks(hw func(topic string, partition int32) (int64, bool)) error
}

var _ Dirs = (*logdir.Set)(nil)

// Options configure a Manager. NodeID, Dirs, Settings and Logger are required.
type Options struct {
	NodeID int32
	Dirs   Dirs
	// Settings derives a topic's settings from the configs in img.
	Settings func(img *meta.Image, topic string) Settings
	Logger   *slog.Logger
	// Registerer receives the metrics; nil registers none.
	Registerer prometheus.Registerer
	// SessionSlots is max.incremental.fetch.session.cache.slots; 0 means 1000.
	SessionSlots int
	// Random is the source of fetch session ids; nil uses the standard library's.
	Random func() uint32
	// CheckpointInterval is replica.high.watermark.checkpoint.interval.ms; 0 means 5 s.
	CheckpointInterval time.Duration
	// Controller is the active controller, for AlterPartition and
	// AssignReplicasToDirs; nil: ISRs stay as they are.
	Controller Caller
	// BrokerEpoch is the epoch this broker registered with; nil: -1.
	BrokerEpoch func() int64
	// LagTimeMax is replica.lag.time.max.ms; 0 means 30 s.
	LagTimeMax time.Duration
	// InOrder makes new logs one after another instead of side by side, for a simulation that repeats: where there are several
	// directories each goes to the one that has the fewest by then.
	InOrder bool
	// Suspended begins suspended: nothing is led until Resume.
	Suspended bool
	// Current says whether the metadata is likely that of now: if not, what only a
	// newer leadership explains is no loss. Nil: it is.
	Current func() bool
}

// Caller sends a request to the active controller and returns its reply.
type Caller interface {
	Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Manager keeps the partitions with a replica on this broker.
type Manager struct {
	opts     Options
	log      *slog.Logger
	sessions *Sessions
	metrics  *Metrics

	mu     sync.RWMutex
	byName map[string]*topic
	byID   map[ids.UUID]*topic

	// apply serialises Apply, SetGateFactory, Subscribe and directory
	// failures, so that subscribers see events in order.
	apply       sync.Mutex
	image       atomic.Pointer[meta.Image]
	suspended   bool
	applying    *meta.Delta       // nil between deltas
	ahead       map[logKey]opened // by openAhead, while a delta is applied
	gates       func(t *meta.Topic, partition int32) Gate
	alignments  func(t *meta.Topic, partition int32) *Alignment
	subscribers []func(Event)
	followed    []func(*Partition)

	alters alterer
	assign assigner
	selves selfAligner
	moves  mover
	heard  sync.Map  // broker id to *heard
	began  time.Time // what heard times are from
	quotas [3]quota  // leaderQuota, followerQuota, mirrorQuota
}

// topic is a topic of the metadata, with its local partitions.
type topic struct {
	id      ids.UUID
	name    string
	parts   map[int32]*Partition // guarded by Manager.mu
	count   int32                // partitions by metadata; guarded by Manager.mu
	metrics *TopicMetrics
}

// New returns a Manager without partitions; Apply creates them.
func New(o Options) (*Manager, error) {
	if o.Dirs == nil || o.Settings == nil || o.Logger == nil {
		return nil, errors.New("replica: Dirs, Settings and Logger are required")
	}
	if o.SessionSlots <= 0 {
		o.SessionSlots = 1000
	}
	if o.CheckpointInterval <= 0 {
		o.CheckpointInterval = 5 * time.Second
	}
	if o.LagTimeMax <= 0 {
		o.LagTimeMax = 30 * time.Second
	}
	if o.BrokerEpoch == nil {
		o.BrokerEpoch = func() int64 { return -1 }
	}
	m := &Manager{
		opts: o, log: o.Logger, sessions: NewSessions(o.SessionSlots, o.Random),
		byName: map[string]*topic{}, byID: map[ids.UUID]*topic{}, ahead: map[logKey]opened{}, suspended: o.Suspended, began: time.Now(),
	}
	m.image.Store(meta.Empty(""))
	m.alters.init()
	m.assign.init()
	m.selves.init()
	m.moves.init()
	var err error
	if m.metrics, err = newMetrics(m, o.Registerer); err != nil {
		return nil, err
	}
	return m, nil
}

// Sessions is the cache of incremental fetch sessions.
func (m *Manager) Sessions() *Sessions { return m.sessions }

// NodeID is this broker's id.
func (m *Manager) NodeID() int32 { return m.opts.NodeID }

// Image is the metadata that was applied last, or is being applied.
func (m *Manager) Image() *meta.Image { return m.image.Load() }

// shrinkInterval is how often ISRs are looked at, at most.
const shrinkInterval = time.Second

// Start runs what the manager does by itself until ctx ends: it checkpoints
// the high watermarks, shrinks ISRs, and tells the controller of changes of
// ISRs and of the directories of replicas.
func (m *Manager) Start(ctx context.Context) {
	go m.moves.run(ctx, m)
	if m.opts.Controller != nil {
		go m.alters.run(ctx, m)
		go m.assign.run(ctx, m)
		go m.selves.run(ctx, m)
		go m.shrinkLoop(ctx)
	}
	go func() {
		t := time.NewTicker(m.opts.CheckpointInterval)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if err := m.Checkpoint(); err != nil && !disk.Full(err) { // a full disk was told of
					m.log.Error("high watermark checkpoint failed", "error", err)
				}
				m.retryLogs()
			}
		}
	}()
}

func (m *Manager) shrinkLoop(ctx context.Context) {
	t := time.NewTicker(min(shrinkInterval, m.opts.LagTimeMax/2))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			m.Partitions(func(p *Partition) bool {
				p.shrink(now)
				return true
			})
		}
	}
}

// Checkpoint writes the high watermarks of all partitions.
func (m *Manager) Checkpoint() error {
	return m.opts.Dirs.CheckpointHighWatermarks(func(name string, partition int32) (int64, bool) {
		m.mu.RLock()
		defer m.mu.RUnlock()
		if t := m.byName[name]; t != nil {
			if p := t.parts[partition]; p != nil && p.st.Load().gone == nil {
				return p.hw.Load(), true
			}
		}
		return 0, false
	})
}

// Apply brings the partitions in line with d.Next. Deltas must come in order;
// when Apply returns, the partitions reflect d.Next and subscribers were told.
func (m *Manager) Apply(d *meta.Delta) {
	m.apply.Lock()
	defer m.apply.Unlock()
	m.image.Store(d.Next)
	m.applying = d
	m.openAhead(d)
	defer func() {
		m.applying = nil
		clear(m.ahead)
	}()
	// Settings come first: a leader that saw a smaller ISR before the higher min.insync.replicas that was set earlier would commit
	// what the controller's eligible replicas lack. The other way round nothing is lost: every replica of the ISR it knows counts.
	m.applyConfigs(d)
	for _, td := range d.Topics {
		if td.Deleted() {
			m.deleteTopic(td.Prev)
			continue
		}
		t := m.ensureTopic(td.Next)
		m.refreshGates(t, td.Next)
		for _, i := range td.Partitions {
			m.applyPartition(t, td.Next, i)
		}
	}
	if len(d.Brokers) > 0 {
		m.brokersChanged()
	}
}

// changed applies metadata to a partition and tells of it.
func (m *Manager) changed(p *Partition, mp *meta.Partition, again bool) {
	if e, changed := p.apply(mp, again); changed {
		m.log.Debug("partition changed", "topic", p.topic.name, "partition", p.index, "leader", mp.Leader, "epoch", mp.LeaderEpoch)
		m.publish(e)
	}
	m.tellFollowed(p)
}

// OnFollow has fn called after each change of whom a partition may follow, from
// the goroutine that calls Apply, Suspend or DirectoryOffline: fn looks at
// Following itself. It must neither block nor call those. It is told at once of
// the partitions that exist.
func (m *Manager) OnFollow(fn func(*Partition)) {
	m.apply.Lock()
	defer m.apply.Unlock()
	m.followed = append(m.followed, fn)
	m.Partitions(func(p *Partition) bool {
		fn(p)
		return true
	})
}

func (m *Manager) tellFollowed(p *Partition) {
	for _, fn := range m.followed {
		fn(p)
	}
}

// logKey names a log; opened is what became of opening it.
type (
	logKey struct {
		id        ids.UUID
		partition int32
	}
	opened struct {
		log *partlog.Log
		err error
	}
)

// aheadLimit is how many logs are made at once: enough that the disk makes many
// of them durable together.
const aheadLimit = 32

// openAhead opens the logs of d's new local partitions side by side: making one
// takes several syncs. Where d deletes topics too the order matters, and create
// opens them one by one.
func (m *Manager) openAhead(d *meta.Delta) {
	var g errgroup.Group
	g.SetLimit(aheadLimit)
	if m.opts.InOrder {
		g.SetLimit(1)
	}
	var mu sync.Mutex
	for _, td := range d.Topics {
		if td.Deleted() {
			return
		}
	}
	for _, td := range d.Topics {
		var set *Settings
		for _, i := range td.Partitions {
			if p, err := m.GetByID(td.Next.ID, i); (err == nil && p.l() != nil) || !slices.Contains(td.Next.Partition(i).Replicas, m.opts.NodeID) {
				continue
			}
			if set == nil {
				s := m.opts.Settings(m.Image(), td.Next.Name)
				set = &s
			}
			g.Go(func() error {
				log, err := m.opts.Dirs.GetOrCreate(td.Next.ID, td.Next.Name, i, set.Log, m.directory(td.Next, i))
				mu.Lock()
				defer mu.Unlock()
				m.ahead[logKey{td.Next.ID, i}] = opened{log, err}
				return nil
			})
		}
	}
	_ = g.Wait() // each log's error is in its entry
}

// assigned is the directory that the metadata has for the replica here.
func (m *Manager) assigned(mp *meta.Partition) ids.UUID {
	if mp == nil {
		return ids.UnassignedDir
	}
	if i := slices.Index(mp.Replicas, m.opts.NodeID); i >= 0 && i < len(mp.Dirs) {
		return mp.Dirs[i]
	}
	return ids.UnassignedDir
}

// directory is where the log of a replica here is to be made if there is none:
// where the metadata has it, and if it doesn't say, anywhere for a replica that
// was placed here in this broker's life. An older one may have a log in a
// directory that is offline.
func (m *Manager) directory(mt *meta.Topic, i int32) ids.UUID {
	dir := m.assigned(mt.Partition(i))
	if !dir.IsReserved() || m.placedNow(mt.ID, i) {
		return dir
	}
	return ids.LostDir
}

// placedNow reports whether the delta that is being applied put a replica here,
// and begins after this broker registered.
func (m *Manager) placedNow(id ids.UUID, i int32) bool {
	d := m.applying
	if d == nil || d.Prev.Offset < m.opts.BrokerEpoch() {
		return false
	}
	before := d.Prev.TopicByID(id).Partition(i)
	return before == nil || !slices.Contains(before.Replicas, m.opts.NodeID)
}

// open returns a new partition's log.
func (m *Manager) open(t *topic, i int32, c partlog.Config) (*partlog.Log, error) {
	if o, ok := m.ahead[logKey{t.id, i}]; ok {
		return o.log, o.err
	}
	return m.opts.Dirs.GetOrCreate(t.id, t.name, i, c, m.directory(m.Image().TopicByID(t.id), i))
}

// applyConfigs hands changed topic settings to the partitions.
func (m *Manager) applyConfigs(d *meta.Delta) {
	all := false
	var names []string
	for _, r := range d.Configs {
		switch r.Type {
		case meta.ResourceTopic:
			names = append(names, r.Name)
		case meta.ResourceBroker:
			all = true // a broker's defaults reach topics
		}
	}
	if all {
		names = names[:0]
		m.mu.RLock()
		for n := range m.byName {
			names = append(names, n)
		}
		m.mu.RUnlock()
		slices.Sort(names)
	}
	for _, n := range names {
		m.mu.RLock()
		t := m.byName[n]
		m.mu.RUnlock()
		if t == nil {
			continue
		}
		set := m.opts.Settings(d.Next, n)
		m.opts.Dirs.SetConfig(n, set.Log)
		for _, p := range m.local(t) {
			p.settings.Store(&set)
			// It takes the partition's lock alone: who asks a broker that has applied a fence must see the end that it holds, and
			// appends under way are over then.
			p.resettle()
		}
	}
}

// local lists a topic's local partitions in order.
func (m *Manager) local(t *topic) []*Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	ps := make([]*Partition, 0, len(t.parts))
	for _, p := range t.parts {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *Partition) int { return int(a.index) - int(b.index) })
	return ps
}

func (m *Manager) ensureTopic(mt *meta.Topic) *topic {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.byID[mt.ID]
	if t == nil {
		t = &topic{id: mt.ID, name: mt.Name, parts: map[int32]*Partition{}}
		m.byID[mt.ID], m.byName[mt.Name] = t, t
	}
	t.count = int32(len(mt.Partitions))
	return t
}

func (m *Manager) refreshGates(t *topic, mt *meta.Topic) {
	if m.gates == nil && m.alignments == nil {
		return
	}
	for _, p := range m.local(t) {
		m.mirrored(p, mt)
	}
}

// mirrored has the mirrors decide what they have to say of a partition.
func (m *Manager) mirrored(p *Partition, mt *meta.Topic) {
	if m.gates != nil {
		p.SetGate(m.gates(mt, p.index))
	}
	if m.alignments != nil {
		p.align.Store(m.alignments(mt, p.index))
	}
}

func (m *Manager) applyPartition(t *topic, mt *meta.Topic, i int32) {
	mp := mt.Partition(i)
	m.mu.RLock()
	p := t.parts[i]
	m.mu.RUnlock()
	if !slices.Contains(mp.Replicas, m.opts.NodeID) {
		if p != nil {
			m.drop(t, p, p.errNotLeader())
			m.publish(Event{Partition: p, Epoch: mp.LeaderEpoch, Deleted: true})
		}
		return
	}
	if p == nil || p.lost() { // new, or its log couldn't be opened then
		p = m.create(t, i)
		m.mirrored(p, mt)
		m.mu.Lock()
		t.parts[i] = p
		m.mu.Unlock()
	}
	m.changed(p, mp, false)
	m.assign.check(m, p, mp)
	m.selves.check(m, p, mp)
}

// retryLogs makes the logs that could not be made: for lack of space or of open
// files. What is in a directory that failed stays offline.
func (m *Manager) retryLogs() {
	m.apply.Lock()
	defer m.apply.Unlock()
	defer clear(m.ahead)
	m.Partitions(func(p *Partition) bool {
		mt := m.Image().TopicByID(p.topic.id)
		if !p.lost() || mt == nil || errors.Is(p.st.Load().gone, logdir.ErrOffline) {
			return true
		}
		log, err := m.opts.Dirs.GetOrCreate(mt.ID, mt.Name, p.index, p.settings.Load().Log, m.directory(mt, p.index))
		if err != nil {
			return true // as was said when it was tried first
		}
		m.ahead[logKey{mt.ID, p.index}] = opened{log, nil}
		m.log.Info("partition has a log now", "topic", mt.Name, "partition", p.index)
		m.applyPartition(p.topic, mt, p.index)
		return true
	})
}

// create opens the log of a new local partition. If its directory is offline
// the partition answers KAFKA_STORAGE_ERROR.
func (m *Manager) create(t *topic, i int32) *Partition {
	if t.metrics == nil {
		t.metrics = m.metrics.topic(t.name)
	}
	p := &Partition{m: m, topic: t, index: i}
	p.opened.Store(notOpen)
	set := m.opts.Settings(m.Image(), t.name)
	p.settings.Store(&set)
	st := &state{leader: -1, epoch: -1, version: -1}
	log, err := m.open(t, i, set.Log)
	if err != nil {
		m.log.Error("partition has no log", "topic", t.name, "partition", i, "error", err)
		st.gone = &api.Error{Code: api.KafkaStorageError, Message: "the log of " + p.name() + " can't be opened", Err: err}
		p.st.Store(st)
		return p
	}
	p.lp.Store(log)
	hw := m.opts.Dirs.HighWatermark(t.name, i)
	hw = max(min(hw, log.EndOffset()), log.StartOffset())
	p.hw.Store(hw)
	log.UpdateHighWatermark(hw)
	p.st.Store(st)
	m.resumeMove(p)
	return p
}

// drop retires a partition and deletes its log.
func (m *Manager) drop(t *topic, p *Partition, why error) {
	m.mu.Lock()
	delete(t.parts, p.index)
	m.mu.Unlock()
	p.retire(why)
	m.tellFollowed(p)
	if p.l() == nil {
		return
	}
	if err := m.opts.Dirs.Delete(t.name, p.index); err != nil {
		m.log.Error("log not deleted", "topic", t.name, "partition", p.index, "error", err)
	}
}

func (m *Manager) deleteTopic(mt *meta.Topic) {
	m.mu.Lock()
	t := m.byID[mt.ID]
	if t == nil {
		m.mu.Unlock()
		return
	}
	delete(m.byID, mt.ID)
	if m.byName[mt.Name] == t {
		delete(m.byName, mt.Name)
	}
	m.mu.Unlock()
	gone := api.Errorf(api.UnknownTopicOrPartition, "topic %s was deleted", mt.Name)
	for _, p := range m.local(t) {
		_, epoch, _ := p.Leader()
		m.drop(t, p, gone)
		m.publish(Event{Partition: p, Epoch: epoch, Deleted: true})
	}
	m.metrics.forget(t.name)
}

// Get returns the local replica of a partition. Errors carry
// UNKNOWN_TOPIC_OR_PARTITION (no such topic or partition),
// NOT_LEADER_OR_FOLLOWER (no replica here) or KAFKA_STORAGE_ERROR (its log
// directory is offline).
func (m *Manager) Get(name string, partition int32) (*Partition, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	t := m.byName[name]
	if t == nil {
		return nil, api.Errorf(api.UnknownTopicOrPartition, "no topic %s", name)
	}
	return t.get(partition)
}

// GetByID is Get by topic id; an unknown id is UNKNOWN_TOPIC_ID.
func (m *Manager) GetByID(id ids.UUID, partition int32) (*Partition, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	t := m.byID[id]
	if t == nil {
		return nil, api.Errorf(api.UnknownTopicID, "no topic with id %s", id)
	}
	return t.get(partition)
}

// get finds a local partition. Manager.mu is held.
func (t *topic) get(partition int32) (*Partition, error) {
	p := t.parts[partition]
	switch {
	case p == nil && (partition < 0 || partition >= t.count):
		return nil, api.Errorf(api.UnknownTopicOrPartition, "topic %s has no partition %d", t.name, partition)
	case p == nil:
		return nil, api.Errorf(api.NotLeaderOrFollower, "this broker has no replica of %s-%d", t.name, partition)
	}
	if gone := p.st.Load().gone; gone != nil {
		return nil, gone
	}
	return p, nil
}

// Settled calls fn with what tells the partitions held here from others, while
// no delta is applied.
func (m *Manager) Settled(fn func(held func(topic string, id ids.UUID, partition int32) bool) error) error {
	m.apply.Lock()
	defer m.apply.Unlock()
	return fn(func(name string, id ids.UUID, partition int32) bool {
		m.mu.RLock()
		defer m.mu.RUnlock()
		t := m.byName[name]
		return t != nil && t.parts[partition] != nil && (id.IsZero() || t.id == id)
	})
}

// Partitions calls fn for every local partition until it returns false, in no
// particular order.
func (m *Manager) Partitions(fn func(*Partition) bool) {
	m.mu.RLock()
	var ps []*Partition
	for _, t := range m.byID {
		for _, p := range t.parts {
			ps = append(ps, p)
		}
	}
	m.mu.RUnlock()
	for _, p := range ps {
		if !fn(p) {
			return
		}
	}
}

// SetGateFactory installs f, which is asked for the append gate of a
// partition before it first becomes available and whenever its topic's
// metadata changes. Partitions that exist already are asked at once. A nil
// gate admits everything.
func (m *Manager) SetGateFactory(f func(t *meta.Topic, partition int32) Gate) {
	m.apply.Lock()
	defer m.apply.Unlock()
	m.gates = f
	m.Partitions(func(p *Partition) bool {
		if mt := m.Image().TopicByID(p.topic.id); mt != nil {
			p.SetGate(f(mt, p.index))
		}
		return true
	})
}

// Event says that a local partition's role changed.
type Event struct {
	Partition *Partition
	Leader    bool  // it leads now, at Epoch
	Epoch     int32 // leader epoch
	Deleted   bool  // the topic, or the replica here, is gone
	Offline   bool  // its log directory failed
}

// Subscribe calls fn after each change of role, in order, from the goroutine
// that calls Apply or DirectoryOffline. fn must neither block nor call them.
// It is told at once of the partitions that are led already.
func (m *Manager) Subscribe(fn func(Event)) {
	m.apply.Lock()
	defer m.apply.Unlock()
	m.subscribers = append(m.subscribers, fn)
	m.Partitions(func(p *Partition) bool {
		if _, epoch, self := p.Leader(); self {
			fn(Event{Partition: p, Leader: true, Epoch: epoch})
		}
		return true
	})
}

func (m *Manager) publish(e Event) {
	for _, fn := range m.subscribers {
		fn(e)
	}
}

// DirectoryOffline retires the partitions whose log is in the directory with
// that path: their requests and waiters get KAFKA_STORAGE_ERROR. It is for
// logdir's OnOffline, which may be called from within an append, so it works
// in a goroutine of its own.
func (m *Manager) DirectoryOffline(path string, cause error) {
	go m.directoryOffline(path, cause)
}

func (m *Manager) directoryOffline(path string, cause error) {
	m.apply.Lock()
	defer m.apply.Unlock()
	for _, p := range m.ordered() {
		if p.l() == nil || filepath.Dir(p.l().Dir()) != filepath.Clean(path) {
			continue
		}
		err := &api.Error{Code: api.KafkaStorageError, Message: "the log directory of " + p.name() + " is offline", Err: errors.Join(logdir.ErrOffline, cause)}
		_, epoch, _ := p.Leader()
		if p.retire(err) {
			m.publish(Event{Partition: p, Epoch: epoch, Offline: true})
			m.tellFollowed(p)
			if mp := m.Image().TopicByID(p.topic.id).Partition(p.index); mp != nil {
				m.assign.check(m, p, mp)
			}
		}
	}
}

// Close writes the high watermark checkpoints and fails all waiters; Apply
// must not be called any more. The logs belong to logdir and are closed there.
func (m *Manager) Close() error {
	err := m.Checkpoint()
	m.Partitions(func(p *Partition) bool {
		p.retire(p.errNotLeader())
		return true
	})
	return err
}
