package partlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"milena/internal/disk"
)

// A producer snapshot OFFSET.snapshot holds the producer state as of OFFSET
// (exclusive), Kafka's format, big-endian:
//
//	int16 version = 1 | uint32 CRC-32C of the rest | int32 n | n entries:
//	int64 producer id | int16 epoch | int32 last sequence | int64 last offset |
//	int32 offset delta | int64 timestamp | int32 coordinator epoch |
//	int64 first offset of the open transaction, -1
const (
	snapshotVersion = 1
	snapshotHeader  = 2 + 4 + 4
	snapshotEntry   = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

func encodeSnapshot(list []producer) []byte {
	b := make([]byte, snapshotHeader, snapshotHeader+len(list)*snapshotEntry)
	binary.BigEndian.PutUint16(b, snapshotVersion)
	binary.BigEndian.PutUint32(b[6:], uint32(len(list)))
	be := binary.BigEndian
	for i := range list {
		p := &list[i]
		m := batchMeta{lastSeq: -1, lastOffset: -1}
		if p.n > 0 {
			m = p.batches[p.n-1]
		}
		b = be.AppendUint64(b, uint64(p.id))
		b = be.AppendUint16(b, uint16(p.epoch))
		b = be.AppendUint32(b, uint32(m.lastSeq))
		b = be.AppendUint64(b, uint64(m.lastOffset))
		b = be.AppendUint32(b, uint32(m.offsetDelta))
		b = be.AppendUint64(b, uint64(p.lastTime))
		b = be.AppendUint32(b, uint32(p.coordEpoch))
		b = be.AppendUint64(b, uint64(p.txnStart))
	}
	be.PutUint32(b[2:], crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// decodeSnapshot reads a producer snapshot; damage wraps ErrCorrupt, a newer version ErrNewerFormat: what a newer release
// keeps there may be in no segment any more.
func decodeSnapshot(b []byte) ([]producer, error) {
	if len(b) < snapshotHeader {
		return nil, fmt.Errorf("%w: producer snapshot of %d bytes", ErrCorrupt, len(b))
	}
	be := binary.BigEndian
	switch v := int16(be.Uint16(b)); {
	case v > snapshotVersion && v < 256: // above that it is no version but scribbles
		return nil, fmt.Errorf("%w: producer snapshot of version %d, this release reads %d", ErrNewerFormat, v, snapshotVersion)
	case v != snapshotVersion:
		return nil, fmt.Errorf("%w: producer snapshot of version %d", ErrCorrupt, v)
	}
	if be.Uint32(b[2:]) != crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli)) {
		return nil, fmt.Errorf("%w: producer snapshot has a wrong checksum", ErrCorrupt)
	}
	n := int64(be.Uint32(b[6:]))
	if int64(len(b)-snapshotHeader) != n*snapshotEntry {
		return nil, fmt.Errorf("%w: producer snapshot of %d bytes with %d entries", ErrCorrupt, len(b), n)
	}
	out := make([]producer, 0, n)
	for b = b[snapshotHeader:]; len(b) > 0; b = b[snapshotEntry:] {
		p := producer{
			id:         int64(be.Uint64(b)),
			epoch:      int16(be.Uint16(b[8:])),
			lastTime:   int64(be.Uint64(b[26:])),
			coordEpoch: int32(be.Uint32(b[34:])),
			txnStart:   int64(be.Uint64(b[38:])),
		}
		m := batchMeta{
			lastSeq:     int32(be.Uint32(b[10:])),
			lastOffset:  int64(be.Uint64(b[14:])),
			offsetDelta: int32(be.Uint32(b[22:])),
			timestamp:   p.lastTime,
		}
		if m.lastOffset >= 0 {
			p.add(m)
		}
		out = append(out, p)
	}
	return out, nil
}

// takeSnapshot writes the producer state. The caller holds the log's lock, so
// that the state belongs to the log end.
func (l *Log) takeSnapshot() error {
	ps := l.producers
	if ps.end == ps.snapshot {
		return nil
	}
	name := l.path(offsetName(ps.end) + snapshotSuffix)
	if err := disk.WriteFileAtomic(l.opts.FS, name, encodeSnapshot(ps.list())); err != nil {
		return err
	}
	ps.snapshot = ps.end
	return nil
}

// snapshots lists the offsets of the producer snapshots, rising.
func (l *Log) snapshots() ([]int64, error) {
	entries, err := l.opts.FS.ReadDir(l.opts.Dir)
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), snapshotSuffix); ok {
			if off, ok := parseOffsetName(base); ok {
				out = append(out, off)
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out, nil
}

// loadSnapshot loads the newest readable snapshot of at most end and removes
// those that are newer or damaged. Without one the state is empty as of the
// log start.
func (l *Log) loadSnapshot(end int64, now time.Time) error {
	offs, err := l.snapshots()
	if err != nil {
		return err
	}
	cfg := l.Config()
	l.producers.snapshot = -1
	for i := len(offs) - 1; i >= 0; i-- {
		name := filepath.Join(l.opts.Dir, offsetName(offs[i])+snapshotSuffix)
		if offs[i] <= end && l.producers.snapshot < 0 {
			data, err := disk.ReadFile(l.opts.FS, name)
			if err != nil {
				return err
			}
			list, err := decodeSnapshot(data)
			if err == nil {
				live := list[:0]
				for _, p := range list {
					if !p.expired(now, cfg.ProducerIDExpiration) {
						live = append(live, p)
					}
				}
				l.producers.load(live, offs[i])
				l.producers.snapshot = offs[i]
				continue
			}
			if !errors.Is(err, ErrCorrupt) {
				return fmt.Errorf("%s: %w", name, err)
			}
			l.log.Warn("producer snapshot is damaged and left out", "file", name, "error", err)
		} else if offs[i] <= end {
			continue
		}
		if err := removeIfExists(l.opts.FS, name); err != nil {
			return err
		}
	}
	if l.producers.snapshot < 0 {
		l.producers.clear(l.start.Load())
	}
	return nil
}

// pruneSnapshots removes snapshots that neither belong to a segment nor are the newest.
func (l *Log) pruneSnapshots(v *view) error {
	offs, err := l.snapshots()
	if err != nil {
		return err
	}
	for _, off := range offs {
		i := v.find(off)
		if off == l.producers.snapshot || (i >= 0 && v.segs[i].base == off) {
			continue
		}
		if err := l.removeSnapshot(off); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) removeSnapshot(off int64) error {
	return removeIfExists(l.opts.FS, l.path(offsetName(off)+snapshotSuffix))
}
