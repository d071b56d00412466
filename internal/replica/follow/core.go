package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/ids"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
)

// firstPause is the pause after a first error; it doubles up to the setting.
const firstPause = 20 * time.Millisecond

// Core decides what one loop asks its leader for and takes in the answers. It
// knows no clock, connection or goroutine: whoever drives it does. Add, Remove,
// Len and MaxLag are for any goroutine, the rest belongs to the driver.
type Core struct {
	node, leader int32
	settings     func() Settings
	log          *slog.Logger

	mu      sync.Mutex
	targets []*target // in the order they came

	session session
	full    bool  // the request under way begins a session
	asks    []ask // of the request under way

	together int // how many partitions at once
}

// target is a partition that a Core follows. The driver owns all but lag.
type target struct {
	p      *replica.Partition
	epoch  int32 // leader epoch of the last request
	until  time.Time
	pause  time.Duration
	lagged bool // the last answer had data
	lag    lagGauge
}

// ask is what the request under way asks of a target.
type ask struct {
	t             *target
	leader, epoch int32
	part          fetchwire.RequestPartition
}

// NewCore returns a Core of node that follows leader, without partitions.
func NewCore(node, leader int32, settings func() Settings, log *slog.Logger) *Core {
	c := &Core{node: node, leader: leader, settings: func() Settings { return settings().defaults() }, log: log}
	c.session.reset()
	return c
}

// Add begins to follow a partition.
func (c *Core) Add(p *replica.Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.targets = append(c.targets, &target{p: p})
}

// Remove ends following a partition. An answer under way may still be taken in,
// if the partition itself lets it.
func (c *Core) Remove(p *replica.Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A new list: the driver may walk the old one.
	c.targets = slices.DeleteFunc(slices.Clone(c.targets), func(t *target) bool { return t.p == p })
}

// Len is how many partitions are followed.
func (c *Core) Len() int { return len(c.list()) }

func (c *Core) list() []*target {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.targets[:len(c.targets):len(c.targets)]
}

// longer is the pause after the next error in a row.
func longer(d, most time.Duration) time.Duration { return min(max(2*d, firstPause), most) }

// Request is the next fetch request; nil if there is nothing to ask for now,
// rest is then how long until there may be. Its answer goes to Handle, or
// Reset is called.
func (c *Core) Request(now time.Time, brokerEpoch int64) (req *fetchwire.Request, rest time.Duration) {
	set := c.settings()
	rest = set.Backoff
	c.flush()
	c.asks = c.asks[:0]
	for _, t := range c.list() {
		leader, epoch, ok := t.p.Following()
		if !ok || leader != c.leader {
			continue // about to be taken away
		}
		if epoch != t.epoch { // another leadership: what failed before may work now
			t.epoch, t.until, t.pause = epoch, time.Time{}, 0
		}
		if d := t.until.Sub(now); d > 0 {
			rest = min(rest, d)
			continue
		}
		if t.lagged && t.p.Throttled(now) {
			rest = min(rest, 100*time.Millisecond)
			continue
		}
		pos, err := t.p.Position()
		if err != nil {
			c.backOff(t, now, err)
			continue
		}
		part := fetchwire.NewRequestPartition(t.p.Index(), pos.Offset, set.MaxBytes)
		part.CurrentLeaderEpoch, part.LastFetchedEpoch = epoch, pos.LastEpoch
		part.LogStartOffset, part.HighWatermark = pos.LogStart, pos.HighWatermark
		c.asks = append(c.asks, ask{t, leader, epoch, part})
	}
	if len(c.asks) == 0 {
		return nil, rest
	}
	r := fetchwire.NewRequest()
	r.ReplicaID, r.ReplicaEpoch = c.node, brokerEpoch
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes = int32(set.MaxWait.Milliseconds()), set.MinBytes, set.ResponseMaxBytes
	c.session.request(&r, c.asks)
	c.full = r.SessionEpoch <= 0
	return &r, 0
}

// Reset forgets the session, after the connection broke.
func (c *Core) Reset() {
	c.session.reset()
	for _, a := range c.asks {
		a.t.lag.unknown()
	}
	c.asks = c.asks[:0]
}

// Lookup is a partition whose position the leader's log doesn't have: the
// driver asks for the log's ends and hands them to LookedUp.
type Lookup struct {
	a    ask
	node int32
}

// Handle takes in the answer to the last request. The error is one of the
// connection, which the driver closes.
func (c *Core) Handle(now time.Time, resp *fetchwire.Response) ([]Lookup, error) {
	switch resp.ErrorCode {
	case api.NoError:
	case api.FetchSessionIDNotFound, api.InvalidFetchSessionEpoch, api.FetchSessionTopicIDError:
		c.session.reset() // the next request opens a new one
		if c.full {
			return nil, api.Errorf(resp.ErrorCode, "fetch answered %s to a new session", resp.ErrorCode.Name())
		}
		return nil, nil
	default:
		return nil, api.Errorf(resp.ErrorCode, "fetch answered %s", resp.ErrorCode.Name())
	}
	c.session.answered(resp.SessionID)
	byKey := make(map[part]*ask, len(c.asks))
	for i := range c.asks {
		byKey[part{c.asks[i].t.p.TopicID(), c.asks[i].part.Partition}] = &c.asks[i]
	}
	var lookups []Lookup
	var parts []taken
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			k := part{rt.TopicID, rp.Partition}
			a := byKey[k]
			delete(byKey, k) // named twice: the first counts
			switch {
			case a == nil:
			case rp.ErrorCode == api.OffsetOutOfRange:
				lookups = append(lookups, Lookup{*a, c.node})
			default:
				parts = append(parts, taken{a: a, rp: rp})
			}
		}
	}
	c.takeAll(parts, now)
	return lookups, nil
}

// finish ends a target's part of a round.
func (c *Core) finish(t *target, now time.Time, err error) {
	switch {
	case err == nil:
		t.pause = 0
	case errors.Is(err, replica.ErrNotFollowing):
		t.lag.unknown() // the next request sees whom to follow
	default:
		c.backOff(t, now, err)
	}
}

// backOff leaves a target out for a while.
func (c *Core) backOff(t *target, now time.Time, err error) {
	t.pause = longer(t.pause, c.settings().Backoff)
	t.until = now.Add(t.pause)
	t.lag.unknown()
	level := slog.LevelDebug
	if code, _ := api.CodeOf(err); code == api.UnknownServerError || t.pause >= time.Second {
		level = slog.LevelWarn
	}
	c.log.Log(context.Background(), level, "replica can't follow", "topic", t.p.Topic(), "partition", t.p.Index(), "epoch", t.epoch, "pause", t.pause, "error", err)
}

// take takes in one partition's part of an answer.
func (c *Core) take(a *ask, rp *fetchwire.ResponsePartition, now time.Time) error {
	if rp.ErrorCode != api.NoError {
		return api.Errorf(rp.ErrorCode, "the leader answered %s", rp.ErrorCode.Name())
	}
	if d := rp.DivergingEpoch; d != nil && d.Epoch >= 0 {
		to, err := a.t.p.TruncateDiverging(a.leader, a.epoch, d.Epoch, d.EndOffset)
		if err == nil && to == a.part.FetchOffset && a.t.p.Log().LatestEpoch() == a.part.LastFetchedEpoch {
			err = fmt.Errorf("%w: epoch %d up to %d, asked about epoch %d at %d", errNothingCut, d.Epoch, d.EndOffset, a.part.LastFetchedEpoch, to)
		}
		return err
	}
	return c.append(a, rp, now)
}

// append appends what came, as it is, and follows the leader's marks.
func (c *Core) append(a *ask, rp *fetchwire.ResponsePartition, now time.Time) error {
	t := a.t
	buf, err := wholeBatches(rp.Records)
	if err != nil {
		return err
	}
	f := replica.Fetched{Leader: a.leader, Epoch: a.epoch, Batches: buf, HighWatermark: rp.HighWatermark, LogStart: rp.LogStartOffset}
	_, err = t.p.AppendFetched(f)
	if errors.Is(err, partlog.ErrOffsetOrder) {
		first := record.Batch(buf)
		switch fits, alignErr := t.p.Align(a.leader, a.epoch, first); {
		case alignErr != nil:
			err = alignErr
		case fits:
			_, err = t.p.AppendFetched(f)
		}
	}
	if err != nil {
		return err
	}
	if len(buf) > 0 {
		t.p.UseThrottle(len(buf), now)
	}
	t.lag.set(max(0, rp.HighWatermark-t.p.LogEndOffset()))
	t.lagged = len(buf) > 0
	return nil
}

// errNothingCut says that the leader's log diverges where nothing is left here to cut: to ask again at once would be a loop.
var errNothingCut = errors.New("the leader's log diverges from what isn't here")

var errPartialBatch = errors.New("the answer holds no whole batch")

// wholeBatches returns the batches of an answer without a cut last one. They
// are not looked into: the append checks them.
func wholeBatches(spans []record.Span) ([]byte, error) {
	if len(spans) == 0 {
		return nil, nil
	}
	buf, err := spans[0].Bytes()
	if err != nil || len(buf) == 0 {
		return nil, err
	}
	end := 0
	for end+record.HeaderSize <= len(buf) {
		n := record.Batch(buf[end:]).Len()
		if n < record.HeaderSize {
			return nil, fmt.Errorf("%w: a batch says it has %d bytes", partlog.ErrCorrupt, n)
		}
		if n > int64(len(buf)-end) {
			break
		}
		end += int(n)
	}
	if end == 0 {
		return nil, errPartialBatch
	}
	return buf[:end], nil
}

// Request asks the leader for an end of its log: replica.TimeEarliest or
// replica.TimeLatest.
func (l *Lookup) Request(at int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = l.node
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = l.a.t.p.Topic()
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = l.a.part.Partition, l.a.epoch, at
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// Offset is the offset in the answer to Request.
func (l *Lookup) Offset(resp *kmsg.ListOffsetsResponse) (int64, error) {
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("the leader's answer does not hold one offset")
	}
	switch x := resp.Topics[0].Partitions[0]; {
	case x.ErrorCode != 0:
		return 0, api.Errorf(api.Code(x.ErrorCode), "the offsets of the leader: %s", api.Code(x.ErrorCode).Name())
	case x.Offset < 0 || x.Offset == math.MaxInt64:
		return 0, fmt.Errorf("the leader answered offset %d", x.Offset)
	default:
		return x.Offset, nil
	}
}

// LookedUp brings a replica between the ends of its leader's log, or backs off
// if they could not be learnt. A leader that ends below us, and whose log has no
// epoch to compare, was elected uncleanly; one that begins above our end has
// deleted what we lack.
func (c *Core) LookedUp(now time.Time, l Lookup, start, end int64, err error) {
	a := &l.a
	own := a.t.p.LogEndOffset()
	switch {
	case err != nil:
	case end < own:
		err = a.t.p.TruncateToLeader(a.leader, a.epoch, end)
	case start > own:
		c.log.Info("the leader's log begins above the replica's end: it starts anew there", "topic", a.t.p.Topic(), "partition", a.t.p.Index(), "epoch", a.epoch, "from", own, "to", start)
		err = a.t.p.RestartAt(a.leader, a.epoch, start)
	default:
		err = api.Errorf(api.OffsetOutOfRange, "the leader's log has offset %d by now", own)
	}
	c.finish(a.t, now, err)
}

// MaxLag is the largest number of committed records that a partition lacks
// here, and how many can't tell because their fetch fails or wasn't answered yet.
func (c *Core) MaxLag() (lag int64, unknown int) {
	for _, t := range c.list() {
		n := t.lag.get()
		if n < 0 {
			unknown++
		}
		lag = max(lag, n)
	}
	return lag, unknown
}

// sortForgotten puts what a request forgets in a fixed order.
func sortForgotten(ks []part) {
	slices.SortFunc(ks, func(a, b part) int {
		return cmp.Or(compareID(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
}

func compareID(a, b ids.UUID) int { return slices.Compare(a[:], b[:]) }
