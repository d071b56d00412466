// Package mirrorstate is the coordinator of mirror partitions' states (KIP-1279; spec 3.6, 6.5 to 6.8, 7.3, 7.8): one
// Shard per partition of __mirror_state, a state machine on machine.Runtime.
//
// Invariants: a partition's state moves only along the legal transitions; a write that carries an older leader epoch
// or another state epoch than the current one changes nothing; a last mirror epoch is captured once per stop wish
// (spec D2). The highest leader epoch seen is recorded with every write and by the read of a new leader, so that it
// survives the coordinator.
package mirrorstate

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/mirrormsg"
)

// Key names a partition of a mirror.
type Key struct {
	Mirror    string
	TopicID   ids.UUID
	Partition int32
}

// Slot is the text that is hashed to find the partition of __mirror_state that owns the key.
func (k Key) Slot() string { return fmt.Sprintf("%s:%s:%d", k.Mirror, k.TopicID, k.Partition) }

func (k Key) compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Mirror, o.Mirror), slices.Compare(k.TopicID[:], o.TopicID[:]), cmp.Compare(k.Partition, o.Partition))
}

// Status is what the coordinator holds of a partition.
type Status struct {
	// State is UNKNOWN if none was ever written.
	State mirrormsg.State
	// LeaderEpoch is the highest leader epoch of the data partition seen, -1 if none.
	LeaderEpoch int32
	// StateEpoch counts the accepted writes.
	StateEpoch int32
	// Error is the text of FAILED.
	Error string
	// RetryAttempt counts automatic retries in FAILED; -1: not retryable.
	RetryAttempt int16
	// Previous is the state before FAILED.
	Previous mirrormsg.State
	// LastMirrorEpoch and LastMirrorOffset are what the last stop captured, -1 if there was none.
	LastMirrorEpoch  int32
	LastMirrorOffset int64
	// StopWish is the metadata offset of the wish that they were captured for, -1 if there was none.
	StopWish int64
}

// NoStatus is what holds of a partition of which nothing was ever written.
func NoStatus() Status {
	return Status{State: mirrormsg.Unknown, LeaderEpoch: -1, Previous: mirrormsg.Unknown, LastMirrorEpoch: -1, LastMirrorOffset: -1, StopWish: -1}
}

// Write is one change of a partition's status.
type Write struct {
	Key Key
	// State is the new state; UNKNOWN changes none and only stores the last mirror epoch.
	State mirrormsg.State
	// LeaderEpoch and StateEpoch fence the write; -1 skips the check.
	LeaderEpoch, StateEpoch int32
	// StopWish, if not -1, stores LastMirrorEpoch and LastMirrorOffset for that wish.
	StopWish         int64
	LastMirrorEpoch  int32
	LastMirrorOffset int64
	// Error, NonRetryable belong to FAILED. RetryAttempt, if not -1, is stored as it is.
	Error        string
	NonRetryable bool
	RetryAttempt int16
}

// Options configure a shard.
type Options struct {
	// MaxAttempts is mirror.failed.retry.max.attempts: the retry counter stops there.
	MaxAttempts int16
	Logger      *slog.Logger
}

// Shard is the state machine of one partition of __mirror_state. It is owned by its runtime's goroutine.
type Shard struct {
	opts  Options
	parts map[Key]*Status
}

// NewShard returns an empty shard, to be filled by a replay.
func NewShard(o Options) *Shard {
	return &Shard{opts: o, parts: map[Key]*Status{}}
}

// Loaded has nothing to start: mirror leaders drive all transitions.
func (s *Shard) Loaded(time.Time) {}

// Vet refuses records whose type or version is newer than this release. A tombstone takes away what isn't known anyway.
func (s *Shard) Vet(r machine.Record) error {
	if r.Value == nil {
		return nil
	}
	if err := mirrormsg.CheckVersion(r.Key, r.Value); errors.Is(err, mirrormsg.ErrUnknownRecord) {
		return err
	}
	return nil // what is malformed is for Apply to tell of
}

// Apply makes one record's change.
func (s *Shard) Apply(offset int64, r machine.Record) {
	k, err := mirrormsg.ParseKey(r.Key)
	if err != nil {
		s.opts.Logger.Error("record of __mirror_state ignored", "offset", offset, "error", err)
		return
	}
	key := Key{k.Mirror, k.TopicID, k.Partition}
	st := s.parts[key]
	if st == nil {
		n := NoStatus()
		st = &n
		s.parts[key] = st
	}
	switch k.Type {
	case mirrormsg.MirrorPartitionStateType:
		err = applyState(st, r.Value)
	case mirrormsg.LastMirrorEpochsType:
		err = applyEpochs(st, r.Value)
	}
	if err != nil {
		s.opts.Logger.Error("record of __mirror_state ignored", "offset", offset, "mirror", k.Mirror, "partition", k.Partition, "error", err)
	}
	if *st == NoStatus() {
		delete(s.parts, key) // both tombstones were met
	}
}

func applyState(st *Status, value []byte) error {
	if value == nil {
		n := NoStatus()
		n.LastMirrorEpoch, n.LastMirrorOffset, n.StopWish = st.LastMirrorEpoch, st.LastMirrorOffset, st.StopWish
		*st = n
		return nil
	}
	var v mirrormsg.MirrorPartitionStateValue
	if err := v.ReadFrom(value); err != nil {
		return err
	}
	st.State, st.RetryAttempt, st.Previous = mirrormsg.State(v.State), v.RetryAttempt, mirrormsg.State(v.PreviousState)
	st.LeaderEpoch, st.StateEpoch = max(st.LeaderEpoch, v.LeaderEpoch), max(st.StateEpoch, v.StateEpoch)
	st.Error = ""
	if v.ErrorMessage != nil {
		st.Error = *v.ErrorMessage
	}
	return nil
}

func applyEpochs(st *Status, value []byte) error {
	if value == nil {
		st.LastMirrorEpoch, st.LastMirrorOffset, st.StopWish = -1, -1, -1
		return nil
	}
	var v mirrormsg.LastMirrorEpochsValue
	if err := v.ReadFrom(value); err != nil {
		return err
	}
	st.LastMirrorEpoch, st.LastMirrorOffset, st.StopWish = v.LastMirrorEpoch, v.LastMirrorOffset, v.StopWishOffset
	return nil
}

// status returns a copy of what is held for a key.
func (s *Shard) status(k Key) Status {
	if st := s.parts[k]; st != nil {
		return *st
	}
	return NoStatus()
}

// Read is the command that answers the Status of each key, in order. A reader that leads the data partition gives its
// leader epoch (-1 otherwise): a newer one than seen before is remembered with a record, which fences its predecessor.
func (s *Shard) Read(keys []Key, epochs []int32) machine.Command {
	return func(time.Time) machine.Result {
		var res machine.Result
		out := make([]Status, len(keys))
		for i, k := range keys {
			st := s.status(k)
			if i < len(epochs) && epochs[i] > st.LeaderEpoch {
				st.LeaderEpoch = epochs[i]
				res.Records = append(res.Records, stateRecord(k, st))
			}
			out[i] = st
			res.Entities = append(res.Entities, k.Slot())
		}
		res.Reply = out
		return res
	}
}

// WriteResult answers one Write.
type WriteResult struct {
	// Status is what holds after the write, or what made it fail.
	Status Status
	// Err is an *api.Error if the write was refused: nothing of it was stored.
	Err error
}

// Write is the command that makes the writes, each by itself, and answers a []WriteResult.
func (s *Shard) Write(writes []Write) machine.Command {
	return func(time.Time) machine.Result {
		var res machine.Result
		out := make([]WriteResult, len(writes))
		pending := map[Key]Status{} // several writes of one key in one command see each other
		for i, w := range writes {
			st, ok := pending[w.Key]
			if !ok {
				st = s.status(w.Key)
			}
			next, records, err := s.write(st, w)
			if err != nil {
				out[i] = WriteResult{Status: st, Err: err}
			} else {
				res.Records = append(res.Records, records...)
				pending[w.Key] = next
				out[i] = WriteResult{Status: next}
			}
			res.Entities = append(res.Entities, w.Key.Slot())
		}
		res.Reply = out
		return res
	}
}

// write checks one write against st in the order of spec 7.8 and returns what st becomes and the records for it.
func (s *Shard) write(st Status, w Write) (Status, []machine.Record, error) {
	switch {
	case w.LeaderEpoch != -1 && st.LeaderEpoch > w.LeaderEpoch && mutant != "stale":
		return st, nil, api.Errorf(api.FencedLeaderEpoch, "leader epoch %d is older than %d, which was seen", w.LeaderEpoch, st.LeaderEpoch)
	case w.StateEpoch != -1 && st.StateEpoch != w.StateEpoch && mutant != "stale":
		return st, nil, api.Errorf(api.FencedStateEpoch, "state epoch %d is not the current %d", w.StateEpoch, st.StateEpoch)
	case !w.State.Valid():
		return st, nil, api.Errorf(api.InvalidRequest, "%s is no mirror state", w.State)
	case w.State != mirrormsg.Unknown && !w.State.CanFollow(st.State):
		return st, nil, api.Errorf(api.InvalidClusterMirrorStates, "a partition in state %s cannot become %s", st.State, w.State)
	}
	var records []machine.Record
	if w.StopWish != -1 && w.StopWish != st.StopWish {
		st.LastMirrorEpoch, st.LastMirrorOffset, st.StopWish = w.LastMirrorEpoch, w.LastMirrorOffset, w.StopWish
		k := mirrormsg.LastMirrorEpochsKey{MirrorName: w.Key.Mirror, TopicID: w.Key.TopicID, Partition: w.Key.Partition}
		v := mirrormsg.LastMirrorEpochsValue{LastMirrorEpoch: w.LastMirrorEpoch, StopWishOffset: w.StopWish, LastMirrorOffset: w.LastMirrorOffset}
		records = append(records, machine.Record{Key: k.AppendTo(nil), Value: v.AppendTo(nil)})
	}
	if w.State == mirrormsg.Unknown {
		return st, records, nil
	}
	s.enter(&st, w)
	st.LeaderEpoch = max(st.LeaderEpoch, w.LeaderEpoch)
	st.StateEpoch++
	if mutant == "stale" && w.LeaderEpoch >= 0 {
		st.LeaderEpoch = w.LeaderEpoch
	}
	return st, append(records, stateRecord(w.Key, st)), nil
}

// clears reports whether a failure is over with a change of state. A partition that is tried again at its beginning has not got
// beyond it: its retries are counted on, or they would never come to an end.
func clears(from, to mirrormsg.State) bool {
	switch to {
	case mirrormsg.Stopped, mirrormsg.Paused:
		return true
	case mirrormsg.LogTruncation:
		return from != mirrormsg.Failed
	default:
		return from == mirrormsg.LogTruncation && to == mirrormsg.Mirroring
	}
}

// enter sets the state and the failure fields that go with it.
func (s *Shard) enter(st *Status, w Write) {
	if w.State != mirrormsg.Failed {
		clears := clears(st.State, w.State)
		st.State = w.State
		switch {
		case clears || w.RetryAttempt == 0:
			st.Error, st.RetryAttempt, st.Previous = "", 0, mirrormsg.Unknown
		case w.RetryAttempt > 0:
			st.RetryAttempt = w.RetryAttempt
		}
		return
	}
	if st.State != mirrormsg.Failed {
		st.Previous = st.State
	}
	// A failure that no retry mends stays one, whatever fails after it.
	stays := st.State == mirrormsg.Failed && st.RetryAttempt == -1
	st.State, st.Error = mirrormsg.Failed, w.Error
	switch {
	case w.NonRetryable || stays:
		st.RetryAttempt = -1
	case w.RetryAttempt >= 0:
		st.RetryAttempt = w.RetryAttempt
	case st.RetryAttempt < max(s.opts.MaxAttempts, 1):
		st.RetryAttempt++
	}
}

func stateRecord(k Key, st Status) machine.Record {
	rk := mirrormsg.MirrorPartitionStateKey{MirrorName: k.Mirror, TopicID: k.TopicID, Partition: k.Partition}
	v := mirrormsg.MirrorPartitionStateValue{State: int8(st.State), LeaderEpoch: st.LeaderEpoch, StateEpoch: st.StateEpoch,
		RetryAttempt: st.RetryAttempt, PreviousState: int8(st.Previous)}
	if st.Error != "" {
		v.ErrorMessage = &st.Error
	}
	return machine.Record{Key: rk.AppendTo(nil), Value: v.AppendTo(nil)}
}

// Forget is the command that removes every partition whose key gone reports, with two tombstones each, the state's
// first (spec 6.7). It answers how many were removed.
func (s *Shard) Forget(gone func(Key) bool) machine.Command {
	return func(time.Time) machine.Result {
		var keys []Key
		for k := range s.parts {
			if gone(k) {
				keys = append(keys, k)
			}
		}
		slices.SortFunc(keys, Key.compare)
		res := machine.Result{Reply: len(keys)}
		for _, k := range keys {
			sk := mirrormsg.MirrorPartitionStateKey{MirrorName: k.Mirror, TopicID: k.TopicID, Partition: k.Partition}
			lk := mirrormsg.LastMirrorEpochsKey{MirrorName: k.Mirror, TopicID: k.TopicID, Partition: k.Partition}
			res.Records = append(res.Records, machine.Record{Key: sk.AppendTo(nil)}, machine.Record{Key: lk.AppendTo(nil)})
			res.Entities = append(res.Entities, k.Slot())
		}
		if len(keys) == 0 {
			res.NoWait = true
		}
		return res
	}
}

// Keys are the partitions of a mirror the shard holds something for, all mirrors' if the name is empty, in order.
func (s *Shard) Keys(mirror string) []Key {
	var keys []Key
	for k := range s.parts {
		if mirror == "" || k.Mirror == mirror {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, Key.compare)
	return keys
}
