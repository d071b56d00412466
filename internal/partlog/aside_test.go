package partlog

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"milena/internal/disk"
)

// logged makes a log say what it does into a buffer.
func logged(into *bytes.Buffer) func(*Options) {
	return func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(into, nil)) }
}

// asides are the files that were set aside, by name.
func asides(t tb, fsys disk.FS) map[string][]byte {
	t.Helper()
	entries, err := fsys.ReadDir(testDir)
	must(t, err)
	out := map[string][]byte{}
	for _, e := range entries {
		if strings.Contains(e.Name(), asideSuffix) {
			data, err := disk.ReadFile(fsys, filepath.Join(testDir, e.Name()))
			must(t, err)
			out[e.Name()] = data
		}
	}
	return out
}

// segmentData are the names and contents of a log's segments.
func segmentData(t tb, fsys disk.FS, l *Log) (names []string, data [][]byte) {
	t.Helper()
	for _, s := range l.Segments() {
		b, err := disk.ReadFile(fsys, s.Name)
		must(t, err)
		names, data = append(names, s.Name), append(data, b)
	}
	return names, data
}

// Records behind a damaged batch were acknowledged: they leave the log, not the disk.
func TestWhatIsCutBehindDamageIsKept(t *testing.T) {
	for name, damage := range map[string]func(b []byte, at int){
		"flipped byte": func(b []byte, at int) { b[at+70] ^= 1 },
		"wrong length": func(b []byte, at int) { b[at+8] = 0x7f },
		"no length":    func(b []byte, at int) { clear(b[at+8 : at+12]) },
		"zeros":        func(b []byte, at int) { clear(b[at : at+60]) },
	} {
		t.Run(name, func(t *testing.T) {
			mem := testFS(t)
			c := small()
			c.SegmentBytes = 1 << 20
			l := openLog(t, mem, c)
			fill(t, l, 0, 20)
			must(t, l.Close(false))
			names, data := segmentData(t, mem, l)
			at := bytes.Index(data[0], []byte("v10")) - 67
			broken := bytes.Clone(data[0])
			damage(broken, at)
			writeFile(t, mem, names[0], broken)

			var said bytes.Buffer
			l = openLog(t, mem, c, rp(0), logged(&said))
			wantRecs(t, l, seq(0, 10)...)
			kept := asides(t, mem)
			if got := kept["00000000000000000010.log.aside"]; len(kept) != 1 || !bytes.Equal(got, broken[at:]) {
				t.Errorf("set aside: %d files, %d bytes, want %d", len(kept), len(got), len(broken)-at)
			}
			if !strings.Contains(said.String(), "level=ERROR") || !strings.Contains(said.String(), "offset=10") || !strings.Contains(said.String(), "whole_again_at_offset=11") {
				t.Errorf("log: %s", said.String())
			}
			fill(t, l, 0, 3)
			must(t, l.Close(false))
			writeFile(t, mem, names[0], broken) // again: nothing that was kept is overwritten
			l = openLog(t, mem, c, rp(0))
			if files, size := l.Aside(); files != 2 || size != 2*int64(len(broken)-at) {
				t.Errorf("told to be set aside: %d files, %d bytes", files, size)
			}
			must(t, l.Close(true))
			l = openLog(t, mem, c) // another life, in which nothing was cut
			if files, _ := l.Aside(); files != 2 {
				t.Errorf("told to be set aside after a restart: %d files", files)
			}
			must(t, mem.Remove(filepath.Join(testDir, "00000000000000000010.log.aside")))
			if files, size := l.Aside(); files != 1 || size != int64(len(broken)-at) {
				t.Errorf("told to be set aside after one was removed: %d files, %d bytes", files, size)
			}
			writeFile(t, mem, filepath.Join(testDir, "00000000000000000010.log.aside"), broken[at:])
			if kept := asides(t, mem); len(kept) != 2 || !bytes.Equal(kept["00000000000000000010.log.aside-1"], broken[at:]) {
				t.Errorf("set aside twice: %d files", len(kept))
			}
		})
	}
}

// A disk too full for the copy doesn't keep the log from opening.
func TestFullDiskKeepsNothingAside(t *testing.T) {
	mem := testFS(t)
	l := openLog(t, mem, small())
	fill(t, l, 0, 5)
	must(t, l.Close(false))
	names, data := segmentData(t, mem, l)
	data[0][bytes.Index(data[0], []byte("v1"))] ^= 1
	writeFile(t, mem, names[0], data[0])
	free, total, err := mem.Free("/data")
	must(t, err)
	mem.SetCapacity(total - free + 10)
	var said bytes.Buffer
	l = openLog(t, mem, small(), rp(0), logged(&said))
	wantRecs(t, l, seq(0, 1)...)
	if kept := asides(t, mem); len(kept) != 0 || !strings.Contains(said.String(), "too full") {
		t.Errorf("set aside: %v; log: %s", kept, said.String())
	}
}

// Segments behind a damaged one, or behind a hole above the recovery point, are kept beside the log.
func TestSegmentsBehindDamageAreKept(t *testing.T) {
	for name, damage := range map[string]func(fsys disk.FS, file string, data []byte) error{
		"flipped byte": func(fsys disk.FS, file string, data []byte) error {
			data[len(data)-1] ^= 1
			return disk.WriteFileAtomic(fsys, file, data)
		},
		"missing": func(fsys disk.FS, file string, _ []byte) error { return fsys.Remove(file) },
	} {
		t.Run(name, func(t *testing.T) {
			mem := testFS(t)
			l := openLog(t, mem, small())
			fill(t, l, 0, 60)
			must(t, l.Close(false))
			names, data := segmentData(t, mem, l)
			if len(names) < 4 {
				t.Fatalf("%d segments", len(names))
			}
			want := map[string][]byte{}
			for i := 2; i < len(names); i++ {
				want[filepath.Base(names[i])+asideSuffix] = bytes.Clone(data[i])
			}
			must(t, damage(mem, names[1], data[1]))
			l = openLog(t, mem, small(), rp(0))
			if end := l.EndOffset(); end >= l.opts.RecoveryPoint+60 || end == 0 {
				t.Errorf("log ends at %d", end)
			}
			wantRecs(t, l, seq(0, l.EndOffset())...)
			got := asides(t, mem)
			for n, b := range want {
				if len(b) > 0 && !bytes.Equal(got[n], b) {
					t.Errorf("%s has %d bytes, want %d", n, len(got[n]), len(b))
				}
			}
		})
	}
}

// A segment that is gone is named by its offsets; those around it stay.
func TestMissingSegmentIsReported(t *testing.T) {
	mem := testFS(t)
	l := openLog(t, mem, small())
	end := fill(t, l, 0, 60)
	must(t, l.Flush(-1))
	must(t, l.Close(false))
	names, _ := segmentData(t, mem, l)
	bases := []int64{}
	for _, n := range names {
		base, ok := parseOffsetName(strings.TrimSuffix(filepath.Base(n), logSuffix))
		if !ok {
			t.Fatal(n)
		}
		bases = append(bases, base)
	}
	for _, suffix := range []string{logSuffix, indexSuffix, timeSuffix} {
		must(t, mem.Remove(segmentPath(testDir, bases[1], suffix, "")))
	}
	var said bytes.Buffer
	l = openLog(t, mem, small(), rp(end), logged(&said))
	want := "level=ERROR msg=\"offsets are missing between two segments"
	if s := said.String(); strings.Count(s, want) != 1 || !strings.Contains(s, "first_missing="+offsetText(bases[1])+" last_missing="+offsetText(bases[2]-1)) {
		t.Errorf("log: %s", s)
	}
	wantRecs(t, l, slices.Concat(seq(0, bases[1]), seq(bases[2], end))...)
	if kept := asides(t, mem); len(kept) != 0 {
		t.Errorf("set aside: %d files", len(kept))
	}
}

func offsetText(n int64) string { return strings.TrimLeft(offsetName(n), "0") }

// Bytes made to look like many batches bound the search: what is behind the damage is kept without having found its beginning.
func TestSearchBehindDamageIsBounded(t *testing.T) {
	mem := testFS(t)
	c := small()
	c.SegmentBytes = 64 << 20
	l := openLog(t, mem, c)
	fill(t, l, 0, 1)
	must(t, l.Close(false))
	names, data := segmentData(t, mem, l)
	const n = 4 << 20
	tail := make([]byte, n)
	for i := 0; i+61 <= n; i += 61 {
		binary.BigEndian.PutUint64(tail[i:], 1)
		binary.BigEndian.PutUint32(tail[i+8:], uint32(n-i-12))
		tail[i+16] = 2
	}
	tail[16] = 1 // the first is damaged at sight
	writeFile(t, mem, names[0], append(data[0], tail...))
	l = openLog(t, mem, c, rp(0))
	wantRecs(t, l, seq(0, 1)...)
	if kept := asides(t, mem); len(kept) != 1 {
		t.Errorf("set aside: %d files", len(kept))
	}
}
