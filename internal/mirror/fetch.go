package mirror

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
)

const (
	// corruptFetches is how often a batch may fail its check at one offset before the partition fails (spec D14).
	corruptFetches = 3
	// epochMargin and epochIncrement keep our leader epoch ahead of the source's (spec 3.10).
	epochMargin    = 3
	epochIncrement = 10
)

// arrival is one partition's part of an answer.
type arrival struct {
	ask ask
	rp  *fetchwire.ResponsePartition
	// batches are the whole ones of the answer, or err says what is wrong with them. highest is the highest epoch among them, next
	// the offset behind them; both -1 if there are none.
	batches []byte
	highest int32
	next    int64
	err     error
}

// arrivals sorts an answer by what was asked for.
func arrivals(fl *flight, resp *fetchwire.Response) []arrival {
	byKey := make(map[tp]ask, len(fl.asks))
	names := map[[16]byte]string{}
	for _, a := range fl.asks {
		byKey[a.t.key] = a
		names[a.t.topicID] = a.t.key.topic
	}
	var out []arrival
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		name := rt.Topic
		if fl.version >= 13 {
			name = names[rt.TopicID]
		}
		for j := range rt.Partitions {
			a, ok := byKey[tp{name, rt.Partitions[j].Partition}]
			if !ok {
				continue // not asked for
			}
			x := arrival{ask: a, rp: &rt.Partitions[j]}
			x.batches, x.highest, x.next, x.err = wholeBatches(x.rp.Records)
			out = append(out, x)
		}
	}
	return out
}

// takeAll takes in an answer. An incremental one leaves out partitions of which there is nothing new.
func (f *fetcher) takeAll(ctx context.Context, fl *flight, came []arrival, brokers []fetchwire.NodeEndpoint, incremental bool, asOf time.Time) {
	told := make(map[*target]bool, len(came))
	for i := range came {
		x := &came[i]
		told[x.ask.t] = true
		f.takePartition(ctx, x, brokers, asOf)
	}
	for _, a := range fl.asks {
		if t := a.t; incremental && !told[t] && t.fetched.Load() {
			t.p.confirmSource(asOf)
			t.more = t.more && fl.full()
		}
	}
}

// takePartition takes in one partition's part of an answer.
func (f *fetcher) takePartition(ctx context.Context, x *arrival, brokers []fetchwire.NodeEndpoint, asOf time.Time) {
	t, rp := x.ask.t, x.rp
	if x.ask.part.FetchOffset != t.offset() {
		return // it was asked for ahead of batches that could not be appended
	}
	if rp.ErrorCode != api.NoError {
		f.partitionError(ctx, t, rp.ErrorCode, f.newLeader(rp, brokers))
		return
	}
	t.leaderless = time.Time{}
	if d := rp.DivergingEpoch; d != nil && d.Epoch >= 0 {
		if !f.diverges(t, d.Epoch, d.EndOffset) {
			f.backOff(t)
		}
		return
	}
	var err error
	if !t.take(func() { err = f.append(x, asOf) }) {
		return
	}
	if err != nil {
		t.p.behindSource(rp.HighWatermark, asOf) // which grows, whatever becomes of the records
		f.appendError(t, err)
		return
	}
	t.more = rp.HighWatermark > t.offset()
	if !t.fetched.Swap(true) {
		t.p.kick() // what is left of an earlier failure goes
	}
}

// append appends the records of an answer unchanged and follows the source's log start. Its target is held.
func (f *fetcher) append(x *arrival, asOf time.Time) error {
	t, rp := x.ask.t, x.rp
	if x.err != nil {
		return x.err
	}
	t.highest, t.behind = x.highest, -1
	if t.sle >= 0 && x.highest > t.sle {
		return fmt.Errorf("%w: a batch has epoch %d, the source leader's is %d", errStaleMetadata, x.highest, t.sle)
	}
	if len(x.batches) > 0 {
		if err := f.appendBatches(t, x.batches, rp.LogStartOffset); err != nil {
			return err
		}
		t.corrupt = 0
		if _, own, _ := t.rep.Leader(); x.highest > own-epochMargin {
			t.p.bumpSoon(max(x.highest, t.sle) + epochIncrement)
		}
	} else if rp.LogStartOffset > t.rep.LogStartOffset() {
		if err := t.rep.AdvanceLogStart(rp.LogStartOffset); err != nil {
			return err
		}
	}
	t.p.sawSource(rp.HighWatermark, asOf)
	return nil
}

// appendBatches appends whole batches, of damaged ones what comes before the damage.
func (f *fetcher) appendBatches(t *target, buf []byte, sourceStart int64) error {
	// Where the source's log starts inside a batch it serves that batch whole: an empty log then starts there too, and its
	// start moves up after the append.
	first, end := record.Batch(buf), t.rep.LogEndOffset()
	if first.BaseOffset() < end && first.BaseOffset() >= 0 && first.LastOffset() >= end && t.rep.LogStartOffset() == end {
		if err := t.rep.TruncateFullyAndStartAt(first.BaseOffset()); err != nil {
			return err
		}
		sourceStart = max(sourceStart, end)
	}
	o := replica.AsIsOptions{Epoch: replica.AnyEpoch, LogStart: sourceStart}
	_, err := t.rep.AppendAsIs(buf, o)
	if errors.Is(err, partlog.ErrCorrupt) {
		sound := soundPrefix(buf)
		if sound == 0 {
			t.behind = behind(buf, end)
			return err
		}
		if _, err := t.rep.AppendAsIs(buf[:sound], o); err != nil {
			return err
		}
		buf = buf[:sound]
	}
	if err == nil || len(buf) > 0 && errors.Is(err, partlog.ErrCorrupt) {
		f.m.mgr.metrics.bytes.WithLabelValues(f.m.name).Add(float64(len(buf)))
	}
	return err
}

// soundPrefix is how many bytes of whole batches come before the first damaged one.
func soundPrefix(buf []byte) int {
	n := 0
	for b, err := range record.Batches(buf) {
		if err != nil || b.Validate() != nil || b.CheckCRC() != nil {
			break
		}
		n += len(b)
	}
	return n
}

// behind is the offset at which the log may go on behind a damaged batch at the front of buf that begins at end: where a sound batch
// follows in the same answer, or where the damaged one says that it ends. -1 if neither can be believed.
func behind(buf []byte, end int64) int64 {
	b := record.Batch(buf)
	if n := b.Len(); n >= record.HeaderSize && n < int64(len(buf)) {
		if next, err := record.Parse(buf[n:]); err == nil && next != nil && next.CheckCRC() == nil && next.BaseOffset() > end {
			return next.BaseOffset()
		}
	}
	if count := b.NextOffset() - end; b.BaseOffset() <= end && count > 0 && count <= b.Len() { // a record takes a byte at least
		return b.NextOffset()
	}
	return -1
}

var (
	errStaleMetadata = errors.New("the source's leader changed")
	errPartialBatch  = errors.New("the answer holds no whole batch")
	errOldFormat     = errors.New("the source keeps records in a message format before Kafka 0.11, which carries no leader epochs and is not mirrored: have them written again there, or begin behind them")
)

// wholeBatches returns the batches of an answer without a cut last one, the highest epoch among them and the offset behind them (both -1
// if there is none). Batches are not looked into: the append checks them.
func wholeBatches(spans []record.Span) (batches []byte, highest int32, next int64, err error) {
	if len(spans) == 0 {
		return nil, -1, -1, nil
	}
	buf, err := spans[0].Bytes()
	if err != nil || len(buf) == 0 {
		return nil, -1, -1, err
	}
	end := 0
	highest, next = -1, -1
	const magicEnd = 17 // in all formats
	for end+magicEnd <= len(buf) {
		b := record.Batch(buf[end:])
		n := b.Len()
		if old := b.Magic() == 0 || b.Magic() == 1; old || n < record.HeaderSize {
			switch {
			case end > 0:
				return buf[:end], highest, next, nil // what comes before it first; then it is the first
			case old:
				return nil, -1, -1, fmt.Errorf("%w (format %d)", errOldFormat, b.Magic())
			}
			return nil, -1, -1, fmt.Errorf("%w: a batch says it has %d bytes", partlog.ErrCorrupt, n)
		}
		if n > int64(len(buf)-end) {
			break
		}
		highest, next = max(highest, b.LeaderEpoch()), b.NextOffset()
		end += int(n)
	}
	if end == 0 {
		return nil, -1, -1, errPartialBatch
	}
	return buf[:end], highest, next, nil
}

// appendError sorts what an append refused.
func (f *fetcher) appendError(t *target, err error) {
	var coded *api.Error
	switch {
	case errors.Is(err, replica.ErrEpochAboveLeader):
		// The batch waits at the source until our leader epoch is above its.
		t.finish(outcome{kind: outcomeFence, err: err, epoch: t.highest})
	case errors.Is(err, errStaleMetadata):
		f.fail(t, err, true)
	case errors.Is(err, partlog.ErrCorrupt), errors.Is(err, errPartialBatch), errors.Is(err, errOldFormat):
		f.corrupt(t, err)
	case errors.As(err, &coded) && (coded.Code == api.KafkaStorageError || coded.Code == api.NotLeaderOrFollower):
		// A full or failed directory, or a leader change under way: nothing is lost by waiting.
		t.p.sawError(err)
		f.backOff(t)
	default:
		f.fail(t, err, true)
	}
}

// corrupt counts failed checks; the third at one offset is final (spec D14).
func (f *fetcher) corrupt(t *target, err error) {
	end := t.rep.LogEndOffset()
	if t.corruptAt != end {
		t.corrupt, t.corruptAt = 0, end
	}
	f.m.mgr.metrics.fetchErrors.WithLabelValues(f.m.name, "CORRUPT_MESSAGE").Add(1)
	if t.corrupt++; t.corrupt < corruptFetches {
		t.p.sawError(err)
		f.backOff(t)
		return
	}
	if f.m.set().Skip[skipKey(t.key, end)] && t.behind > end {
		f.gap(t, end, t.behind, "a damaged batch of the source is skipped, as mirror.skip.batches says")
		t.skipTo, t.corrupt = t.behind, 0
		return
	}
	f.fail(t, fmt.Errorf("the batch at offset %d of the source failed its check in %d fetches: %w", end, corruptFetches, err), false)
}

// gap tells of offsets that the mirror goes on without: it is logged, counted, and kept for describe.
func (f *fetcher) gap(t *target, from, to int64, why string) {
	f.log.Warn("records are missing", "why", why, "topic", t.key.topic, "partition", t.key.partition, "from", from, "to", to, "records", to-from)
	f.m.mgr.metrics.gaps.WithLabelValues(f.m.name).Add(float64(to - from))
	_, epoch, _ := t.rep.Leader()
	err := f.m.mgr.cuts.gap(t.rep.Log(), t.p.key.TopicID, from, to, Cut{Mirror: f.m.name, Topic: t.key.topic, Partition: t.key.partition,
		LeaderEpoch: epoch, Reason: fmt.Sprintf("gap: %s; %d records are missing", why, to-from)})
	if err != nil {
		f.log.Error("a gap could not be kept for describe", "topic", t.key.topic, "partition", t.key.partition, "error", err)
	}
}

func (f *fetcher) backOff(t *target) { t.until = time.Now().Add(f.m.set().FetchBackoff) }

// newLeader is the leader that an answer names, nil if it names none with an address.
func (f *fetcher) newLeader(rp *fetchwire.ResponsePartition, brokers []fetchwire.NodeEndpoint) *Leader {
	if rp.CurrentLeader == nil || rp.CurrentLeader.LeaderID < 0 {
		return nil
	}
	for _, b := range brokers {
		if b.NodeID == rp.CurrentLeader.LeaderID {
			return &Leader{Node: b.NodeID, Addr: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), Epoch: rp.CurrentLeader.LeaderEpoch}
		}
	}
	return &Leader{Node: rp.CurrentLeader.LeaderID, Epoch: rp.CurrentLeader.LeaderEpoch}
}

// partitionError reacts to the code a partition was answered with (spec 8.4, table).
func (f *fetcher) partitionError(ctx context.Context, t *target, code api.Code, leader *Leader) {
	f.m.mgr.metrics.fetchErrors.WithLabelValues(f.m.name, code.Name()).Add(1)
	switch code {
	case api.FencedLeaderEpoch, api.NotLeaderOrFollower:
		f.moved(t, code, leader)
	case api.OffsetOutOfRange:
		if err := f.outOfRange(ctx, t); err != nil {
			f.fail(t, err, true)
		}
	default:
		// UNKNOWN_LEADER_EPOCH, unknown topics (deletion is decided by the refresh) and the rest: ask again later.
		t.p.sawError(api.Errorf(code, "the source answered %s", code.Name()))
		f.backOff(t)
		if code == api.UnknownTopicOrPartition || code == api.UnknownTopicID || code == api.InconsistentTopicID {
			f.m.refreshSoon()
		}
	}
}

// moved follows the leader that the source named, or has it looked for.
func (f *fetcher) moved(t *target, code api.Code, leader *Leader) {
	if leader != nil && leader.Epoch > t.sle {
		switch leader.Addr {
		case f.addr:
			t.sle = leader.Epoch
			f.backOff(t)
			return
		case "":
		default:
			leader.TopicID = t.topicID
			f.m.learn(t.key, *leader)
			t.finish(outcome{kind: outcomeMoved})
			return
		}
	}
	// A broker that shuts down has no other to name yet: as with a broken connection, this costs no change of state for a while.
	err := fmt.Errorf("the source answered %s and named no new leader", code.Name())
	now := time.Now()
	if t.leaderless.IsZero() {
		t.leaderless = now
	}
	if now.Sub(t.leaderless) >= graceBackoffs*f.m.set().FetchBackoff {
		f.fail(t, err, true)
		return
	}
	t.p.sawError(err)
	f.backOff(t)
	f.leaderless = append(f.leaderless, t)
}

// outOfRange compares our log with the source's ends (spec 8.4). Records below the source's log start are gone there,
// by retention or DeleteRecords, and go here too; that is a gap, but where nothing was ever copied.
func (f *fetcher) outOfRange(ctx context.Context, t *target) error {
	start, err := f.listOffset(ctx, t, -2)
	if err != nil {
		return err
	}
	end, err := f.listOffset(ctx, t, -1)
	if err != nil {
		return err
	}
	own := t.rep.LogEndOffset()
	switch {
	case own > end:
		f.cut(t, end, fmt.Sprintf("the source ends at offset %d, below our end %d", end, own))
	case own < start:
		var cutErr error
		if !t.take(func() { cutErr = t.rep.TruncateFullyAndStartAt(start) }) {
			return nil
		}
		if cutErr != nil {
			return cutErr
		}
		if own == 0 && !t.fetched.Load() {
			f.log.Info("the copy begins where the source's log does", "topic", t.key.topic, "partition", t.key.partition, "offset", start)
			return nil
		}
		f.gap(t, own, start, "the source's retention overtook the mirror")
	default:
		f.backOff(t) // both ends moved meanwhile
	}
	return nil
}

func (f *fetcher) listOffset(ctx context.Context, t *target, at int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = t.key.topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = t.key.partition, t.sle, at
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := f.conn.Call(ctx, req)
	if err != nil {
		return 0, err
	}
	topics := resp.(*kmsg.ListOffsetsResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return 0, errors.New("the source's answer does not hold one offset")
	}
	switch x := topics[0].Partitions[0]; {
	case x.ErrorCode != 0:
		return 0, api.Errorf(api.Code(x.ErrorCode), "the offsets of the source: %s", api.Code(x.ErrorCode).Name())
	case x.Offset < 0 || x.Offset == math.MaxInt64:
		return 0, fmt.Errorf("the source answered offset %d", x.Offset)
	default:
		return x.Offset, nil
	}
}
