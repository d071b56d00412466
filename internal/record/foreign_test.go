package record

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var kgoCodecs = map[Codec]kgo.CompressionCodec{
	None: kgo.NoCompression(), Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(),
	LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression(),
}

// kgoBatch encodes records with franz-go's message types and compressor.
func kgoBatch(t *testing.T, c Codec, records []Record) Batch {
	t.Helper()
	var payload []byte
	for i, r := range records {
		k := kmsg.Record{TimestampDelta64: r.Timestamp - records[0].Timestamp, OffsetDelta: int32(i), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		body := k.AppendTo(nil) // with length 0, which is one byte
		k.Length = int32(len(body) - 1)
		payload = k.AppendTo(payload)
	}
	maxTime := records[0].Timestamp
	for _, r := range records {
		maxTime = max(maxTime, r.Timestamp)
	}
	compressor, err := kgo.DefaultCompressor(kgoCodecs[c])
	if err != nil {
		t.Fatal(err)
	}
	if c != None {
		out, used := compressor.Compress(new(bytes.Buffer), payload)
		if Codec(used) != c {
			t.Fatalf("compressed with %d, want %d", used, c)
		}
		payload = out
	}
	kb := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, Attributes: int16(c), LastOffsetDelta: int32(len(records) - 1),
		FirstTimestamp: records[0].Timestamp, MaxTimestamp: maxTime, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(len(records)), Records: payload}
	raw := kb.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[posLength:], uint32(len(raw)-LengthOverhead))
	binary.BigEndian.PutUint32(raw[posCRC:], crc32.Checksum(raw[posAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func TestReadsWhatFranzGoWrites(t *testing.T) {
	for _, c := range allCodecs {
		want := sample(200)
		for i := range want {
			want[i].Offset = int64(i)
		}
		b := kgoBatch(t, c, want)
		if err := b.CheckCRC(); err != nil {
			t.Errorf("%s: %v", c, err)
		}
		if err := b.ValidateProduced(); err != nil {
			t.Errorf("%s: %v", c, err)
		}
		if got := collect(t, b); !sameRecords(got, want) {
			t.Errorf("%s (-want +got):\n%s", c, cmp.Diff(want, got))
		}
		if c == None {
			if ours := mustBuild(t, BuilderOptions{LeaderEpoch: -1}, want...); !bytes.Equal(b, ours) {
				t.Errorf("encoding differs from franz-go's:\n%x\n%x", ours, b)
			}
		}
	}
}

func TestFranzGoReadsWhatIsWritten(t *testing.T) {
	for _, c := range allCodecs {
		want := sample(200)
		b := mustBuild(t, BuilderOptions{BaseOffset: 50, Compression: Compression{Codec: c}}, want...)
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches = append(bytes.Clone(b), EndTxnMarker(true, 1, 2, 3, 4)...)
		p.HighWatermark = 1000
		fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t", Offset: 50}, &p, kgo.DefaultDecompressor(), nil)
		if fp.Err != nil || len(fp.Records) != len(want) {
			t.Errorf("%s: %d records, %v", c, len(fp.Records), fp.Err)
			continue
		}
		for i, r := range fp.Records {
			if r.Offset != int64(50+i) || !bytes.Equal(r.Key, want[i].Key) || !bytes.Equal(r.Value, want[i].Value) ||
				(r.Key == nil) != (want[i].Key == nil) || len(r.Headers) != len(want[i].Headers) || r.Timestamp.UnixMilli() != want[i].Timestamp {
				t.Errorf("%s: record %d is %v", c, i, r)
			}
		}
	}
}

// Variants of each format that other clients send.
func TestForeignPayloads(t *testing.T) {
	src := bytes.Repeat([]byte("the quick brown fox "), 5000)
	xerial := compressSnappy(src, nil)
	var stream, frames bytes.Buffer
	zw, err := zstd.NewWriter(&stream)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := zw.Write(src); err != nil { // unknown content size
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	lw := lz4.NewWriter(&frames)
	if err := lw.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(true), lz4.BlockChecksumOption(true)); err != nil {
		t.Fatal(err)
	}
	if _, err := lw.Write(src); err != nil {
		t.Fatal(err)
	}
	if err := lw.Close(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		codec Codec
		in    []byte
		want  []byte
	}{
		{"bare snappy block", Snappy, snappy.Encode(nil, src), src},
		{"xerial", Snappy, xerial, src},
		{"two xerial streams joined", Snappy, append(bytes.Clone(xerial), xerial...), append(bytes.Clone(src), src...)},
		{"zstd without content size", Zstd, stream.Bytes(), src},
		{"lz4 with 4 MiB blocks and checksums", LZ4, frames.Bytes(), src},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decompress(tt.codec, tt.in, nil, 1<<20)
			if err != nil || !bytes.Equal(got, tt.want) {
				t.Errorf("%d bytes, want %d: %v", len(got), len(tt.want), err)
			}
			reused, err := Decompress(tt.codec, tt.in, make([]byte, 10, 1<<19), 1<<20)
			if err != nil || !bytes.Equal(reused, tt.want) {
				t.Errorf("into given memory: %d bytes: %v", len(reused), err)
			}
			for _, cut := range []int{1, len(tt.in) / 2} {
				if got, err := Decompress(tt.codec, tt.in[:len(tt.in)-cut], nil, 1<<20); err == nil && bytes.Equal(got, tt.want) {
					t.Errorf("cut by %d bytes it still gives everything", cut)
				}
			}
		})
	}
}
