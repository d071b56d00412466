package record

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"milena/internal/disk"
)

func sharedFile(t *testing.T, fsys disk.FS, name string, data []byte, onLast func()) *SharedFile {
	t.Helper()
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	return Share(f, onLast)
}

func TestSpanReads(t *testing.T) {
	data := make([]byte, 3*copySize+17)
	for i := range data {
		data[i] = byte(i * 7)
	}
	f := sharedFile(t, disk.NewMem(1), "seg.log", data, nil)
	file, err := FileSpan(f, 5, int64(len(data)-10))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Release()
	for name, s := range map[string]Span{"file": file, "memory": MemSpan(data[5 : len(data)-5])} {
		want := data[5 : len(data)-5]
		if s.Len() != int64(len(want)) {
			t.Errorf("%s: length %d", name, s.Len())
		}
		var out bytes.Buffer
		if n, err := s.WriteTo(&out); err != nil || n != s.Len() || !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%s: WriteTo %d, %v", name, n, err)
		}
		if got, err := s.Bytes(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: Bytes: %v", name, err)
		}
		p := make([]byte, 10)
		if n, err := s.ReadAt(p, 3); n != 10 || err != nil || !bytes.Equal(p, want[3:13]) {
			t.Errorf("%s: ReadAt: %d %v", name, n, err)
		}
		if n, err := s.ReadAt(p, s.Len()-4); n != 4 || !errors.Is(err, io.EOF) || !bytes.Equal(p[:4], want[len(want)-4:]) {
			t.Errorf("%s: ReadAt over the end: %d %v", name, n, err)
		}
		if n, err := s.ReadAt(p, s.Len()); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("%s: ReadAt at the end: %d %v", name, n, err)
		}
	}
}

// A removed segment stays readable until its last span is released, and only then is
// it closed.
func TestSpanOutlivesRemoval(t *testing.T) {
	for name, fsys := range map[string]disk.FS{"os": disk.OS(), "mem": disk.NewMem(1)} {
		t.Run(name, func(t *testing.T) {
			path := "seg.log"
			if name == "os" {
				path = t.TempDir() + "/seg.log"
			}
			closed := 0
			f := sharedFile(t, fsys, path, []byte("records"), func() { closed++ })
			a, err := FileSpan(f, 0, 7)
			if err != nil {
				t.Fatal(err)
			}
			b, err := FileSpan(f, 3, 2)
			if err != nil {
				t.Fatal(err)
			}
			if err := fsys.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := f.Release(); err != nil { // the log lets go
				t.Fatal(err)
			}
			a.Release()
			if got, err := b.Bytes(); err != nil || string(got) != "or" || closed != 0 {
				t.Errorf("%q %v, closed %d times", got, err, closed)
			}
			b.Release()
			if closed != 1 {
				t.Errorf("closed %d times, want once", closed)
			}
			if _, err := FileSpan(f, 0, 1); !errors.Is(err, ErrReleased) {
				t.Errorf("span of a closed file: %v", err)
			}
			if _, err := b.Bytes(); err == nil {
				t.Error("the file is closed, reads must fail")
			}
		})
	}
}

func TestSpanOfShortFile(t *testing.T) {
	f := sharedFile(t, disk.NewMem(1), "seg.log", []byte("0123456789"), nil)
	s, err := FileSpan(f, 5, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if _, err := s.Bytes(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Bytes: %v", err)
	}
	if _, err := s.WriteTo(io.Discard); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("WriteTo: %v", err)
	}
	if _, err := FileSpan(f, -1, 2); err == nil {
		t.Error("negative offset must fail")
	}
}
