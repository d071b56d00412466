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

// coordinator hosts the group machine of the one partition of __consumer_offsets while the broker leads it.
type coordinator struct {
	b     *broker
	epoch int32
	log   *replica.MachineLog
	core  *machine.Core
	g     *group.Machine
	bound groupMachine
}

// groupMachine is a group.Machine whose deadlines are timers of its core.
type groupMachine struct {
	*group.Machine
	timers machine.Timers
}

func (m *groupMachine) Bind(t machine.Timers) { m.timers = t }

func newCoordinator(b *broker) *coordinator { return &coordinator{b: b, epoch: -1} }

// apply loads and unloads the machine as the metadata say.
func (k *coordinator) apply(d *meta.Delta) {
	p := d.Next.Partition(group.Topic, 0)
	leads := p != nil && p.Leader == k.b.id
	if k.core != nil && (!leads || p.LeaderEpoch != k.epoch) {
		k.end(errNotController)
	}
	if leads && k.core == nil {
		k.load(p.LeaderEpoch)
	}
}

func (k *coordinator) load(epoch int32) {
	p, err := k.b.mgr.Get(group.Topic, 0)
	if err != nil {
		return
	}
	var lost error
	g := group.NewMachine(group.MachineOptions{Logger: k.b.c.logger(k.b.h), Rand: k.b.c.random()})
	k.epoch, k.g, k.bound = epoch, g, groupMachine{Machine: g}
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
	k.core = machine.NewCore(machine.Options{Machine: &k.bound, Log: k.log, Name: group.Topic, Logger: k.b.c.logger(k.b.h), Check: k.log.Check})
	records, err := k.core.Load(time.Now(), nil)
	if err != nil {
		k.b.c.logf("host %d: coordinator of epoch %d not loaded: %v", k.b.h.id, epoch, err)
		k.end(err)
		k.retry(epoch)
		return
	}
	k.b.c.logf("host %d: coordinator of epoch %d loaded %d records", k.b.h.id, epoch, records)
}

// retry loads again if the broker still leads, as package coord does.
func (k *coordinator) retry(epoch int32) {
	k.b.after(200*time.Millisecond, func() {
		if p := k.b.img.Partition(group.Topic, 0); k.core == nil && p != nil && p.Leader == k.b.id && p.LeaderEpoch == epoch {
			k.load(epoch)
		}
	})
}

func (k *coordinator) committed(epoch int32, hw int64) {
	if k.core != nil && k.epoch == epoch {
		k.core.Committed(time.Now(), hw)
	}
}

func (k *coordinator) end(err error) {
	core, log, epoch := k.core, k.log, k.epoch
	k.core = nil
	if core != nil {
		core.Lost(err)
	}
	log.Close()
	k.retry(epoch)
}

func (k *coordinator) close() {
	if k.core != nil {
		k.core.Close()
		k.log.Close()
		k.core = nil
	}
}

// do runs a command of the group machine; its Effects' replies get what became of it.
func (k *coordinator) do(run func(now time.Time, g *group.Machine) group.Effects, done func(error)) {
	if k.core == nil {
		done(&api.Error{Code: api.NotCoordinator})
		return
	}
	core := k.core
	core.Exec(time.Now(), func(now time.Time) machine.Result {
		e := run(now, k.g)
		return machine.Result{Records: e.Records, Entities: e.Groups}
	}, func(_ any, err error) { done(err) })
	defer k.b.wake()
	if err := core.Flush(time.Now()); err != nil && k.core == core && errors.Is(err, machine.ErrLost) {
		k.end(err)
	}
}

// commit commits a group's offset of one partition.
func (k *coordinator) commit(groupID, topic string, partition int32, offset int64, done func(error)) {
	req := &group.CommitRequest{Version: 9, Group: groupID, Generation: -1, RetentionMs: -1, Topics: []group.CommitTopic{{
		TopicRef: group.TopicRef{Name: topic}, Partitions: []group.CommitPartition{{Partition: partition, Offset: offset, LeaderEpoch: -1}},
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
	offset := int64(-1)
	k.do(func(_ time.Time, g *group.Machine) group.Effects {
		r := g.Fetch(&group.FetchRequest{Group: groupID, Topics: []group.FetchTopic{{TopicRef: group.TopicRef{Name: topic}, Partitions: []int32{partition}}}})
		offset = r.Topics[0].Partitions[0].Offset
		return group.Effects{Groups: []string{groupID}}
	}, func(err error) { done(offset, err) })
}

func isCode(err error, c api.Code) bool { return errors.Is(err, &api.Error{Code: c}) }
