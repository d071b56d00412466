package replica

import (
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/partlog"
)

// A disk that is full when a copy is to take a replica's place costs nothing but time: the replica serves where it is and moves later,
// or, where the old log has gone already, serves again as soon as there is space. No restart is needed.
func TestMoveMeetsAFullDisk(t *testing.T) {
	for name, tt := range map[string]struct {
		fails  func(op disk.Op, name string) bool
		serves bool // meanwhile
	}{
		"before the old log has gone": {func(op disk.Op, name string) bool {
			return op == disk.OpRename && filepath.Ext(name) != ".tmp" && filepath.Dir(name) == "/b"
		}, true},
		"after it": {func(op disk.Op, name string) bool { return op == disk.OpRename && name == "/b/t1-0" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var full atomic.Bool
				mem := disk.NewMem(1)
				seq := byte(0)
				err := logdir.Format(logdir.FormatOptions{FS: mem, Dirs: []string{"/a", "/b"}, NodeID: self, ClusterID: "cluster-of-the-tests00",
					NewID: func() (ids.UUID, error) { seq++; return ids.UUID{7, 15: seq}, nil }})
				if err != nil {
					t.Fatal(err)
				}
				r := &rig{t: t, set: Settings{Log: partlog.DefaultConfig(), MinISR: 1}, draft: meta.Empty("cluster-of-the-tests00").Draft()}
				set, err := logdir.Open(logdir.Options{
					FS: disk.Faulty(mem, func(op disk.Op, name string) error {
						if full.Load() && tt.fails(op, name) {
							return disk.ErrNoSpace
						}
						return nil
					}),
					Dirs: []string{"/a", "/b"}, NodeID: self, Logger: slog.New(slog.DiscardHandler),
					OnOffline: func(dir string, _ ids.UUID, err error) { t.Errorf("%s is offline: %v", dir, err) },
				})
				if err != nil {
					t.Fatal(err)
				}
				r.m, err = New(Options{NodeID: self, Dirs: set, Logger: slog.New(slog.DiscardHandler), Settings: func(*meta.Image, string) Settings { return r.set }})
				if err != nil {
					t.Fatal(err)
				}
				topic := r.topic(1, 1)
				r.lead(1, self, 1)
				r.append(r.get(topic, 0), 3)
				from := filepath.Dir(r.get(topic, 0).Log().Dir())
				if from != "/a" {
					t.Fatalf("the log is in %s", from)
				}
				full.Store(true)
				if err := r.m.MoveLog(topic, 0, "/b"); err != nil {
					t.Fatal(err)
				}
				for range 50 {
					r.m.StepMoves()
					r.m.RetryLogs()
					time.Sleep(100 * time.Millisecond)
				}
				p, err := r.m.Get(topic, 0)
				if code, _ := api.CodeOf(err); (err == nil) != tt.serves || !tt.serves && code != api.KafkaStorageError {
					t.Fatalf("while the disk is full: %v", err)
				}
				if tt.serves {
					r.append(p, 1)
				}
				full.Store(false)
				for range 100 {
					r.m.StepMoves()
					r.m.RetryLogs()
					time.Sleep(100 * time.Millisecond)
				}
				p = r.get(topic, 0)
				if dir := filepath.Dir(p.Log().Dir()); dir != "/b" {
					t.Errorf("the log is in %s", dir)
				}
				want := int64(3)
				if tt.serves {
					want++
				}
				if end := p.LogEndOffset(); end != want {
					t.Errorf("the log ends at %d, not %d", end, want)
				}
				r.append(p, 1)
				if err := r.m.Close(); err != nil {
					t.Error(err)
				}
				if err := set.Close(t.Context(), true, 1); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
