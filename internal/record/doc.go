// Package record reads, checks, rewrites and builds Kafka's record batches
// (magic 2, KIP-98), and describes bytes of them in memory or in a file ([Span]).
//
// A [Batch] is a view on bytes: accessors decode a field when asked, setters
// change it in place. Base offset and leader epoch lie outside the checksum, so a
// leader stamps them without touching it. Nothing here trusts its input: lengths
// are checked before use, decompression is bounded, damaged input is an error
// that wraps one of the sentinels, never a panic.
//
//	offset  0  base offset          int64
//	        8  batch length         int32   bytes after this field
//	       12  leader epoch         int32
//	       16  magic                int8    2
//	       17  crc                  uint32  CRC-32C of all bytes after it
//	       21  attributes           int16   0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
//	       23  last offset delta    int32
//	       27  base timestamp       int64   ms; the delete horizon if bit 6 is set (KIP-534)
//	       35  max timestamp        int64   ms
//	       43  producer id          int64
//	       51  producer epoch       int16
//	       53  base sequence        int32
//	       57  record count         int32
//	       61  records, compressed as one
package record
