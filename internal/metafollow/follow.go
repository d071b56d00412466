package metafollow

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/ids"
	"milena/internal/meta"
)

// Options of a Follower.
type Options struct {
	NodeID    int32
	ClusterID string
	// Directory is the id of the metadata log directory: controllers list who reads from them.
	Directory ids.UUID
	// Controller is used by the follower alone: its calls wait for new records. Any
	// controller will do; a *Link is moved on to the next one when this one is of no use.
	Controller Caller
	// Finder, if not nil, learns who leads from each reply.
	Finder *Finder
	// MaxWait is how long a fetch waits at the controller. Default 500 ms.
	MaxWait time.Duration
	// MaxBytes is how much one fetch asks for. Default 8 MiB.
	MaxBytes int32
	// Timeout is how much later than MaxWait a reply may come. Default 2 s.
	Timeout time.Duration
	// Retry is the pause after a failed fetch. Default 50 ms.
	Retry  time.Duration
	Logger *slog.Logger // default: discards
}

// Follower turns the committed metadata log into images and deltas.
type Follower struct {
	o           Options
	subscribers []func(*meta.Delta) // not changed after Run began

	image atomic.Pointer[meta.Image]

	mu      sync.Mutex // guards changed; never held across a wait
	changed chan struct{}

	expected atomic.Pointer[expectation]
	first    atomic.Int64 // no image before this offset is shown

	// Owned by Run:
	draft *meta.Draft
	// generation is the quorum's whose metadata were read, if readBefore.
	generation uint64
	readBefore bool
	useless    time.Time // since when this controller knows no leader, or an old one; zero: it does
}

// New returns a follower with an empty image.
func New(o Options) *Follower {
	if o.MaxWait <= 0 {
		o.MaxWait = 500 * time.Millisecond
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 8 << 20
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Retry <= 0 {
		o.Retry = 50 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Follower{o: o, changed: make(chan struct{})}
	f.first.Store(-1)
	empty := meta.Empty(o.ClusterID)
	f.image.Store(empty)
	f.draft = empty.Draft()
	return f
}

// Subscribe has fn called with each delta, in order, on the goroutine of Run, before
// Image returns the delta's Next. Subscribers are called in the order they subscribed.
// It must not be called after Run.
func (f *Follower) Subscribe(fn func(*meta.Delta)) { f.subscribers = append(f.subscribers, fn) }

// Image returns the newest image that all subscribers have taken.
func (f *Follower) Image() *meta.Image { return f.image.Load() }

// Wait returns the first image at or after the current one for which ok holds, or the
// context's error.
func (f *Follower) Wait(ctx context.Context, ok func(*meta.Image) bool) (*meta.Image, error) {
	for {
		img, changed := f.Changed()
		if ok(img) {
			return img, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Changed returns the newest image and a channel that is closed when there is a newer one.
func (f *Follower) Changed() (*meta.Image, <-chan struct{}) {
	f.mu.Lock()
	changed := f.changed
	f.mu.Unlock()
	return f.Image(), changed
}

// expectation is an offset that the image must reach, and since when.
type expectation struct {
	offset int64
	since  time.Time
}

// Expect says that the committed metadata has reached the offset. If the image doesn't get
// there in a while and nothing more comes, the controller that is read from is behind, and
// another is tried.
func (f *Follower) Expect(offset int64) {
	e := f.expected.Load()
	if e != nil && f.Image().Offset < e.offset {
		return // the older one is the stricter
	}
	f.expected.Store(&expectation{offset, time.Now()})
}

// NotBefore has the first image be one that holds the record at offset: the controller that is read from may be behind, even behind what
// an earlier life of this node has read. For a broker that is the record of its registration. It must be called before Run.
func (f *Follower) NotBefore(offset int64) {
	f.first.Store(offset)
	f.Expect(offset)
}

// WaitOffset waits until the image holds the record at offset.
func (f *Follower) WaitOffset(ctx context.Context, offset int64) error {
	_, err := f.Wait(ctx, func(img *meta.Image) bool { return img.Offset >= offset })
	return err
}

// damageTries is how often damage is asked for again, each time from another controller,
// before it is final: one controller's disk or network may be at fault.
const damageTries = 5

// Run follows until the context ends, or the log turns out damaged, which is returned.
func (f *Follower) Run(ctx context.Context) error {
	failures, damages, idle := 0, 0, 0
	for {
		before, begun := f.draft.Speculative().Offset, time.Now()
		err := f.step(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failures, damages = 0, 0
			if f.draft.Speculative().Offset != before || time.Since(begun) >= f.o.Retry {
				idle = 0
				continue
			}
			// Answered at once with nothing: a new leader is known. More than once in a row makes no sense, and must not become a loop.
			if idle++; idle == 1 {
				continue
			}
			if err := f.pause(ctx, idle-1); err != nil {
				return err
			}
			continue
		case isDamage(err):
			f.draft = f.Image().Draft() // half of it may have been applied
			if damages++; damages > damageTries || !f.moveOn() {
				return err
			}
		}
		if failures == 0 {
			f.o.Logger.Warn("following the metadata log failed, retrying", "error", err)
		}
		failures++
		if err := f.pause(ctx, failures); err != nil {
			return err
		}
	}
}

// pause waits before the next fetch, the longer the more often in a row there was nothing to be had, or until ctx ends.
func (f *Follower) pause(ctx context.Context, times int) error {
	select {
	case <-time.After(f.o.Retry * time.Duration(min(times, 20))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// moveOn has the next request go to another controller, if the follower's link can do that.
func (f *Follower) moveOn() bool {
	f.useless = time.Time{}
	l, ok := f.o.Controller.(interface{ Reset() })
	if ok {
		l.Reset()
	}
	return ok
}

// uselessFor is how long a controller may know no leader, or an older one than others
// know, before the follower moves on: it may be cut off from the quorum.
const uselessFor = time.Second

// judge looks at what a reply says of the quorum.
func (f *Follower) judge(leader, epoch int32, nodes []Controller) {
	newest := epoch
	if f.o.Finder != nil {
		f.o.Finder.Learn(leader, epoch, nodes)
		_, newest, _ = f.o.Finder.Leader()
	}
	switch {
	case leader >= 0 && epoch >= newest:
		f.useless = time.Time{}
	case f.useless.IsZero():
		f.useless = time.Now()
	case time.Since(f.useless) > uselessFor:
		f.moveOn()
	}
}
