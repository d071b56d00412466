package follow

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/peer"
	"milena/internal/replica"
)

// Settings are replica.fetch.* and num.replica.fetchers; zero values stand for
// Kafka's defaults.
type Settings struct {
	Fetchers         int   // loops for each leader
	MinBytes         int32 // that a fetch waits for
	MaxBytes         int32 // of one partition
	ResponseMaxBytes int32
	MaxWait          time.Duration
	Backoff          time.Duration // the longest pause after an error
}

func (s Settings) defaults() Settings {
	if s.Fetchers <= 0 {
		s.Fetchers = 1
	}
	if s.MinBytes <= 0 {
		s.MinBytes = 1
	}
	if s.MaxBytes <= 0 {
		s.MaxBytes = 1 << 20
	}
	if s.ResponseMaxBytes <= 0 {
		s.ResponseMaxBytes = 10 << 20
	}
	if s.MaxWait <= 0 {
		s.MaxWait = 500 * time.Millisecond
	}
	if s.Backoff <= 0 {
		s.Backoff = time.Second
	}
	return s
}

// Options configure Fetchers. NodeID, Replicas, Dial and Logger are required.
type Options struct {
	NodeID   int32
	Replicas *replica.Manager
	// BrokerEpoch is the epoch this broker registered with; nil: -1.
	BrokerEpoch func() int64
	// Dial connects to a broker's listener for other brokers. It looks the
	// address up each time.
	Dial func(ctx context.Context, broker int32, clientID string) (*peer.Conn, error)
	// Settings returns the current settings; nil: the defaults.
	Settings func() Settings
	Logger   *slog.Logger
	// Registerer receives the metrics; nil: none.
	Registerer prometheus.Registerer
}

// Fetchers follow other brokers. All methods are for any goroutine.
type Fetchers struct {
	o    Options
	log  *slog.Logger
	seed maphash.Seed
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	started bool
	at      map[*replica.Partition]*loop
	loops   map[loopKey]*loop
}

type loopKey struct {
	leader int32
	shard  int
}

// New returns Fetchers that do nothing until Start.
func New(o Options) (*Fetchers, error) {
	if o.BrokerEpoch == nil {
		o.BrokerEpoch = func() int64 { return -1 }
	}
	if o.Settings == nil {
		o.Settings = func() Settings { return Settings{} }
	}
	f := &Fetchers{
		o: o, log: o.Logger, seed: maphash.MakeSeed(),
		at: map[*replica.Partition]*loop{}, loops: map[loopKey]*loop{},
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	if o.Registerer != nil {
		if err := o.Registerer.Register(&collector{f}); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Start follows until ctx ends or Close.
func (f *Fetchers) Start(ctx context.Context) {
	context.AfterFunc(ctx, f.stop)
	f.mu.Lock()
	f.started = true
	f.mu.Unlock()
	f.o.Replicas.OnFollow(f.retarget)
}

// Close ends all loops and waits for them.
func (f *Fetchers) Close() {
	f.stop()
	f.mu.Lock()
	f.started = false
	f.mu.Unlock()
	f.wg.Wait()
}

func (f *Fetchers) settings() Settings { return f.o.Settings().defaults() }

// retarget moves a partition to the loop of the leader it follows now.
func (f *Fetchers) retarget(p *replica.Partition) {
	leader, _, ok := p.Following()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.started {
		return
	}
	l := f.at[p]
	switch {
	case !ok && l != nil:
		delete(f.at, p)
		l.remove(p)
		return
	case !ok:
		return
	case l != nil && l.key.leader == leader:
		l.poke() // the leader epoch may have changed
		return
	case l != nil:
		l.remove(p)
	}
	l = f.loop(leader, p)
	f.at[p] = l
	l.add(p)
}

// loop returns the loop for a partition of a leader, running. mu is held.
func (f *Fetchers) loop(leader int32, p *replica.Partition) *loop {
	var h maphash.Hash
	h.SetSeed(f.seed)
	id := p.TopicID()
	_, _ = h.Write(id[:])
	_, _ = h.Write([]byte{byte(p.Index()), byte(p.Index() >> 8), byte(p.Index() >> 16)})
	k := loopKey{leader, int(h.Sum64() % uint64(f.settings().Fetchers))}
	l := f.loops[k]
	if l == nil {
		l = newLoop(f, k)
		f.loops[k] = l
		f.wg.Go(func() { l.run(f.ctx) })
	}
	return l
}

// ended takes a loop without partitions out; false if it got one meanwhile.
func (f *Fetchers) ended(l *loop) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.core.Len() > 0 {
		return false
	}
	delete(f.loops, l.key)
	return true
}
