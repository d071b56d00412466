package mirror

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/partlog"
	"milena/internal/record"
)

// cutLog is a log in /data with one batch of 3 records for each of the epochs.
func cutLog(t *testing.T, mem *disk.Mem, epochs ...int32) *partlog.Log {
	t.Helper()
	l, err := partlog.Open(partlog.Options{FS: mem, Dir: "/data/t-0", Topic: "t", TopicID: ids.UUID{15: 7}, Config: partlog.DefaultConfig(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(true) })
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	for i, e := range epochs {
		appendEpoch(t, l, e, fmt.Sprintf("v%d", i))
	}
	return l
}

func appendEpoch(t *testing.T, l *partlog.Log, epoch int32, value string) {
	t.Helper()
	r := record.Record{Timestamp: 1, Value: []byte(value)}
	b, err := record.Build(record.BuilderOptions{}, r, r, r)
	if err == nil {
		_, err = l.Append(b, partlog.AppendOptions{LeaderEpoch: epoch, Origin: partlog.OriginClient, MaxEpoch: -1})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func openCuts(mem *disk.Mem) *cutStore {
	return newCutStore(mem, []string{"/data", "/none"}, slog.New(slog.DiscardHandler))
}

func setAsideAll(t *testing.T, s *cutStore, l *partlog.Log, from int64) Cut {
	t.Helper()
	c, err := s.add(l, ids.UUID{15: 7}, from, l.EndOffset(), Cut{Mirror: "m", Topic: "t", LeaderEpoch: 4, Reason: "because"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// offsetsIn are where the batches of a file begin, read in pieces of some bytes.
func offsetsIn(t *testing.T, s *cutStore, name string, piece int) (out []int64) {
	t.Helper()
	for pos := int64(0); ; {
		data, err := s.read(name, pos, piece)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 {
			return out
		}
		for b, err := range record.Batches(data) {
			if err == nil {
				err = b.CheckCRC()
			}
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b.BaseOffset())
		}
		pos += int64(len(data))
	}
}

// What is set aside survives a crash with all that is known of it, and is there until it is removed.
func TestCutsSurvive(t *testing.T) {
	mem := disk.NewMem(1)
	s := openCuts(mem)
	l := cutLog(t, mem, 0, 0, 2)
	c := setAsideAll(t, s, l, 3)
	want := Cut{Version: 1, Name: c.Name, Dir: "/data", Mirror: "m", Topic: "t", TopicID: ids.UUID{15: 7}.String(), First: 3, End: 9, Records: 6, Bytes: c.Bytes,
		CreatedMs: c.CreatedMs, LeaderEpoch: 4, Reason: "because"}
	if c != want || c.Bytes == 0 || !newName.MatchString(c.Name) {
		t.Fatalf("set aside: %+v", c)
	}
	mem.Crash()
	s = openCuts(mem)
	if got := s.list(); len(got) != 1 || got[0] != want {
		t.Fatalf("after a crash: %+v", got)
	}
	for _, piece := range []int{0, 1, int(c.Bytes) - 1, 1 << 20} {
		if got := offsetsIn(t, s, c.Name, piece); len(got) != 2 || got[0] != 3 || got[1] != 6 {
			t.Errorf("read in pieces of %d: batches at %v", piece, got)
		}
	}
	for _, name := range []string{"../t-0/00000000000000000000.log", "", c.Name + "x"} {
		if _, err := s.read(name, 0, 100); err == nil {
			t.Errorf("%q is read", name)
		}
		if err := s.remove(name); err == nil {
			t.Errorf("%q is removed", name)
		}
	}
	if _, err := s.read(c.Name, c.Bytes+1, 10); err == nil {
		t.Error("a position behind the end is read")
	}
	if err := s.remove(c.Name); err != nil {
		t.Fatal(err)
	}
	mem.Crash()
	if ents, err := mem.ReadDir("/data/cut"); err != nil || len(ents) != 0 || len(openCuts(mem).list()) != 0 {
		t.Errorf("after the removal: %v %v", ents, err)
	}
}

// "Whoever becomes leader in between ... sets aside only what is new" (D5), which a cut that is tried again does, too.
func TestCutSetsAsideOnlyWhatIsNew(t *testing.T) {
	mem := disk.NewMem(1)
	s := openCuts(mem)
	l := cutLog(t, mem, 0, 1)
	setAsideAll(t, s, l, 3)
	if c := setAsideAll(t, s, l, 3); c.Name != "" || c.Records != 0 {
		t.Errorf("the same again: %+v", c)
	}
	appendEpoch(t, l, 1, "more")
	c := setAsideAll(t, s, l, 3)
	if got := offsetsIn(t, s, c.Name, 1<<20); c.Records != 3 || c.First != 6 || len(got) != 1 || got[0] != 6 {
		t.Errorf("with a new batch: %+v, batches at %v", c, got)
	}
	if ents, err := mem.ReadDir("/data/cut"); err != nil || len(ents) != 4 {
		t.Errorf("%d files: %v", len(ents), err)
	}
	// Other batches at the same offsets are new.
	if _, err := l.TruncateTo(3); err != nil {
		t.Fatal(err)
	}
	appendEpoch(t, l, 1, "other")
	if c := setAsideAll(t, s, l, 3); c.Records != 3 || c.First != 3 {
		t.Errorf("other records: %+v", c)
	}
}

// A crash in the middle leaves a file that doesn't count, whose records were not cut; what an older release set aside is listed as far
// as its name tells.
func TestCutsOfCrashesAndOlderReleases(t *testing.T) {
	mem := disk.NewMem(1)
	s := openCuts(mem)
	l := cutLog(t, mem, 0, 0)
	c := setAsideAll(t, s, l, 0)
	data, err := disk.ReadFile(mem, filepath.Join("/data/cut", c.Name))
	if err != nil {
		t.Fatal(err)
	}
	id := ids.UUID{15: 9}.String()
	old := fmt.Sprintf("a-b-3-%s-%020d-%d.log", id, 0, 1700000000000)
	half := fmt.Sprintf("v1.%s-3-%020d-%019d.log", id, 0, 1700000000000000000)
	for name, content := range map[string][]byte{old: data, half: data[:10], "notes.log": data, strings.TrimSuffix(half, ".log") + ".json.tmp": nil} {
		f, err := mem.Create(filepath.Join("/data/cut", name))
		if err == nil {
			_, err = f.Write(content)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	list := openCuts(mem).list()
	want := Cut{Name: old, Dir: "/data", Topic: "a-b", TopicID: id, Partition: 3, First: 0, End: 6, Records: 6, Bytes: int64(len(data)), CreatedMs: 1700000000000, LeaderEpoch: -1}
	if len(list) != 2 || list[0] != want || list[1] != c {
		t.Errorf("listed: %+v", list)
	}
	for name, there := range map[string]bool{old: true, half: false, "notes.log": true, c.Name: true} {
		if _, err := mem.Stat(filepath.Join("/data/cut", name)); (err == nil) != there || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: there %t, %v", name, err == nil, err)
		}
	}
	// A newer release's file is left alone.
	if err := disk.WriteFileAtomic(mem, sidecar(filepath.Join("/data/cut", c.Name)), []byte(`{"version":2}`)); err != nil {
		t.Fatal(err)
	}
	if list := openCuts(mem).list(); len(list) != 1 || list[0] != want {
		t.Errorf("listed: %+v", list)
	}
}

// If it can't be set aside nothing counts, and nothing stays.
func TestCutOnAFullDisk(t *testing.T) {
	mem := disk.NewMem(1)
	s := openCuts(mem)
	l := cutLog(t, mem, 0, 0)
	free, total, err := mem.Free("/data")
	if err != nil {
		t.Fatal(err)
	}
	mem.SetCapacity(total - free)
	if c, err := s.add(l, ids.UUID{15: 7}, 0, 6, Cut{Topic: "t"}); err == nil {
		t.Errorf("set aside on a full disk: %+v", c)
	}
	mem.SetCapacity(total)
	if ents, err := mem.ReadDir("/data/cut"); err == nil && len(ents) > 0 || len(s.list()) != 0 {
		t.Errorf("left: %v, %v", ents, s.list())
	}
}

// mirror.cut.retention.ms and mirror.cut.retention.bytes: -1 keeps everything; of too much the oldest go first.
func TestCutsExpire(t *testing.T) {
	mem := disk.NewMem(1)
	s := openCuts(mem)
	l := cutLog(t, mem, 0)
	var cuts []Cut
	for i := range 3 {
		if i > 0 {
			appendEpoch(t, l, 0, "x")
		}
		cuts = append(cuts, setAsideAll(t, s, l, int64(3*i)))
	}
	now := time.UnixMilli(cuts[2].CreatedMs)
	left := func(r CutRetention, at time.Time) int {
		s.expire(r, at)
		return len(s.list())
	}
	if n := left(CutRetention{-1, -1}, now.AddDate(10, 0, 0)); n != 3 {
		t.Errorf("%d files are kept for ever", n)
	}
	if n := left(CutRetention{time.Hour, -1}, now.Add(time.Minute)); n != 3 {
		t.Errorf("%d files are young", n)
	}
	if n := left(CutRetention{-1, cuts[1].Bytes + cuts[2].Bytes}, now); n != 2 || s.list()[0].First != 3 {
		t.Errorf("%d files fit: %+v", n, s.list())
	}
	if n := left(CutRetention{time.Hour, -1}, now.Add(2*time.Hour)); n != 0 {
		t.Errorf("%d files are too old", n)
	}
	if ents, err := mem.ReadDir("/data/cut"); err != nil || len(ents) != 0 {
		t.Errorf("left on disk: %v %v", ents, err)
	}
}
