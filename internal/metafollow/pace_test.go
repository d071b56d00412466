package metafollow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Looking for the active controller lasts FinderOptions.Timeout where controllers hang, and Backoff longer than their answers where
// none of them knows it.
func TestPaceOfFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFinder(FinderOptions{NodeID: 9, Bootstrap: []string{"c:1", "c:2"}, Timeout: 1700 * time.Millisecond, Backoff: 90 * time.Millisecond,
			Dial: func(ctx context.Context, _, _ string) (Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}})
		defer f.Close()
		begun := time.Now()
		if _, err := f.find(t.Context()); err == nil {
			t.Error("found")
		}
		if d := time.Since(begun); d < 1700*time.Millisecond || d > 1900*time.Millisecond {
			t.Errorf("gave up after %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		q := newQuorum(-1, 5)
		f := NewFinder(FinderOptions{NodeID: 9, Bootstrap: []string{"c1:1", "c2:2", "c3:3"}, Timeout: 1700 * time.Millisecond, Backoff: 90 * time.Millisecond, Dial: q.dial})
		defer f.Close()
		begun := time.Now()
		if _, err := f.find(t.Context()); err == nil {
			t.Error("found")
		}
		if d := time.Since(begun); d < 90*time.Millisecond || d > 500*time.Millisecond {
			t.Errorf("gave up after %v", d)
		}
	})
}
