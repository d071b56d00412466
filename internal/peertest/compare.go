package peertest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"iter"

	"milena/internal/record"
)

// Comparison is what two equal sequences of batches have in common.
type Comparison struct {
	Batches, Records, Bytes int64
	// SHA256 is over all bytes compared.
	SHA256 [32]byte
}

// CompareOptions limit what is compared.
type CompareOptions struct {
	// From leaves out batches that end before this offset: a log start may lie inside a segment.
	From int64
	// To, if above 0, leaves out batches that begin at or after this offset.
	To int64
}

// Compare reads the batches of two copies of a partition from their segment files and wants them equal byte for
// byte: offsets, leader epochs, checksums, order and number. Where segments begin does not matter. The error names the
// first difference.
func Compare(dirA, dirB string, o CompareOptions) (Comparison, error) {
	var c Comparison
	sum := sha256.New()
	nextA, stopA := iter.Pull2(bounded(dirA, o))
	defer stopA()
	nextB, stopB := iter.Pull2(bounded(dirB, o))
	defer stopB()
	for {
		a, errA, okA := nextA()
		b, errB, okB := nextB()
		switch {
		case okA && errA != nil:
			return c, errA
		case okB && errB != nil:
			return c, errB
		case !okA && !okB:
			c.SHA256 = [32]byte(sum.Sum(nil))
			return c, nil
		case !okA:
			return c, fmt.Errorf("%s ends after %d batches; %s goes on with %s", dirA, c.Batches, dirB, describe(b))
		case !okB:
			return c, fmt.Errorf("%s ends after %d batches; %s goes on with %s", dirB, c.Batches, dirA, describe(a))
		case !bytes.Equal(a, b):
			return c, fmt.Errorf("batch %d differs: %s has %s, %s has %s (first different byte: %d)",
				c.Batches, dirA, describe(a), dirB, describe(b), firstDifference(a, b))
		}
		sum.Write(a)
		c.Batches++
		c.Records += int64(a.Count())
		c.Bytes += a.Len()
	}
}

func bounded(dir string, o CompareOptions) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		for b, err := range Batches(dir) {
			if err == nil && b.LastOffset() < o.From {
				continue
			}
			if err == nil && o.To > 0 && b.BaseOffset() >= o.To {
				return
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

func describe(b record.Batch) string {
	return fmt.Sprintf("offsets %d to %d, epoch %d, %d records, %d bytes, codec %s, crc %08x",
		b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), b.Count(), b.Len(), b.Codec(), b.CRC())
}

func firstDifference(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
