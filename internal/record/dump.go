package record

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// DumpOptions say what Dump prints of each batch.
type DumpOptions struct {
	Deep         bool // a line per record
	Contents     bool // with key and payload; implies Deep
	SkipMetadata bool // leave out all but key and payload of a record
	Limit        int64
	// Decode turns a record of an internal topic into text; an empty string leaves
	// the field out. nil prints key and value as they are.
	Decode func(Record) (key, value string)
}

// DumpResult is what Dump found.
type DumpResult struct {
	Batches       int
	Records       int   // counted by the batches
	Invalid       int   // batches with a wrong checksum or records that can't be read
	TrailingBytes int64 // after the last whole batch
	// Gaps are pairs of offsets of records that follow each other in the file but
	// not in numbers (only with Deep). Compaction makes them, and so may a mirror.
	Gaps [][2]int64
}

// dumpMaxGaps bounds DumpResult.Gaps.
const dumpMaxGaps = 1000

// Dump prints the batches of a segment file of size bytes in the layout of Kafka's
// dump-log tool. Damage in the file is printed, not returned; the error is one of
// reading or writing.
func Dump(w io.Writer, f io.ReaderAt, size int64, o DumpOptions) (DumpResult, error) {
	d := dumper{w: bufio.NewWriter(w), o: o, last: -1}
	var pos int64
	var buf []byte
	for size-pos >= HeaderSize {
		var head [HeaderSize]byte
		if err := readFullAt(f, head[:], pos); err != nil {
			return d.res, err
		}
		n := Batch(head[:]).Len()
		if n < HeaderSize || n > size-pos || Batch(head[:]).Magic() != Magic {
			break
		}
		if int64(cap(buf)) < n {
			buf = make([]byte, n)
		}
		if err := readFullAt(f, buf[:n], pos); err != nil {
			return d.res, err
		}
		d.batch(Batch(buf[:n:n]), pos)
		pos += n
	}
	d.res.TrailingBytes = size - pos
	return d.res, d.w.Flush()
}

func readFullAt(f io.ReaderAt, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	return fmt.Errorf("read %d bytes at %d: %w", len(p), off, err)
}

type dumper struct {
	w    *bufio.Writer // keeps its first error for Flush
	o    DumpOptions
	res  DumpResult
	last int64 // offset of the record before
}

func (d *dumper) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(d.w, format, args...) // Flush reports the error
}

func (d *dumper) batch(b Batch, pos int64) {
	horizon := "OptionalLong.empty"
	if ms, ok := b.DeleteHorizon(); ok {
		horizon = fmt.Sprintf("OptionalLong[%d]", ms)
	}
	valid := b.CheckCRC() == nil
	d.printf("baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d"+
		" partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s",
		b.BaseOffset(), b.LastOffset(), b.Count(), b.BaseSequence(), b.LastSequence(), b.ProducerID(), b.ProducerEpoch(),
		b.LeaderEpoch(), b.IsTransactional(), b.IsControl(), horizon)
	d.printf(" position: %d %s: %d size: %d magic: %d compresscodec: %s crc: %d isvalid: %t\n",
		pos, b.TimestampType(), b.MaxTimestamp(), len(b), b.Magic(), b.Codec(), b.CRC(), valid)
	d.res.Batches++
	d.res.Records += int(max(b.Count(), 0))
	if d.o.Deep || d.o.Contents {
		for r, err := range b.Records(d.o.Limit) {
			if err != nil {
				d.printf("| unreadable: %v\n", err)
				valid = false
				break
			}
			d.record(b, r)
		}
	}
	if !valid {
		d.res.Invalid++
	}
}

func (d *dumper) record(b Batch, r Record) {
	if r.Offset != d.last+1 && len(d.res.Gaps) < dumpMaxGaps {
		d.res.Gaps = append(d.res.Gaps, [2]int64{d.last, r.Offset})
	}
	d.last = r.Offset
	d.printf("|")
	if !d.o.SkipMetadata {
		seq := NoSequence
		if b.BaseSequence() >= 0 {
			seq = AddSequence(b.BaseSequence(), int32(r.Offset-b.BaseOffset()))
		}
		names := make([]string, len(r.Headers))
		for i, h := range r.Headers {
			names[i] = h.Key
		}
		d.printf(" offset: %d %s: %d keySize: %d valueSize: %d sequence: %d headerKeys: [%s]",
			r.Offset, b.TimestampType(), r.Timestamp, sizeOf(r.Key), sizeOf(r.Value), seq, strings.Join(names, ","))
		if b.IsControl() {
			d.control(r)
		}
	}
	if d.o.Contents && !b.IsControl() {
		key, value := string(r.Key), string(r.Value)
		hasKey, hasValue := r.Key != nil, r.Value != nil
		if d.o.Decode != nil {
			key, value = d.o.Decode(r)
			hasKey, hasValue = key != "", value != ""
		}
		if hasKey {
			d.printf(" key: %s", key)
		}
		if hasValue {
			d.printf(" payload: %s", value)
		}
	}
	d.printf("\n")
}

func (d *dumper) control(r Record) {
	c, err := ParseControl(r)
	switch {
	case err != nil:
		d.printf(" unreadable: %v", err)
	case c.EndsTxn():
		d.printf(" endTxnMarker: %s coordinatorEpoch: %d", c.Type, c.CoordinatorEpoch)
	default:
		d.printf(" controlType: %s(%s)", c.Type, strconv.Itoa(int(c.Type)))
	}
}

func sizeOf(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}
