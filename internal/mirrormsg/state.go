package mirrormsg

import "fmt"

// State is where a mirror partition is (spec 7.1). The wished state of a topic is one of [Mirroring], [Paused],
// [Stopped], or [Unknown] for a topic in no mirror.
type State int8

// The partition states, with the numbers of the records and RPCs.
const (
	Unknown          State = -1
	LogTruncation    State = 0
	EpochFencing     State = 1
	ULELogTruncation State = 2
	Mirroring        State = 3
	Pausing          State = 4
	Paused           State = 5
	Stopping         State = 6
	Stopped          State = 7
	Failed           State = 8
)

// stateNames are indexed by the state's number plus one.
var stateNames = [...]string{"UNKNOWN", "LOG_TRUNCATION", "EPOCH_FENCING", "ULE_LOG_TRUNCATION", "MIRRORING", "PAUSING", "PAUSED", "STOPPING", "STOPPED", "FAILED"}

// Valid reports whether s is one of the states above.
func (s State) Valid() bool { return s >= Unknown && s <= Failed }

// String is the name that describe shows.
func (s State) String() string {
	if !s.Valid() {
		return fmt.Sprintf("STATE_%d", int8(s))
	}
	return stateNames[s+1]
}

// ParseState reads a state's name.
func ParseState(name string) (State, error) {
	for i, n := range stateNames {
		if n == name {
			return State(i - 1), nil
		}
	}
	return Unknown, fmt.Errorf("%q is no mirror state", name)
}

// CanFollow reports whether the coordinator accepts a partition's move from one state to another (spec 7.3, with
// FAILED allowed back to every working state, so that no partition is stuck in it). The same state again is a
// re-assertion, always legal.
func (s State) CanFollow(from State) bool {
	if s == from || s == Failed {
		return true
	}
	switch s {
	case LogTruncation:
		return from == Unknown || from == Stopped || from == Failed
	case EpochFencing, ULELogTruncation, Pausing:
		return from == Mirroring || from == Failed
	case Mirroring:
		return from == LogTruncation || from == EpochFencing || from == ULELogTruncation || from == Paused || from == Failed
	case Paused:
		return from == Pausing
	case Stopping:
		return from == EpochFencing || from == ULELogTruncation || from == Mirroring || from == Pausing || from == Paused || from == Failed
	case Stopped:
		return from == Stopping
	}
	return false
}

// JavaHash is the hash of java.lang.String: 31*h + c over UTF-16 code units in 32 bits, wrapping.
func JavaHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r < 0x10000 {
			h = 31*h + r
			continue
		}
		r -= 0x10000
		h = 31*h + (0xd800 + r>>10)
		h = 31*h + (0xdc00 + r&0x3ff)
	}
	return h
}

// Slot is the absolute value of [JavaHash] modulo n, the smallest integer counting as zero: it assigns keys to
// partitions of internal topics. n must be positive.
func Slot(key string, n int32) int32 {
	h := JavaHash(key)
	switch {
	case h == -1<<31:
		h = 0
	case h < 0:
		h = -h
	}
	return h % n
}
