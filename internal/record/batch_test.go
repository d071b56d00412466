package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
)

var allCodecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// mustBuild builds a batch whose options can't fail.
func mustBuild(t testing.TB, o BuilderOptions, records ...Record) Batch {
	t.Helper()
	b, err := Build(o, records...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sample is n records with all shapes of key, value and headers.
func sample(n int) []Record {
	out := make([]Record, n)
	for i := range out {
		out[i] = Record{Timestamp: 1_700_000_000_000 + int64(i*i%7), Key: fmt.Appendf(nil, "key-%d", i), Value: bytes.Repeat([]byte{'v', byte(i)}, i*10)}
		switch i % 4 {
		case 1:
			out[i].Key = nil
		case 2:
			out[i].Value = nil
			out[i].Headers = []Header{{Key: "trace", Value: []byte("abc")}, {Key: "", Value: nil}}
		case 3:
			out[i].Key = []byte{}
			out[i].Headers = []Header{{Key: "trace", Value: []byte{}}}
		}
	}
	return out
}

func collect(t testing.TB, b Batch) []Record {
	t.Helper()
	var out []Record
	for r, err := range b.Records(0) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func TestHeaderFields(t *testing.T) {
	horizon, last := int64(1234), int64(120)
	b := mustBuild(t, BuilderOptions{
		BaseOffset: 100, LeaderEpoch: 7, Compression: Compression{Codec: Zstd}, Transactional: true,
		Producer: &Producer{ID: 42, Epoch: 3, BaseSequence: math.MaxInt32 - 1}, DeleteHorizon: &horizon, LastOffset: &last,
	}, sample(5)...)
	checks := []struct {
		name      string
		got, want any
	}{
		{"base offset", b.BaseOffset(), int64(100)},
		{"last offset", b.LastOffset(), int64(120)},
		{"next offset", b.NextOffset(), int64(121)},
		{"len", b.Len(), int64(len(b))},
		{"leader epoch", b.LeaderEpoch(), int32(7)},
		{"magic", b.Magic(), int8(2)},
		{"codec", b.Codec(), Zstd},
		{"transactional", b.IsTransactional(), true},
		{"control", b.IsControl(), false},
		{"timestamp type", b.TimestampType(), CreateTime},
		{"base timestamp", b.BaseTimestamp(), horizon},
		{"max timestamp", b.MaxTimestamp(), int64(1_700_000_000_004)},
		{"producer id", b.ProducerID(), int64(42)},
		{"producer epoch", b.ProducerEpoch(), int16(3)},
		{"base sequence", b.BaseSequence(), int32(math.MaxInt32 - 1)},
		{"last sequence wraps", b.LastSequence(), int32(18)},
		{"count", b.Count(), int32(5)},
	}
	for _, c := range checks {
		if c.got != c.want {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
	if ms, ok := b.DeleteHorizon(); !ok || ms != horizon {
		t.Errorf("delete horizon = %d %v", ms, ok)
	}
	if err := errors.Join(b.Validate(), b.CheckCRC()); err != nil {
		t.Error(err)
	}
}

func TestStampingKeepsChecksum(t *testing.T) {
	b := mustBuild(t, BuilderOptions{}, sample(3)...)
	crc := b.CRC()
	b.SetBaseOffset(900)
	b.SetLeaderEpoch(5)
	if b.CRC() != crc || b.CheckCRC() != nil {
		t.Error("base offset and leader epoch must lie outside the checksum")
	}
	b.SetLastOffset(1002)
	if b.BaseOffset() != 1000 {
		t.Errorf("base offset %d, want 1000", b.BaseOffset())
	}
	b.SetMaxTimestamp(LogAppendTime, 77)
	b.SetProducer(9, 1, 5)
	if b.CRC() == crc || b.CheckCRC() != nil {
		t.Error("changes under the checksum must renew it")
	}
	for _, r := range collect(t, b) {
		if r.Timestamp != 77 {
			t.Errorf("record at %d has timestamp %d, want the append time", r.Offset, r.Timestamp)
		}
	}
}

// Every byte under the checksum, and the stored checksum itself, is protected.
func TestCorruptionAtEveryByteIsFound(t *testing.T) {
	for _, c := range allCodecs {
		b := mustBuild(t, BuilderOptions{Compression: Compression{Codec: c}}, sample(6)...)
		for i := posCRC; i < len(b); i++ {
			b[i] ^= 0x10
			if err := b.CheckCRC(); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: flip at byte %d: %v", c, i, err)
			}
			b[i] ^= 0x10
		}
		if err := b.CheckCRC(); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}

func TestValidate(t *testing.T) {
	put32 := func(pos int, v int32) func(Batch) {
		return func(b Batch) { binary.BigEndian.PutUint32(b[pos:], uint32(v)) }
	}
	attrs := func(bits int16) func(Batch) {
		return func(b Batch) { binary.BigEndian.PutUint16(b[posAttributes:], uint16(bits)) }
	}
	tests := []struct {
		name               string
		change             func(Batch)
		stored, fromClient error // nil: accepted
	}{
		{"untouched", func(Batch) {}, nil, nil},
		{"magic 0", func(b Batch) { b[posMagic] = 0 }, ErrMagic, ErrMagic},
		{"magic 1", func(b Batch) { b[posMagic] = 1 }, ErrMagic, ErrMagic},
		{"magic 3", func(b Batch) { b[posMagic] = 3 }, ErrCorrupt, ErrCorrupt},
		{"length too small", put32(posLength, 3), ErrCorrupt, ErrCorrupt},
		{"length negative", put32(posLength, -1), ErrCorrupt, ErrCorrupt},
		{"length too large", put32(posLength, math.MaxInt32), ErrCorrupt, ErrCorrupt},
		{"codec 5", attrs(5), ErrCodec, ErrCodec},
		{"codec 7", attrs(7), ErrCodec, ErrCodec},
		{"delta negative", put32(posLastDelta, -1), ErrInvalid, ErrInvalid},
		{"count negative", put32(posCount, -1), ErrInvalid, ErrInvalid},
		{"more records than offsets", put32(posCount, 4), ErrInvalid, ErrInvalid},
		{"fewer records than offsets", put32(posCount, 2), nil, ErrInvalid},
		{"no records", put32(posCount, 0), nil, ErrInvalid},
		{"base offset negative", func(b Batch) { b.SetBaseOffset(-5) }, ErrInvalid, ErrInvalid},
		{"offsets overflow", func(b Batch) { b.SetBaseOffset(math.MaxInt64 - 1) }, ErrInvalid, ErrInvalid},
		{"base offset set", func(b Batch) { b.SetBaseOffset(5) }, nil, ErrInvalid},
		{"control", attrs(attrControl), nil, ErrInvalid},
		{"delete horizon", attrs(attrDeleteHorizon), nil, ErrInvalid},
		{"log append time", attrs(attrLogAppend), nil, ErrTimestamp},
		{"transaction without producer", attrs(attrTransactional), nil, ErrInvalid},
		{"producer without sequence", func(b Batch) { b.SetProducer(1, 0, NoSequence) }, nil, ErrInvalid},
		{"producer without epoch", func(b Batch) { b.SetProducer(1, -1, 0) }, nil, ErrInvalid},
		{"producer", func(b Batch) { b.SetProducer(1, 0, 0) }, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := mustBuild(t, BuilderOptions{}, sample(3)...)
			tt.change(b)
			if err := b.Validate(); !errors.Is(err, tt.stored) {
				t.Errorf("Validate: %v, want %v", err, tt.stored)
			}
			if err := b.ValidateProduced(); !errors.Is(err, tt.fromClient) {
				t.Errorf("ValidateProduced: %v, want %v", err, tt.fromClient)
			}
		})
	}
	if err := Batch(make([]byte, 30)).Validate(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("short batch: %v", err)
	}
}

func TestBatches(t *testing.T) {
	var buf []byte
	for i := range 3 {
		b := mustBuild(t, BuilderOptions{BaseOffset: int64(i * 10)}, sample(i+1)...)
		buf = append(buf, b...)
	}
	whole := len(buf)
	count := func(buf []byte) (n int, err error) {
		for b, e := range Batches(buf) {
			if e != nil {
				return n, e
			}
			if b.BaseOffset() != int64(n*10) {
				t.Errorf("batch %d has base offset %d", n, b.BaseOffset())
			}
			n++
		}
		return n, nil
	}
	last := int(Batch(buf[len(buf)-len(mustBuild(t, BuilderOptions{}, sample(3)...)):]).Len())
	for cut := range last {
		want := 2
		if cut == 0 {
			want = 3
		}
		if n, err := count(buf[:whole-cut]); n != want || err != nil {
			t.Fatalf("cut by %d: %d batches, %v", cut, n, err)
		}
	}
	damaged := bytes.Clone(buf)
	second := int(Batch(buf).Len())
	binary.BigEndian.PutUint32(damaged[second+posLength:], 10)
	if n, err := count(damaged); n != 1 || !errors.Is(err, ErrCorrupt) {
		t.Errorf("damaged length: %d batches, %v", n, err)
	}
	old := bytes.Clone(buf)
	old[second+posMagic] = 1
	if n, err := count(old); n != 1 || !errors.Is(err, ErrMagic) || errors.Is(err, ErrCorrupt) {
		t.Errorf("magic 1: %d batches, %v", n, err)
	}
}

func TestAddSequence(t *testing.T) {
	for _, tt := range [][3]int32{{0, 0, 0}, {5, 3, 8}, {math.MaxInt32, 0, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 2, 5, 2}} {
		if got := AddSequence(tt[0], tt[1]); got != tt[2] {
			t.Errorf("AddSequence(%d, %d) = %d, want %d", tt[0], tt[1], got, tt[2])
		}
	}
}

func TestParseCodec(t *testing.T) {
	for _, c := range allCodecs {
		if got, err := ParseCodec(c.String()); got != c || err != nil {
			t.Errorf("%s: %v %v", c, got, err)
		}
	}
	if _, err := ParseCodec("brotli"); !errors.Is(err, ErrCodec) {
		t.Errorf("brotli: %v", err)
	}
}
