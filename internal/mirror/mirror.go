package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// mirror is the runtime of one mirror on this broker: its connections to the source, its fetchers, and its periodic work.
type mirror struct {
	mgr    *Manager
	name   string
	log    *slog.Logger
	ctx    context.Context
	stop   context.CancelFunc
	work   crew
	source *Source

	own      map[string]string // its configs; replaced under the manager's mu
	settings atomic.Pointer[Settings]
	wake     chan struct{} // a refresh is due

	mu       sync.Mutex // guards the fields below
	fetchers map[fetcherKey]*fetcher
	// synced are the topics whose configs were synced, with the metadata offset of the wish they were synced for.
	synced map[string]int64
	health Health
	// weaker is in what topics are weaker here than on the source, as TOPIC: WHAT.
	weaker []string
	// refused are the found topics that could not be started, with the reason.
	refused map[string]string
	// gone are the groups that the source held before and holds no more.
	gone map[string]bool

	// missing counts the refreshes in a row that did not find a topic; owned by the refresh goroutine.
	missing map[string]int
	// held is what the last group sync found at the source; nil before the first.
	held atomic.Pointer[map[heldOffset]bool]
}

// Health is how the periodic work of a mirror went last.
type Health struct {
	// Refreshed, Configs and Groups are when the last refresh, the last sync of topic configs and the last group sync succeeded,
	// zero if none did.
	Refreshed, Configs, Groups time.Time
	// RefreshError, ConfigsError and GroupsError are their last errors, empty after a success.
	RefreshError, ConfigsError, GroupsError string
	// ByGroup is when each group's offsets were last in step with the source's, on the broker that syncs them.
	ByGroup map[string]time.Time
	// SkippedGroups is how many groups the last sync left alone because they have members here and other offsets than at the source.
	SkippedGroups int
}

func newMirror(m *Manager, name string, own map[string]string) (*mirror, error) {
	s, err := ParseSettings(own)
	if err != nil {
		return nil, err
	}
	src, err := openSource(s, m.opts.Dial, m.opts.Links, m.opts.Tasks, fmt.Sprintf("mirror-src-admin-%s-%d", name, m.opts.NodeID))
	if err != nil {
		return nil, err
	}
	mi := &mirror{mgr: m, name: name, work: crew{tasks: m.opts.Tasks}, log: m.opts.Logger.With("mirror", name), source: src, own: maps.Clone(own),
		wake: make(chan struct{}, 1), fetchers: map[fetcherKey]*fetcher{}, synced: map[string]int64{}, missing: map[string]int{}}
	mi.ctx, mi.stop = context.WithCancel(m.ctx)
	mi.settings.Store(s)
	mi.work.Go(mi.refreshLoop)
	mi.work.Go(mi.groupsLoop)
	mi.work.Go(mi.auditLoop)
	return mi, nil
}

// close ends the fetchers and the periodic work and waits for them. It leaves no target behind that nobody fetches: its partition
// would take it for one that is being fetched.
func (mi *mirror) close() {
	mi.mu.Lock()
	mi.stop() // under the lock: fetch starts nothing after it
	fetchers := slices.Collect(maps.Values(mi.fetchers))
	mi.mu.Unlock()
	mi.source.Close()
	mi.work.Wait()
	for _, f := range fetchers {
		f.letGo()
	}
}

// change takes over configs that need no new connection.
func (mi *mirror) change(own map[string]string) error {
	s, err := ParseSettings(own)
	if err != nil {
		return err
	}
	mi.mgr.mu.Lock()
	mi.own = maps.Clone(own)
	mi.mgr.mu.Unlock()
	mi.settings.Store(s)
	mi.refreshSoon()
	return nil
}

func (mi *mirror) set() *Settings { return mi.settings.Load() }

// learn takes over a leader that a fetch answer named.
func (mi *mirror) learn(t tp, l Leader) { mi.source.Learn(t.topic, t.partition, l) }

// fetch hands a target to its fetcher of the source broker at addr.
func (mi *mirror) fetch(addr string, t *target) {
	mi.mu.Lock()
	defer mi.mu.Unlock()
	if mi.ctx.Err() != nil {
		t.remove()
		return
	}
	k := fetcherKey{addr, t.key.shard(mi.mgr.fetchers())}
	f := mi.fetchers[k]
	if f == nil || !f.add(t) {
		f = newFetcher(mi, k)
		mi.fetchers[k] = f
		f.add(t)
		mi.work.Go(func() {
			f.run(mi.ctx)
			mi.mu.Lock()
			if mi.fetchers[k] == f {
				delete(mi.fetchers, k)
			}
			mi.mu.Unlock()
		})
	}
}

// topics are the names of the mirror's topics that are wished to be in one of the states.
func (mi *mirror) topics(states ...mirrormsg.State) []string {
	var out []string
	for t := range mi.mgr.image.Load().Topics() {
		if t.MirrorName == mi.name && slices.Contains(states, mirrormsg.State(t.MirrorDesired)) {
			out = append(out, t.Name)
		}
	}
	return out
}

// Health reads how the periodic work of a mirror went.
func (m *Manager) Health(name string) (Health, error) {
	mi, err := m.mirror(name)
	if err != nil {
		return Health{}, err
	}
	mi.mu.Lock()
	defer mi.mu.Unlock()
	h := mi.health
	h.ByGroup = maps.Clone(h.ByGroup)
	return h, nil
}

// configsOnce syncs a topic's configs unless that was done for the present wish, and waits until they are here.
func (mi *mirror) configsOnce(ctx context.Context, topic string) error {
	t := mi.mgr.topic(topic)
	if t == nil {
		return fmt.Errorf("topic %s is gone", topic)
	}
	mi.mu.Lock()
	at, done := mi.synced[topic]
	mi.mu.Unlock()
	if done && at == t.MirrorChangeOffset {
		return nil
	}
	_, err := mi.source.once(ctx, "configs of "+topic, func(ctx context.Context) (any, error) {
		if err := mi.source.Verify(ctx); err != nil {
			return nil, err
		}
		want, err := mi.syncConfigs(ctx, []string{topic})
		if err != nil {
			return nil, err
		}
		if err := mi.awaitConfigs(ctx, want); err != nil {
			return nil, fmt.Errorf("waiting for them to take effect: %w", err)
		}
		mi.mu.Lock()
		mi.synced[topic] = t.MirrorChangeOffset
		mi.mu.Unlock()
		return nil, nil
	})
	return err
}

// awaitConfigs waits until the metadata shows the configs.
func (mi *mirror) awaitConfigs(ctx context.Context, want map[string]map[string]string) error {
	for {
		changed := mi.mgr.changed()
		if applied(mi.mgr.image.Load(), want) {
			return nil
		}
		if mi.mgr.tasks.Wait(ctx, -1, changed) == WokenEnd {
			return ctx.Err()
		}
	}
}

// applied says whether the topics have the configs by metadata.
func applied(img *meta.Image, want map[string]map[string]string) bool {
	for topic, kv := range want {
		have := img.Config(meta.ResourceTopic, topic)
		for k, v := range kv {
			if have[k] != v {
				return false
			}
		}
	}
	return true
}
