package disk

import (
	"path/filepath"
	"testing"
)

func BenchmarkWritev(b *testing.B) {
	f, err := OS().Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	bufs := [][]byte{make([]byte, 16<<10), make([]byte, 16<<10)}
	b.SetBytes(32 << 10)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%1000 == 999 { // keep it small
			if err := f.Truncate(0); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := f.Writev(bufs); err != nil {
			b.Fatal(err)
		}
	}
}
