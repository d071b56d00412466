package partlog

import (
	"encoding/binary"
	"fmt"

	"milena/internal/disk"
)

// The .txnindex of a segment lists the aborted transactions whose marker is in
// it, Kafka's layout, big-endian, rising by last offset:
//
//	int16 version = 0 | int64 producer id | int64 first offset |
//	int64 last offset (of the marker) | int64 last stable offset after it
//
// The file exists only if there is an entry.
const txnWidth = 34

type txnEntry struct {
	producerID          int64
	first, last, stable int64
}

func (e txnEntry) encode(b []byte) {
	binary.BigEndian.PutUint16(b, 0)
	binary.BigEndian.PutUint64(b[2:], uint64(e.producerID))
	binary.BigEndian.PutUint64(b[10:], uint64(e.first))
	binary.BigEndian.PutUint64(b[18:], uint64(e.last))
	binary.BigEndian.PutUint64(b[26:], uint64(e.stable))
}

func decodeTxn(b []byte) (txnEntry, error) {
	if v := binary.BigEndian.Uint16(b); v != 0 {
		return txnEntry{}, fmt.Errorf("%w: transaction index entry of version %d", ErrCorrupt, v)
	}
	e := txnEntry{
		producerID: int64(binary.BigEndian.Uint64(b[2:])),
		first:      int64(binary.BigEndian.Uint64(b[10:])),
		last:       int64(binary.BigEndian.Uint64(b[18:])),
		stable:     int64(binary.BigEndian.Uint64(b[26:])),
	}
	if e.first < 0 || e.last < e.first || e.stable < 0 {
		return txnEntry{}, fmt.Errorf("%w: transaction index entry %+v", ErrCorrupt, e)
	}
	return e, nil
}

// readTxnIndex reads a whole transaction index; a missing file is empty. On
// damage it returns the entries before it and an error that wraps ErrCorrupt.
func readTxnIndex(fsys disk.FS, name string) ([]txnEntry, error) {
	size, ok, err := fileSize(fsys, name)
	if err != nil || !ok || size == 0 {
		return nil, err
	}
	data, err := disk.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	out := make([]txnEntry, 0, len(data)/txnWidth)
	for len(data) >= txnWidth {
		e, err := decodeTxn(data)
		if err != nil {
			return out, fmt.Errorf("%s: %w", name, err)
		}
		if n := len(out); n > 0 && e.last <= out[n-1].last {
			return out, fmt.Errorf("%s: %w: entries do not rise", name, ErrCorrupt)
		}
		out = append(out, e)
		data = data[txnWidth:]
	}
	if len(data) > 0 {
		return out, fmt.Errorf("%s: %w: %d bytes after the last entry", name, ErrCorrupt, len(data))
	}
	return out, nil
}

func encodeTxns(entries []txnEntry) []byte {
	b := make([]byte, len(entries)*txnWidth)
	for i, e := range entries {
		e.encode(b[i*txnWidth:])
	}
	return b
}
