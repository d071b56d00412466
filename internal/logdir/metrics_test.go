package logdir

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/disk"
)

// What recovery set aside beside logs is counted for each directory, in which it takes space until somebody removes it.
func TestAsideFilesAreCounted(t *testing.T) {
	mem := disk.NewMem(1)
	formatted(t, mem, "/a", "/b")
	s := open(t, options(mem, "/a", "/b"))
	l := create(t, s, "t", 0)
	add(t, l, 5)
	dir := filepath.Dir(l.Dir())
	must(t, s.Close(context.Background(), true, 1))
	must(t, disk.WriteFileAtomic(mem, filepath.Join(l.Dir(), "00000000000000000009.log.aside"), make([]byte, 100)))
	must(t, disk.WriteFileAtomic(mem, filepath.Join(l.Dir(), "00000000000000000009.log.aside-1"), make([]byte, 11)))
	s = open(t, options(mem, "/a", "/b"))
	defer func() { must(t, s.Close(context.Background(), true, 1)) }()

	reg := prometheus.NewPedanticRegistry()
	must(t, reg.Register(newCollector(s)))
	families, err := reg.Gather()
	must(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) == 1 {
				got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	for _, d := range []string{"/a", "/b"} {
		files, bytes := 0.0, 0.0
		if d == dir {
			files, bytes = 2, 111
		}
		if f, b := got["milena_log_directory_aside_files "+d], got["milena_log_directory_aside_bytes "+d]; f != files || b != bytes {
			t.Errorf("%s: %v files, %v bytes, want %v, %v", d, f, b, files, bytes)
		}
	}
}
