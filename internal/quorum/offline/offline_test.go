package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/quorum"
)

const testCluster = "AAAAAAAAAAAAAAAAAAAACQ"

// fill sets every exported field to something that isn't null.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint16:
		v.SetUint(1)
	case reflect.Array:
		v.Index(0).SetUint(7)
	}
}

func keys(x any, into map[string]bool) {
	switch x := x.(type) {
	case map[string]any:
		for k, e := range x {
			into[k] = true
			keys(e, into)
		}
	case []any:
		for _, e := range x {
			keys(e, into)
		}
	}
}

func TestNamesAreKafkas(t *testing.T) {
	data, err := os.ReadFile("testdata/records-4.4.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		want[words[0]] = words[2:]
	}
	for _, name := range []string{"PARTITION_RECORD", "PARTITION_CHANGE_RECORD"} { // fields of Milena's own: docs/formats.md
		want[name] = append(want[name], "unaligned", "replica", "offset")
	}
	want["TOPIC_RECORD"] = append(want["TOPIC_RECORD"], "incarnation")
	for _, r := range []meta.Record{
		&meta.RegisterBrokerRecord{}, &meta.UnregisterBrokerRecord{}, &meta.TopicRecord{}, &meta.PartitionRecord{}, &meta.ConfigRecord{},
		meta.NewPartitionChange(ids.UUID{}, 0), &meta.RemoveTopicRecord{}, &meta.FeatureLevelRecord{}, &meta.ProducerIdsRecord{},
		&meta.BrokerRegistrationChangeRecord{}, &meta.NoOpRecord{}, &meta.BeginTransactionRecord{}, &meta.EndTransactionRecord{},
		&meta.AbortTransactionRecord{}, &meta.RegisterControllerRecord{},
	} {
		fill(reflect.ValueOf(r).Elem())
		b, err := meta.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := describeRecord(b)
		if err != nil {
			t.Fatal(err)
		}
		names, ok := want[got.Type]
		if !ok {
			t.Errorf("%s is none of Kafka's records", got.Type)
			continue
		}
		have := map[string]bool{}
		keys(got.Data, have)
		delete(have, "leaderEpoch")
		for _, n := range names {
			if n != "leaderEpoch" && !have[n] {
				t.Errorf("%s has no field %s: %v", got.Type, n, got.Data)
			}
			delete(have, n)
		}
		if len(have) > 0 {
			t.Errorf("%s has fields that Kafka doesn't know: %v", got.Type, have)
		}
	}
}

func TestParseVoters(t *testing.T) {
	const text = "1@host1:9093:JEXY6aqzQY-32P5TStzaFg, 2@[::1]:9094:MvDxzVmcRsaTz33bUuRU6A"
	vs, err := ParseVoters(text, "CONTROLLER")
	if err != nil || len(vs) != 2 || vs[1].ID != 2 || vs[1].Directory.String() != "MvDxzVmcRsaTz33bUuRU6A" ||
		vs[0].Endpoints[0] != (quorum.Endpoint{Name: "CONTROLLER", Host: "host1", Port: 9093}) || vs[1].Endpoints[0].Addr() != "[::1]:9094" {
		t.Errorf("%v, %v", vs, err)
	}
	for _, bad := range []string{
		"", "1", "1@host", "1@host:9093", "x@host:9093:JEXY6aqzQY-32P5TStzaFg", "-1@host:9093:JEXY6aqzQY-32P5TStzaFg", "1@:9093:JEXY6aqzQY-32P5TStzaFg",
		"1@host:0:JEXY6aqzQY-32P5TStzaFg", "1@host:99999:JEXY6aqzQY-32P5TStzaFg", "1@host:9093:short", "1@host:9093:AAAAAAAAAAAAAAAAAAAAAQ",
		"1@h:1:JEXY6aqzQY-32P5TStzaFg,1@h:2:MvDxzVmcRsaTz33bUuRU6A", "1@h:1:JEXY6aqzQY-32P5TStzaFg,2@h:2:JEXY6aqzQY-32P5TStzaFg",
	} {
		if vs, err := ParseVoters(bad, "C"); err == nil {
			t.Errorf("%q was accepted: %v", bad, vs)
		}
	}
}

func newID() (ids.UUID, error) { return ids.UUID{0: 9, 1: 9}, nil }

func formatOptions(fs disk.FS) FormatOptions {
	return FormatOptions{FS: fs, LogDirs: []string{"/a", "/b"}, MetadataLogDir: "/m", NodeID: 1, ClusterID: testCluster, NewID: newID}
}

func TestFormat(t *testing.T) {
	mem := disk.NewMem(1)
	o := formatOptions(mem)
	o.Voters = []quorum.Voter{{Member: quorum.Member{ID: 1, Directory: ids.UUID{5}}}, {Member: quorum.Member{ID: 2, Directory: ids.UUID{6}}}}
	o.Bootstrap = []meta.Record{&meta.FeatureLevelRecord{Feature: "metadata.version", Level: 25}}
	if err := Format(o); err != nil {
		t.Fatal(err)
	}
	m, err := logdir.ReadMeta(mem, "/m")
	if err != nil || m.Directory != (ids.UUID{5}) {
		t.Errorf("metadata directory %+v, %v", m, err)
	}
	if m, err := logdir.ReadMeta(mem, "/b"); err != nil || m.Directory != (ids.UUID{9, 9}) {
		t.Errorf("log directory %+v, %v", m, err)
	}
	recs, err := ReadBootstrap(mem, "/m")
	if err != nil || len(recs) != 1 || recs[0].(*meta.FeatureLevelRecord).Level != 25 {
		t.Errorf("bootstrap %v, %v", recs, err)
	}
	c, err := quorum.Inspect(mem, "/m/quorum")
	if err != nil || len(c.Voters) != 2 {
		t.Errorf("voters %v, %v", c, err)
	}
	if err := Format(o); err == nil || !strings.Contains(err.Error(), "ignore-formatted") {
		t.Errorf("formatted twice: %v", err)
	}
	o.IgnoreFormatted = true
	if err := Format(o); err != nil {
		t.Error(err)
	}
	o.Voters[0].Directory = ids.UUID{8}
	if err := Format(o); err == nil || !strings.Contains(err.Error(), "has directory id") {
		t.Errorf("another directory id: %v", err)
	}
	o.NodeID, o.FS = 3, disk.NewMem(2)
	if err := Format(o); err == nil || !strings.Contains(err.Error(), "--no-initial-controllers") {
		t.Errorf("a node that isn't named: %v", err)
	}
	alone := formatOptions(disk.NewMem(3))
	alone.Standalone = []quorum.Endpoint{{Name: "C", Host: "h", Port: 1}}
	if err := Format(alone); err != nil {
		t.Fatal(err)
	}
	if c, err := quorum.Inspect(alone.FS, "/m/quorum"); err != nil || len(c.Voters) != 1 || c.Voters[0].Directory != (ids.UUID{9, 9}) {
		t.Errorf("standalone %v, %v", c, err)
	}
	if recs, err := ReadBootstrap(alone.FS, "/m"); recs != nil || err != nil {
		t.Errorf("bootstrap %v, %v", recs, err)
	}
}

// image has a topic whose partition is in epoch 4.
func image(t *testing.T) *meta.Image {
	t.Helper()
	d := meta.Empty(testCluster).Draft()
	topic := ids.UUID{1: 7}
	for i, r := range []meta.Record{
		&meta.FeatureLevelRecord{Feature: meta.MetadataVersionFeature, Level: 33},
		&meta.TopicRecord{TopicName: "orders", TopicID: topic},
		&meta.PartitionRecord{TopicID: topic, Replicas: []int32{1}, ISR: []int32{1}, Leader: 1, LeaderEpoch: 4, PartitionEpoch: 6, Directories: []ids.UUID{{9}}},
		&meta.ProducerIdsRecord{BrokerID: 1, BrokerEpoch: 1, NextProducerID: 3000},
	} {
		if err := d.Apply(int64(i), 2, r); err != nil {
			t.Fatal(err)
		}
	}
	return d.Image()
}

func TestBackupRestore(t *testing.T) {
	b := NewBackup(image(t), time.Unix(1700000000, 0))
	if b.Info.EndOffset != 4 || b.Info.Epoch != 2 || b.Info.Topics != 1 || b.Info.Partitions != 1 {
		t.Errorf("info %+v", b.Info)
	}
	var file bytes.Buffer
	if err := b.Write(&file); err != nil {
		t.Fatal(err)
	}
	again, err := ReadBackup(file.Bytes())
	if err != nil || again.Info != b.Info {
		t.Fatalf("%+v, %v", again, err)
	}
	for pos := range file.Len() {
		damaged := slices.Clone(file.Bytes())
		damaged[pos] ^= 1
		if _, err := ReadBackup(damaged); err == nil {
			t.Fatalf("byte %d damaged and not noticed", pos)
		}
	}
	mem := disk.NewMem(1)
	o := formatOptions(mem)
	if err := FormatForRestore(o); err != nil {
		t.Fatal(err)
	}
	self := quorum.Voter{Member: quorum.Member{ID: 1, Directory: ids.UUID{9, 9}}}
	restore := RestoreOptions{FS: mem, MetadataLogDir: "/m", Voters: []quorum.Voter{self}, Life: 3}
	if err := again.Restore(restore); err != nil {
		t.Fatal(err)
	}
	if err := again.Restore(restore); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("restored over what is there: %v", err)
	}
	n, err := quorum.Open(quorum.Options{FS: mem, Dir: filepath.Join("/m", QuorumDir), Self: self.Member, Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	n.Start()
	s := n.Status()
	for changed := (<-chan struct{})(nil); !s.IsLeader; s, changed = n.Changed() {
		if changed != nil {
			<-changed
		}
	}
	if s.Epoch <= b.Info.Epoch+epochJump+3 || s.Snapshot.EndOffset != b.Info.EndOffset+3*offsetJump || s.Generation == 0 {
		t.Errorf("the quorum goes on as %+v", *s)
	}
	data, _, err := n.ReadSnapshot(s.Snapshot, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	img, err := meta.ReadSnapshot(testCluster, data, s.Snapshot.EndOffset, s.Snapshot.Epoch)
	if err != nil {
		t.Fatal(err)
	}
	topic := img.TopicByName("orders")
	if topic == nil || topic.Partitions[0].LeaderEpoch != 4+leaderEpochJump+3 || topic.Partitions[0].PartitionEpoch != 6+leaderEpochJump+3 {
		t.Errorf("topic %+v", topic)
	}
	next := int64(0)
	for r := range img.Records() {
		if p, ok := r.(*meta.ProducerIdsRecord); ok {
			next = p.NextProducerID
		}
	}
	if next < 3000+3*producerIDJump {
		t.Errorf("producer ids go on at %d", next)
	}
	foreign := disk.NewMem(2)
	o.FS, o.ClusterID = foreign, "AAAAAAAAAAAAAAAAAAAACg"
	if err := FormatForRestore(o); err != nil {
		t.Fatal(err)
	}
	if err := again.Restore(RestoreOptions{FS: foreign, MetadataLogDir: "/m", Voters: restore.Voters, Life: 1}); err == nil {
		t.Error("another cluster's backup was restored")
	}
	// The same backup once more is another life: nothing of this one may be taken for it.
	other := restore
	other.Life = 4
	if again.generation(other) == s.Generation {
		t.Error("two restores of one backup have the same generation")
	}
	for _, life := range []int64{0, -1, MaxLife + 1} {
		bad := restore
		bad.Life = life
		if err := again.Restore(bad); err == nil || !strings.Contains(err.Error(), "restore id") {
			t.Errorf("life %d: %v", life, err)
		}
	}
}

// A backup of a directory has what the log holds after the snapshot, and the dump too.
func TestBackupOfADirectory(t *testing.T) {
	mem := disk.NewMem(1)
	o := formatOptions(mem)
	o.MetadataLogDir = "/a"
	o.Standalone = []quorum.Endpoint{{Name: "C", Host: "h", Port: 9}}
	if err := Format(o); err != nil {
		t.Fatal(err)
	}
	n, err := quorum.Open(quorum.Options{FS: mem, Dir: "/a/quorum", Self: quorum.Member{ID: 1, Directory: ids.UUID{9, 9}}, Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	n.Start()
	s, changed := n.Changed()
	for !s.IsLeader {
		<-changed
		s, changed = n.Changed()
	}
	log := n.MachineLog(s.Epoch, quorum.MachineLogOptions{})
	if err := log.Replay(func(int64, machine.Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for r := range image(t).Records() {
		b, err := meta.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Append([]machine.Record{{Value: b}}); err != nil {
			t.Fatal(err)
		}
	}
	log.Close()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := BackupDir(mem, "/a", time.Unix(1, 0), false)
	if err != nil || b.Info.EndOffset != 4 || b.Info.Topics != 1 || b.Info.ClusterID != testCluster {
		t.Fatalf("%+v, %v", b, err)
	}
	var out bytes.Buffer
	if bad, err := Dump(&out, mem, "/a"); err != nil || bad != 0 {
		t.Fatal(bad, err)
	}
	var types []string
	for line := range strings.Lines(out.String()) {
		var l Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		types = append(types, l.Type)
		if l.Type == "TOPIC_RECORD" && (l.Data["name"] != "orders" || l.Offset == nil || *l.Offset != 1) {
			t.Errorf("topic line %s", line)
		}
	}
	want := []string{"SNAPSHOT_HEADER", "KRAFT_VOTERS", "SNAPSHOT_FOOTER", "LEADER_CHANGE", "FEATURE_LEVEL_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "PRODUCER_IDS_RECORD"}
	if !slices.Equal(types, want) {
		t.Errorf("lines %v, want %v", types, want)
	}
	damage(t, mem, "/a/quorum")
	if b, err := BackupDir(mem, "/a", time.Unix(1, 0), false); !errors.Is(err, quorum.ErrCorrupt) || !strings.Contains(err.Error(), "damaged at position") {
		t.Errorf("a damaged log was backed up as if it were whole: %+v, %v", b, err)
	}
	b, err = BackupDir(mem, "/a", time.Unix(1, 0), true)
	if err != nil || b.Info.EndOffset >= 4 || b.Info.Damage == "" {
		t.Errorf("what could be read: %+v, %v", b, err)
	}
	out.Reset()
	if bad, err := Dump(&out, mem, "/a"); err != nil || bad != 1 || !strings.Contains(out.String(), "DAMAGED") {
		t.Errorf("the dump says %d damaged, %v:\n%s", bad, err, out.String())
	}
}

// damage flips a bit in the frame of the topic, in the middle of the raft log.
func damage(t *testing.T, mem *disk.Mem, dir string) {
	t.Helper()
	names, err := mem.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !strings.HasPrefix(n.Name(), "raft-") {
			continue
		}
		name := filepath.Join(dir, n.Name())
		data, err := disk.ReadFile(mem, name)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(data, []byte("orders"))
		if at < 0 {
			continue
		}
		data[at] ^= 1
		f, err := mem.Create(name)
		if err == nil {
			_, err = f.Write(data)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("the topic is in no segment")
}

func FuzzReadBackup(f *testing.F) {
	var file bytes.Buffer
	img, err := meta.ReadSnapshot(testCluster, nil, 4, 2)
	if err != nil {
		f.Fatal(err)
	}
	if err := NewBackup(img, time.Unix(1, 0)).Write(&file); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add([]byte(backupMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		if b, err := ReadBackup(data); err == nil && b.Image == nil {
			t.Error("neither a backup nor an error")
		}
	})
}
