package mirror

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/partlog"
	"milena/internal/record"
)

// cutDir is the directory under a log directory where cut records are set aside (spec D4).
const cutDir = "cut"

// cutVersion is the version of the format of what is set aside: a file of batches as they were in the log, and beside it one of
// the same name with .json, which says what they are and makes the first one count (docs/formats.md).
const cutVersion = 1

// Cut describes what a truncation of a mirror partition took and this broker has set aside.
type Cut struct {
	Version int `json:"version"`
	// Name is the file's, unique on this broker; Dir is the log directory that it lies in.
	Name string `json:"-"`
	Dir  string `json:"-"`

	Mirror    string `json:"mirror"`
	Topic     string `json:"topic"`
	TopicID   string `json:"topic_id"`
	Partition int32  `json:"partition"`
	// First is the first offset, End comes after the last. What another file has already is left out.
	First   int64 `json:"first_offset"`
	End     int64 `json:"end_offset"`
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// CreatedMs is when, in milliseconds since 1970.
	CreatedMs int64 `json:"created_ms"`
	// LeaderEpoch is the one under which this broker cut.
	LeaderEpoch int32  `json:"leader_epoch"`
	Reason      string `json:"reason"`
}

// cutStore is what is set aside on this broker, in all its log directories. Its methods may be called from any goroutine.
type cutStore struct {
	fs  disk.FS
	log *slog.Logger

	mu   sync.Mutex // not held while batches are read or written
	cuts map[string]Cut
}

// newCutStore finds what is set aside. What a crash left half written is removed: its records were not cut.
func newCutStore(fsys disk.FS, dirs []string, log *slog.Logger) *cutStore {
	s := &cutStore{fs: fsys, log: log, cuts: map[string]Cut{}}
	for _, dir := range dirs {
		if err := s.load(dir); err != nil {
			log.Error("records set aside by cuts can't be listed", "dir", dir, "error", err)
		}
	}
	return s
}

func (s *cutStore) load(dir string) error {
	ents, err := s.fs.ReadDir(filepath.Join(dir, cutDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range ents {
		path := filepath.Join(dir, cutDir, e.Name())
		if !strings.HasSuffix(e.Name(), ".log") {
			if strings.HasSuffix(e.Name(), ".json.tmp") {
				_ = s.fs.Remove(path) // it never counted
			}
			continue
		}
		c, err := s.describe(dir, e.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist) && newName.MatchString(e.Name()):
			s.log.Warn("records that were about to be set aside, and then not cut, are removed", "file", path)
			_ = s.fs.Remove(path) // or the next start does
		case err != nil:
			s.log.Error("a file of records set aside can't be used", "file", path, "error", err)
		default:
			s.cuts[c.Name] = c
		}
	}
	return nil
}

// describe reads what is said of a file; fs.ErrNotExist: nothing is.
func (s *cutStore) describe(dir, name string) (Cut, error) {
	c, old := oldCut(name)
	c.Dir = dir
	if old {
		f, err := s.fs.Open(filepath.Join(dir, cutDir, name))
		if err != nil {
			return c, err
		}
		defer func() { _ = f.Close() }() // read only
		return c, walkBatches(f, func(b record.Batch) bool {
			if c.Records == 0 {
				c.First = b.BaseOffset()
			}
			c.End, c.Records, c.Bytes = b.NextOffset(), c.Records+int64(b.Count()), c.Bytes+b.Len()
			return true
		})
	}
	data, err := disk.ReadFile(s.fs, sidecar(filepath.Join(dir, cutDir, name)))
	if err != nil {
		return c, err
	}
	c = Cut{Name: name, Dir: dir}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, err
	}
	if c.Version != cutVersion {
		return c, fmt.Errorf("its format has version %d, this release knows %d", c.Version, cutVersion)
	}
	return c, nil
}

func sidecar(path string) string { return strings.TrimSuffix(path, ".log") + ".json" }

// newName is that of a file of format 1. The time in it has 19 digits, which no name of format 0 ends with.
var newName = regexp.MustCompile(`^v1\.[A-Za-z0-9_-]{22}-\d{1,10}-\d{20}-\d{19}\.log$`)

// oldName is that of a file of format 0, which says all there is to know.
var oldName = regexp.MustCompile(`^(.+)-(\d{1,10})-([A-Za-z0-9_-]{22})-(\d{20})-(\d{1,15})\.log$`)

// oldCut is what the name of a file of format 0 says.
func oldCut(name string) (Cut, bool) {
	m := oldName.FindStringSubmatch(name)
	if m == nil {
		return Cut{}, false
	}
	part, err := strconv.ParseInt(m[2], 10, 32)
	at, err2 := strconv.ParseInt(m[5], 10, 64)
	return Cut{Name: name, Topic: m[1], TopicID: m[3], Partition: int32(part), CreatedMs: at, LeaderEpoch: -1}, err == nil && err2 == nil
}

// recent is how old a file may be whose records are not set aside again: long enough for a leader that died in the middle of a cut.
const recent = time.Hour

// add sets aside the batches from offset from up to end of a log, as far as that wasn't done shortly before, and makes it
// durable. c says whose they are; the result has the rest, and no name if there was nothing new.
func (s *cutStore) add(log *partlog.Log, id ids.UUID, from, end int64, c Cut) (Cut, error) {
	now := time.Now()
	c.complete(log, id, from, end, now)
	if from >= end {
		return c, nil
	}
	known, err := s.known(&c, now)
	if err != nil {
		return c, err
	}
	f, path, err := s.create(&c, now)
	if err != nil {
		return c, err
	}
	err = copyBatches(f, log, from, end, known, &c)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil && c.Records == 0 {
		c.Name = ""
		return c, s.fs.Remove(path)
	}
	if err == nil {
		err = s.vouch(path, &c)
	}
	if err != nil {
		return c, errors.Join(err, s.fs.Remove(path))
	}
	s.hold(c)
	return c, nil
}

// complete says of which log and when.
func (c *Cut) complete(log *partlog.Log, id ids.UUID, first, end int64, now time.Time) {
	c.Version, c.TopicID, c.First, c.End, c.CreatedMs, c.Dir = cutVersion, id.String(), first, end, now.UnixMilli(), filepath.Dir(log.Dir())
}

// create names and opens a file for what is set aside, which doesn't count yet.
func (s *cutStore) create(c *Cut, now time.Time) (f disk.File, path string, err error) {
	dir := filepath.Join(c.Dir, cutDir)
	if err := s.fs.Mkdir(dir); err != nil {
		return nil, "", err
	}
	c.Name = fmt.Sprintf("v1.%s-%d-%020d-%019d.log", c.TopicID, c.Partition, c.First, now.UnixNano())
	path = filepath.Join(dir, c.Name)
	f, err = s.fs.Create(path)
	return f, path, err
}

// hold lists a file that counts.
func (s *cutStore) hold(c Cut) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts[c.Name] = c
}

// gap keeps that the offsets from first up to end of a partition are missing, as a file of no records.
func (s *cutStore) gap(log *partlog.Log, id ids.UUID, first, end int64, c Cut) error {
	now := time.Now()
	c.complete(log, id, first, end, now)
	f, path, err := s.create(&c, now)
	if err != nil {
		return err
	}
	if err = f.Close(); err == nil {
		err = s.vouch(path, &c)
	}
	if err != nil {
		return errors.Join(err, s.fs.Remove(path))
	}
	s.hold(c)
	return nil
}

// vouch makes a file that is synced count.
func (s *cutStore) vouch(path string, c *Cut) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := disk.WriteFileAtomic(s.fs, sidecar(path), append(data, '\n')); err != nil {
		return err
	}
	return s.fs.SyncDir(c.Dir) // cut/ may be new
}

// batchID tells whether two batches are the same one.
type batchID struct {
	base, length int64
	epoch        int32
	crc          uint32
}

func idOf(b record.Batch) batchID {
	return batchID{b.BaseOffset(), b.Len(), b.LeaderEpoch(), b.CRC()}
}

// known are the batches of the partition that were set aside lately, in the same directory.
func (s *cutStore) known(c *Cut, now time.Time) (map[batchID]bool, error) {
	out := map[batchID]bool{}
	for _, o := range s.list() {
		if o.Dir != c.Dir || o.TopicID != c.TopicID || o.Partition != c.Partition || o.End <= c.First || o.First >= c.End || now.Sub(time.UnixMilli(o.CreatedMs)) > recent {
			continue
		}
		f, err := s.fs.Open(filepath.Join(o.Dir, cutDir, o.Name))
		if err != nil {
			return nil, err
		}
		err = walkBatches(f, func(b record.Batch) bool {
			out[idOf(b)] = true
			return true
		})
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// walkBatches calls fn with the header of each batch of a file, until it returns false.
func walkBatches(f disk.File, fn func(header record.Batch) bool) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	buf := make([]byte, record.HeaderSize)
	for pos := int64(0); pos+record.HeaderSize <= size; {
		if _, err := f.ReadAt(buf, pos); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		b := record.Batch(buf)
		if b.Len() < record.HeaderSize || b.Len() > size-pos {
			return fmt.Errorf("%w: a batch of %d bytes at %d of %d", partlog.ErrCorrupt, b.Len(), pos, size)
		}
		if !fn(b) {
			return nil
		}
		pos += b.Len()
	}
	return nil
}

// copyChunk is how much of a log is read at once.
const copyChunk = 1 << 20

// copyBatches writes the batches from offset from up to end that are not known, and counts them in c.
func copyBatches(f disk.File, log *partlog.Log, from, end int64, known map[batchID]bool, c *Cut) error {
	// A log start inside a batch: the batch is there from its beginning.
	for off := max(from, log.StartOffset()); off < end; {
		info, err := log.Read(off, copyChunk, end, true)
		if err != nil {
			return err
		}
		next, err := copySpans(f, info.Spans, off, known, c)
		info.Release()
		if err != nil {
			return err
		}
		if next <= off {
			break // compaction took the last batches
		}
		off = next
	}
	return nil
}

func copySpans(f disk.File, spans []record.Span, off int64, known map[batchID]bool, c *Cut) (next int64, err error) {
	next = off
	for _, s := range spans {
		buf, err := s.Bytes()
		if err != nil {
			return next, err
		}
		for b, err := range record.Batches(buf) {
			if err != nil {
				return next, err
			}
			next = b.NextOffset()
			if known[idOf(b)] {
				continue
			}
			if _, err := f.Write(b); err != nil {
				return next, err
			}
			if c.Records == 0 {
				c.First = max(c.First, b.BaseOffset())
			}
			c.Records, c.Bytes = c.Records+int64(b.Count()), c.Bytes+b.Len()
		}
	}
	return next, nil
}

// list is what is set aside, the oldest first.
func (s *cutStore) list() []Cut {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.cuts), func(a, b Cut) int {
		return cmp.Or(cmp.Compare(a.CreatedMs, b.CreatedMs), strings.Compare(a.Name, b.Name))
	})
}

func (s *cutStore) get(name string) (Cut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.cuts[name]
	if !ok {
		return Cut{}, api.Errorf(api.InvalidRequest, "this broker has set aside no file %s", name)
	}
	return c, nil
}

// read returns whole batches of a file from position pos on, at most most bytes but for the first. None is left: it is empty.
func (s *cutStore) read(name string, pos int64, most int) ([]byte, error) {
	c, err := s.get(name)
	if err != nil {
		return nil, err
	}
	f, err := s.fs.Open(filepath.Join(c.Dir, cutDir, name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if pos < 0 || pos > size {
		return nil, api.Errorf(api.OffsetOutOfRange, "position %d is outside of %s, which has %d bytes", pos, name, size)
	}
	buf := make([]byte, min(int64(max(most, record.HeaderSize)), size-pos))
	if _, err := f.ReadAt(buf, pos); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	end := int64(0)
	for end+record.HeaderSize <= int64(len(buf)) {
		n := record.Batch(buf[end:]).Len()
		switch {
		case n < record.HeaderSize || n > size-pos-end:
			return nil, api.Errorf(api.CorruptMessage, "%s is damaged at %d", name, pos+end)
		case n > int64(len(buf))-end && end > 0:
			return buf[:end], nil
		case n > int64(len(buf)): // a first batch that is bigger comes whole
			buf = make([]byte, n)
			if _, err := f.ReadAt(buf, pos); err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
		}
		end += n
	}
	return buf[:end], nil
}

// remove removes a file for good. One that is gone is no error.
func (s *cutStore) remove(name string) error {
	c, err := s.get(name)
	if err != nil {
		return err
	}
	path := filepath.Join(c.Dir, cutDir, name)
	for _, p := range []string{path, sidecar(path)} { // the batches first: a description alone is nothing
		if err := s.fs.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	s.mu.Lock()
	delete(s.cuts, name)
	s.mu.Unlock()
	return s.fs.SyncDir(filepath.Dir(path))
}

// CutRetention is how long and how much is kept of what cuts set aside.
type CutRetention struct {
	Age   time.Duration // negative: for ever
	Bytes int64         // in each log directory, the oldest go first; negative: no limit
}

// expire removes what is too old or too much.
func (s *cutStore) expire(r CutRetention, now time.Time) {
	all := s.list()
	kept := map[string]int64{}
	for _, c := range all {
		kept[c.Dir] += c.Bytes
	}
	for _, c := range all {
		old := r.Age >= 0 && now.Sub(time.UnixMilli(c.CreatedMs)) > r.Age
		if !old && (r.Bytes < 0 || kept[c.Dir] <= r.Bytes) {
			continue
		}
		kept[c.Dir] -= c.Bytes
		if err := s.remove(c.Name); err != nil {
			s.log.Error("records set aside by a cut can't be removed", "dir", c.Dir, "file", c.Name, "error", err)
			continue
		}
		s.log.Warn("records set aside by a cut were kept long enough and are removed", "mirror", c.Mirror, "topic", c.Topic, "partition", c.Partition,
			"offset", c.First, "end", c.End, "records", c.Records, "bytes", c.Bytes, "file", c.Name, "too_old", old)
	}
}
