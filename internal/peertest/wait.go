package peertest

import (
	"context"
	"fmt"
	"time"
)

// pollEvery is how often WaitFor asks.
const pollEvery = 10 * time.Millisecond

// WaitFor calls check until it returns nil, and gives up after within or when ctx ends, with check's last error.
// check gets a context that ends with the wait.
func WaitFor(ctx context.Context, within time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		// The error that the deadline itself caused says less than the one before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %w", what, within, last)
		case <-tick.C:
		}
	}
}

// Test is what Eventually needs of a testing.TB; programs use this package, too.
type Test interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
}

// Eventually waits until f is nil, and fails the test with f's last error when that takes longer than within.
func Eventually(t Test, within time.Duration, f func() error) {
	t.Helper()
	if err := WaitFor(t.Context(), within, "waiting", func(context.Context) error { return f() }); err != nil {
		t.Fatal(err)
	}
}

// Pause waits for d, or returns ctx's error when that ends first.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
