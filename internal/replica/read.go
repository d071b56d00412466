package replica

import (
	"errors"
	"time"

	"milena/internal/api"
	"milena/internal/partlog"
	"milena/internal/record"
)

// ReadParams say what a fetch may see.
type ReadParams struct {
	Offset       int64
	MaxBytes     int
	MinOne       bool  // return the first batch even if it is bigger than MaxBytes
	ReplicaID    int32 // a follower's id; -1: a consumer, bounded by the high watermark
	ReplicaStart int64 // the follower's log start
	Committed    bool  // read_committed: bounded by the last stable offset
	CurrentEpoch int32 // -1: not given
	LastFetched  int32 // LastFetchedEpoch, -1: not given
}

// ReadResult is a partition's part of a fetch.
type ReadResult struct {
	// Spans are the bytes of whole batches, but for the last, which may be
	// cut. The receiver releases them.
	Spans         []record.Span
	Bytes         int
	HighWatermark int64
	LastStable    int64
	LogStart      int64
	// Aborted lists the aborted transactions in Spans; nil unless Committed.
	Aborted []partlog.AbortedTxn
	// DivergingEpoch and DivergingEnd say where the reader's log leaves the
	// leader's (KIP-595); -1 if it doesn't.
	DivergingEpoch int32
	DivergingEnd   int64
	// More says that there is data at Offset that the reader may see,
	// returned or not.
	More bool
}

// nothing is the result that goes with an error.
var nothing = ReadResult{HighWatermark: -1, LastStable: -1, LogStart: -1, DivergingEpoch: -1, DivergingEnd: -1}

// Diverges reports whether the reader has to truncate first.
func (r *ReadResult) Diverges() bool { return r.DivergingEpoch >= 0 }

// Release releases the spans.
func (r *ReadResult) Release() {
	for i := range r.Spans {
		r.Spans[i].Release()
	}
	r.Spans = nil
}

// Read reads from the leader for a fetch. Errors carry FENCED_LEADER_EPOCH,
// UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE or
// KAFKA_STORAGE_ERROR.
func (p *Partition) Read(rp ReadParams) (ReadResult, error) {
	s, err := p.leading(rp.CurrentEpoch)
	if err != nil {
		return nothing, err
	}
	start := p.log.StartOffset()
	if rp.LastFetched >= 0 {
		r, diverges, err := p.divergence(s, rp, start)
		if diverges || err != nil {
			return r, err
		}
	}
	if rp.ReplicaID >= 0 && !p.Followed(rp.ReplicaID, rp.Offset, rp.ReplicaStart, time.Now()) {
		return nothing, api.Errorf(api.NotLeaderOrFollower, "broker %d has no replica of %s", rp.ReplicaID, p.name())
	}
	r := p.marks(start)
	upTo := r.HighWatermark
	switch {
	case rp.ReplicaID >= 0:
		upTo = p.log.EndOffset()
	case rp.Committed:
		upTo = r.LastStable
	}
	if rp.Offset < start || rp.Offset > upTo && rp.Offset > p.log.EndOffset() {
		return nothing, p.errOutOfRange(rp.Offset, start)
	}
	r.More = rp.Offset < upTo
	if !r.More || rp.MaxBytes <= 0 && !rp.MinOne {
		return r, nil
	}
	info, err := p.log.Read(rp.Offset, rp.MaxBytes, upTo, rp.MinOne)
	if err != nil {
		if errors.Is(err, partlog.ErrOffsetOutOfRange) {
			return nothing, p.errOutOfRange(rp.Offset, p.log.StartOffset())
		}
		return nothing, p.readError(err)
	}
	r.Spans, r.Bytes = info.Spans, info.Bytes
	if rp.Committed && r.Bytes > 0 {
		// The range read ends at upTo at the latest; a list that covers more
		// than was returned does no harm to the reader.
		if r.Aborted, err = p.log.AbortedTxns(rp.Offset, upTo); err != nil {
			r.Release()
			return nothing, p.readError(err)
		}
	}
	return r, nil
}

// marks is a result without records.
func (p *Partition) marks(start int64) ReadResult {
	hw := p.hw.Load()
	return ReadResult{
		HighWatermark: hw, LastStable: p.log.LastStableOffset(hw), LogStart: start,
		DivergingEpoch: -1, DivergingEnd: -1,
	}
}

// damageInterval is how often the damage of one partition is logged again.
const damageInterval = time.Minute

// readError turns what a read failed with into what the client gets. Damage is
// CORRUPT_MESSAGE and said in the log: under a retriable storage error clients
// would try again for ever, and nobody would know.
func (p *Partition) readError(err error) error {
	if !errors.Is(err, partlog.ErrCorrupt) {
		return p.storageError(err)
	}
	now := time.Now().UnixNano()
	if last := p.damaged.Load(); (last == 0 || now-last >= int64(damageInterval)) && p.damaged.CompareAndSwap(last, now) {
		p.m.log.Error("log is damaged, reads of it fail", "topic", p.topic.name, "partition", p.index, "error", err)
	}
	return &api.Error{Code: api.CorruptMessage, Message: "the log of " + p.name() + " is damaged", Err: err}
}

func (p *Partition) errOutOfRange(off, start int64) error {
	return api.Errorf(api.OffsetOutOfRange, "offset %d of %s is outside %d to %d", off, p.name(), start, p.log.EndOffset())
}

// divergence compares the reader's last epoch and offset with the log (spec
// A.4). A log that never had a batch has nothing to disagree with: the range
// check decides.
func (p *Partition) divergence(s *state, rp ReadParams, start int64) (ReadResult, bool, error) {
	if rp.LastFetched > s.epoch {
		return nothing, false, p.errOutOfRange(rp.Offset, start)
	}
	epoch, end := p.log.EpochEnd(rp.LastFetched)
	if epoch < 0 {
		return nothing, false, nil
	}
	if rp.Offset < start {
		return nothing, false, p.errOutOfRange(rp.Offset, start)
	}
	if epoch == rp.LastFetched && end >= rp.Offset {
		return nothing, false, nil
	}
	r := p.marks(start)
	r.DivergingEpoch, r.DivergingEnd = epoch, end
	return r, true, nil
}

// EpochEnd answers OffsetForLeaderEpoch by decision D1: an epoch above the
// latest in the log and not above the leader's own gets (latest, log end),
// (-1, log end) if the log never had a batch; undefined is (-1, -1).
// current, if not negative, must be the partition's leader epoch.
func (p *Partition) EpochEnd(current, epoch int32) (int32, int64, error) {
	s, err := p.leading(current)
	if err != nil {
		return -1, -1, err
	}
	if epoch < 0 || epoch > s.epoch {
		return -1, -1, nil
	}
	e, end := p.log.EpochEnd(epoch)
	return e, end, nil
}

// Isolation says up to where an offset lookup sees.
type Isolation int8

// Isolations: consumers by isolation level, and replicas, which see all.
const (
	ReadUncommitted Isolation = iota
	ReadCommitted
	ReadAll
)

// Times of an offset lookup that stand for a place instead.
const (
	TimeLatest        int64 = -1
	TimeEarliest      int64 = -2
	TimeMax           int64 = -3
	TimeEarliestLocal int64 = -4
	TimeLatestTiered  int64 = -5
	TimeUpload        int64 = -6
)

// FindOffset is the lookup of ListOffsets: the first offset at or after time
// (ms), or one of the places. An offset of -1 means that there is none. While
// a new leader's high watermark lags what the leader before it committed the
// error is OFFSET_NOT_AVAILABLE, for consumers.
func (p *Partition) FindOffset(current int32, time int64, iso Isolation) (partlog.TimestampOffset, error) {
	none := partlog.TimestampOffset{Timestamp: -1, Offset: -1, Epoch: -1}
	s, err := p.leading(current)
	if err != nil {
		return none, err
	}
	hw := p.hw.Load()
	visible := hw
	switch iso {
	case ReadCommitted:
		visible = p.log.LastStableOffset(hw)
	case ReadAll:
		visible = p.log.EndOffset()
	}
	if iso != ReadAll && hw < s.epochStart && time != TimeEarliest && time != TimeEarliestLocal {
		return none, api.Errorf(api.OffsetNotAvailable, "the new leader of %s doesn't know yet what is committed; try again", p.name())
	}
	var at partlog.TimestampOffset
	switch {
	case time == TimeLatest:
		// The epoch of what is below: a reader that starts there has seen
		// nothing yet and takes it as its last fetched epoch.
		return partlog.TimestampOffset{Timestamp: -1, Offset: visible, Epoch: p.log.LatestEpoch()}, nil
	case time == TimeEarliest, time == TimeEarliestLocal:
		start := p.log.StartOffset()
		return partlog.TimestampOffset{Timestamp: -1, Offset: start, Epoch: p.log.EpochFor(start)}, nil
	case time == TimeLatestTiered, time == TimeUpload:
		return none, nil // nothing is tiered
	case time == TimeMax:
		at, err = p.log.MaxTimestampOffset()
	case time < 0:
		return none, api.Errorf(api.UnsupportedVersion, "time %d is not known to ListOffsets", time)
	default:
		at, err = p.log.OffsetForTimestamp(time)
	}
	if err != nil {
		return none, p.readError(err)
	}
	if at.Offset < 0 || at.Offset >= visible {
		return none, nil
	}
	return at, nil
}
