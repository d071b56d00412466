package sim

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/controller"
	"milena/internal/controller/mirrors"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/quorum"
)

const (
	coreCluster = "c2ltLWNsdXN0ZXItaWQtMQ"
	raftTick    = 50 * time.Millisecond
	raftTicks   = 8

	firstVoters = 3
	sessionFor  = 2 * time.Second
	beatEvery   = 400 * time.Millisecond
)

// errNotController is the answer of a controller that doesn't lead.
var errNotController = &api.Error{Code: api.NotController}

// ctl is the controller of a host: a voter of the quorum, and while it leads the controller's state.
type ctl struct {
	c *cores
	h *host
	q *quorum.Node
	m *quorum.Manual

	// Of the present leadership.
	epoch  int32
	core   *machine.Core
	state  *controller.State
	log    *quorum.MachineLog
	active bool
	asked  []confirmation
	led    time.Time
}

type confirmation struct {
	answer <-chan error
	done   func(error)
}

func startCtl(c *cores, h *host) (*ctl, error) {
	k := &ctl{c: c, h: h}
	var voters []quorum.Voter // the others are added later
	for i := range c.voters {
		if h.id < c.voters {
			voters = append(voters, voterOf(i))
		}
	}
	q, err := quorum.Open(quorum.Options{
		FS: h.meta, Dir: "/meta", Self: voterOf(h.id).Member, Voters: voters, Transport: k, Logger: c.logger(h),
		Fatal: func(error) {}, Tick: raftTick, ElectionTicks: raftTicks, SnapshotBytes: c.snapshotBytes, SnapshotInterval: time.Hour,
		Snapshot: k.snapshot, KeepEntries: 20,
	})
	if err != nil {
		return nil, err
	}
	k.q = q
	if k.m, err = q.Manual(); err != nil {
		return nil, err
	}
	k.tick()
	return k, nil
}

// tick is raft's clock, and that of the state's timers.
func (k *ctl) tick() {
	k.turn(true)
	if k.core != nil {
		k.core.Tick(time.Now())
		k.flush()
	}
	k.c.after(raftTick, k.h.live(k.tick))
}

func (k *ctl) turn(ticked bool) {
	if err := k.m.Turn(ticked); err != nil {
		k.h.broken("the quorum failed", err)
		return
	}
	k.observe()
}

// observe follows the leadership of the quorum.
func (k *ctl) observe() {
	now, st := time.Now(), k.q.Status()
	k.c.check.committed(k.q) // before a snapshot takes the place of the records
	if k.core != nil && (!st.IsLeader || st.Epoch != k.epoch || k.core.Err() != nil) {
		k.c.logf("host %d: controller of epoch %d ends", k.h.id, k.epoch)
		k.resign()
	}
	if k.core == nil && st.IsLeader {
		k.begin(now, st.Epoch)
	}
	if k.core == nil {
		return
	}
	k.core.Committed(now, st.HighWatermark)
	left := k.asked[:0:0]
	for _, a := range k.asked {
		select {
		case err := <-a.answer:
			a.done(err)
		default:
			left = append(left, a)
		}
	}
	k.asked = left
}

func (k *ctl) resign() {
	core, asked := k.core, k.asked
	k.core, k.state, k.active, k.asked = nil, nil, false, nil
	core.Lost(quorum.ErrNotLeader)
	for _, a := range asked {
		a.done(quorum.ErrNotLeader)
	}
	k.log.Close()
}

func (k *ctl) begin(now time.Time, epoch int32) {
	k.c.check.leads(k.h.id, epoch)
	k.c.logf("host %d: controller of epoch %d begins at offset %d", k.h.id, epoch, k.q.Status().EndOffset)
	k.epoch, k.led, k.active = epoch, now, false
	k.state = controller.New(k.c.stateOptions(k.h))
	k.log = k.q.MachineLog(epoch, quorum.MachineLogOptions{})
	k.core = machine.NewCore(machine.Options{
		Machine: k.state, Log: k.log, Name: "controller", Logger: k.c.logger(k.h), Bookends: bookends, Confirm: k.confirm,
	})
	if _, err := k.core.Load(now, nil); err != nil {
		k.c.logf("host %d: controller not loaded: %v", k.h.id, err)
		k.resign()
		return
	}
	core := k.core
	core.Exec(now, k.state.Activate, func(_ any, err error) {
		if err == nil && core == k.core {
			k.active = true
			k.c.logf("host %d: controller of epoch %d is active", k.h.id, epoch)
		}
	})
	k.flush()
}

func bookends() (begin, end machine.Record) {
	b, _ := meta.Encode(&meta.BeginTransactionRecord{})
	e, _ := meta.Encode(&meta.EndTransactionRecord{})
	return machine.Record{Value: b}, machine.Record{Value: e}
}

func (k *ctl) confirm(done func(error)) {
	answer, err := k.m.Confirm()
	if err != nil {
		done(err)
		return
	}
	k.asked = append(k.asked, confirmation{answer, done})
}

// flush appends what commands wrote. Messages go out in the turns that the append takes.
func (k *ctl) flush() {
	if k.core == nil {
		return
	}
	_ = k.core.Flush(time.Now()) // the waiters have the error
	if k.m != nil && k.q.Status() != nil {
		k.c.after(0, k.h.live(func() { k.turn(false) }))
	}
}

// do runs a command on the active controller's state; done gets the reply when it is committed.
func (k *ctl) do(cmd func(*controller.State, time.Time) machine.Result, done func(any, error)) {
	if k.core == nil || !k.active {
		done(nil, errNotController)
		return
	}
	st := k.state
	k.core.Exec(time.Now(), func(now time.Time) machine.Result { return cmd(st, now) }, func(v any, err error) {
		if errors.Is(err, machine.ErrLost) || errors.Is(err, machine.ErrClosed) {
			err = errNotController
		}
		done(v, err)
	})
	k.flush()
}

// Send implements quorum.Transport.
func (k *ctl) Send(to quorum.Voter, message []byte) {
	peer := k.c.hosts[to.ID]
	msg := slices.Clone(message)
	k.c.net.send(k.h, peer, func() {
		if peer.ctl == nil {
			return
		}
		if err := peer.ctl.q.Step(context.Background(), voterOf(k.h.id), msg); err != nil {
			k.c.logf("host %d: message of host %d refused: %v", peer.id, k.h.id, err)
			return
		}
		peer.ctl.turn(false)
	})
}

// FetchSnapshot implements quorum.Fetcher.
func (k *ctl) FetchSnapshot(_ context.Context, from quorum.Voter, id quorum.SnapshotID, position int64, maxBytes int) ([]byte, error) {
	peer := k.c.hosts[from.ID]
	if !peer.up || peer.ctl == nil || k.c.net.cut[[2]int{k.h.id, peer.id}] || k.c.net.cut[[2]int{peer.id, k.h.id}] {
		return nil, errNet
	}
	data, _, err := peer.ctl.q.ReadSnapshot(id, position, maxBytes)
	return data, err
}

// snapshot writes the image of all that is committed, from the log alone.
func (k *ctl) snapshot(w io.Writer) (int64, error) {
	img, err := committedImage(k.c.clusterID, k.q)
	if err != nil {
		return 0, err
	}
	var failed error
	err = quorum.EncodeRecords(w, img.Epoch, func(yield func(machine.Record) bool) {
		for r := range img.Records() {
			b, err := meta.Encode(r)
			if err != nil {
				failed = err
				return
			}
			if !yield(machine.Record{Value: b}) {
				return
			}
		}
	})
	return img.Offset + 1, errors.Join(err, failed)
}

// committedImage is what a quorum node's committed log makes.
func committedImage(clusterID string, q *quorum.Node) (*meta.Image, error) {
	draft := meta.Empty(clusterID).Draft()
	for hw := q.Status().HighWatermark; draft.Speculative().Offset+1 < hw; {
		b, err := q.ReadCommitted(draft.Speculative().Offset+1, 1<<20)
		var behind *quorum.SnapshotNeededError
		switch {
		case errors.As(err, &behind):
			data, _, err := q.ReadSnapshot(behind.Snapshot, 0, 64<<20)
			if err != nil {
				return nil, err
			}
			img, err := meta.ReadSnapshot(clusterID, data, behind.Snapshot.EndOffset, behind.Snapshot.Epoch)
			if err != nil {
				return nil, err
			}
			draft = img.Draft()
			continue
		case err != nil:
			return nil, err
		case len(b) == 0:
			return draft.Image(), nil
		}
		if err := draft.ApplyBatches(b); err != nil {
			return nil, err
		}
	}
	return draft.Image(), nil
}

// stateOptions are those of a new leadership's state.
func (c *cores) stateOptions(h *host) controller.Options {
	o := controller.Options{
		ClusterID: c.clusterID, Random: c.random(), Configs: config.Rules{}, SessionTimeout: sessionFor, DeleteTopics: true,
		Bootstrap: controller.Bootstrap(), Logger: c.logger(h),
		Defaults: func(*meta.Image) (int32, int16) { return 1, int16(c.factor) }, MinISR: c.minISR(),
	}
	if c.mirroring != nil {
		o.Guards, o.UncleanInterval = []controller.Guard{mirrors.Guard}, time.Second
	}
	return o
}

// random is a source of bytes that the seed decides.
func (c *cores) random() io.Reader {
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(c.rnd.Uint32())
	}
	return rand.NewChaCha8(seed)
}
