package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// idleFetcher is how long a fetcher without partitions keeps its connection.
const idleFetcher = 10 * time.Second

// fetcherKey tells the fetchers of a mirror apart: several share what one source broker leads (mirror.num.replica.fetchers).
type fetcherKey struct {
	addr  string
	shard int32
}

// shard is which of n fetchers fetches a partition, as Kafka spreads them.
func (t tp) shard(n int32) int32 {
	h := int32(0)
	for i := range len(t.topic) { // topic names are ASCII: Java's String.hashCode
		h = 31*h + int32(t.topic[i])
	}
	if h = 31*h + t.partition; h < 0 {
		h = max(-h, 0) // the least number has no negative
	}
	return h % max(n, 1)
}

// fetcher fetches its share of the partitions that one source broker leads, over a connection of its own with an incremental fetch
// session (KIP-227). One request is in flight; the next one is sent before the answer to the last is appended. Its run goroutine owns it;
// others only add and remove targets.
type fetcher struct {
	m     *mirror
	addr  string
	shard int32
	log   *slog.Logger

	mu      sync.Mutex
	targets map[tp]*target
	order   []*target // targets by their names; nil: to be sorted anew
	ended   bool
	wake    chan struct{}

	// owned by run
	conn    BrokerLink
	session session
	flight  *flight // nil: nothing is under way
	line    line
	empty   bool      // the last answer had no data: the next request asks for less
	paused  bool      // some targets wait for mirror.replication.throttled.rate
	quiet   time.Time // until then the source wants no request
	// down is when the connection began to fail, zero while it does not.
	down time.Time
	// leaderless are targets of which the source said that nobody leads them, whose leaders are looked for before the next request.
	leaderless []*target
}

func newFetcher(m *mirror, k fetcherKey) *fetcher {
	return &fetcher{m: m, addr: k.addr, shard: k.shard, log: m.log.With("source", k.addr), targets: map[tp]*target{}, wake: make(chan struct{}, 1)}
}

// add hands a target to the fetcher; false if the fetcher has ended.
func (f *fetcher) add(t *target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return false
	}
	f.targets[t.key] = t
	f.order = nil
	f.poke()
	return true
}

// poke lets run look at its targets again.
func (f *fetcher) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// live drops removed targets, and those that are another fetcher's since mirror.num.replica.fetchers changed, and returns the others.
func (f *fetcher) live() []*target {
	n := f.m.mgr.fetchers()
	select {
	case <-f.wake: // what it tells of is seen now
	default:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*target, 0, len(f.targets))
	if f.order == nil {
		f.order = slices.SortedFunc(maps.Values(f.targets), func(a, b *target) int { return a.key.compare(b.key) })
	}
	for _, t := range f.order {
		if t.key.shard(n) != f.shard {
			t.finish(outcome{kind: outcomeMoved})
		}
		if t.gone() {
			delete(f.targets, t.key)
			f.order = nil
			continue
		}
		out = append(out, t)
	}
	return out
}

// end closes the fetcher for new targets if it has none.
func (f *fetcher) end() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = len(f.targets) == 0
	return f.ended
}

// letGo removes the targets of a fetcher whose run has ended.
func (f *fetcher) letGo() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.targets {
		t.remove()
	}
}

// run fetches until ctx ends or there was nothing to fetch for a while.
func (f *fetcher) run(ctx context.Context) {
	defer f.hangUp()
	for ctx.Err() == nil {
		targets := f.live()
		if len(targets) == 0 {
			f.drop()
			f.session.reset()
			f.down = time.Time{}
			if !f.sleep(ctx, idleFetcher) && ctx.Err() == nil && f.end() {
				return
			}
			continue
		}
		if err := f.connect(ctx); err != nil {
			f.trouble(ctx, targets, fmt.Errorf("connection to source broker %s: %w", f.addr, err))
			continue
		}
		if err := f.round(ctx, targets); err != nil {
			f.hangUp()
			f.trouble(ctx, targets, fmt.Errorf("source broker %s: %w", f.addr, err))
		}
	}
}

// graceBackoffs is how many fetch back-offs a connection to the source may fail before the partitions do.
const graceBackoffs = 10

// trouble deals with an error of the whole connection. A line that flaps and a broker that restarts cost no change of state: for a while
// the fetcher tries again by itself, and gives partitions back whose leader has moved. Then each becomes FAILED and retries on its own
// schedule, with fresh metadata (spec 8.4).
func (f *fetcher) trouble(ctx context.Context, targets []*target, err error) {
	if ctx.Err() != nil {
		return
	}
	now, backoff := time.Now(), f.m.set().FetchBackoff
	if f.down.IsZero() {
		f.down = now
		f.log.Warn("fetch from the source failed", "partitions", len(targets), "error", err)
	}
	left := graceBackoffs*backoff - now.Sub(f.down)
	if left <= 0 || errors.Is(err, errSourceIdentity) {
		f.down = time.Time{}
		f.failAll(targets, err)
		return
	}
	f.m.mgr.metrics.fetchErrors.WithLabelValues(f.m.name, "CONNECTION").Add(1)
	for _, t := range targets {
		t.aligned = false // what the source is after that has to be asked again
		t.p.sawError(err)
	}
	f.followLeaders(ctx, targets, left)
	f.sleep(ctx, min(backoff, left))
}

// followLeaders gives back the targets that are led by another broker now, or by this one anew.
func (f *fetcher) followLeaders(ctx context.Context, targets []*target, within time.Duration) {
	topics := map[string]bool{}
	for _, t := range targets {
		topics[t.key.topic] = true
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if _, err := f.m.source.Refresh(ctx, slices.Sorted(maps.Keys(topics))); err != nil {
		return // nobody there can be asked now
	}
	for _, t := range targets {
		if l, ok := f.m.source.Leader(t.key.topic, t.key.partition); ok && (l.Addr != f.addr || l.Epoch > t.sle) {
			t.finish(outcome{kind: outcomeMoved})
		}
	}
}

// sleep waits for d; true if it was poked.
func (f *fetcher) sleep(ctx context.Context, d time.Duration) bool {
	return f.m.mgr.tasks.Wait(ctx, d, f.wake) == WokenSignal
}

func (f *fetcher) connect(ctx context.Context) error {
	if f.conn != nil {
		return nil
	}
	connect := f.m.dialBroker
	if l := f.m.mgr.opts.Links; l != nil {
		connect = l.Broker
	}
	conn, err := connect(ctx, f.m.set(), f.addr)
	if err != nil {
		return err
	}
	if err := f.verify(ctx, conn); err != nil {
		return errors.Join(err, conn.Close())
	}
	f.conn = conn
	f.session.reset()
	return nil
}

// dial opens a fetcher's connection with mirror.socket.receive.buffer.bytes.
func (mi *mirror) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := mi.mgr.opts.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	c, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if t, ok := c.(interface{ SetReadBuffer(int) error }); ok && mi.set().ReceiveBuffer >= 0 {
		if err := t.SetReadBuffer(mi.set().ReceiveBuffer); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// verify makes sure that behind the address there still is the source: another cluster's answers would have our log cut
// (spec 8.24).
func (f *fetcher) verify(ctx context.Context, conn BrokerLink) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := conn.Call(ctx, req)
	if err != nil {
		return err
	}
	return checkClusterID(resp.(*kmsg.MetadataResponse).ClusterID, f.m.set().SourceClusterID)
}

func (f *fetcher) hangUp() {
	if f.conn != nil {
		_ = f.conn.Close()
		f.conn = nil
	}
	f.drop()
	f.session.reset()
}

// failAll lets go of the targets after an error of the whole connection.
func (f *fetcher) failAll(targets []*target, err error) {
	f.log.Warn("the source can't be fetched from", "partitions", len(targets), "error", err)
	f.m.mgr.metrics.fetchErrors.WithLabelValues(f.m.name, "CONNECTION").Add(1)
	for _, t := range targets {
		f.fail(t, err, !errors.Is(err, errSourceIdentity))
	}
}

// fail lets go of a target and tells its partition.
func (f *fetcher) fail(t *target, err error, retryable bool) {
	t.finish(outcome{kind: outcomeFailed, err: err, retryable: retryable})
}

// align asks the source where the last epoch of our log ends there (OffsetForLeaderEpoch), which old sources don't do in
// a fetch. A log that goes beyond is not a prefix of the source's.
func (f *fetcher) align(ctx context.Context, targets []*target) error {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	asked := map[tp]*target{}
	topics := map[string]int{}
	for _, t := range targets {
		epoch := t.rep.Log().LatestEpoch()
		if epoch < 0 {
			t.aligned = true // an empty log is a prefix of anything
			continue
		}
		i, ok := topics[t.key.topic]
		if !ok {
			i = len(req.Topics)
			topics[t.key.topic] = i
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = t.key.topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = t.key.partition, t.sle, epoch
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
		asked[t.key] = t
	}
	if len(asked) == 0 {
		return nil
	}
	resp, err := f.conn.Call(ctx, req)
	if err != nil {
		return err
	}
	for _, rt := range resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
		for _, rp := range rt.Partitions {
			t := asked[tp{rt.Topic, rp.Partition}]
			if t == nil {
				return fmt.Errorf("answer for %s-%d, which was not asked for", rt.Topic, rp.Partition)
			}
			delete(asked, t.key)
			if rp.ErrorCode != 0 {
				f.partitionError(ctx, t, api.Code(rp.ErrorCode), nil)
				continue
			}
			// An undefined answer comes from a source whose log holds no epoch: the fetch decides, by offset.
			if rp.EndOffset >= 0 && f.diverges(t, rp.LeaderEpoch, rp.EndOffset) {
				continue
			}
			t.aligned = true
		}
	}
	if len(asked) > 0 {
		return errors.New("an answer to OffsetForLeaderEpoch lacks partitions")
	}
	return nil
}

// diverges compares our log with the source's end of an epoch. Where the source's log parts from ours, ours is to be cut
// to the common point, with what is cut set aside (spec 8.4 item 3, D4); it returns true then.
func (f *fetcher) diverges(t *target, epoch int32, sourceEnd int64) bool {
	_, ownEnd := t.rep.Log().EpochEnd(epoch)
	to := sourceEnd
	if ownEnd >= 0 {
		to = min(to, ownEnd)
	}
	if to >= t.rep.LogEndOffset() {
		return false
	}
	f.cut(t, to, fmt.Sprintf("the source's log parts from ours at offset %d, epoch %d there", to, epoch))
	return true
}

// cut lets go of a target whose log has to be cut while mirroring, within mirror.max.cut.records. The partition does it: a fetcher must
// not wait for the coordinators of groups.
func (f *fetcher) cut(t *target, to int64, why string) {
	n := t.rep.LogEndOffset() - max(to, t.rep.LogStartOffset())
	if limit := f.m.set().MaxCut; limit >= 0 && n > limit {
		f.fail(t, fmt.Errorf("%s: %d records would be cut, mirror.max.cut.records allows %d", why, n, limit), false)
		return
	}
	t.finish(outcome{kind: outcomeCut, cutTo: to, why: why})
}
