package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/quorum"
	"milena/internal/replica"
)

const (
	rpcTimeout = time.Second
	lagMax     = 1500 * time.Millisecond
)

// broker is the broker of a host: it follows the metadata, keeps its session, leads and follows partitions.
type broker struct {
	c    *cores
	h    *host
	id   int32
	dirs *logdir.Set
	mgr  *replica.Manager

	draft    *meta.Draft
	img      *meta.Image
	metaFrom int // which controller the metadata come from

	ctl          int // which controller leads, as far as is known
	incarnation  ids.UUID
	previous     int64     // broker epoch that a clean shutdown left
	epoch        int64     // broker epoch; -1: not registered
	answered     time.Time // when the last answered heartbeat was sent
	atLeast      int64     // metadata offset that it was answered at
	fenced       bool      // as that answer said
	suspended    bool
	settled      bool
	follows      bool  // the metadata, which begins when it is registered
	first        int64 // offset of its registration: no image before it is applied
	wantShutdown bool

	altering  bool // an AlterPartition is under way
	assigning bool // an AssignReplicasToDirs is under way
	repl      repl
	group     *coordinator
	mirrors   *mirrorHost // nil where the cluster mirrors nothing
}

func startBroker(c *cores, h *host) (*broker, error) {
	b := &broker{c: c, h: h, id: int32(h.id), epoch: -1, fenced: true, suspended: true, ctl: c.rnd.IntN(c.controllers), metaFrom: c.rnd.IntN(c.controllers)}
	log := c.logger(h)
	var err error
	b.dirs, err = logdir.Open(logdir.Options{
		FS: disk.Faulty(h.fs, h.diskRule), Dirs: coreDirs, NodeID: b.id, Logger: log,
		Config:    func(string, ids.UUID) partlog.Config { return c.logConfig() },
		Beside:    func(fn func()) { c.after(0, h.live(fn)) },
		InOrder:   true,
		OnOffline: func(path string, _ ids.UUID, err error) { b.lostDir(path, err) },
	})
	if err != nil {
		return nil, err
	}
	b.previous = b.dirs.CleanShutdownEpoch()
	if b.incarnation, err = ids.New(c.random()); err != nil {
		return nil, err
	}
	if b.mgr, err = b.newManager(log); err != nil {
		return nil, err
	}
	b.group = newCoordinator(b)
	if c.mirroring != nil {
		if b.mirrors, err = startMirrors(b); err != nil {
			return nil, err
		}
	}
	empty := meta.Empty(c.clusterID)
	b.img, b.draft = empty, empty.Draft()
	b.beat()
	b.watchSession()
	b.startRepl()
	c.after(c.between(time.Second, 3*time.Second), h.live(b.checkpoint))
	b.tendDirs()
	return b, nil
}

func (c *cores) settings(img *meta.Image, topic string) replica.Settings {
	s := replica.Settings{Log: c.logConfig(), MinISR: c.minISROf(img, topic)}
	if img.Config(meta.ResourceTopic, topic)["flush.messages"] == "1" {
		s.Log.FlushMessages = 1
	}
	return s
}

// minISR is min.insync.replicas unless a topic or the cluster has another.
func (c *cores) minISR() int { return (c.factor + 1) / 2 }

// minISROf is a topic's min.insync.replicas.
func (c *cores) minISROf(img *meta.Image, topic string) int {
	for _, of := range []meta.Resource{{Type: meta.ResourceTopic, Name: topic}, {Type: meta.ResourceBroker}} {
		if n, err := strconv.Atoi(img.Config(of.Type, of.Name)[minISRKey]); err == nil {
			return n
		}
	}
	return c.minISR()
}

const minISRKey = "min.insync.replicas"

func (c *cores) logConfig() partlog.Config {
	conf := partlog.DefaultConfig()
	conf.SegmentBytes, conf.IndexInterval = c.segmentBytes, 256
	return conf
}

func (b *broker) after(d time.Duration, fn func()) { b.c.after(d, b.h.live(fn)) }

// checkpoint does what the timers of a real broker do from time to time.
func (b *broker) checkpoint() {
	b.h.failf(b.mgr.Checkpoint(), "checkpoint")
	b.mgr.RetryLogs()
	if b.c.chance(0.3) {
		for _, l := range b.logs() {
			b.h.failf(l.Flush(-1), "flush of %s-%d", l.Topic(), l.Partition())
		}
		b.h.failf(b.dirs.SaveOffsets(), "checkpoint of offsets")
	}
	b.after(b.c.between(500*time.Millisecond, 3*time.Second), b.checkpoint)
}

// logs are the broker's logs, in order.
func (b *broker) logs() (out []*partlog.Log) {
	b.dirs.Logs(func(l *partlog.Log) bool { out = append(out, l); return true })
	slices.SortFunc(out, func(x, y *partlog.Log) int {
		return cmp.Or(cmp.Compare(x.Topic(), y.Topic()), cmp.Compare(x.Partition(), y.Partition()))
	})
	return out
}

// metaPart is what a controller answers to a fetch of metadata.
type metaPart struct {
	batches  []byte
	snapshot []byte
	id       quorum.SnapshotID
	hw       int64
}

// follow fetches committed metadata, from any controller, for ever.
func (b *broker) follow() {
	from, offset := b.c.hosts[b.metaFrom], b.draft.Speculative().Offset+1
	call(b.c.net, b.h, from, rpcTimeout, func(reply func(metaPart, error)) {
		reply(readMeta(from.ctl.q, offset))
	}, func(p metaPart, err error) {
		pause := 20 * time.Millisecond
		if b.mirrors != nil {
			pause = 50 * time.Millisecond // there are two clusters to pay for
		}
		switch {
		case err != nil:
			b.metaFrom = b.c.rnd.IntN(b.c.controllers)
			pause = 50 * time.Millisecond
		case p.snapshot != nil || len(p.batches) > 0:
			b.takeMeta(p)
			if b.mirrors != nil {
				b.mirrors.whenApplied(func() { b.after(time.Millisecond, b.follow) })
				return
			}
			pause = time.Millisecond
		case b.c.chance(0.02):
			b.metaFrom = b.c.rnd.IntN(b.c.controllers)
		}
		b.after(pause, b.follow)
	})
}

func readMeta(q *quorum.Node, offset int64) (p metaPart, err error) {
	st := q.Status()
	if !st.HasLeader {
		return p, errNotController // it may be far behind
	}
	p.hw = st.HighWatermark
	p.batches, err = q.ReadCommitted(offset, 64<<10)
	var behind *quorum.SnapshotNeededError
	if errors.As(err, &behind) {
		p.id = behind.Snapshot
		p.snapshot, _, err = q.ReadSnapshot(p.id, 0, 64<<20)
	}
	return p, err
}

func (b *broker) takeMeta(p metaPart) {
	b.c.check.follow(p.batches)
	if p.snapshot != nil {
		next, err := meta.ReadSnapshot(b.c.clusterID, p.snapshot, p.id.EndOffset, p.id.Epoch)
		if err != nil {
			b.c.failf("host %d: metadata snapshot at offset %d: %v", b.h.id, p.id.EndOffset, err)
			return
		}
		b.draft = next.Draft()
	} else if err := b.draft.ApplyBatches(p.batches); err != nil {
		b.c.failf("host %d: metadata after offset %d: %v", b.h.id, b.img.Offset, err)
		return
	}
	next := b.draft.Image()
	if b.img.Offset < 0 && (next.Offset < b.first || p.snapshot == nil && next.Offset+1 < p.hw) {
		return // as metafollow: nobody sees the past
	}
	var d *meta.Delta
	if b.img.Offset < 0 || p.snapshot != nil {
		d = meta.Diff(b.img, next)
		b.draft = next.Draft()
	} else {
		d = b.draft.Delta()
	}
	b.c.check.image(d.Next)
	b.mgr.Apply(d)
	b.img = d.Next
	b.group.apply(d)
	if b.mirrors != nil {
		b.mirrors.apply(d)
	}
	b.appliedMeta(d)
	b.reconsider()
}

// request runs a command on the active controller, wherever it is; done gets its reply or an error. It is tried once.
func (b *broker) request(cmd func(*controller.State, time.Time) machine.Result, done func(any, error)) {
	to := b.c.hosts[b.ctl]
	call(b.c.net, b.h, to, rpcTimeout, func(reply func(any, error)) {
		to.ctl.do(cmd, reply)
	}, func(v any, err error) {
		if errors.Is(err, errNet) || isCode(err, api.NotController) {
			b.ctl = b.c.rnd.IntN(b.c.controllers)
		}
		done(v, err)
	})
}

// beat registers the broker, and then keeps its session.
func (b *broker) beat() {
	if b.epoch < 0 {
		b.register()
		return
	}
	sent, img := time.Now(), b.img
	type answer struct {
		controller.HeartbeatReply
		offset int64
	}
	beat := controller.Heartbeat{BrokerID: b.id, BrokerEpoch: b.epoch, MetadataOffset: img.Offset, WantShutdown: b.wantShutdown, OfflineDirs: b.logDirs(false)}
	b.request(func(s *controller.State, now time.Time) machine.Result {
		r := s.Heartbeat(now, beat)
		if v, ok := r.Reply.(controller.HeartbeatReply); ok {
			r.Reply = answer{v, s.Image().Offset}
		}
		return r
	}, func(v any, err error) {
		switch {
		case isCode(err, api.StaleBrokerEpoch), isCode(err, api.BrokerIDNotRegistered):
			b.c.logf("host %d: registration dropped: %v", b.h.id, err)
			b.previous, b.epoch = b.epoch, -1 // this process has lost nothing since
			b.after(10*time.Millisecond, b.beat)
			return
		case err != nil:
			b.after(50*time.Millisecond, b.beat)
			return
		}
		a := v.(answer)
		b.answered, b.atLeast, b.fenced = sent, max(b.atLeast, a.offset), a.Fenced
		if a.ShouldShutDown && b.wantShutdown {
			b.h.end(leave)
			return
		}
		b.reconsider()
		next := beatEvery
		if a.Fenced || b.wantShutdown {
			next = 50 * time.Millisecond
		}
		b.after(next, b.beat)
	})
}

func (b *broker) register() {
	r := controller.Registration{
		BrokerID: b.id, ClusterID: b.c.clusterID, Incarnation: b.incarnation, Features: controller.Features(), LogDirs: b.logDirs(true),
		Endpoints: []meta.Endpoint{{Name: "PLAINTEXT", Host: "sim", Port: uint16(9000 + b.id)}}, PreviousEpoch: b.previous,
	}
	b.request(func(s *controller.State, now time.Time) machine.Result { return s.RegisterBroker(now, r) }, func(v any, err error) {
		if err != nil {
			b.after(50*time.Millisecond, b.beat)
			return
		}
		b.epoch = v.(int64)
		b.c.logf("host %d: registered, broker epoch %d, previous %d", b.h.id, b.epoch, b.previous)
		if !b.follows {
			b.follows, b.first = true, b.epoch
			b.follow()
		}
		b.beat()
	})
}

// watchSession has the broker stop leading when the controller may think that it is gone.
func (b *broker) watchSession() {
	b.reconsider()
	b.after(50*time.Millisecond, b.watchSession)
}

// reconsider suspends or resumes the broker's leaderships.
func (b *broker) reconsider() {
	self := b.img.Broker(b.id)
	ok := b.epoch >= 0 && !b.fenced && time.Since(b.answered) < sessionFor && b.img.Offset >= b.atLeast &&
		self != nil && self.Epoch == b.epoch && !self.Fenced
	switch {
	case b.suspended && ok:
		b.c.logf("host %d: resumes at offset %d", b.h.id, b.img.Offset)
		b.suspended = false
		b.mgr.Resume()
		if !b.settled { // as a node does that is ready for the first time
			b.settled = true
			b.h.failf(b.mgr.Settled(b.dirs.SetAside), "set aside what the metadata don't know")
		}
	case !b.suspended && (b.epoch < 0 || time.Since(b.answered) >= sessionFor):
		b.c.logf("host %d: suspends", b.h.id)
		b.suspended = true
		b.mgr.Suspend("no heartbeat was answered for the session time-out")
	}
}

// close ends the broker in order. clean says that it could.
func (b *broker) close() (clean bool) {
	b.group.close()
	b.h.failf(b.mgr.Checkpoint(), "checkpoint")
	err := b.dirs.Close(context.Background(), true, b.epoch)
	b.h.failf(err, "close")
	return err == nil
}
