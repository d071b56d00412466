package controller

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
)

// check tests the invariants of the package comment.
func (b *bench) check() {
	b.t.Helper()
	img := b.s.Image()
	for t := range img.Topics() {
		for i, p := range t.Partitions {
			if why := b.broken(img, t, p); why != "" {
				b.t.Fatalf("%s-%d: %s: %+v", t.Name, i, why, *p)
			}
		}
	}
}

func (b *bench) broken(img *meta.Image, t *meta.Topic, p *meta.Partition) string {
	subset := func(list []int32) bool {
		seen := map[int32]bool{}
		for _, r := range list {
			if seen[r] || !slices.Contains(p.Replicas, r) {
				return false
			}
			seen[r] = true
		}
		return true
	}
	overlap := func(x, y []int32) bool {
		return slices.ContainsFunc(x, func(r int32) bool { return slices.Contains(y, r) })
	}
	outOfPlace := func(r int32) bool { return !mayLead(img, r, p.Dirs[slices.Index(p.Replicas, r)]) }
	switch {
	case len(p.Dirs) != len(p.Replicas) || !subset(p.Replicas):
		return "directories don't match the replicas"
	case !subset(p.ISR) || !subset(p.ELR) || !subset(p.LastKnownELR) || !subset(p.Adding) || !subset(p.Removing):
		return "a list is not within the replicas"
	case overlap(p.ISR, p.ELR) || overlap(p.Adding, p.Removing):
		return "lists overlap"
	case len(p.ISR)+len(p.ELR)+len(p.LastKnownELR) == 0 && !b.replaced[t.ID]:
		return "nobody is known that it can come back by"
	case len(p.ELR) > 0 && len(p.ISR) >= min(b.s.minISR(img, t.Name), len(p.Replicas)):
		return "an ELR beside a full ISR"
	case slices.ContainsFunc(p.ISR, outOfPlace):
		return "a member of the ISR is fenced, shutting down, or without its directory"
	case (p.Leader == meta.NoLeader) != (len(p.ISR) == 0):
		return "leader without ISR, or ISR without leader"
	case p.Leader != meta.NoLeader && (!slices.Contains(p.ISR, p.Leader) || len(p.LastKnownELR) > 0):
		return "the leader is not in the ISR, or the last known one was not forgotten"
	case p.LeaderRecoveryState == meta.LeaderRecovering && len(p.ISR) > 1:
		return "others are in the ISR of a leader that recovers"
	}
	return ""
}

// partitionKey names a partition for the model.
type partitionKey struct {
	topic     ids.UUID
	partition int
}

// model knows for each partition which replicas surely hold every record that may have been
// acknowledged, by what replication does: with min ISR members in the ISR the high watermark
// may move, so only they are sure; below that it stands, so whoever was sure stays it; and a
// broker whose disk is distrusted is not sure any more.
type model map[partitionKey]map[int32]bool

// step checks what a command did against what the model knew before, and updates the model.
// Members that an AlterPartition adds have caught up.
func (m model) step(t *rapid.T, b *bench, before *meta.Image, h happening) {
	img := b.s.Image()
	for x := range img.Topics() {
		old := before.TopicByID(x.ID)
		for i, p := range x.Partitions {
			k, o := partitionKey{x.ID, i}, old.Partition(int32(i))
			if m[k] == nil {
				m[k] = map[int32]bool{}
				for _, r := range p.ISR {
					m[k][r] = true
				}
			}
			if o != nil {
				m.checkChange(t, b, before, x, i, o, h)
			}
			if p.Leader != meta.NoLeader && len(p.ISR) >= min(b.s.minISR(img, x.Name), len(p.Replicas)) {
				clear(m[k])
			}
			for _, r := range p.ISR {
				m[k][r] = true
			}
		}
	}
}

func (m model) checkChange(t *rapid.T, b *bench, before *meta.Image, x *meta.Topic, i int, o *meta.Partition, h happening) {
	p, sure := x.Partitions[i], m[partitionKey{x.ID, i}]
	if p.LeaderEpoch < o.LeaderEpoch || p.PartitionEpoch < o.PartitionEpoch || o.Leader != p.Leader && p.LeaderEpoch == o.LeaderEpoch ||
		p.PartitionEpoch == o.PartitionEpoch && !reflect.DeepEqual(o, p) {
		t.Fatalf("%s-%d: epochs went from %+v to %+v", x.Name, i, *o, *p)
	}
	for _, u := range o.Unaligned {
		to, still := p.UnalignedAt(u.Replica)
		gone := u.Replica != meta.AnyReplica && (!slices.Contains(p.Replicas, u.Replica) || h.altered && slices.Contains(p.ISR, u.Replica))
		if still && to > u.Offset || !still && !gone {
			t.Fatalf("%s-%d: it was forgotten that %d is to be cut to %d: from %+v to %+v", x.Name, i, u.Replica, u.Offset, *o, *p)
		}
	}
	if h.distrusted >= 0 {
		delete(sure, h.distrusted)
	}
	lossy := p.LeaderRecoveryState == meta.LeaderRecovering && p.Leader != meta.NoLeader && p.Leader != o.Leader && !slices.Contains(o.ISR, p.Leader) && !sure[p.Leader]
	if lossy {
		gone := func(list []int32) bool { return len(without(without(list, h.distrusted), h.dirFails)) == 0 }
		sole := gone(o.ISR) && gone(o.ELR) && slices.Equal(o.LastKnownELR, []int32{p.Leader})
		if !sole && !b.s.uncleanAllowed(before, x.Name) && !b.s.uncleanAllowed(b.s.Image(), x.Name) && !h.asked {
			t.Fatalf("%s-%d: an unclean election that nobody allowed: from %+v to %+v", x.Name, i, *o, *p)
		}
		clear(sure)
		sure[p.Leader] = true
	}
	for _, r := range slices.Concat(p.ISR, p.ELR) {
		if !sure[r] && (!h.altered || slices.Contains(p.ELR, r)) && !lossy && !slices.Contains(o.ISR, r) {
			t.Fatalf("%s-%d: %d may lack acknowledged records, those that surely have them are %v: from %+v to %+v", x.Name, i, r, sure, *o, *p)
		}
	}
}

// world draws what happens next. Its draws depend on the image; what they give is a function
// that can be run again on another bench.
type world struct {
	t            *rapid.T
	incarnations map[int32]byte
	topics       int
}

// happening is a step, what kind of change it is, and whose disk it distrusts (or -1).
type happening struct {
	run        func(b *bench)
	altered    bool
	asked      bool
	distrusted int32
	dirFails   int32 // a broker that may lose a directory, or -1
}

func (w *world) next(img *meta.Image) happening {
	h := happening{distrusted: -1, dirFails: -1}
	steps := []func(*meta.Image, *happening){w.register, w.heartbeat, w.heartbeat, w.heartbeat, w.time, w.createTopic, w.alterISR, w.alterISR, w.alterISR, w.elect, w.reassign, w.config, w.dirs, w.other}
	steps[rapid.IntRange(0, len(steps)-1).Draw(w.t, "step")](img, &h)
	if h.run == nil {
		h.run = func(*bench) {}
	}
	return h
}

func (w *world) broker() int32       { return rapid.Int32Range(1, 4).Draw(w.t, "broker") }
func (w *world) chance(one int) bool { return rapid.IntRange(1, one).Draw(w.t, "chance") == 1 }
func twoDirs(broker int32) []ids.UUID {
	return []ids.UUID{{0: 8, 15: byte(broker)}, {0: 9, 15: byte(broker)}}
}
func (w *world) rack(broker int32) *string {
	return str([]string{"a", "b"}[broker%2])
}

func (w *world) register(img *meta.Image, h *happening) {
	id := w.broker()
	r := Registration{
		BrokerID: id, ClusterID: "c", Endpoints: []meta.Endpoint{{Name: "PLAIN", Host: "h", Port: 9092}}, Features: Features(),
		LogDirs: twoDirs(id), Rack: w.rack(id), PreviousEpoch: -1,
	}
	if w.chance(6) {
		r.LogDirs = r.LogDirs[:1]
	}
	old := img.Broker(id)
	if old != nil && w.chance(2) {
		r.PreviousEpoch = old.Epoch
	}
	if old == nil || !w.chance(5) {
		w.incarnations[id]++
	}
	r.Incarnation = incarnation(id, w.incarnations[id])
	h.dirFails = id
	if old == nil || old.IncarnationID != r.Incarnation && r.PreviousEpoch < 0 {
		h.distrusted = id
	}
	h.run = func(b *bench) { b.run(b.s.RegisterBroker(b.now, r)) }
}

func (w *world) heartbeat(img *meta.Image, h *happening) {
	br := img.Broker(w.broker())
	if br == nil {
		return
	}
	hb := Heartbeat{BrokerID: br.ID, BrokerEpoch: br.Epoch, MetadataOffset: img.Offset, WantFence: w.chance(10), WantShutdown: w.chance(10)}
	if w.chance(15) {
		hb.OfflineDirs, h.dirFails = twoDirs(br.ID)[1:], br.ID
	}
	h.run = func(b *bench) { b.run(b.s.Heartbeat(b.now, hb)) }
}

func (w *world) time(_ *meta.Image, h *happening) {
	d := time.Duration(rapid.IntRange(1, 12).Draw(w.t, "seconds")) * time.Second
	h.run = func(b *bench) { b.pass(d) }
}

func (w *world) createTopic(_ *meta.Image, h *happening) {
	w.topics++
	nt := topic(fmt.Sprintf("t%d", w.topics), rapid.Int32Range(1, 3).Draw(w.t, "partitions"), rapid.Int16Range(1, 3).Draw(w.t, "rf"))
	nt = nt.with(minISRKey, strconv.Itoa(rapid.IntRange(1, 3).Draw(w.t, "min ISR")))
	if w.chance(4) {
		nt = nt.with(uncleanKey, "true")
	}
	if w.chance(6) {
		nt.Name = "internal"
	}
	h.run = func(b *bench) { b.create(nt) }
}

// anyPartition draws a partition.
func (w *world) anyPartition(img *meta.Image) (t *meta.Topic, partition int32, ok bool) {
	if img.TopicCount() == 0 {
		return nil, 0, false
	}
	n := rapid.IntRange(0, img.TopicCount()-1).Draw(w.t, "topic")
	for x := range img.Topics() {
		if n == 0 {
			t = x
			break
		}
		n--
	}
	return t, int32(rapid.IntRange(0, len(t.Partitions)-1).Draw(w.t, "partition")), true
}

func (w *world) alterISR(img *meta.Image, h *happening) {
	t, i, ok := w.anyPartition(img)
	if !ok || t.Partitions[i].Leader == meta.NoLeader {
		return
	}
	p := t.Partitions[i]
	ch := AlterISR{Topic: t.ID, Partition: i, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	if w.chance(8) {
		ch.PartitionEpoch += rapid.Int32Range(-1, 1).Draw(w.t, "partition epoch off")
		ch.LeaderEpoch += rapid.Int32Range(-1, 1).Draw(w.t, "leader epoch off")
	}
	for _, r := range p.Replicas {
		if r == p.Leader || w.chance(2) {
			m := ISRMember{Broker: r, Epoch: -1}
			if b := img.Broker(r); b != nil {
				m.Epoch = b.Epoch
			}
			ch.ISR = append(ch.ISR, m)
		}
	}
	if w.chance(3) {
		to := rapid.Int64Range(0, 9).Draw(w.t, "cut")
		ch.Cut = &to
	}
	epoch := img.Broker(p.Leader).Epoch
	h.altered = true
	h.run = func(b *bench) { b.run(b.s.AlterPartition(b.now, p.Leader, epoch, []AlterISR{ch})) }
}

func (w *world) elect(img *meta.Image, h *happening) {
	kind := PreferredElection
	if w.chance(4) {
		kind, h.asked = UncleanElection, true
	}
	t, i, ok := w.anyPartition(img)
	if !ok {
		return
	}
	list := []TopicPartition{{t.Name, i}}
	if w.chance(3) {
		list = nil
	}
	h.run = func(b *bench) {
		b.run(b.s.ElectLeaders(b.now, kind, list))
		b.run(b.s.Rebalance(b.now))
	}
}

func (w *world) reassign(img *meta.Image, h *happening) {
	t, i, ok := w.anyPartition(img)
	if !ok {
		return
	}
	r := Reassignment{TopicPartition: TopicPartition{t.Name, i}}
	if !w.chance(4) {
		r.Replicas = rapid.Permutation([]int32{1, 2, 3, 4}).Draw(w.t, "replicas")[:rapid.IntRange(1, 3).Draw(w.t, "factor")]
	}
	h.run = func(b *bench) { b.run(b.s.AlterReassignments(b.now, []Reassignment{r}, true)) }
}

func (w *world) config(img *meta.Image, h *happening) {
	res := meta.Resource{Type: meta.ResourceBroker}
	if t, _, ok := w.anyPartition(img); ok && w.chance(2) {
		res = meta.Resource{Type: meta.ResourceTopic, Name: t.Name}
	}
	change := ConfigChange{Key: minISRKey, Value: str(strconv.Itoa(rapid.IntRange(1, 3).Draw(w.t, "min ISR")))}
	if w.chance(3) {
		change = ConfigChange{Key: uncleanKey, Value: str(strconv.FormatBool(w.chance(3)))}
	}
	if w.chance(4) {
		change.Op = DeleteConfig
	}
	h.run = func(b *bench) {
		b.run(b.s.AlterConfigs(b.now, []AlterResource{{Resource: res, Changes: []ConfigChange{change}}}, false))
	}
}

func (w *world) dirs(img *meta.Image, h *happening) {
	t, i, ok := w.anyPartition(img)
	if !ok {
		return
	}
	id := rapid.SampledFrom(t.Partitions[i].Replicas).Draw(w.t, "replica")
	br := img.Broker(id)
	if br == nil {
		return
	}
	dir := rapid.SampledFrom(append(twoDirs(id), ids.LostDir)).Draw(w.t, "directory")
	h.dirFails = id
	h.run = func(b *bench) {
		b.assign(id, br.Epoch, DirAssignment{Dir: dir, Topic: t.ID, Partition: i})
	}
}

func (w *world) other(img *meta.Image, h *happening) {
	t, _, ok := w.anyPartition(img)
	kind := rapid.IntRange(0, 4).Draw(w.t, "kind")
	switch {
	case kind == 0:
		h.run = (*bench).failover
	case kind == 1:
		id := w.broker()
		h.run = func(b *bench) { b.run(b.s.UnregisterBroker(b.now, id)) }
	case !ok:
	case kind == 2:
		more := MorePartitions{Name: t.Name, Count: int32(len(t.Partitions)) + 1}
		h.run = func(b *bench) { b.run(b.s.CreatePartitions(b.now, []MorePartitions{more}, false)) }
	case kind == 3:
		bump := EpochBump{Topic: t.Name, Min: rapid.Int32Range(0, 20).Draw(w.t, "min")}
		h.run = func(b *bench) { b.run(b.s.BumpLeaderEpochs(b.now, []EpochBump{bump})) }
	case kind == 4:
		h.run = func(b *bench) { b.run(b.s.DeleteTopics(b.now, []DeleteTopic{{ID: t.ID}})) }
	}
}

func propertyOptions(o *Options) {
	o.RebalanceInterval, o.UncleanInterval = 20*time.Second, 30*time.Second
	o.Bootstrap = Bootstrap()
	o.InternalTopics = func(*meta.Image) []InternalTopic { return []InternalTopic{{"internal", 3}} }
}

// Whatever happens: the invariants hold, epochs only grow, nobody is in an ISR or ELR who
// may lack acknowledged records, a replay of the log and a snapshot give the same metadata,
// and the same history gives the same records.
func TestInvariantsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, w, m := newBench(t, propertyOptions), &world{t: t, incarnations: map[int32]byte{}}, model{}
		var steps []happening
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			h := w.next(b.s.Image())
			steps = append(steps, h)
			b.observe = func(before *meta.Image) {
				b.check()
				m.step(t, b, before, h)
			}
			h.run(b)
		}
		again := newBench(t, propertyOptions)
		for _, h := range steps {
			h.run(again)
		}
		if len(again.log) != len(b.log) {
			t.Fatalf("the same history gave %d records, then %d", len(b.log), len(again.log))
		}
		for i := range b.log {
			if !bytes.Equal(b.log[i].Value, again.log[i].Value) {
				t.Fatalf("the same history gave another record %d", i)
			}
		}
		checkReplays(t, b)
	})
}

// checkReplays compares the image with that of a replay of the log, and of a snapshot.
func checkReplays(t *rapid.T, b *bench) {
	img := b.s.Image()
	replay := New(b.s.o)
	for i, r := range b.log {
		replay.Apply(int64(i), r)
	}
	snapshot := meta.Empty("c").Draft()
	for r := range img.Records() {
		if err := snapshot.Apply(img.Offset, img.Epoch, r); err != nil {
			t.Fatal(err)
		}
	}
	for name, other := range map[string]*meta.Image{"replay": replay.Image(), "snapshot": snapshot.Image()} {
		d := meta.Diff(img, other)
		if len(d.Topics)+len(d.Brokers)+len(d.Configs)+len(d.Features)+len(d.Controllers) > 0 || other.NextProducerID() != img.NextProducerID() {
			t.Fatalf("the %s differs: %+v", name, d)
		}
	}
}

// A request that is refused leaves no record.
func TestRefusalsLeaveNoRecords(t *testing.T) {
	b := newBench(t, nil)
	b.up(1, 2)
	b.create(assigned("a", []int32{1, 2}))
	before := len(b.log)
	for _, r := range []any{
		b.run(b.s.AlterPartition(b.now, 1, 99, nil)),
		b.run(b.s.UnregisterBroker(b.now, 9)),
		b.run(b.s.AssignDirs(b.now, 9, 0, nil)),
		b.run(b.s.ElectLeaders(b.now, 7, nil)),
		b.run(b.s.RegisterController(b.now, ControllerRegistration{ID: -1})),
	} {
		if err, ok := r.(error); !ok {
			t.Errorf("%v is no error", r)
		} else if c, _ := api.CodeOf(err); c == api.UnknownServerError {
			t.Errorf("%v has no code", err)
		}
	}
	if len(b.log) != before {
		t.Errorf("%d records were left", len(b.log)-before)
	}
}
