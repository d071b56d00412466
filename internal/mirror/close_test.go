package mirror

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"
)

// A partition whose target came to a fetcher just before its mirror was closed must not take itself for fetched for ever: a change of
// the mirror's configs replaces the mirror while partitions are on their way to it.
func TestClosedMirrorLetsGo(t *testing.T) {
	m, err := New(Options{
		NodeID: 1, ClusterID: "d", Logger: slog.New(slog.DiscardHandler), RefreshInterval: func() time.Duration { return time.Hour },
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mi, err := newMirror(m, "m", map[string]string{"bootstrap.servers": "127.0.0.1:1", "mirror.source.cluster.id": "s"})
	if err != nil {
		t.Fatal(err)
	}
	before, after := &target{p: &Partition{}, key: tp{"t", 0}}, &target{p: &Partition{}, key: tp{"t", 1}}
	mi.fetch("127.0.0.1:1", before)
	mi.close()
	mi.fetch("127.0.0.1:1", after)
	if !before.gone() || !after.gone() {
		t.Errorf("targets of a closed mirror are held: %t %t", before.gone(), after.gone())
	}
}
