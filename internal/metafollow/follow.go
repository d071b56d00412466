package metafollow

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/meta"
)

// Options of a Follower.
type Options struct {
	NodeID    int32
	ClusterID string
	// Controller is used by the follower alone: its calls wait for new records.
	Controller Caller
	// MaxWait is how long a fetch waits at the controller. Default 500 ms.
	MaxWait time.Duration
	// MaxBytes is how much one fetch asks for. Default 8 MiB.
	MaxBytes int32
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

	draft *meta.Draft // owned by Run
}

// New returns a follower with an empty image.
func New(o Options) *Follower {
	if o.MaxWait <= 0 {
		o.MaxWait = 500 * time.Millisecond
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 8 << 20
	}
	if o.Retry <= 0 {
		o.Retry = 50 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Follower{o: o, changed: make(chan struct{})}
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
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if img := f.Image(); ok(img) {
			return img, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// WaitOffset waits until the image holds the record at offset.
func (f *Follower) WaitOffset(ctx context.Context, offset int64) error {
	_, err := f.Wait(ctx, func(img *meta.Image) bool { return img.Offset >= offset })
	return err
}

// Run follows until the context ends, or the log turns out damaged, which is returned.
func (f *Follower) Run(ctx context.Context) error {
	failures := 0
	for {
		err := f.step(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failures = 0
			continue
		case isDamage(err):
			return err
		}
		if failures == 0 {
			f.o.Logger.Warn("following the metadata log failed, retrying", "error", err)
		}
		failures++
		select {
		case <-time.After(f.o.Retry * time.Duration(min(failures, 20))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
