package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// DefaultLimit bounds decompression, in bytes, where a caller gives no limit.
const DefaultLimit = 256 << 20

// Most bytes that one input byte can stand for, by format. A declared length beyond
// that is a lie, found before memory is taken for it.
const (
	snappyMaxRatio = 22        // a 3-byte copy makes 64 bytes
	zstdBlockMax   = 128 << 10 // what one block, of 4 bytes at least, makes
)

// Decompress returns src decompressed, in dst's memory if it is large enough (dst's
// content is overwritten). Codec None returns src itself. At most limit bytes come
// out (0: DefaultLimit); more is ErrTooLarge. Damaged input wraps ErrInvalid.
func Decompress(c Codec, src, dst []byte, limit int64) ([]byte, error) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	var err error
	switch c {
	case None:
		if int64(len(src)) > limit {
			return nil, tooLarge(c, limit)
		}
		return src, nil
	case Gzip:
		dst, err = gunzip(src, dst[:0], limit)
	case Snappy:
		dst, err = unsnappy(src, dst[:0], limit)
	case LZ4:
		dst, err = unlz4(src, dst[:0], limit)
	case Zstd:
		dst, err = unzstd(src, dst[:0], limit)
	default:
		return nil, fmt.Errorf("%w %d", ErrCodec, c)
	}
	if err == nil {
		return dst, nil
	}
	if !errors.Is(err, ErrTooLarge) {
		err = fmt.Errorf("%w: %s payload: %w", ErrInvalid, c, err)
	}
	return nil, err
}

func tooLarge(c Codec, limit int64) error {
	return fmt.Errorf("%w of %d bytes (%s)", ErrTooLarge, limit, c)
}

// readLimited reads r to its end, appending to dst.
func readLimited(c Codec, r io.Reader, dst []byte, hint int, limit int64) ([]byte, error) {
	if cap(dst) < hint {
		dst = make([]byte, 0, min(int64(hint), limit))
	}
	for {
		if len(dst) == cap(dst) {
			// One byte more than the limit is enough to know that it is passed.
			size := min(max(2*int64(cap(dst)), 4096), limit+1)
			if size <= int64(len(dst)) {
				return nil, tooLarge(c, limit)
			}
			grown := make([]byte, len(dst), size)
			copy(grown, dst)
			dst = grown
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if int64(len(dst)) > limit {
			return nil, tooLarge(c, limit)
		}
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// hint guesses the decompressed size.
func hint(src []byte) int { return 4 * min(len(src), 4<<20) }

type gzipReader struct {
	src bytes.Reader
	z   gzip.Reader
}

var gzipReaders = sync.Pool{New: func() any { return new(gzipReader) }}

func gunzip(src, dst []byte, limit int64) ([]byte, error) {
	r := gzipReaders.Get().(*gzipReader)
	defer func() {
		r.src.Reset(nil)
		gzipReaders.Put(r)
	}()
	r.src.Reset(src)
	if err := r.z.Reset(&r.src); err != nil {
		return nil, err
	}
	return readLimited(Gzip, &r.z, dst, hint(src), limit)
}

type lz4Reader struct {
	src bytes.Reader
	z   *lz4.Reader
}

var lz4Readers = sync.Pool{New: func() any { return &lz4Reader{z: lz4.NewReader(nil)} }}

func unlz4(src, dst []byte, limit int64) ([]byte, error) {
	r := lz4Readers.Get().(*lz4Reader)
	r.src.Reset(src)
	r.z.Reset(&r.src)
	dst, err := readLimited(LZ4, r.z, dst, hint(src), limit)
	r.src.Reset(nil)
	if err == nil {
		lz4Readers.Put(r) // after an error its state is not worth keeping
	}
	return dst, err
}

var zstdReaders = sync.Pool{New: func() any {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err // the options are constant, so this is a defect that every use reports
	}
	return r
}}

func unzstd(src, dst []byte, limit int64) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return nil, err
	}
	size := int64(max(hint(src), 64<<10))
	if h.HasFCS {
		if h.FrameContentSize > uint64(len(src)/4+1)*zstdBlockMax {
			return nil, fmt.Errorf("%d bytes say they hold %d", len(src), h.FrameContentSize)
		}
		size = int64(h.FrameContentSize)
		if size > limit {
			return nil, tooLarge(Zstd, limit)
		}
	}
	d, ok := zstdReaders.Get().(*zstd.Decoder)
	if !ok {
		return nil, errors.New("zstd decoder could not be made")
	}
	defer zstdReaders.Put(d)
	for {
		size = min(max(size, 1), limit)
		if int64(cap(dst)) < size {
			dst = make([]byte, 0, size)
		}
		// The decoder fills no more than the capacity it is given.
		out, err := d.DecodeAll(src, dst[:0:min(int64(cap(dst)), limit)])
		if !errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			return out, err
		}
		if int64(cap(dst)) >= limit {
			return nil, tooLarge(Zstd, limit)
		}
		size = 4 * int64(cap(dst))
	}
}

// xerialMagic begins a stream of Java's SnappyOutputStream. It is followed by two
// int32 (version and lowest compatible version), then by blocks: an int32 length and
// that many bytes of snappy. Streams may be joined, so the magic can come again
// where a length is expected; it would be a negative one.
const (
	xerialMagic  = "\x82SNAPPY\x00"
	xerialHeader = 16
	xerialBlock  = 32 << 10 // what SnappyOutputStream puts in a block
)

func unsnappy(src, dst []byte, limit int64) ([]byte, error) {
	// First pass: how large is it, and is each declared length possible.
	var total int64
	err := snappyBlocks(src, func(block []byte) error {
		n, err := snappy.DecodedLen(block)
		if err != nil {
			return err
		}
		if int64(n) > int64(len(block))*snappyMaxRatio {
			return fmt.Errorf("block of %d bytes says it holds %d", len(block), n)
		}
		if total += int64(n); total > limit {
			return tooLarge(Snappy, limit)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if int64(cap(dst)) < total {
		dst = make([]byte, 0, total)
	}
	dst = dst[:total]
	var pos int
	err = snappyBlocks(src, func(block []byte) error {
		out, err := snappy.DecodeStrict(dst[pos:], block)
		pos += len(out)
		return err
	})
	return dst, err
}

// snappyBlocks calls fn for each block of a xerial stream, or for all of src when it
// is a bare block, which other clients send.
func snappyBlocks(src []byte, fn func(block []byte) error) error {
	if !bytes.HasPrefix(src, []byte(xerialMagic)) {
		return fn(src)
	}
	for len(src) > 0 {
		if bytes.HasPrefix(src, []byte(xerialMagic)) {
			if len(src) < xerialHeader {
				return io.ErrUnexpectedEOF
			}
			src = src[xerialHeader:]
			continue
		}
		if len(src) < 4 {
			return io.ErrUnexpectedEOF
		}
		n := int64(int32(binary.BigEndian.Uint32(src)))
		src = src[4:]
		if n < 0 || n > int64(len(src)) {
			return fmt.Errorf("block length %d with %d bytes left", n, len(src))
		}
		if err := fn(src[:n]); err != nil {
			return err
		}
		src = src[n:]
	}
	return nil
}
