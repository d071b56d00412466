package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// lz4JavaDefault is the level that Kafka takes for lz4's fast compressor.
const lz4JavaDefault = 9

// Compress appends src, compressed, to dst. The output is what Kafka's Java clients
// read: snappy in xerial framing, lz4 in frames of independent blocks.
func Compress(c Compression, src, dst []byte) ([]byte, error) {
	switch c.Codec {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return compressGzip(c.Level, src, dst)
	case Snappy:
		return compressSnappy(src, dst), nil
	case LZ4:
		return compressLZ4(c.Level, src, dst)
	case Zstd:
		return compressZstd(c.Level, src, dst)
	}
	return nil, fmt.Errorf("%w %d", ErrCodec, c.Codec)
}

var gzipWriters [gzip.BestCompression + 1]sync.Pool // by level, 0 for the default

func compressGzip(level int, src, dst []byte) ([]byte, error) {
	if level < 0 {
		level = 0 // Kafka's -1 is the default
	}
	if level >= len(gzipWriters) {
		return nil, fmt.Errorf("gzip level %d is above %d", level, gzip.BestCompression)
	}
	buf := bytes.NewBuffer(dst)
	w, ok := gzipWriters[level].Get().(*gzip.Writer)
	if ok {
		w.Reset(buf)
	} else {
		real := level
		if real == 0 {
			real = gzip.DefaultCompression
		}
		var err error
		if w, err = gzip.NewWriterLevel(buf, real); err != nil {
			return nil, err
		}
	}
	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	w.Reset(nil) // drop the buffer
	gzipWriters[level].Put(w)
	return buf.Bytes(), nil
}

func compressSnappy(src, dst []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = binary.BigEndian.AppendUint32(dst, 1) // version
	dst = binary.BigEndian.AppendUint32(dst, 1) // lowest compatible version
	for len(src) > 0 {
		block := src[:min(len(src), xerialBlock)]
		src = src[len(block):]
		start := len(dst)
		room := start + 4 + snappy.MaxEncodedLen(len(block))
		if cap(dst) < room {
			grown := make([]byte, start, max(room, 2*cap(dst)))
			copy(grown, dst)
			dst = grown
		}
		n := len(snappy.Encode(dst[start+4:room], block))
		binary.BigEndian.PutUint32(dst[start:start+4], uint32(n))
		dst = dst[:start+4+n]
	}
	return dst
}

var lz4Writers = sync.Pool{New: func() any { return lz4.NewWriter(nil) }}

func compressLZ4(level int, src, dst []byte) ([]byte, error) {
	lz4Level := lz4.Fast
	if level > 0 && level != lz4JavaDefault {
		lz4Level = lz4.CompressionLevel(1 << (8 + min(level, 9))) // Level1 is 1<<9
	}
	buf := bytes.NewBuffer(dst)
	w := lz4Writers.Get().(*lz4.Writer)
	w.Reset(buf)
	err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1),
		lz4.CompressionLevelOption(lz4Level))
	if err == nil {
		_, err = w.Write(src)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, err
	}
	w.Reset(nil) // drop the buffer
	lz4Writers.Put(w)
	return buf.Bytes(), nil
}

var zstdWriters [zstd.SpeedBestCompression + 1]sync.Pool // by encoder level

func compressZstd(level int, src, dst []byte) ([]byte, error) {
	speed := zstd.SpeedDefault
	if level != 0 {
		speed = zstd.EncoderLevelFromZstd(level)
	}
	w, ok := zstdWriters[speed].Get().(*zstd.Encoder)
	if !ok {
		var err error
		w, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(speed),
			zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true))
		if err != nil {
			return nil, err
		}
	}
	dst = w.EncodeAll(src, dst)
	zstdWriters[speed].Put(w)
	return dst, nil
}
