package sim

import (
	"errors"
	"time"

	"milena/internal/api"
	"milena/internal/coord/group"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/replica"
)

// hosted is a machine of the one partition of an internal topic, on the broker that leads it.
type hosted struct {
	b     *broker
	topic string
	epoch int32
	log   *replica.MachineLog
	core  *machine.Core
	// build makes an empty machine; loaded is told when it has been filled, if it isn't nil.
	build  func() machine.Machine
	loaded func()
}

// apply loads and unloads the machine as the metadata say.
func (k *hosted) apply(d *meta.Delta) {
	p := d.Next.Partition(k.topic, 0)
	leads := p != nil && p.Leader == k.b.id
	if k.core != nil && (!leads || p.LeaderEpoch != k.epoch) {
		k.end(errNotController)
	}
	if leads && k.core == nil {
		k.load(p.LeaderEpoch)
	}
}

func (k *hosted) load(epoch int32) {
	p, err := k.b.mgr.Get(k.topic, 0)
	if err != nil {
		return
	}
	var lost error
	m := k.build()
	k.epoch = epoch
	k.log = p.MachineLog(epoch, func(hw int64) {
		k.b.after(0, func() { k.committed(epoch, hw) })
	}, func(err error) {
		lost = err
		k.b.after(0, func() {
			if k.core != nil && k.epoch == epoch {
				k.end(err)
			}
		})
	})
	if lost != nil {
		k.log.Close()
		k.retry(epoch)
		return
	}
	k.core = machine.NewCore(machine.Options{Machine: m, Log: k.log, Name: k.topic, Logger: k.b.c.logger(k.b.h), Check: k.log.Check})
	records, err := k.core.Load(time.Now(), nil)
	if err != nil {
		k.b.c.logf("host %d: coordinator of epoch %d not loaded: %v", k.b.h.id, epoch, err)
		k.end(err)
		k.retry(epoch)
		return
	}
	k.b.c.logf("host %d: coordinator of epoch %d loaded %d records", k.b.h.id, epoch, records)
	if k.loaded != nil {
		k.loaded()
	}
}

// retry loads again if the broker still leads, as package coord does.
func (k *hosted) retry(epoch int32) {
	k.b.after(200*time.Millisecond, func() {
		if p := k.b.img.Partition(k.topic, 0); k.core == nil && p != nil && p.Leader == k.b.id && p.LeaderEpoch == epoch {
			k.load(epoch)
		}
	})
}

func (k *hosted) committed(epoch int32, hw int64) {
	if k.core != nil && k.epoch == epoch {
		k.core.Committed(time.Now(), hw)
	}
}

func (k *hosted) end(err error) {
	core, log, epoch := k.core, k.log, k.epoch
	k.core = nil
	if core != nil {
		core.Lost(err)
	}
	log.Close()
	k.retry(epoch)
}

func (k *hosted) close() {
	if k.core != nil {
		k.core.Close()
		k.log.Close()
		k.core = nil
	}
}

// exec runs a command of the machine.
func (k *hosted) exec(cmd machine.Command, done func(any, error)) {
	if k.core == nil {
		done(nil, &api.Error{Code: api.NotCoordinator})
		return
	}
	core := k.core
	core.Exec(time.Now(), cmd, done)
	defer k.b.wake()
	if err := core.Flush(time.Now()); err != nil && k.core == core && errors.Is(err, machine.ErrLost) {
		k.end(err)
	}
}

// coordinator hosts the group machine of __consumer_offsets.
type coordinator struct {
	hosted
	g     *group.Machine
	bound groupMachine
}

// groupMachine is a group.Machine whose deadlines are timers of its core.
type groupMachine struct {
	*group.Machine
	timers machine.Timers
}

func (m *groupMachine) Bind(t machine.Timers) { m.timers = t }

func newCoordinator(b *broker) *coordinator {
	k := &coordinator{hosted: hosted{b: b, topic: group.Topic, epoch: -1}}
	k.build = func() machine.Machine {
		k.g = group.NewMachine(group.MachineOptions{Logger: b.c.logger(b.h), Rand: b.c.random()})
		k.bound = groupMachine{Machine: k.g}
		return &k.bound
	}
	return k
}

// do runs a command of the group machine; its Effects' replies get what became of it.
func (k *coordinator) do(run func(now time.Time, g *group.Machine) group.Effects, done func(error)) {
	var replies []func(error)
	k.exec(func(now time.Time) machine.Result {
		e := run(now, k.g)
		replies = e.Replies
		return machine.Result{Records: e.Records, Entities: e.Groups}
	}, func(_ any, err error) {
		for _, reply := range replies {
			reply(err)
		}
		done(err)
	})
}

// commit commits a group's offset of one partition.
func (k *coordinator) commit(groupID, topic string, partition int32, offset int64, done func(error)) {
	k.commitAt(groupID, topic, partition, offset, -1, done)
}

// commitAt is commit with the leader epoch of what was read, -1 if it isn't known.
func (k *coordinator) commitAt(groupID, topic string, partition int32, offset int64, epoch int32, done func(error)) {
	req := &group.CommitRequest{Version: 9, Group: groupID, Generation: -1, RetentionMs: -1, Topics: []group.CommitTopic{{
		TopicRef: group.TopicRef{Name: topic}, Partitions: []group.CommitPartition{{Partition: partition, Offset: offset, LeaderEpoch: epoch}},
	}}}
	k.do(func(now time.Time, g *group.Machine) group.Effects { return g.Commit(now, req, func(error) {}) }, func(err error) {
		if c := req.Topics[0].Partitions[0].Code; err == nil && c != api.NoError {
			err = &api.Error{Code: c}
		}
		done(err)
	})
}

// fetch reads a group's offset of one partition, -1 if there is none.
func (k *coordinator) fetch(groupID, topic string, partition int32, done func(int64, error)) {
	k.fetchOne(groupID, topic, partition, func(p group.FetchedPartition, err error) { done(p.Offset, err) })
}

// fetchOne is fetch with all that is known of the offset.
func (k *coordinator) fetchOne(groupID, topic string, partition int32, done func(group.FetchedPartition, error)) {
	got := group.FetchedPartition{Offset: -1}
	k.do(func(_ time.Time, g *group.Machine) group.Effects {
		r := g.Fetch(&group.FetchRequest{Group: groupID, Topics: []group.FetchTopic{{TopicRef: group.TopicRef{Name: topic}, Partitions: []int32{partition}}}})
		got = r.Topics[0].Partitions[0]
		return group.Effects{Groups: []string{groupID}}
	}, func(err error) { done(got, err) })
}

func isCode(err error, c api.Code) bool { return errors.Is(err, &api.Error{Code: c}) }
