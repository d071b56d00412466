package transport

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/ids"
	"milena/internal/peer"
	"milena/internal/quorum"
)

// Attempts to connect to a voter last RequestTimeout at most, and begin RetryBackoff apart at first.
func TestPaceOfConnecting(t *testing.T) {
	for name, tt := range map[string]struct {
		hang    bool
		timeout time.Duration
		backoff time.Duration
	}{
		"a voter that hangs":   {true, 1300 * time.Millisecond, 50 * time.Millisecond},
		"a voter that refuses": {false, 1300 * time.Millisecond, 70 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at, took []time.Duration
				begun := time.Now()
				tr := New(Options{RequestTimeout: tt.timeout, RetryBackoff: tt.backoff, Dial: func(ctx context.Context, _ quorum.Endpoint) (*peer.Conn, error) {
					at = append(at, time.Since(begun))
					if tt.hang {
						from := time.Now()
						<-ctx.Done()
						took = append(took, time.Since(from))
						return nil, ctx.Err()
					}
					return nil, errors.New("connection refused")
				}})
				tr.Attach(&quorum.Node{})
				to := quorum.Voter{Member: quorum.Member{ID: 2, Directory: ids.UUID{2}}, Endpoints: []quorum.Endpoint{{Host: "h", Port: 1}}}
				for range 400 {
					tr.Send(to, []byte("message"))
					time.Sleep(10 * time.Millisecond)
				}
				if err := tr.Close(); err != nil {
					t.Error(err)
				}
				if len(at) < 3 {
					t.Fatalf("attempts at %v", at)
				}
				for i, d := range took[:min(len(took), 2)] {
					if d != tt.timeout {
						t.Errorf("attempt %d was given up after %v, not %v", i, d, tt.timeout)
					}
				}
				if gap := at[1] - at[0]; !tt.hang && (gap < tt.backoff || gap > tt.backoff+20*time.Millisecond) {
					t.Errorf("the second attempt came %v after the first, not %v", gap, tt.backoff)
				}
			})
		})
	}
}
