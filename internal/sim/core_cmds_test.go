package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/coord/group"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/metafollow"
	"milena/internal/replica"
)

// noCaller stands for the controller where the Manager only has to know that there is one.
type noCaller struct{}

func (noCaller) Call(context.Context, kmsg.Request) (kmsg.Response, error) {
	return nil, errors.New("sim: requests go by TakeAlter")
}

func (b *broker) newManager(log *slog.Logger) (*replica.Manager, error) {
	return replica.New(replica.Options{
		InOrder: true,
		NodeID:  b.id, Dirs: b.dirs, Settings: b.c.settings, Logger: log, Controller: noCaller{}, BrokerEpoch: func() int64 { return b.epoch },
		LagTimeMax: lagMax, Suspended: true, Random: b.c.rnd.Uint32,
	})
}

// lagging takes slow followers out of the ISRs.
func (b *broker) lagging() {
	b.mgr.ShrinkISRs(time.Now())
	b.sendAlters()
	b.after(lagMax/2, b.lagging)
}

// sendAlters asks the controller for the changes of ISRs that are due, one request at a time.
func (b *broker) sendAlters() {
	if b.altering || b.epoch < 0 {
		return
	}
	req, answered := b.mgr.TakeAlter()
	if req == nil {
		return
	}
	b.altering = true
	b.request(alterCommand(req), func(v any, err error) {
		b.altering = false
		answered(alterResponse(req, v, err))
		b.wake()
		pause := time.Millisecond
		if err != nil {
			pause = 50 * time.Millisecond
		}
		b.after(pause, b.sendAlters)
	})
}

// alterCommand is what an AlterPartition request has the controller do.
func alterCommand(req *kmsg.AlterPartitionRequest) controller.Command {
	var changes []controller.AlterISR
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			ch := controller.AlterISR{Topic: ids.UUID(t.TopicID), Partition: p.Partition, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovery: p.LeaderRecoveryState, Cut: metafollow.Cut(&p.UnknownTags)}
			for _, m := range p.NewEpochISR {
				ch.ISR = append(ch.ISR, controller.ISRMember{Broker: m.BrokerID, Epoch: m.BrokerEpoch})
			}
			changes = append(changes, ch)
		}
	}
	return func(s *controller.State, now time.Time) machine.Result {
		return s.AlterPartition(now, req.BrokerID, req.BrokerEpoch, changes)
	}
}

func alterResponse(req *kmsg.AlterPartitionRequest, v any, err error) (*kmsg.AlterPartitionResponse, error) {
	if errors.Is(err, errNet) {
		return nil, err
	}
	resp := kmsg.NewPtrAlterPartitionResponse()
	if err != nil {
		code, _ := api.CodeOf(err)
		resp.ErrorCode = int16(code)
		return resp, nil
	}
	results := v.([]controller.AlterISRResult)
	for _, t := range req.Topics {
		rt := kmsg.NewAlterPartitionResponseTopic()
		rt.TopidID = t.TopicID
		for _, p := range t.Partitions {
			r := results[0]
			results = results[1:]
			rp := kmsg.NewAlterPartitionResponseTopicPartition()
			rp.Partition = p.Partition
			if r.Err != nil {
				rp.ErrorCode = int16(r.Err.Code)
			} else {
				rp.LeaderID, rp.LeaderEpoch, rp.ISR, rp.PartitionEpoch, rp.LeaderRecoveryState = r.Leader, r.LeaderEpoch, r.ISR, r.PartitionEpoch, r.Recovery
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// createTopics makes the topics of a run.
func createTopics(s *controller.State, now time.Time) machine.Result {
	compact := "compact"
	return s.CreateTopics(now, []controller.NewTopic{
		{Name: "t", Partitions: 2, ReplicationFactor: 3},
		{Name: group.Topic, Partitions: 1, ReplicationFactor: 3, Configs: map[string]*string{"cleanup.policy": &compact}},
	}, false)
}

// command runs an operator's command on the active controller, if there is one.
func (c *cores) command(what string, cmd func(*controller.State, time.Time) machine.Result) {
	for _, h := range c.hosts[:c.controllers] {
		if h.up && h.ctl != nil && h.ctl.active {
			h.ctl.do(cmd, func(v any, err error) { c.logf("%s: %v %v", what, v, err) })
			return
		}
	}
}

// reassign moves a partition to three random brokers.
func (f *faults) reassign() {
	c := f.c
	tp := pick(c.loop, c.tps)
	var to []int32
	for _, i := range c.rnd.Perm(len(c.hosts))[:3] {
		to = append(to, int32(i))
	}
	c.command(fmt.Sprintf("move %s to %v", tp, to), func(s *controller.State, now time.Time) machine.Result {
		return s.AlterReassignments(now, []controller.Reassignment{{TopicPartition: controller.TopicPartition{Topic: tp.topic, Partition: tp.partition}, Replicas: to}}, true)
	})
}

// changeMinISR changes min.insync.replicas of a topic, and in the end back.
func (f *faults) changeMinISR() {
	f.setMinISR(pick(f.c.loop, f.c.tps).topic, 1+f.c.rnd.IntN(3))
}

func (f *faults) setMinISR(topic string, n int) {
	value := strconv.Itoa(n)
	f.c.command(fmt.Sprintf("%s=%s for %s", minISRKey, value, topic), func(s *controller.State, now time.Time) machine.Result {
		return s.AlterConfigs(now, []controller.AlterResource{{
			Resource: meta.Resource{Type: meta.ResourceTopic, Name: topic}, Changes: []controller.ConfigChange{{Key: minISRKey, Value: &value}},
		}}, false)
	})
}

// electPreferred has the preferred leaders elected.
func (f *faults) electPreferred() {
	f.c.command("elect preferred leaders", func(s *controller.State, now time.Time) machine.Result {
		return s.ElectLeaders(now, controller.PreferredElection, nil)
	})
}
