package partlog

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"milena/internal/disk"
)

// An idle partition stays under 4 KiB of memory and holds no file open, also
// with a few segments.
func TestIdlePartitionIsCheap(t *testing.T) {
	root := t.TempDir()
	open := func(i int, clean bool) *Log {
		c := small()
		l, err := Open(Options{FS: disk.OS(), Dir: fmt.Sprintf("%s/t-%d", root, i), Topic: "t", Partition: int32(i), Config: c, Clean: clean})
		must(t, err)
		return l
	}
	const n = 20
	for i := range n {
		l := open(i, false)
		fill(t, l, 0, 15)
		must(t, l.Close(true))
	}
	logs := make([]*Log, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		logs[i] = open(i, true)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := int64(after.HeapAlloc-before.HeapAlloc) / n; each > 4096 {
		t.Errorf("%d bytes each", each)
	}
	if n := len(openFiles(t, root)); n != 0 {
		t.Errorf("%d files are open", n)
	}
	for _, l := range logs {
		must(t, l.Close(true))
	}
}

func openFiles(t *testing.T, under string) (out []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil // another system: only the memory is measured
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, under) {
			out = append(out, to)
		}
	}
	return out
}
