package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"milena/internal/record"
)

// segmentBatches reads the batches of a partition from its segment files, in order, checking each one's checksum.
func segmentBatches(dir string) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		files, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil {
			yield(nil, err)
			return
		}
		if len(files) == 0 {
			yield(nil, fmt.Errorf("%s holds no segment file", dir))
			return
		}
		slices.Sort(files) // names are offsets of equal width
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				yield(nil, err)
				return
			}
			for batch, err := range record.Batches(b) {
				if err == nil {
					err = batch.CheckCRC()
				}
				if err != nil {
					yield(nil, fmt.Errorf("%s: %w", name, err))
					return
				}
				if !yield(batch, nil) {
					return
				}
			}
		}
	}
}

// tally is what a comparison went through.
type tally struct {
	batches, bytes, records int64
	gaps                    int64 // offsets that compaction took out
	codecs                  map[record.Codec]int64
}

// compareSegments reads both sides' segment files of every partition and demands the same batches, byte for byte. With more,
// the second side may have further batches behind the first one's.
func compareSegments(a, b *cluster, parts []partition, more bool) (tally, error) {
	t := tally{codecs: map[record.Codec]int64{}}
	for _, p := range parts {
		if err := t.compare(a.partitionDir(p.topic, p.number), b.partitionDir(p.topic, p.number), more); err != nil {
			return t, fmt.Errorf("%s: %w", p, err)
		}
	}
	return t, nil
}

func (t *tally) compare(a, b string, more bool) error {
	next, stop := iter.Pull2(segmentBatches(b))
	defer stop()
	end := int64(0)
	for want, err := range segmentBatches(a) {
		if err != nil {
			return err
		}
		got, err, ok := next()
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("the mirror ends before the source's batch of offsets %d to %d", want.BaseOffset(), want.LastOffset())
		case !bytes.Equal(want, got):
			return fmt.Errorf("the source's batch of offsets %d to %d differs from the mirror's of %d to %d", want.BaseOffset(), want.LastOffset(), got.BaseOffset(), got.LastOffset())
		}
		t.batches++
		t.bytes += int64(len(want))
		t.gaps += want.NextOffset() - end - int64(want.Count())
		end = want.NextOffset()
		if !want.IsControl() {
			t.records += int64(want.Count())
			t.codecs[want.Codec()]++
		}
	}
	if got, err, ok := next(); ok && !more {
		if err != nil {
			return err
		}
		return fmt.Errorf("the mirror has a batch of offsets %d to %d that the source has not", got.BaseOffset(), got.LastOffset())
	}
	return nil
}

// compareGroups demands that every offset which the groups committed on a is committed alike on b, and nothing else is. It
// returns how many offsets it compared.
func compareGroups(ctx context.Context, a, b *cluster, groups []string) (int, error) {
	n := 0
	for _, g := range groups {
		want, err := a.adm.FetchOffsets(ctx, g)
		if err != nil {
			return n, err
		}
		got, err := b.adm.FetchOffsets(ctx, g)
		if err != nil {
			return n, err
		}
		if len(want.Sorted()) == 0 {
			return n, fmt.Errorf("group %s committed nothing", g)
		}
		for _, w := range want.Sorted() {
			o, ok := got.Lookup(w.Topic, w.Partition)
			if !ok || o.At != w.At || o.LeaderEpoch != w.LeaderEpoch || o.Metadata != w.Metadata {
				return n, fmt.Errorf("group %s on %s-%d: the source has offset %d (epoch %d, metadata %q), the mirror %d (%d, %q)",
					g, w.Topic, w.Partition, w.At, w.LeaderEpoch, w.Metadata, o.At, o.LeaderEpoch, o.Metadata)
			}
			n++
		}
		if len(got.Sorted()) != len(want.Sorted()) {
			return n, errors.New("group " + g + ": the mirror has offsets that the source has not")
		}
	}
	return n, nil
}
