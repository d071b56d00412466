package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
)

// bombs are small payloads that stand for 8 MiB.
func bombs(t *testing.T) map[Codec][]byte {
	zeros := make([]byte, 8<<20)
	out := map[Codec][]byte{}
	for _, c := range allCodecs[1:] {
		b, err := Compress(Compression{Codec: c}, zeros, nil)
		if err != nil {
			t.Fatal(err)
		}
		out[c] = b
	}
	return out
}

func TestDecompressionBombs(t *testing.T) {
	for c, bomb := range bombs(t) {
		for _, limit := range []int64{1, 1 << 18} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decompress(c, bomb, nil, limit)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrTooLarge) || errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, limit %d: %v", c, limit, err)
			}
			if got, most := int64(after.TotalAlloc-before.TotalAlloc), 4*limit+5<<20; got > most {
				t.Errorf("%s, limit %d: allocated %d bytes", c, limit, got)
			}
		}
		if out, err := Decompress(c, bomb, nil, 8<<20); err != nil || len(out) != 8<<20 {
			t.Errorf("%s at its size: %d bytes, %v", c, len(out), err)
		}
	}
}

// A batch with a bomb is refused by everything that looks inside.
func TestBombInBatch(t *testing.T) {
	b := mustBuild(t, BuilderOptions{Compression: Compression{Codec: Zstd}}, Record{Value: make([]byte, 3<<20)})
	const limit = 1 << 20
	for r, err := range b.Records(limit) {
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("Records: %v %v", r.Offset, err)
		}
	}
	if _, err := b.CheckRecords(CheckOptions{Limit: limit}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("CheckRecords: %v", err)
	}
	if _, err := b.Filter(func(Record) bool { return true }, FilterOptions{Limit: limit}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Filter: %v", err)
	}
	if _, err := b.Recompress(Compression{}, limit); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Recompress: %v", err)
	}
	if got, err := b.Recompress(Compression{Codec: LZ4}, 0); err != nil || got.Codec() != LZ4 {
		t.Errorf("within the default limit: %v", err)
	}
}

// Declared lengths beyond what the bytes can hold take no memory.
func TestLyingLengths(t *testing.T) {
	tests := []struct {
		name  string
		codec Codec
		in    []byte
	}{
		{"snappy block of 1 GiB", Snappy, binary.AppendUvarint(nil, 1<<30)},
		{"xerial block longer than the stream", Snappy, append([]byte(xerialMagic+"\x00\x00\x00\x01\x00\x00\x00\x01"), 0x7f, 0xff, 0xff, 0xff)},
		{"xerial negative block", Snappy, append([]byte(xerialMagic+"\x00\x00\x00\x01\x00\x00\x00\x01"), 0xff, 0xff, 0xff, 0xff)},
		{"xerial header cut", Snappy, []byte(xerialMagic + "\x00")},
		{"zstd content size of 200 MiB", Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0x80, 0x0c, 1, 0, 0}},
		{"lz4 frame header only", LZ4, []byte{0x04, 0x22, 0x4d, 0x18, 0x40, 0x70, 0xdf}},
		{"gzip garbage", Gzip, []byte("no gzip at all")},
		{"empty gzip", Gzip, nil},
		{"empty zstd", Zstd, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			out, err := Decompress(tt.codec, tt.in, nil, 0)
			runtime.ReadMemStats(&after)
			if err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v must wrap ErrInvalid", err)
			}
			if err == nil && len(out) > 0 {
				t.Errorf("%d bytes out of nothing", len(out))
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 10<<20 {
				t.Errorf("allocated %d bytes", got)
			}
		})
	}
	if _, err := Decompress(5, nil, nil, 0); !errors.Is(err, ErrCodec) {
		t.Errorf("codec 5: %v", err)
	}
}

// withPayload makes a one-record batch with these bytes as its records.
func withPayload(payload []byte) Batch {
	b := NewBuilder(BuilderOptions{})
	b.Append(Record{})
	return seal(append(b.header(0), payload...))
}

func TestDamagedRecords(t *testing.T) {
	good := appendRecord(nil, &Record{Key: []byte("k"), Value: []byte("v"), Headers: []Header{{Key: "h", Value: []byte("x")}}}, 0, 0)
	if got := collect(t, withPayload(good)); len(got) != 1 {
		t.Fatalf("undamaged: %d records", len(got))
	}
	v := func(parts ...any) []byte { // ints are varints
		var out []byte
		for _, p := range parts {
			switch p := p.(type) {
			case int:
				out = binary.AppendVarint(out, int64(p))
			case string:
				out = append(out, p...)
			}
		}
		return append(binary.AppendVarint(nil, int64(len(out))), out...)
	}
	tests := map[string][]byte{
		"empty":                      {},
		"length beyond the bytes":    {100, 0},
		"length negative":            {1},
		"length unfinished":          {0x80},
		"length of more than 32 bit": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"length of more than 64 bit": bytes.Repeat([]byte{0xff}, 11),
		"length 0":                   {0},
		"key length negative":        v("\x00", 0, 0, -2, -1, 0),
		"key beyond the record":      v("\x00", 0, 0, 50, "k", -1, 0),
		"value beyond the record":    v("\x00", 0, 0, -1, 1<<30, 0),
		"header count negative":      v("\x00", 0, 0, -1, -1, -1),
		"header count of 2 billion":  v("\x00", 0, 0, -1, -1, 1<<31-1),
		"header with null key":       v("\x00", 0, 0, -1, -1, 1, -1, -1),
		"header beyond the record":   v("\x00", 0, 0, -1, -1, 1, 9, "a", -1),
		"bytes left in the record":   v("\x00", 0, 0, -1, -1, 0, "left"),
		"bytes after the last":       append(bytes.Clone(good), 0),
		"offset delta negative":      v("\x00", 0, -1, -1, -1, 0),
		"offset delta too large":     v("\x00", 0, 1, -1, -1, 0),
	}
	for name, payload := range tests {
		t.Run(name, func(t *testing.T) {
			b := withPayload(payload)
			if err := errors.Join(b.Validate(), b.CheckCRC()); err != nil {
				t.Fatal(err)
			}
			var err error
			for _, err = range b.Records(0) {
			}
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("Records: %v", err)
			}
			if _, err := b.CheckRecords(CheckOptions{}); !errors.Is(err, ErrInvalid) {
				t.Errorf("CheckRecords: %v", err)
			}
		})
	}
}

func FuzzBatch(f *testing.F) {
	for _, c := range allCodecs {
		b, err := Build(BuilderOptions{Compression: Compression{Codec: c}}, sample(9)...)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(b))
	}
	f.Add([]byte(append(EndTxnMarker(true, 1, 2, 3, 4), MirrorPIDReset(5)...)))
	const limit = 1 << 20
	f.Fuzz(func(t *testing.T, data []byte) {
		// Once as a payload under a header that fits, once as whole batches.
		if len(data) >= 2 {
			last := int64(200)
			b := NewBuilder(BuilderOptions{LastOffset: &last}).header(int32(last))
			binary.BigEndian.PutUint16(b[posAttributes:], uint16(data[0])%5)
			binary.BigEndian.PutUint32(b[posCount:], uint32(data[1]))
			if b = seal(append(b, data[2:]...)); b.Validate() == nil {
				fuzzRecords(t, b, limit)
			}
		}
		var dump bytes.Buffer
		if _, err := Dump(&dump, bytes.NewReader(data), int64(len(data)), DumpOptions{Contents: true, Limit: limit}); err != nil {
			t.Fatal(err)
		}
		for b, err := range Batches(data) {
			if err != nil {
				return
			}
			_ = b.CheckCRC() // nearly always wrong here; the rest must hold all the same
			if b.Validate() != nil {
				continue
			}
			fuzzRecords(t, bytes.Clone(b), limit)
		}
	})
}

// fuzzRecords holds the ways of looking into a batch against each other.
func fuzzRecords(t *testing.T, b Batch, limit int64) {
	info, err := b.CheckRecords(CheckOptions{Limit: limit})
	var n int32
	for r, rerr := range b.Records(limit) {
		if (rerr != nil) && err == nil {
			t.Fatalf("CheckRecords is content, Records says %v", rerr)
		}
		if rerr == nil && (r.Offset < b.BaseOffset() || r.Offset > b.LastOffset()) {
			t.Fatalf("record at %d is outside the batch", r.Offset)
		}
		n++
	}
	if err != nil {
		return
	}
	if n != info.Count || n != b.Count() {
		t.Fatalf("%d records, CheckRecords saw %d, header says %d", n, info.Count, b.Count())
	}
	if _, _, err := b.Control(); err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrTooLarge) {
		t.Fatalf("Control: %v", err)
	}
	res, err := b.Filter(func(r Record) bool { return r.Offset%2 == 0 }, FilterOptions{Limit: limit, RetainEmpty: true})
	if err != nil {
		t.Fatalf("Filter: %v", err)
	}
	for r, err := range res.Batch.Records(limit) {
		if err != nil || r.Offset%2 != 0 {
			t.Fatalf("filtered: record at %d, %v", r.Offset, err)
		}
	}
	out, err := b.Recompress(Compression{Codec: Snappy}, limit)
	if err != nil {
		t.Fatalf("Recompress: %v", err)
	}
	again, err := out.CheckRecords(CheckOptions{Limit: limit})
	if err != nil || again != info {
		t.Fatalf("recompressed: %+v, %v; want %+v", again, err, info)
	}
}
