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
	ReplicaEpoch int64 // the follower's broker epoch, -1: not given
	AnyReplica   bool  // a consumer that may read from a follower (KIP-392)
	// Rack is the consumer's, where it may be sent to a closer replica; "": none.
	Rack         string
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
	// Turn is that of the partition when it was looked at: a follower is told of each.
	Turn int64
	// Preferred is the replica that the consumer should read from instead, -1:
	// none. Then nothing was read.
	Preferred int32
}

// nothing is the result that goes with an error.
var nothing = ReadResult{HighWatermark: -1, LastStable: -1, LogStart: -1, DivergingEpoch: -1, DivergingEnd: -1, Preferred: -1}

// Diverges reports whether the reader has to truncate first.
func (r *ReadResult) Diverges() bool { return r.DivergingEpoch >= 0 }

// Release releases the spans.
func (r *ReadResult) Release() {
	for i := range r.Spans {
		r.Spans[i].Release()
	}
	r.Spans = nil
}

// Read reads for a fetch: from the leader, or from a follower for consumers
// that may. Errors carry FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
// NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR.
func (p *Partition) Read(rp ReadParams) (ReadResult, error) {
	s, err := p.serving(rp)
	if err != nil {
		return nothing, err
	}
	start := p.l().StartOffset()
	if rp.ReplicaID >= 0 && s.self {
		if to := p.mustCut(rp.ReplicaID, rp.Offset, rp.LastFetched); to >= 0 {
			r := p.marks(start)
			r.HighWatermark, r.DivergingEpoch, r.DivergingEnd = -1, rp.LastFetched, to
			return r, nil
		}
	}
	if rp.LastFetched >= 0 && s.self { // a follower that lags behind would seem to diverge
		r, diverges, err := p.divergence(s, rp, start)
		if diverges || err != nil {
			return r, err
		}
	}
	if end := p.l().EndOffset(); rp.Offset < start || rp.Offset > end {
		if rp.Offset > end && s.self && p.outdated() {
			return nothing, p.errOutdated()
		}
		return nothing, p.errOutOfRange(rp.Offset, start)
	}
	if rp.ReplicaID >= 0 {
		ff := FollowerFetch{Broker: rp.ReplicaID, Epoch: s.epoch, BrokerEpoch: rp.ReplicaEpoch, Offset: rp.Offset, LogStart: rp.ReplicaStart}
		if err := p.Followed(ff, time.Now()); err != nil {
			return nothing, err
		}
	}
	r := p.marks(start)
	upTo := r.HighWatermark
	throttled := false
	switch {
	case rp.ReplicaID >= 0:
		upTo = p.l().EndOffset()
		if p.aligning(s) {
			r.HighWatermark = -1
		}
		throttled = p.leaderThrottled(s, rp.ReplicaID)
	case rp.Committed:
		upTo = r.LastStable
	}
	if rp.Rack != "" && s.self && !p.aligning(s) {
		if r.Preferred = p.preferred(s, rp.Rack, rp.Offset); r.Preferred >= 0 {
			return r, nil
		}
	}
	r.More = rp.Offset < upTo
	if !r.More || rp.MaxBytes <= 0 && !rp.MinOne || throttled && p.m.quotas[leaderQuota].exceeded(time.Now()) {
		return r, nil
	}
	log := p.l()
	info, err := log.Read(rp.Offset, rp.MaxBytes, upTo, rp.MinOne)
	if errors.Is(err, partlog.ErrClosed) && log != p.l() { // it moved to another directory
		info, err = p.l().Read(rp.Offset, rp.MaxBytes, upTo, rp.MinOne)
	}
	if err != nil {
		if errors.Is(err, partlog.ErrOffsetOutOfRange) {
			return nothing, p.errOutOfRange(rp.Offset, p.l().StartOffset())
		}
		return nothing, p.readError(err)
	}
	r.Spans, r.Bytes = info.Spans, info.Bytes
	if throttled {
		p.m.quotas[leaderQuota].use(r.Bytes, time.Now())
	}
	if rp.Committed && r.Bytes > 0 {
		// The range read ends at upTo at the latest; a list that covers more
		// than was returned does no harm to the reader.
		if r.Aborted, err = p.l().AbortedTxns(rp.Offset, upTo); err != nil {
			r.Release()
			return nothing, p.readError(err)
		}
	}
	return r, nil
}

// serving returns the state if this replica answers the fetch.
func (p *Partition) serving(rp ReadParams) (*state, error) {
	s, err := p.leading(rp.CurrentEpoch)
	if err == nil || !rp.AnyReplica || rp.ReplicaID >= 0 {
		return s, err
	}
	// The epoch is checked for followers too; only that they don't lead is no error.
	if s := p.st.Load(); s.gone == nil && !s.self && s.leader != p.m.opts.NodeID && (rp.CurrentEpoch < 0 || rp.CurrentEpoch == s.epoch) {
		if !p.openTo(s) {
			return nil, api.Errorf(api.NotLeaderOrFollower, "%s is being aligned with another cluster; read from its leader", p.name())
		}
		return s, nil
	}
	return nil, err
}

// preferred is the in-sync replica that a consumer in a rack should read from
// instead of this leader (KIP-392): in its rack, having the offset, and of
// those the one that has most; -1 if there is none, or the leader is in the rack.
func (p *Partition) preferred(s *state, rack string, offset int64) int32 {
	img := p.m.Image()
	inRack := func(id int32) bool {
		b := img.Broker(id)
		return b != nil && !b.Fenced && b.Rack != nil && *b.Rack == rack
	}
	if inRack(p.m.opts.NodeID) {
		return -1
	}
	p.hwMu.Lock()
	defer p.hwMu.Unlock()
	best, most := int32(-1), int64(-1)
	for _, id := range s.isr {
		f := p.followers[id]
		if f == nil || f.end < offset || f.start > offset || f.end <= most || !inRack(id) {
			continue
		}
		best, most = id, f.end
	}
	return best
}

// marks is a result without records.
func (p *Partition) marks(start int64) ReadResult {
	hw := p.hw.Load()
	return ReadResult{
		Turn: p.turn.Load(), HighWatermark: hw, LastStable: p.l().LastStableOffset(hw), LogStart: start,
		DivergingEpoch: -1, DivergingEnd: -1, Preferred: -1,
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

// outdated reports whether this broker, cut off from the controller or behind
// its metadata, may take itself for a leader that it isn't any more. A reader
// that knows offsets or epochs above its own has them from the leader after it
// then, and would take a definite answer for a loss.
func (p *Partition) outdated() bool { return p.m.opts.Current != nil && !p.m.opts.Current() }

func (p *Partition) errOutdated() error {
	return api.Errorf(api.UnknownLeaderEpoch, "this broker hasn't heard from the controller lately and may lead %s no longer; try again", p.name())
}

func (p *Partition) errOutOfRange(off, start int64) error {
	return api.Errorf(api.OffsetOutOfRange, "offset %d of %s is outside %d to %d", off, p.name(), start, p.l().EndOffset())
}

// divergence compares the reader's last epoch and offset with the log (spec
// A.4). A log that never had a batch has nothing to disagree with: the range
// check decides.
func (p *Partition) divergence(s *state, rp ReadParams, start int64) (ReadResult, bool, error) {
	if rp.LastFetched > s.epoch {
		if p.outdated() {
			return nothing, false, p.errOutdated()
		}
		return nothing, false, p.errOutOfRange(rp.Offset, start)
	}
	epoch, end := p.l().EpochEnd(rp.LastFetched)
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
// (-1, log end) if the log never had a batch; undefined is (-1, -1), as is an
// epoch above the leader's own, unless this broker is outdated.
// current, if not negative, must be the partition's leader epoch.
func (p *Partition) EpochEnd(current, epoch int32) (int32, int64, error) {
	s, err := p.leading(current)
	if err != nil {
		return -1, -1, err
	}
	if epoch > s.epoch && p.outdated() {
		return -1, -1, p.errOutdated()
	}
	if epoch < 0 || epoch > s.epoch {
		return -1, -1, nil
	}
	e, end := p.l().EpochEnd(epoch)
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
		visible = p.l().LastStableOffset(hw)
	case ReadAll:
		visible = p.l().EndOffset()
	}
	if iso != ReadAll && hw < s.epochStart && time != TimeEarliest && time != TimeEarliestLocal {
		return none, api.Errorf(api.OffsetNotAvailable, "the new leader of %s doesn't know yet what is committed; try again", p.name())
	}
	var at partlog.TimestampOffset
	switch {
	case time == TimeLatest:
		// The epoch of what is below: a reader that starts there has seen
		// nothing yet and takes it as its last fetched epoch.
		return partlog.TimestampOffset{Timestamp: -1, Offset: visible, Epoch: p.l().LatestEpoch()}, nil
	case time == TimeEarliest, time == TimeEarliestLocal:
		start := p.l().StartOffset()
		return partlog.TimestampOffset{Timestamp: -1, Offset: start, Epoch: p.l().EpochFor(start)}, nil
	case time == TimeLatestTiered, time == TimeUpload:
		return none, nil // nothing is tiered
	case time == TimeMax:
		at, err = p.l().MaxTimestampOffset()
	case time < 0:
		return none, api.Errorf(api.UnsupportedVersion, "time %d is not known to ListOffsets", time)
	default:
		at, err = p.l().OffsetForTimestamp(time)
	}
	if err != nil {
		return none, p.readError(err)
	}
	if at.Offset < 0 || at.Offset >= visible {
		return none, nil
	}
	return at, nil
}
