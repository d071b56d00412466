package replica

import (
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/record"
)

const self int32 = 1

// dirs is one log directory on a file system in memory.
type dirs struct {
	fs    disk.FS
	mu    sync.Mutex // GetOrCreate is called by several goroutines
	logs  map[string]*partlog.Log
	marks map[string]int64
	full  error
	fail  func(error)

	openErr error
	in      ids.UUID // of the last GetOrCreate
}

func dirName(topic string, partition int32) string {
	return "/data/" + topic + "-" + strconv.Itoa(int(partition))
}

func (d *dirs) GetOrCreate(id ids.UUID, topic string, partition int32, c partlog.Config, in ids.UUID) (*partlog.Log, error) {
	d.mu.Lock()
	d.in = in
	d.mu.Unlock()
	if d.openErr != nil {
		return nil, d.openErr
	}
	l, err := partlog.Open(partlog.Options{
		FS: d.fs, Dir: dirName(topic, partition), Topic: topic, Partition: partition, TopicID: id, Config: c,
		Logger: slog.New(slog.DiscardHandler), OnError: func(err error) { d.fail(err) },
	})
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.logs[dirName(topic, partition)] = l
	}
	return l, err
}

func (d *dirs) Delete(topic string, partition int32) error {
	n := dirName(topic, partition)
	delete(d.marks, n)
	l := d.logs[n]
	delete(d.logs, n)
	return l.Delete()
}

func (d *dirs) SetConfig(topic string, c partlog.Config) {
	for _, l := range d.logs {
		if l.Topic() == topic {
			l.SetConfig(c)
		}
	}
}

func (d *dirs) DirOf(string, int32) ids.UUID { return ids.Zero }

func (d *dirs) CheckSpace(*partlog.Log, int64) error { return d.full }

func (d *dirs) HighWatermark(topic string, partition int32) int64 {
	return d.marks[dirName(topic, partition)]
}

func (d *dirs) CheckpointHighWatermarks(hw func(topic string, partition int32) (int64, bool)) error {
	for n, l := range d.logs {
		if v, ok := hw(l.Topic(), l.Partition()); ok {
			d.marks[n] = v
		}
	}
	return nil
}

func (d *dirs) close() error {
	var errs []error
	for _, l := range d.logs {
		errs = append(errs, l.Close(true))
	}
	return errors.Join(errs...)
}

// rig is a manager over a log directory in memory, with metadata to change.
type rig struct {
	t     *testing.T
	dirs  *dirs
	m     *Manager
	draft *meta.Draft
	off   int64
	set   Settings
}

func newRig(t *testing.T) *rig { return newRigOn(t, newMem(), nil) }

func newRigOn(t *testing.T, fs disk.FS, tune func(*Settings)) *rig {
	t.Helper()
	r := &rig{t: t, dirs: &dirs{fs: fs, marks: map[string]int64{}}, set: Settings{Log: partlog.DefaultConfig(), MinISR: 1}}
	if tune != nil {
		tune(&r.set)
	}
	r.open()
	t.Cleanup(r.close)
	return r
}

func (r *rig) open() {
	r.t.Helper()
	r.dirs.logs = map[string]*partlog.Log{}
	r.dirs.fail = func(err error) { r.m.DirectoryOffline("/data", err) }
	var err error
	r.m, err = New(Options{
		NodeID: self, Dirs: r.dirs, Logger: slog.New(slog.DiscardHandler),
		Settings: func(img *meta.Image, topic string) Settings {
			set := r.set
			if v, ok := img.Config(meta.ResourceTopic, topic)["min.insync.replicas"]; ok {
				set.MinISR, _ = strconv.Atoi(v)
			}
			return set
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.draft, r.off = meta.Empty("cluster-of-the-tests00").Draft(), 0
}

func (r *rig) close() {
	if err := r.m.Close(); err != nil {
		r.t.Error(err)
	}
	if err := r.dirs.close(); err != nil {
		r.t.Error(err)
	}
}

// apply applies records as one delta.
func (r *rig) apply(records ...meta.Record) {
	r.t.Helper()
	for _, rec := range records {
		r.off++
		if err := r.draft.Apply(r.off, 1, rec); err != nil {
			r.t.Fatal(err)
		}
	}
	r.m.Apply(r.draft.Delta())
}

func topicID(n byte) ids.UUID { return ids.UUID{1, 15: n} }

// topic creates topic n, named t<n>, led by this broker alone.
func (r *rig) topic(n byte, partitions int) string {
	r.t.Helper()
	return r.topicOn(n, partitions, []int32{self}, []int32{self})
}

func (r *rig) topicOn(n byte, partitions int, replicas, isr []int32) string {
	r.t.Helper()
	name := "t" + strconv.Itoa(int(n))
	recs := []meta.Record{&meta.TopicRecord{TopicName: name, TopicID: topicID(n)}}
	for i := range partitions {
		dirs := make([]ids.UUID, len(replicas))
		recs = append(recs, &meta.PartitionRecord{
			PartitionID: int32(i), TopicID: topicID(n), Replicas: replicas, ISR: isr, Leader: replicas[0], Directories: dirs,
		})
	}
	r.apply(recs...)
	return name
}

// lead changes who leads topic n's partition 0, and the epoch.
func (r *rig) lead(n byte, leader, epoch int32) {
	r.t.Helper()
	r.apply(&meta.PartitionChangeRecord{TopicID: topicID(n), Leader: leader, LeaderEpoch: epoch, LeaderRecoveryState: -1})
}

func (r *rig) get(topic string, partition int32) *Partition {
	r.t.Helper()
	p, err := r.m.Get(topic, partition)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// batch is a produced batch of n records.
func batch(t testing.TB, n int) record.Batch {
	t.Helper()
	recs := make([]record.Record, n)
	for i := range recs {
		recs[i] = record.Record{Timestamp: int64(1000 + i), Key: []byte("k"), Value: []byte("value")}
	}
	b, err := record.Build(record.BuilderOptions{}, recs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (r *rig) append(p *Partition, n int) partlog.AppendInfo {
	r.t.Helper()
	info, err := p.Append(batch(r.t, n), AppendOptions{Acks: -1, Epoch: AnyEpoch})
	if err != nil {
		r.t.Fatal(err)
	}
	return info
}

// wantCode fails the test unless err carries the code.
func wantCode(t testing.TB, err error, want api.Code) {
	t.Helper()
	if got, _ := api.CodeOf(err); got != want {
		t.Fatalf("error %v has code %v, want %v", err, got, want)
	}
}

func newMem() disk.FS { return disk.NewMem(1) }

// deleteRecords is DeleteRecords for what nobody waits for.
func deleteRecords(p *Partition, off int64) (low int64, err error) {
	err = errors.New("still waiting")
	low = -1
	p.DeleteRecords(off, func(l int64, e error) { low, err = l, e })
	return low, err
}

// followed is a fetch by broker id at offset.
func followed(p *Partition, id int32, offset int64) error {
	return p.Followed(FollowerFetch{Epoch: p.st.Load().epoch, Broker: id, BrokerEpoch: -1, Offset: offset}, time.Now())
}
