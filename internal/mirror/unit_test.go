package mirror

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"milena/internal/api"
	"milena/internal/fetchwire"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
	"milena/internal/partlog"
	"milena/internal/peer"
	"milena/internal/record"
	"milena/internal/replica"
)

// "exponential, base 2, from initial backoff to max backoff, with 20 % jitter" (7.6).
func TestRetryDelay(t *testing.T) {
	r := Retry{Initial: time.Second, Max: 5 * time.Minute}
	for attempt, want := range map[int16]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 32767: 5 * time.Minute} {
		low, high := time.Duration(1<<62), time.Duration(0)
		for range 200 {
			d := r.delay(attempt)
			low, high = min(low, d), max(high, d)
		}
		if low < want*8/10 || high > want*12/10 || high-low < want/10 {
			t.Errorf("attempt %d: %s to %s, want %s and 20 %% around", attempt, low, high, want)
		}
	}
}

// 7.3: "allow FAILED -> any working state it came from"; every target of a retry is legal from FAILED.
func TestRetryState(t *testing.T) {
	want := map[mirrormsg.State]mirrormsg.State{mirrormsg.EpochFencing: mirrormsg.EpochFencing, mirrormsg.ULELogTruncation: mirrormsg.ULELogTruncation,
		mirrormsg.Mirroring: mirrormsg.Mirroring, mirrormsg.Pausing: mirrormsg.Pausing, mirrormsg.Paused: mirrormsg.Mirroring}
	for s := mirrormsg.Unknown; s <= mirrormsg.Failed; s++ {
		to, ok := want[s]
		if !ok {
			to = mirrormsg.LogTruncation
		}
		if got := retryState(s); got != to || !got.CanFollow(mirrormsg.Failed) {
			t.Errorf("retry from %s leads to %s, want %s", s, got, to)
		}
	}
}

// 7.6 step 6: "the start offset of the first local epoch above LME, or nothing is cut if there is none".
func TestCutPoint(t *testing.T) {
	log := []partlog.EpochEntry{{Epoch: 1, Start: 0}, {Epoch: 4, Start: 10}, {Epoch: 9, Start: 25}}
	for last, want := range map[int32]int64{-1: 0, 0: 0, 1: 10, 3: 10, 4: 25, 8: 25, 9: 30, 100: 30} {
		if got := cutPoint(log, last, 30); got != want {
			t.Errorf("cut at epoch %d: %d, want %d", last, got, want)
		}
	}
	if got := cutPoint(nil, 3, 30); got != 30 {
		t.Errorf("cut of a log without epochs: %d", got)
	}
	if got := cutPoint(log, 4, 20); got != 20 {
		t.Errorf("a cut beyond the end: %d", got)
	}
}

func batch(t *testing.T, base int64, epoch int32, values ...string) record.Batch {
	t.Helper()
	var rs []record.Record
	for i, v := range values {
		rs = append(rs, record.Record{Offset: base + int64(i), Timestamp: 1, Value: []byte(v)})
	}
	b, err := record.Build(record.BuilderOptions{BaseOffset: base, LeaderEpoch: epoch}, rs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func spans(b []byte) []record.Span {
	if b == nil {
		return nil
	}
	return []record.Span{record.MemSpan(b)}
}

// "check every batch, epochs are non-decreasing so the last is the highest" (8.4 item 2b [R]); a cut last batch is left out.
func TestWholeBatches(t *testing.T) {
	one, two := batch(t, 0, 3, "a", "b"), batch(t, 2, 5, "c")
	both := slices.Concat(one, two)
	bad := slices.Clone(both)
	bad[len(one)+11] = 1 // the second batch says it has few bytes
	bad[len(one)+8], bad[len(one)+9], bad[len(one)+10] = 0, 0, 0
	for _, c := range []struct {
		name  string
		in    []byte
		n     int
		epoch int32
		next  int64
		err   error
	}{
		{"empty", nil, 0, -1, -1, nil},
		{"whole", both, len(both), 5, 3, nil},
		{"cut second", both[:len(both)-1], len(one), 3, 2, nil},
		{"cut header of the second", both[:len(one)+20], len(one), 3, 2, nil},
		{"cut first", one[:len(one)-1], 0, -1, -1, errPartialBatch},
		{"cut header", one[:30], 0, -1, -1, errPartialBatch},
		{"bad second", bad, len(one), 3, 2, nil},
		{"bad first", bad[len(one):], 0, -1, -1, partlog.ErrCorrupt},
	} {
		buf, epoch, next, err := wholeBatches(spans(c.in))
		if len(buf) != c.n || epoch != c.epoch || next != c.next || !errors.Is(err, c.err) {
			t.Errorf("%s: %d bytes, epoch %d, next %d, %v; want %d, %d, %d, %v", c.name, len(buf), epoch, next, err, c.n, c.epoch, c.next, c.err)
		}
	}
	damaged := slices.Clone(both)
	damaged[len(damaged)-1] ^= 1
	for want, in := range map[int][]byte{len(both): both, len(one): damaged, 0: damaged[len(one):]} {
		if n := soundPrefix(in); n != want {
			t.Errorf("sound prefix: %d bytes, want %d", n, want)
		}
	}
}

// share only changes when the number of partitions doubles or halves, and is never below the default of mirror.fetch.max.bytes. One that is
// configured is a bound.
func TestShare(t *testing.T) {
	s := &Settings{FetchMaxBytes: 1 << 20, FetchMaxGrows: true}
	for n, want := range map[int]int64{0: 16 << 20, 1: 16 << 20, 2: 8 << 20, 3: 4 << 20, 4: 4 << 20, 5: 2 << 20, 8: 2 << 20, 9: 1 << 20, 10000: 1 << 20} {
		if got := share(s, 16<<20, n); got != want {
			t.Errorf("share of %d: %d, want %d", n, got, want)
		}
	}
	s.FetchMaxGrows = false
	if got := share(s, 16<<20, 1); got != 1<<20 {
		t.Errorf("a configured bound: %d", got)
	}
}

// A line asks for more while its answers take less time than they are waited for, up to a quarter of the memory; for less where they take
// long; and comes back to what is configured.
func TestLine(t *testing.T) {
	const mb, memory = 1 << 20, 256 << 20
	s := &Settings{ResponseMaxBytes: 10 * mb, ResponseMaxGrows: true, SocketTimeout: 30 * time.Second}
	var l line
	land := func(s *Settings, n int64, latency, transfer time.Duration) int64 {
		fl := &flight{held: l.size(10 * mb), bytes: n}
		if n < 0 {
			fl.bytes = fl.held
		}
		l.landed(s, fl, latency, transfer, memory)
		return l.size(10 * mb)
	}
	const full = -1
	for _, c := range []struct {
		n                 int64
		latency, transfer time.Duration
		want              int64
	}{
		{full, time.Millisecond, 20 * time.Millisecond, 10 * mb}, // near by
		{5 * mb, 100 * time.Millisecond, 50 * time.Millisecond, 10 * mb},
		{full, 100 * time.Millisecond, 100 * time.Millisecond, 20 * mb},
		{full, 100 * time.Millisecond, 200 * time.Millisecond, 40 * mb},
		{full, 100 * time.Millisecond, 300 * time.Millisecond, 64 * mb},
		{full, 100 * time.Millisecond, 300 * time.Millisecond, 64 * mb},
		{full, 100 * time.Millisecond, 450 * time.Millisecond, 64 * mb},
		{full, 10 * time.Millisecond, 450 * time.Millisecond, 32 * mb},
		{full, 10 * time.Millisecond, 450 * time.Millisecond, 16 * mb},
		{full, 10 * time.Millisecond, 450 * time.Millisecond, 10 * mb},
		{full, 10 * time.Millisecond, 10 * time.Second, 5 * mb}, // slow
		{mb, 10 * time.Millisecond, 10 * time.Second, mb},
		{full, 10 * time.Millisecond, 3 * time.Second, mb},
		{full, 10 * time.Millisecond, time.Second, 2 * mb},
	} {
		if got := land(s, c.n, c.latency, c.transfer); got != c.want {
			t.Fatalf("%d bytes, latency %v, transfer %v: %d, want %d", c.n, c.latency, c.transfer, got, c.want)
		}
	}
	l = line{}
	l.landed(s, &flight{held: idleMaxBytes, idle: true, bytes: idleMaxBytes}, time.Second, time.Millisecond, memory)
	if l.bytes != 0 {
		t.Errorf("after an answer to a small request: %d", l.bytes)
	}
	bound := *s
	bound.ResponseMaxGrows = false
	if got := land(&bound, full, 100*time.Millisecond, 100*time.Millisecond); got != 10*mb {
		t.Errorf("a configured bound: %d", got)
	}
	l.failed(10*mb, fmt.Errorf("%w: fetch", peer.ErrTimeout))
	if l.bytes != 5*mb {
		t.Errorf("after an answer that took too long: %d", l.bytes)
	}
	l.failed(5*mb, peer.ErrClosed)
	if l.bytes != 5*mb {
		t.Errorf("after a line that broke: %d", l.bytes)
	}
}

// Partitions are spread as Kafka spreads them: by Java's hash of the name.
func TestShard(t *testing.T) {
	for _, c := range []struct {
		t    tp
		n    int32
		want int32
	}{
		{tp{"t", 0}, 1, 0}, {tp{"t", 0}, 4, 116 * 31 % 4}, {tp{"t", 1}, 4, (116*31 + 1) % 4}, {tp{"orders", 3}, 0, 0},
		{tp{"polygenelubricants", 0}, 7, 0}, // whose hash is the least number: times 31 it is that again
	} {
		if got := c.t.shard(c.n); got != c.want {
			t.Errorf("%v of %d: %d, want %d", c.t, c.n, got, c.want)
		}
	}
}

// sent is what a session's request says, short.
func sent(req *fetchwire.Request) string {
	out := fmt.Sprintf("%d/%d", req.SessionID, req.SessionEpoch)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			out += fmt.Sprintf(" %s-%d@%d", t.Topic, p.Partition, p.FetchOffset)
		}
	}
	for _, t := range req.Forgotten {
		out += fmt.Sprintf(" -%s%v", t.Topic, t.Partitions)
	}
	return out
}

// KIP-227: a full request opens a session; later ones carry what changed and what is to be forgotten.
func TestSession(t *testing.T) {
	var s session
	a, b := &target{key: tp{"a", 0}}, &target{key: tp{"a", 1}}
	type at map[*target]int64
	request := func(want string, ats at) {
		t.Helper()
		req := fetchwire.NewRequest()
		var asks []ask
		for _, x := range []*target{a, b} {
			if off, ok := ats[x]; ok {
				asks = append(asks, ask{x, fetchwire.NewRequestPartition(x.key.partition, off, 100)})
			}
		}
		s.request(&req, asks)
		if got := sent(&req); got != want {
			t.Errorf("request %q, want %q", got, want)
		}
	}
	request("0/0 a-0@5 a-1@7", at{a: 5, b: 7})
	s.answered(9)
	request("9/1", at{a: 5, b: 7})
	s.answered(9)
	request("9/2 a-0@6", at{a: 6, b: 7})
	s.answered(9)
	request("9/3 -a[1]", at{a: 6})
	s.answered(9)
	request("9/4 a-1@7", at{a: 6, b: 7}) // comes back
	s.answered(9)
	b = &target{key: tp{"a", 1}} // another target of the same partition, after a pause say
	request("0/0 a-0@6 a-1@7", at{a: 6, b: 7})
	s.answered(9)
	request("9/1", at{a: 6, b: 7})
	s.answered(0) // the source has no room for the session any more
	request("0/0 a-0@6 a-1@7", at{a: 6, b: 7})
	s.answered(4)
	s.reset() // an error of the session
	request("0/0 a-0@6 a-1@7", at{a: 6, b: 7})
	s.answered(4)
	s.epoch = 1<<31 - 1
	request("4/2147483647", at{a: 6, b: 7})
	s.answered(4)
	request("4/1", at{a: 6, b: 7}) // the epoch wraps to 1
}

// finish is told to the partition once, and not at all of a target that was removed: what it says is out of date then.
func TestTargetEnds(t *testing.T) {
	kicks := 0
	p := &Partition{mgr: &Manager{}}
	p.ctx, p.stop = t.Context(), func() {}
	p.running = true // nobody drives here; again says that it was kicked
	kicked := func() bool {
		again := p.again
		p.again = false
		return again
	}
	one := &target{p: p}
	one.finish(outcome{kind: outcomeMoved})
	if gone, o := one.ended(); !gone || o == nil || o.kind != outcomeMoved || !kicked() {
		t.Errorf("finished: %v %v", gone, o)
	}
	one.finish(outcome{kind: outcomeFailed})
	if _, o := one.ended(); o.kind != outcomeMoved || kicked() {
		t.Errorf("a second outcome replaced the first: %v", o)
	}
	two := &target{p: p}
	two.remove()
	two.finish(outcome{kind: outcomeFailed})
	if gone, o := two.ended(); !gone || o != nil || kicked() {
		t.Errorf("removed: %v %v", gone, o)
	}
	if two.take(func() { kicks++ }) || kicks != 0 {
		t.Error("a removed target took an answer in")
	}
}

// D6: "SourceOffset is -1 until the first fetch answer since the fetcher started and carries its age"; "older than 10 s plus the
// fetch wait it is shown as unknown".
func TestProgressKnown(t *testing.T) {
	for _, c := range []struct {
		p    Progress
		want bool
	}{
		{Progress{SourceOffset: -1, Age: -1, Stale: staleAfter}, false},
		{Progress{SourceOffset: 5, Age: 0, Stale: staleAfter}, true},
		{Progress{SourceOffset: 5, Age: staleAfter, Stale: staleAfter}, true},
		{Progress{SourceOffset: 5, Age: staleAfter + 1, Stale: staleAfter}, false},
		{Progress{SourceOffset: 5, Age: staleAfter + time.Second, Stale: staleAfter + time.Second}, true},
	} {
		if c.p.Known() != c.want {
			t.Errorf("%+v: known is %v", c.p, !c.want)
		}
	}
}

// 3.4: "Config keys of a mirror whose change does not cause a reconnect", and every other key does.
func TestSameConnection(t *testing.T) {
	base := map[string]string{"bootstrap.servers": "h:1", "mirror.source.cluster.id": "x"}
	with := func(k, v string) map[string]string {
		m := map[string]string{k: v}
		for k, v := range base {
			if _, ok := m[k]; !ok {
				m[k] = v
			}
		}
		return m
	}
	for key, same := range map[string]bool{"mirror.topics.include": true, "mirror.topics.exclude": true, "mirror.groups.include": true, "mirror.groups.exclude": true,
		"mirror.acls.include": true, "bootstrap.servers": false, "security.protocol": false, "mirror.fetch.max.bytes": false, "mirror.source.cluster.id": false} {
		if sameConnection(base, with(key, "other")) != same {
			t.Errorf("%s: same connection is %v", key, !same)
		}
	}
}

// The defaults of 9.2 (with D12), and values that can't be used.
func TestSettings(t *testing.T) {
	own := map[string]string{"bootstrap.servers": "h:1", "mirror.source.cluster.id": "x", "mirror.truncate.unrelated.topics": "a, b,"}
	s, err := ParseSettings(own)
	if err != nil {
		t.Fatal(err)
	}
	if s.FetchWait != time.Second || s.FetchBackoff != time.Second || s.FetchMinBytes != 1 || s.FetchMaxBytes != 1<<20 || s.ResponseMaxBytes != 10<<20 ||
		s.SocketTimeout != 30*time.Second || s.ReceiveBuffer != -1 || s.GroupsInterval != 5*time.Second || s.MaxCut != -1 || s.SourceClusterID != "x" {
		t.Errorf("defaults: %+v", s)
	}
	if !s.TruncateUnrelated["a"] || !s.TruncateUnrelated["b"] || len(s.TruncateUnrelated) != 2 {
		t.Errorf("topics that may be cut: %v", s.TruncateUnrelated)
	}
	if !s.TopicsExclude.Match("__x") || s.TopicsExclude.Match("x") || !s.TopicsInclude.Empty() || !s.GroupsInclude.Match("g") || !s.TopicConfigsExclude.Match("min.insync.replicas") {
		t.Error("default patterns")
	}
	for key, value := range map[string]string{"mirror.fetch.max.bytes": "many", "mirror.topics.include": "(", "security.protocol": "NONE"} {
		bad := map[string]string{"bootstrap.servers": "h:1", "mirror.source.cluster.id": "x", key: value}
		if _, err := ParseSettings(bad); err == nil {
			t.Errorf("%s=%s is taken", key, value)
		}
	}
}

// D8: "A synced offset does not expire while the mirror exists and the source group holds it", also after a failover, when old
// commits are all that consumers have.
func TestHeld(t *testing.T) {
	name := "m"
	id := ids.UUID{15: 9}
	d := meta.Empty("c").Draft()
	for i, r := range []meta.Record{
		&meta.TopicRecord{TopicName: "t", TopicID: id}, &meta.TopicRecord{TopicName: "free", TopicID: ids.UUID{15: 8}},
		&meta.MirrorTopicStateChangeRecord{TopicName: "t", MirrorName: &name, DesiredState: int8(mirrormsg.Stopped), ChangeOffset: -1},
	} {
		if err := d.Apply(int64(i), 1, r); err != nil {
			t.Fatal(err)
		}
	}
	mi := &mirror{}
	m := &Manager{mirrors: map[string]*mirror{"m": mi}, broken: map[string]error{}}
	m.image.Store(d.Speculative())
	if !m.Held("g", "t", 0) || m.Held("g", "free", 0) || m.Held("g", "none", 0) {
		t.Error("before the first sync every offset of a mirror's topic is held, and no other")
	}
	mi.held.Store(&map[heldOffset]bool{{"g", tp{"t", 0}}: true})
	if !m.Held("g", "t", 0) || m.Held("h", "t", 0) || m.Held("g", "t", 1) {
		t.Error("after a sync what the source holds is held")
	}
	kept := map[heldOffset]bool{}
	mi.keepHeld("g", kept)
	mi.keepHeld("x", kept)
	if len(kept) != 1 || !kept[heldOffset{"g", tp{"t", 0}}] {
		t.Errorf("of a group that could not be read this time: %v", kept)
	}
}

// 7.10: the gate is fail-safe: a state that is not known takes no client's write, and a mirror appends nothing to what is stopped.
func TestGate(t *testing.T) {
	part := &Partition{mirror: "m"}
	m := &Manager{opts: Options{ReadOnly: api.PolicyViolation}, parts: map[tp]*Partition{{"t", 0}: part}}
	topic := func(mirror string, wish mirrormsg.State) *meta.Topic {
		return &meta.Topic{Name: "t", MirrorName: mirror, MirrorDesired: int8(wish)}
	}
	if m.Gate(topic("", mirrormsg.Unknown), 0) != nil {
		t.Error("a topic in no mirror has a gate")
	}
	code := func(g replica.Gate, o partlog.Origin) api.Code {
		err := g(o)
		if err == nil {
			return api.NoError
		}
		c, _ := api.CodeOf(err)
		return c
	}
	for s := mirrormsg.Unknown; s <= mirrormsg.Failed; s++ {
		part.actual.Store(int32(s))
		for _, wish := range []mirrormsg.State{mirrormsg.Mirroring, mirrormsg.Paused, mirrormsg.Stopped} {
			g := m.Gate(topic("m", wish), 0)
			client, coordinator := api.PolicyViolation, api.PolicyViolation
			if s == mirrormsg.Unknown && wish == mirrormsg.Stopped {
				client, coordinator = api.NotLeaderOrFollower, api.NotLeaderOrFollower // "answer a retriable error instead"
			}
			if s == mirrormsg.Stopped {
				client, coordinator = api.NoError, api.NoError
			}
			if s == mirrormsg.Stopping {
				coordinator = api.NoError
			}
			if got := code(g, partlog.OriginClient); got != client {
				t.Errorf("%s, wished %s: a client gets %s", s, wish, got.Name())
			}
			if got := code(g, partlog.OriginCoordinator); got != coordinator {
				t.Errorf("%s, wished %s: a coordinator gets %s", s, wish, got.Name())
			}
			ended := s == mirrormsg.Stopping || s == mirrormsg.Stopped
			if err := g(partlog.OriginMirror); (err != nil) != ended {
				t.Errorf("%s: a mirror's append: %v", s, err)
			}
		}
	}
	// The state in the mirror that had the topic before says nothing.
	part.actual.Store(int32(mirrormsg.Stopped))
	if got := code(m.Gate(topic("n", mirrormsg.Mirroring), 0), partlog.OriginClient); got != api.PolicyViolation {
		t.Errorf("taken over: a client gets %s", got.Name())
	}
	m.opts.ReadOnly = api.ReadOnlyTopic
	part.actual.Store(int32(mirrormsg.Mirroring))
	if got := code(m.Gate(topic("m", mirrormsg.Mirroring), 0), partlog.OriginClient); got != api.ReadOnlyTopic {
		t.Errorf("with the prototype's numbers: %s", got.Name())
	}
}

// Where a log goes on behind a damaged batch: only where that can be believed.
func TestBehind(t *testing.T) {
	good, next := batch(t, 10, 1, "a", "b"), batch(t, 15, 1, "c")
	damaged := slices.Clone(good)
	damaged[len(damaged)-1] ^= 0xff
	for _, c := range []struct {
		name string
		buf  []byte
		want int64
	}{
		{"a sound batch follows", slices.Concat(damaged, next), 15},
		{"nothing follows", damaged, 12},
		{"only a part follows", slices.Concat(damaged, next[:20]), 12},
		{"a damaged one follows", slices.Concat(damaged, next[:len(next)-1], []byte{next[len(next)-1] ^ 1}), 12},
		{"its end makes no sense", func() []byte { b := slices.Clone(damaged); b[23] = 0x7f; return b }(), -1},
	} {
		if got := behind(c.buf, 10); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
