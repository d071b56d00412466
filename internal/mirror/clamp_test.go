package mirror

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"milena/internal/ids"
)

// Spec D4, D8: committed offsets are taken back before the log is cut: a leader that ends between the two must not leave a group beyond
// the log, where nobody would look again. While a coordinator can't be reached the cut waits.
func TestCommittedOffsetsAreTakenBackBeforeACut(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBroker(t, 1, 3, nil)
		defer b.close()
		b.fill(0, 10, 10)
		p, down := (*Partition)(nil), true
		type call struct {
			to, end int64
			epoch   int32
		}
		var calls []call
		m, err := New(Options{
			NodeID: 1, ClusterID: "d", Replicas: b.m, FS: b.fs, LogDirs: []string{"/data"}, Logger: slog.New(slog.DiscardHandler),
			ClampOffsets: func(_ context.Context, _ string, _ ids.UUID, _ int32, to int64, epoch int32) ([]string, error) {
				calls = append(calls, call{to, p.rep.LogEndOffset(), epoch})
				if down {
					return nil, errors.New("no coordinator")
				}
				return nil, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		p = newPartition(m, "m", b.topic, 0, b.part(0), nil)
		p.running = true // steps are this test's
		defer p.end()
		if done, err := p.cut(6, "test"); done || err != nil || p.rep.LogEndOffset() != 10 || len(m.Cuts()) != 0 {
			t.Errorf("cut without coordinators: done %t, %v, log end %d, %d set aside", done, err, p.rep.LogEndOffset(), len(m.Cuts()))
		}
		down = false
		if done, err := p.cut(6, "test"); !done || err != nil || p.rep.LogEndOffset() != 6 || !p.clamped() {
			t.Errorf("cut: done %t, %v, log end %d", done, err, p.rep.LogEndOffset())
		}
		if len(calls) != 3 || calls[1] != (call{6, 10, 3}) || calls[2] != (call{6, 6, 3}) {
			t.Errorf("committed offsets were taken back at %+v, want to 6 before the cut from 10, and after it", calls)
		}
	})
}
