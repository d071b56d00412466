package formats

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/mirrormsg"
	"milena/internal/peertest"
)

// open runs a node on a copy of a data directory, without a way to reach other machines.
func open(t *testing.T, data string) *rig {
	t.Helper()
	return start(t, nil, isolated(t, data))
}

func isolated(t *testing.T, data string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	copyDir(t, data, dir)
	return settings(dir, map[string]string{"mirrors": "cut off"})
}

func expected(t *testing.T, v int) *contents {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(formatDir(v), "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	c := &contents{}
	if err := json.Unmarshal(data, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// compare reports what differs, in JSON, so that the difference is readable.
func compare(t *testing.T, got, want *contents) {
	t.Helper()
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	again := &contents{}
	if err := json.Unmarshal(data, again); err != nil {
		t.Fatal(err)
	}
	for name, w := range want.Topics {
		g := again.Topics[name]
		if g == nil {
			t.Errorf("topic %s is missing", name)
		} else if !reflect.DeepEqual(g, w) {
			t.Errorf("topic %s is\n%s\nwant\n%s", name, js(t, g), js(t, w))
		}
	}
	again.Topics, want.Topics = nil, nil
	if !reflect.DeepEqual(again, want) {
		t.Errorf("the rest is\n%s\nwant\n%s", js(t, again), js(t, want))
	}
}

func js(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Rule: every released format is read by this release, whole, with and without the marks of a clean shutdown.
func TestEveryFormatOpens(t *testing.T) {
	for v := 1; v <= newest; v++ {
		data := filepath.Join(formatDir(v), "data")
		t.Run("clean", func(t *testing.T) { compare(t, open(t, data).read(t), expected(t, v)) })
		t.Run("crashed", func(t *testing.T) {
			props := isolated(t, data)
			for _, name := range []string{".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"} {
				if err := os.Remove(filepath.Join(props["log.dirs"], name)); err != nil {
					t.Fatal(err)
				}
			}
			for _, pattern := range []string{"*/*.index", "*/*.timeindex", "*/leader-epoch-checkpoint"} {
				for _, name := range glob(t, props["log.dirs"], pattern) {
					if err := os.Remove(name); err != nil {
						t.Fatal(err)
					}
				}
			}
			compare(t, start(t, nil, props).read(t), expected(t, v))
		})
	}
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no file %s: %v", pattern, err)
	}
	return names
}

// Rule: the records that a cut set aside are in a file of their own, in the log's format.
func TestCutRecordsAreKept(t *testing.T) {
	for _, name := range glob(t, filepath.Join(formatDir(newest), "data"), "cut/failed-over-0-*.log") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "value-7") {
			t.Errorf("%s does not hold the records that were written here", name)
		}
	}
}

// Rule: a file of a newer version is refused by its version, and so is the start: nothing is guessed or overwritten.
func TestNewerVersionsAreRefused(t *testing.T) {
	text := func(from, to string) func([]byte) []byte {
		return func(b []byte) []byte { return []byte(strings.Replace(string(b), from, to, 1)) }
	}
	// binary32 raises the version at an offset and renews the checksum that lies at crc of a header, or at the end.
	binary32 := func(at, crc int) func([]byte) []byte {
		return func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[at:], 9)
			if crc < 0 {
				crc = len(b) - 4
			}
			binary.BigEndian.PutUint32(b[crc:], crc32.Checksum(b[:crc], crc32.MakeTable(crc32.Castagnoli)))
			return b
		}
	}
	for _, c := range []struct {
		file string
		make func([]byte) []byte
		want []string
	}{
		{"meta.properties", text("version=1", "version=9"), []string{"meta.properties", "version 9"}},
		{"recovery-point-offset-checkpoint", text("0\n", "9\n"), []string{"recovery-point-offset-checkpoint", "version 9"}},
		{"replication-offset-checkpoint", text("0\n", "9\n"), []string{"replication-offset-checkpoint", "version 9"}},
		{"log-start-offset-checkpoint", text("0\n", "9\n"), []string{"log-start-offset-checkpoint", "version 9"}},
		{"cleaner-offset-checkpoint", text("0\n", "9\n"), []string{"cleaner-offset-checkpoint", "version 9"}},
		{"codecs-0/partition.metadata", text("version: 0", "version: 9"), []string{"partition.metadata", "version 9"}},
		{"codecs-0/*.snapshot", func(b []byte) []byte { return append([]byte{0, 9}, b[2:]...) }, []string{".snapshot", "version 9"}},
		{".kafka_cleanshutdown", text(`"version":0`, `"version":9`), []string{".kafka_cleanshutdown", "version 9"}},
		{"codecs-0/leader-epoch-checkpoint", text("0\n", "9\n"), []string{"leader-epoch-checkpoint", "version 9"}},
		{"quorum/identity", binary32(8, -1), []string{"identity", "version 9"}},
		{"quorum/*.quorum", binary32(8, -1), []string{".quorum", "snapshot format version 9"}},
		{"quorum/raft-*.log", binary32(8, 36), []string{"raft-", "raft log format version 9"}},
	} {
		t.Run(strings.ReplaceAll(c.file, "/", "_"), func(t *testing.T) {
			props := isolated(t, filepath.Join(formatDir(newest), "data"))
			for _, name := range glob(t, props["log.dirs"], c.file) {
				b, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, c.make(b), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, err := tryStart(t, nil, props, nil)
			if err == nil {
				t.Fatal("a newer version was opened")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not say %q: %v", w, err)
				}
			}
		})
	}
}

// Rule: a record of a newer release in an internal topic keeps its partition's coordinator from serving, by name; the rest of
// the node serves.
func TestNewerRecordsAreRefused(t *testing.T) {
	for topic, c := range map[string]struct {
		key, value, want string
		ask              func(*rig) (api.Code, error)
	}{
		"__consumer_offsets": {"\x00\x03\x00\x05admin", "\x00\x00\x00\x00\x00\x01\x00", "type 3 (Kafka's ConsumerGroupMetadata) version 0", (*rig).askGroup},
		"__mirror_state":     {"\x00\x02rest", "\x00\x09rest", "type 2 version 9", (*rig).askMirror},
	} {
		t.Run(topic, func(t *testing.T) {
			var log lockedBuffer
			props := isolated(t, filepath.Join(formatDir(newest), "data"))
			r := start(t, nil, props)
			peertest.Eventually(t, settle, func() error { return refusedWith(r, c.ask, api.NoError) })
			cl := client(t, r.n, kgo.ClientID("__admin_client"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			produce(t, cl, &kgo.Record{Topic: topic, Key: []byte(c.key), Value: []byte(c.value)})
			r.n.Kill()
			r, err := tryStart(t, nil, props, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			peertest.Eventually(t, settle, func() error { return refusedWith(r, c.ask, api.CoordinatorNotAvailable) })
			for _, want := range []string{"topic=" + topic, "partition=0", "offset=", c.want} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log does not say %q:\n%s", want, log.String())
				}
			}
			if len(r.records(t, "codecs", 0).Records) == 0 {
				t.Error("other topics are not served")
			}
		})
	}
}

func refusedWith(r *rig, ask func(*rig) (api.Code, error), want api.Code) error {
	code, err := ask(r)
	if err == nil && code != want {
		err = fmt.Errorf("code %s, want %s", code.Name(), want.Name())
	}
	return err
}

// askGroup fetches the offsets of a group, without a client's retries.
func (r *rig) askGroup() (api.Code, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = "admin"
	req.Groups = append(req.Groups, g)
	resp, err := r.cl.Broker(1).Request(context.Background(), req)
	if err != nil {
		return 0, err
	}
	return api.Code(resp.(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode), nil
}

// askMirror reads the state of a mirror partition from its coordinator.
func (r *rig) askMirror() (api.Code, error) {
	req := &mirrormsg.ReadMirrorStatesRequest{MirrorName: "dr", Topics: []mirrormsg.ReadMirrorStatesTopic{
		{TopicName: "mirrored", Partitions: []mirrormsg.ReadMirrorStatesPartition{mirrormsg.NewReadMirrorStatesPartition()}},
	}}
	resp, err := r.cl.Broker(1).Request(context.Background(), req)
	if err != nil {
		return 0, err
	}
	m := resp.(*mirrormsg.ReadMirrorStatesResponse)
	if m.ErrorCode != 0 {
		return api.Code(m.ErrorCode), nil
	}
	return api.Code(m.Topics[0].Partitions[0].ErrorCode), nil
}

// lockedBuffer is a bytes.Buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
