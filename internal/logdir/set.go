package logdir

import (
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/obs"
	"milena/internal/partlog"
)

// Sentinels of Open and GetOrCreate.
var (
	// ErrNotFormatted: a directory has no meta.properties.
	ErrNotFormatted = errors.New("logdir: directory is not formatted")
	// ErrLocked: another process holds the directory; the message names its pid.
	ErrLocked = errors.New("logdir: directory is in use")
	// ErrForeign: the directory belongs to another cluster or node.
	ErrForeign = errors.New("logdir: directory belongs to another cluster or node")
	// ErrNewerFormat: meta.properties or a checkpoint was written by a newer release.
	ErrNewerFormat = errors.New("logdir: newer format")
	// ErrOffline: the directory failed.
	ErrOffline = errors.New("logdir: directory is offline")
	// ErrNoSpace: less than log.dir.reserve.bytes is left. Wrapped in a retriable *api.Error.
	ErrNoSpace = errors.New("logdir: not enough space left")
)

// Options open a node's directories. FS, Dirs and Logger are required; a
// duration of zero turns its loop off.
type Options struct {
	FS        disk.FS
	Dirs      []string
	NodeID    int32
	ClusterID string // "": whatever the directories say
	Logger    *slog.Logger
	// Config gives a topic's log configuration; it is asked for every log
	// found at start. nil: Kafka's defaults.
	Config func(topic string, id ids.UUID) partlog.Config
	// OnOffline is called once for each directory that fails after the start,
	// when its logs are closed.
	OnOffline func(dir string, id ids.UUID, err error)
	// Random returns a number in [0, n), for segment jitter; nil: none.
	Random     func(n int64) int64
	Registerer prometheus.Registerer // nil: no metrics
	// Beside runs what a failed directory asks for outside of the caller's locks; nil: a goroutine, which Close waits for.
	Beside func(fn func())
	// InOrder opens and closes directories and logs one after another instead of side by side, for a simulation that repeats.
	InOrder bool

	ReserveBytes            int64         // log.dir.reserve.bytes; negative: 1 GiB or 5 % of the disk, whichever is less; 0: off
	FlushCheckpointInterval time.Duration // log.flush.offset.checkpoint.interval.ms
	StartCheckpointInterval time.Duration // log.flush.start.offset.checkpoint.interval.ms
	FlushCheckInterval      time.Duration // log.flush.scheduler.interval.ms, for flush.ms
	RetentionInterval       time.Duration // log.retention.check.interval.ms
	SpaceInterval           time.Duration // how often free bytes are read, and deleted files removed
	DeleteDelay             time.Duration // how long a deleted partition's directory stays as -delete
	Cleaner                 CleanerOptions
}

// CleanerOptions steer compaction. SetCleaner changes them at run time.
type CleanerOptions struct {
	Enable           bool
	Backoff          time.Duration // log.cleaner.backoff.ms
	DedupeBytes      int64         // log.cleaner.dedupe.buffer.size
	IOBytesPerSecond float64       // log.cleaner.io.max.bytes.per.second; 0: no limit
}

// Set is a node's log directories.
type Set struct {
	o    Options
	log  *slog.Logger
	dirs []*dir

	mu   sync.RWMutex // guards logs; never held across I/O
	logs map[TopicPartition]*entry
	// preferred are the directories that AlterReplicaLogDirs named for replicas
	// that aren't here yet; guarded by mu.
	preferred map[TopicPartition]ids.UUID
	futures   map[TopicPartition]*entry // copies that are to replace logs; guarded by mu
	halves    map[TopicPartition]*half  // copies that must replace logs that are gone; guarded by mu
	orphans   map[TopicPartition]bool   // copies whose logs may be in a directory that is offline; not changed after the start

	// names serialises creation and deletion of one partition.
	names [64]sync.Mutex
	seed  maphash.Seed

	seq     atomic.Int64
	cleaner atomic.Pointer[CleanerOptions]
	run     running
	metrics *collector
}

type entry struct {
	log *partlog.Log
	dir *dir
}

// Open locks and checks the directories and recovers every log in them. A
// directory that can't be read is offline from the start, unless none is left;
// one that is locked, foreign, not formatted or of a newer format fails the call.
func Open(o Options) (*Set, error) {
	s := &Set{o: o, log: o.Logger, logs: make(map[TopicPartition]*entry), preferred: make(map[TopicPartition]ids.UUID), futures: make(map[TopicPartition]*entry), halves: make(map[TopicPartition]*half), seed: maphash.MakeSeed()}
	s.cleaner.Store(&o.Cleaner)
	s.run.init(o.Beside)
	s.metrics = newCollector(s)
	if len(o.Dirs) == 0 {
		return nil, errors.New("logdir: no log directory is given")
	}
	if err := s.openDirs(); err != nil {
		s.unlock()
		return nil, err
	}
	if err := s.loadAll(); err != nil {
		s.closeLogs(false)
		s.unlock()
		return nil, err
	}
	s.readSpace()
	if err := obs.Register(o.Registerer, s.metrics); err != nil {
		s.closeLogs(false)
		s.unlock()
		return nil, err
	}
	return s, nil
}

// fatalAtStart says whether an error refuses the start instead of taking one
// directory offline.
func fatalAtStart(err error) bool {
	for _, e := range []error{ErrNotFormatted, ErrLocked, ErrForeign, ErrNewerFormat, partlog.ErrNewerFormat} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (s *Set) openDirs() error {
	seen := map[ids.UUID]string{}
	var last error
	for _, path := range s.o.Dirs {
		d, err := openDir(&s.o, path)
		if err != nil {
			if fatalAtStart(err) {
				return err
			}
			s.log.Error("log directory is offline", "dir", path, "error", err)
			d, last = &dir{path: path, epoch: -1}, err
			d.failed.Store(&err)
		} else if other, ok := seen[d.id]; ok {
			s.dirs = append(s.dirs, d)
			return fmt.Errorf("%w: %s and %s have the same directory id; one is a copy of the other", ErrForeign, other, path)
		}
		if d.online() {
			seen[d.id] = path
		}
		s.dirs = append(s.dirs, d)
	}
	if len(seen) == 0 {
		return fmt.Errorf("%w: none of the log directories can be used: %w", ErrOffline, last)
	}
	return nil
}

// loadAll opens every log, directories and logs in parallel, and then writes
// the recovery points that hold now.
func (s *Set) loadAll() error {
	s.finishMoves()
	if err := s.setTwinsAside(); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(s.sideBySide(-1))
	for _, d := range s.dirs {
		if d.online() {
			g.Go(func() error { return s.loadDir(d) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	s.checkFutures()
	return nil
}

func (s *Set) loadDir(d *dir) error {
	began := time.Now()
	err := s.loadLogs(d)
	if err != nil && fatalAtStart(err) {
		return err
	}
	if err == nil {
		err = d.writeOffsets(s.o.FS, s.allOf(d))
		if passing(err) && d.vouched(s.allOf(d)) {
			s.failIO(d, err)
			err = nil
		}
	}
	if err != nil {
		s.log.Error("log directory is offline", "dir", d.path, "error", err)
		d.failed.CompareAndSwap(nil, &err)
		s.dropLogs(d)
		return nil
	}
	s.log.Info("log directory loaded", "dir", d.path, "logs", len(s.logsOf(d)), "clean", d.clean, "took", time.Since(began))
	return nil
}

func (s *Set) loadLogs(d *dir) error {
	list, err := d.logsIn(s.o.FS)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(s.sideBySide(max(runtime.GOMAXPROCS(0), 2)))
	for _, tp := range list {
		g.Go(func() error {
			id, err := partlog.ReadTopicID(s.o.FS, d.file(tp.String()+"/partition.metadata"))
			if err != nil && !errors.Is(err, partlog.ErrCorrupt) {
				return err
			}
			cfg := partlog.DefaultConfig()
			if s.o.Config != nil {
				cfg = s.o.Config(tp.Topic, id)
			}
			l, err := s.openLog(d, tp, partlog.Options{TopicID: id, Config: cfg,
				RecoveryPoint: d.point(tp), LogStart: d.starts[tp], CleanedTo: d.cleaned[tp], Clean: d.clean})
			if err != nil {
				return err
			}
			l.UpdateHighWatermark(min(max(d.hws[tp], l.StartOffset()), l.EndOffset()))
			s.mu.Lock()
			defer s.mu.Unlock()
			if other := s.logs[tp]; other != nil {
				_ = l.Close(false) // nothing was written to it
				return fmt.Errorf("%w: %s is in both %s and %s; move one away", ErrForeign, tp, other.dir.path, d.path)
			}
			s.logs[tp] = &entry{l, d}
			return nil
		})
	}
	for _, tp := range slices.SortedFunc(maps.Keys(d.copies), TopicPartition.compare) {
		g.Go(func() error { return s.loadFuture(d, tp, d.copies[tp]) })
	}
	return g.Wait()
}

// sideBySide is how many goroutines do what n may do.
func (s *Set) sideBySide(n int) int {
	if s.o.InOrder {
		return 1
	}
	return n
}

// openLog opens a log with what all logs of a directory have in common.
func (s *Set) openLog(d *dir, tp TopicPartition, o partlog.Options) (*partlog.Log, error) {
	return s.openAt(d, tp.String(), tp, o)
}

// openAt is openLog for a log in the directory of that name.
func (s *Set) openAt(d *dir, name string, tp TopicPartition, o partlog.Options) (*partlog.Log, error) {
	o.FS, o.Dir, o.Topic, o.Partition, o.Logger = s.o.FS, d.file(name), tp.Topic, tp.Partition, s.log
	o.OnError = func(err error) { s.failDir(d, err) }
	o.FlushSoon = s.run.flushSoon
	o.Checkpoint = func() error { return d.writeOffsets(s.o.FS, s.allOf(d)) }
	o.Jitter = s.o.Random
	return partlog.Open(o)
}

// logsOf lists the logs in a directory.
func (s *Set) logsOf(d *dir) map[TopicPartition]*partlog.Log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[TopicPartition]*partlog.Log)
	for tp, e := range s.logs {
		if e.dir == d {
			out[tp] = e.log
		}
	}
	return out
}

// allOf lists the logs in a directory, and the future logs: a partition has one of the two at most.
func (s *Set) allOf(d *dir) map[TopicPartition]*partlog.Log {
	out := s.logsOf(d)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for tp, e := range s.futures {
		if e.dir == d {
			out[tp] = e.log
		}
	}
	return out
}

// ClusterID is the directories' cluster id.
func (s *Set) ClusterID() string { return s.o.ClusterID }

// CleanShutdownEpoch is the broker epoch that the last process wrote when it
// shut down cleanly, -1 if it didn't in every directory.
func (s *Set) CleanShutdownEpoch() int64 {
	epoch := int64(-1)
	for i, d := range s.dirs {
		if !d.online() || !d.clean || (i > 0 && d.epoch != epoch) {
			return -1
		}
		epoch = d.epoch
	}
	return epoch
}

// DirInfo describes a directory.
type DirInfo struct {
	Path        string
	ID          ids.UUID
	Online      bool
	Err         error
	Free, Total int64 // bytes, -1: unknown
	Low         bool  // less than the reserve is left
}

// Dirs describes the directories.
func (s *Set) Dirs() []DirInfo {
	out := make([]DirInfo, len(s.dirs))
	for i, d := range s.dirs {
		out[i] = DirInfo{Path: d.path, ID: d.id, Online: d.online(), Free: d.free.Load(), Total: d.total.Load(), Low: d.low.Load()}
		if e := d.failed.Load(); e != nil {
			out[i].Err = *e
		}
	}
	return out
}

// Online reports whether the directory with that id is one of the set's that works.
func (s *Set) Online(id ids.UUID) bool {
	return slices.ContainsFunc(s.dirs, func(d *dir) bool { return d.id == id && d.online() })
}

func (s *Set) entry(topic string, partition int32) *entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.logs[TopicPartition{topic, partition}]
}

// Get returns an open log, or nil.
func (s *Set) Get(topic string, partition int32) *partlog.Log {
	if e := s.entry(topic, partition); e != nil {
		return e.log
	}
	return nil
}

// DirOf is the id of the directory that holds the partition's log; zero if none.
func (s *Set) DirOf(topic string, partition int32) ids.UUID {
	if e := s.entry(topic, partition); e != nil {
		return e.dir.id
	}
	return ids.Zero
}

// Logs calls fn for every open log until it returns false.
func (s *Set) Logs(fn func(*partlog.Log) bool) {
	for _, e := range s.list() {
		if !fn(e.log) {
			return
		}
	}
}

func (s *Set) list() []*entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*entry, 0, len(s.logs))
	for _, e := range s.logs {
		out = append(out, e)
	}
	return out
}

// SetConfig gives every log of a topic a new configuration.
func (s *Set) SetConfig(topic string, c partlog.Config) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for tp, e := range s.logs {
		if tp.Topic == topic {
			e.log.SetConfig(c)
		}
	}
}

// SetCleaner changes how compaction runs.
func (s *Set) SetCleaner(o CleanerOptions) { s.cleaner.Store(&o) }

// CheckSpace refuses, with a retriable error, a write of n bytes to l that would leave its directory with less than
// log.dir.reserve.bytes. Writes that other parts need to go on (the coordinators') are not asked.
func (s *Set) CheckSpace(l *partlog.Log, n int64) error {
	e := s.entry(l.Topic(), l.Partition())
	if e == nil || s.hasRoom(e.dir, n) {
		return nil
	}
	return &api.Error{Code: api.KafkaStorageError, Err: ErrNoSpace, Message: fmt.Sprintf(
		"log directory %s has %d bytes left, less than log.dir.reserve.bytes; free some space or let retention do it", e.dir.path, e.dir.free.Load())}
}

// HighWatermark is the checkpointed high watermark of a partition at start; 0 if none.
func (s *Set) HighWatermark(topic string, partition int32) int64 {
	tp := TopicPartition{topic, partition}
	if e := s.entry(topic, partition); e != nil {
		return e.dir.hws[tp]
	}
	return 0
}

// CheckpointHighWatermarks writes replication-offset-checkpoint in every
// directory, for the partitions for which hw knows one.
func (s *Set) CheckpointHighWatermarks(hw func(topic string, partition int32) (int64, bool)) error {
	var errs []error
	for _, d := range s.dirs {
		if !d.online() {
			continue
		}
		o := offsets{}
		for tp := range s.logsOf(d) {
			if v, ok := hw(tp.Topic, tp.Partition); ok {
				o[tp] = v
			}
		}
		d.ckpt.Lock()
		err := d.writeHWs(s.o.FS, o)
		d.ckpt.Unlock()
		if err != nil {
			s.failIO(d, err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
