package record

import "fmt"

// Codec is a compression type by its number in a batch's attributes.
type Codec int8

// The compression types.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
)

// Valid says whether the type exists.
func (c Codec) Valid() bool { return c >= None && c <= Zstd }

func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("unknown(%d)", int8(c))
}

// ParseCodec returns the type with this name: none, uncompressed, gzip, snappy,
// lz4 or zstd.
func ParseCodec(name string) (Codec, error) {
	switch name {
	case "none", "uncompressed":
		return None, nil
	case "gzip":
		return Gzip, nil
	case "snappy":
		return Snappy, nil
	case "lz4":
		return LZ4, nil
	case "zstd":
		return Zstd, nil
	}
	return None, fmt.Errorf("%w %q; use none, gzip, snappy, lz4 or zstd", ErrCodec, name)
}

// Compression is a codec with its level. Level 0 is the codec's default.
type Compression struct {
	Codec Codec
	Level int // gzip 1..9, lz4 1..17, zstd -131072..22; snappy has none
}
