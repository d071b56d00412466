package replica

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/partlog"
)

// Settings are what a topic's configuration decides for its partitions.
type Settings struct {
	Log    partlog.Config
	MinISR int // min.insync.replicas
}

// durable reports whether a record counts only once it is on disk:
// flush.messages is 1, every append is flushed before it is acknowledged.
func (s *Settings) durable() bool { return s.Log.FlushMessages <= 1 }

// Dirs is what a Manager needs of the log directories; *logdir.Set has it.
type Dirs interface {
	// GetOrCreate returns the log of a partition. One of another topic id under
	// the same name is deleted. It is called for several partitions at once.
	GetOrCreate(id ids.UUID, topic string, partition int32, c partlog.Config) (*partlog.Log, error)
	Delete(topic string, partition int32) error
	SetConfig(topic string, c partlog.Config)
	// CheckSpace refuses a write of n bytes while the log's directory is nearly full.
	CheckSpace(l *partlog.Log, n int64) error
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
	image       *meta.Image
	ahead       map[logKey]opened // by openAhead, while a delta is applied
	gates       func(t *meta.Topic, partition int32) Gate
	subscribers []func(Event)
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
	m := &Manager{
		opts: o, log: o.Logger, sessions: NewSessions(o.SessionSlots, o.Random),
		byName: map[string]*topic{}, byID: map[ids.UUID]*topic{}, image: meta.Empty(""), ahead: map[logKey]opened{},
	}
	var err error
	if m.metrics, err = newMetrics(m, o.Registerer); err != nil {
		return nil, err
	}
	return m, nil
}

// Sessions is the cache of incremental fetch sessions.
func (m *Manager) Sessions() *Sessions { return m.sessions }

// Start checkpoints the high watermarks at the interval until ctx ends.
func (m *Manager) Start(ctx context.Context) {
	go func() {
		t := time.NewTicker(m.opts.CheckpointInterval)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if err := m.Checkpoint(); err != nil {
					m.log.Error("high watermark checkpoint failed", "error", err)
				}
			}
		}
	}()
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
	m.image = d.Next
	m.openAhead(d)
	defer clear(m.ahead)
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
	m.applyConfigs(d)
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
	var mu sync.Mutex
	for _, td := range d.Topics {
		if td.Deleted() {
			return
		}
	}
	for _, td := range d.Topics {
		var set *Settings
		for _, i := range td.Partitions {
			if p, err := m.GetByID(td.Next.ID, i); (err == nil && p.log != nil) || !slices.Contains(td.Next.Partition(i).Replicas, m.opts.NodeID) {
				continue
			}
			if set == nil {
				s := m.opts.Settings(m.image, td.Next.Name)
				set = &s
			}
			g.Go(func() error {
				log, err := m.opts.Dirs.GetOrCreate(td.Next.ID, td.Next.Name, i, set.Log)
				mu.Lock()
				defer mu.Unlock()
				m.ahead[logKey{td.Next.ID, i}] = opened{log, err}
				return nil
			})
		}
	}
	_ = g.Wait() // each log's error is in its entry
}

// open returns a new partition's log.
func (m *Manager) open(t *topic, i int32, c partlog.Config) (*partlog.Log, error) {
	if o, ok := m.ahead[logKey{t.id, i}]; ok {
		return o.log, o.err
	}
	return m.opts.Dirs.GetOrCreate(t.id, t.name, i, c)
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
	if m.gates == nil {
		return
	}
	for _, p := range m.local(t) {
		p.SetGate(m.gates(mt, p.index))
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
	if p == nil || p.log == nil { // new, or its log couldn't be opened then
		p = m.create(t, i)
		if m.gates != nil {
			p.SetGate(m.gates(mt, i))
		}
		m.mu.Lock()
		t.parts[i] = p
		m.mu.Unlock()
	}
	if e, changed := p.apply(mp); changed {
		m.log.Debug("partition changed", "topic", t.name, "partition", i, "leader", mp.Leader, "epoch", mp.LeaderEpoch)
		m.publish(e)
	}
}

// create opens the log of a new local partition. If its directory is offline
// the partition answers KAFKA_STORAGE_ERROR.
func (m *Manager) create(t *topic, i int32) *Partition {
	if t.metrics == nil {
		t.metrics = m.metrics.topic(t.name)
	}
	p := &Partition{m: m, topic: t, index: i}
	set := m.opts.Settings(m.image, t.name)
	p.settings.Store(&set)
	st := &state{leader: -1, epoch: -1}
	log, err := m.open(t, i, set.Log)
	if err != nil {
		m.log.Error("partition has no log", "topic", t.name, "partition", i, "error", err)
		st.gone = &api.Error{Code: api.KafkaStorageError, Message: "the log of " + p.name() + " can't be opened", Err: err}
		p.st.Store(st)
		return p
	}
	p.log = log
	hw := m.opts.Dirs.HighWatermark(t.name, i)
	hw = max(min(hw, log.EndOffset()), log.StartOffset())
	p.hw.Store(hw)
	log.UpdateHighWatermark(hw)
	p.st.Store(st)
	return p
}

// drop retires a partition and deletes its log.
func (m *Manager) drop(t *topic, p *Partition, why error) {
	m.mu.Lock()
	delete(t.parts, p.index)
	m.mu.Unlock()
	p.retire(why)
	if p.log == nil {
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
		if mt := m.image.TopicByID(p.topic.id); mt != nil {
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
	m.Partitions(func(p *Partition) bool {
		if p.log == nil || filepath.Dir(p.log.Dir()) != filepath.Clean(path) {
			return true
		}
		err := &api.Error{Code: api.KafkaStorageError, Message: "the log directory of " + p.name() + " is offline", Err: cause}
		_, epoch, _ := p.Leader()
		if p.retire(err) {
			m.publish(Event{Partition: p, Epoch: epoch, Offline: true})
		}
		return true
	})
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
