package record

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels. What a caller answers to a client stands beside each.
var (
	// ErrCorrupt: length or checksum don't fit the bytes (CORRUPT_MESSAGE, which
	// makes a client send again).
	ErrCorrupt = errors.New("corrupt record batch")
	// ErrInvalid: intact, but against a rule or with a payload that can't be read
	// (INVALID_RECORD, which a client takes as final).
	ErrInvalid = errors.New("invalid record")
	// ErrNoKey is ErrInvalid for a record without key in a compacted topic.
	ErrNoKey = fmt.Errorf("%w: no key", ErrInvalid)
	// ErrMagic: a message set of magic 0 or 1, written by clients before 0.11
	// (INVALID_RECORD in a Produce, UNSUPPORTED_FOR_MESSAGE_FORMAT elsewhere).
	// It never comes with ErrCorrupt.
	ErrMagic = errors.New("unsupported record format")
	// ErrCodec: a compression type that does not exist (UNSUPPORTED_COMPRESSION_TYPE).
	ErrCodec = errors.New("unknown compression type")
	// ErrTooLarge: the payload decompresses to more than the limit
	// (INVALID_RECORD in a Produce). It comes without ErrCorrupt.
	ErrTooLarge = errors.New("decompressed records exceed the limit")
	// ErrTimestamp: a record's timestamp is out of bounds (INVALID_TIMESTAMP).
	ErrTimestamp = errors.New("invalid timestamp")
)

// RecordError is what is wrong with one record of a batch.
type RecordError struct {
	Index   int32 // position in the batch, from 0
	Message string
}

// InvalidRecordsError lists the records of a batch that break a rule. It wraps
// ErrInvalid or ErrTimestamp.
type InvalidRecordsError struct {
	Records []RecordError // at least one, at most maxRecordErrors
	Kind    error         // ErrInvalid, ErrNoKey or ErrTimestamp
}

func (e *InvalidRecordsError) Error() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "%v: %d record(s) refused", e.Kind, len(e.Records))
	if len(e.Records) > 0 {
		fmt.Fprintf(&sb, ", first: record %d: %s", e.Records[0].Index, e.Records[0].Message)
	}
	return sb.String()
}

// Unwrap returns the kind.
func (e *InvalidRecordsError) Unwrap() error { return e.Kind }
