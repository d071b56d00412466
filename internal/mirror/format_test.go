package mirror_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/fetchwire"
	"milena/internal/record"
	"milena/mirroradm"
)

// 142. All compression types and message formats v2: byte equality; magic 0/1 batches: defined behaviour.
func TestScenario142(t *testing.T) {
	compressions(t)
	for magic := range 2 {
		t.Run(fmt.Sprintf("magic %d", magic), func(t *testing.T) {
			p := damaged(t, oldMessage(byte(magic)))
			if !strings.Contains(p.LastError, "before Kafka 0.11") || !strings.Contains(p.LastError, "offset 2 ") {
				t.Errorf("reason: %s", p.LastError)
			}
		})
	}
}

// FieldCase 25: "Batches byte-identical for gzip, snappy, lz4, zstd".
func TestFieldCase25(t *testing.T) { compressions(t) }

func compressions(t *testing.T) {
	a, b := pair(t)
	var n int64
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		cl, err := kgo.NewClient(kgo.SeedBrokers(a.addr), kgo.ProducerBatchCompression(codec))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			n++
			err = cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: bytes.Repeat([]byte("compressible "), 100)}).FirstErr()
			if err != nil {
				t.Fatal(err)
			}
		}
		cl.Close()
	}
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitEnd("t", 0, n)
	b.same(a, "t", 0, 0)
	kinds := map[record.Codec]bool{}
	data, _ := b.batches("t", 0, 0)
	for x, err := range record.Batches(data) {
		if err != nil {
			t.Fatal(err)
		}
		kinds[x.Codec()] = true
	}
	if len(kinds) != 5 {
		t.Errorf("codecs: %v", kinds)
	}
}

// oldMessage is a message at offset 2 in a format before record batches.
func oldMessage(magic byte) []byte {
	body := []byte{magic, 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, 1_500_000_000_000)
	}
	body = append(body, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 'x') // no key, a value
	out := binary.BigEndian.AppendUint64(nil, 2)
	out = binary.BigEndian.AppendUint32(out, uint32(len(body)+4))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
}

// FieldCase 77: "A bad batch at S takes T's broker down": CRC error, bad length, unknown magic: that partition FAILED, broker healthy.
func TestFieldCase77(t *testing.T) {
	good, err := record.Build(record.BuilderOptions{BaseOffset: 2, LeaderEpoch: 1}, record.Record{Offset: 2, Value: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	with := func(at int, b ...byte) []byte {
		out := bytes.Clone(good)
		copy(out[at:], b)
		return out
	}
	for name, batch := range map[string][]byte{
		"CRC":             with(len(good)-1, 0x7f),
		"length too long": with(8, 0, 0, 0x10, 0), "no length": with(8, 0, 0, 0, 0), "negative length": with(8, 0xff, 0xff, 0xff, 0xf0), "huge length": with(8, 0x7f, 0xff, 0xff, 0xff),
		"unknown magic": with(16, 9), "negative count": with(57, 0xff, 0xff, 0xff, 0xff), "offset delta": with(23, 0x7f, 0xff, 0xff, 0xff), "a header's half": good[:30], "a few bytes": good[:5],
	} {
		t.Run(name, func(t *testing.T) {
			if p := damaged(t, batch); !strings.Contains(p.LastError, "offset 2 ") {
				t.Errorf("reason: %s", p.LastError)
			}
		})
	}
}

// damaged mirrors t from a source that serves bad at offset 2, until that has FAILED for good, and checks that the broker goes on
// with what else it does.
func damaged(t *testing.T, bad []byte) mirroradm.Partition {
	t.Helper()
	f := newFake(t, 1)
	f.add(1, 2)
	f.set(func() {
		f.fetch = func(q *kmsg.FetchRequestTopicPartition) *fetchwire.ResponsePartition {
			if q.FetchOffset < 2 {
				return nil
			}
			p := fetchwire.NewResponsePartition(q.Partition)
			p.HighWatermark, p.Records = 3, []record.Span{record.MemSpan(bad)}
			return &p
		}
	})
	b := mirrorOf(t, f)
	p := b.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt == -1 })
	b.topic("own", 1)
	b.say("own", "healthy")
	b.holds("own", "healthy")
	b.holds("t", "v0", "v1")
	return p
}

// 140. Compacted source topic with gaps: offsets, segments and end offsets are equal.
func TestScenario140(t *testing.T) {
	f := newFake(t, 1)
	f.add(1, 3)
	at := func(base, last int64, offsets ...int64) {
		var rs []record.Record
		for _, o := range offsets {
			rs = append(rs, record.Record{Offset: o, Timestamp: 1_700_000_000_000, Key: []byte("k"), Value: fmt.Appendf(nil, "v%d", o)})
		}
		x, err := record.Build(record.BuilderOptions{BaseOffset: base, LeaderEpoch: 1, LastOffset: &last}, rs...)
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.batches = append(f.batches, x) })
	}
	at(10, 19, 12, 15) // batches without their first and last records
	at(20, 22)         // and without any
	at(40, 41, 40, 41)
	b := mirrorOf(t, f)
	b.awaitEnd("t", 0, 42)
	var want []byte
	for _, x := range f.batches {
		want = append(want, x...)
	}
	if got, bases := b.batches("t", 0, 0); !bytes.Equal(got, want) {
		t.Errorf("batches at %v", bases)
	}
	b.crash()
	b.awaitTopic("m", "t")
	b.holds("t", "v0", "v1", "v2", "v12", "v15", "v40", "v41")
}
