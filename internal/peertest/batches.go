package peertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"milena/internal/record"
)

// maxBatch bounds what a damaged length field can make us read.
const maxBatch = 256 << 20

// Segments are a partition folder's log files in offset order.
func Segments(dir string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no segment file in %s", dir)
	}
	slices.Sort(found) // names are offsets of equal width
	return found, nil
}

// Batches reads the batches of a partition from its segment files, in order. The memory of a batch is reused for the
// next one. Bytes after the last whole batch of the last segment end the sequence silently, as a running broker may
// be writing there; anywhere else they are an error, as are batches that fail their checksum.
func Batches(dir string) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		files, err := Segments(dir)
		if err != nil {
			yield(nil, err)
			return
		}
		var buf []byte
		for i, path := range files {
			var err error
			buf, err = fileBatches(path, buf, i == len(files)-1, func(b record.Batch) bool { return yield(b, nil) })
			switch {
			case errors.Is(err, errEnough):
				return
			case err != nil:
				yield(nil, err)
				return
			}
		}
	}
}

var errEnough = errors.New("enough")

// fileBatches calls each with the batches of one segment; buf is memory to use, and returned for the next.
func fileBatches(path string, buf []byte, last bool, each func(record.Batch) bool) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return buf, err
	}
	defer f.Close()
	for pos := int64(0); ; {
		if cap(buf) < record.HeaderSize {
			buf = make([]byte, 1<<20)
		}
		buf = buf[:cap(buf)]
		n, err := f.ReadAt(buf[:12], pos)
		if n == 0 && errors.Is(err, io.EOF) {
			return buf, nil
		}
		size := 12 + int64(int32(binary.BigEndian.Uint32(buf[8:12])))
		// A preallocated tail is zeros.
		if n < 12 || size < record.HeaderSize && last {
			return buf, tailError(path, pos, last)
		}
		if size < record.HeaderSize || size > maxBatch {
			return buf, fmt.Errorf("%s at %d: batch length %d", path, pos, size)
		}
		if int64(len(buf)) < size {
			buf = make([]byte, size)
		}
		if n, err := f.ReadAt(buf[:size], pos); int64(n) < size {
			if errors.Is(err, io.EOF) {
				return buf, tailError(path, pos, last)
			}
			return buf, err
		}
		b := record.Batch(buf[:size])
		if err := b.Validate(); err != nil {
			return buf, fmt.Errorf("%s at %d: %w", path, pos, err)
		}
		if err := b.CheckCRC(); err != nil {
			return buf, fmt.Errorf("%s at %d: %w", path, pos, err)
		}
		if !each(b) {
			return buf, errEnough
		}
		pos += size
	}
}

func tailError(path string, pos int64, last bool) error {
	if last {
		return nil
	}
	return fmt.Errorf("%s at %d: not a whole batch, and not the last segment", path, pos)
}

// Stored sums up what a partition's files hold.
type Stored struct {
	Batches, Records, Bytes int64
	// Codecs counts the data batches by codec; control batches are left out.
	Codecs map[record.Codec]int64
	// Control counts control batches.
	Control int64
	// Idempotent counts data batches with a producer id.
	Idempotent int64
	// Gaps counts offsets missing between batches and inside them: what compaction removed.
	Gaps int64
	// LargestBatch is in bytes.
	LargestBatch int64
	// Epochs are the leader epochs in order, each once.
	Epochs []int32
	// First and End are the first offset and the one after the last.
	First, End int64
}

// Inspect reads all batches of the partition in dir.
func Inspect(dir string) (Stored, error) {
	s := Stored{Codecs: map[record.Codec]int64{}, First: -1}
	for b, err := range Batches(dir) {
		if err != nil {
			return s, err
		}
		if s.First < 0 {
			s.First, s.End = b.BaseOffset(), b.BaseOffset()
		}
		if b.BaseOffset() < s.End {
			return s, fmt.Errorf("%s: batch at offset %d after one that ends at %d", dir, b.BaseOffset(), s.End-1)
		}
		s.Gaps += b.BaseOffset() - s.End + int64(b.LastOffsetDelta()) + 1 - int64(b.Count())
		s.End = b.NextOffset()
		s.Batches++
		s.Bytes += b.Len()
		s.LargestBatch = max(s.LargestBatch, b.Len())
		if n := len(s.Epochs); n == 0 || s.Epochs[n-1] != b.LeaderEpoch() {
			s.Epochs = append(s.Epochs, b.LeaderEpoch())
		}
		if b.IsControl() {
			s.Control++
			continue
		}
		s.Records += int64(b.Count())
		s.Codecs[b.Codec()]++
		if b.HasProducerID() {
			s.Idempotent++
		}
	}
	return s, nil
}

// OnlyCodec says whether all data batches of a partition have this codec, and there is one.
func (s Stored) OnlyCodec(c record.Codec) error {
	if len(s.Codecs) == 1 && s.Codecs[c] > 0 {
		return nil
	}
	var have []string
	for c, n := range s.Codecs {
		have = append(have, fmt.Sprintf("%d of %s", n, c))
	}
	slices.Sort(have)
	return fmt.Errorf("batches stored: %s; want %s only", strings.Join(have, ", "), c)
}
