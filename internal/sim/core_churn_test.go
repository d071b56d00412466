package sim

import (
	"fmt"
	"slices"
	"time"

	"milena/internal/controller"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

// churn creates a topic, has it written to, deletes it and creates another of the same name, again and again. It goes by what
// brokers know, as commands and answers get lost.
type churn struct {
	c      *cores
	want   bool           // the topic is to be there
	made   topicPartition // the topic that is there; zero: none
	writer *producer
	topics int  // so far
	over   bool // what is wanted last stays
	img    *meta.Image
}

const churnTopic = "churn"

func (k *churn) step() {
	pause := k.c.between(50*time.Millisecond, 300*time.Millisecond)
	switch t := k.newest().TopicByName(churnTopic); {
	case k.want && t == nil:
		k.c.command("create "+churnTopic, func(s *controller.State, now time.Time) machine.Result {
			return s.CreateTopics(now, []controller.NewTopic{{Name: churnTopic, Partitions: 1, ReplicationFactor: 3}}, false)
		})
	case k.want && k.made.id != t.ID:
		k.begin(t.ID)
		pause = k.c.between(200*time.Millisecond, 2*time.Second)
	case k.want && k.over:
		return
	case k.want:
		k.want = false
		k.forget()
	case t != nil:
		k.c.command("delete "+churnTopic, func(s *controller.State, now time.Time) machine.Result {
			return s.DeleteTopics(now, []controller.DeleteTopic{{ID: t.ID}})
		})
	case k.over:
		return
	default:
		k.want = true
	}
	k.c.after(pause, k.step)
}

// settled says what is missing of what is wanted last.
func (k *churn) settled() string {
	switch t := k.newest().TopicByName(churnTopic); {
	case t != nil && !k.want:
		return "topic churn is not deleted yet"
	case k.want && (t == nil || k.made.id != t.ID):
		return "topic churn is not created yet"
	}
	return ""
}

// begin has a new topic written to.
func (k *churn) begin(id ids.UUID) {
	k.made = topicPartition{churnTopic, 0, id}
	k.c.logf("topic %s is there", k.made)
	k.c.tps = append(k.c.tps, k.made)
	k.c.check.elections(k.c.check.draft.Speculative())
	k.topics++
	k.writer = &producer{view: view{c: k.c, tp: k.made}, id: 10_000 * k.topics, idle: true}
	k.c.producers = append(k.c.producers, k.writer)
	k.writer.next()
}

// forget ends what goes on with the topic, which is about to be deleted.
func (k *churn) forget() {
	k.writer.over = true
	k.c.producers = slices.DeleteFunc(k.c.producers, func(p *producer) bool { return p == k.writer })
	k.c.tps = slices.DeleteFunc(k.c.tps, func(tp topicPartition) bool { return tp == k.made })
	k.made, k.writer = topicPartition{}, nil
}

// newest is the newest metadata that a broker was seen to have.
func (k *churn) newest() *meta.Image {
	for _, h := range k.c.hosts {
		if h.up && h.brk.img.Offset > k.img.Offset {
			k.img = h.brk.img
		}
	}
	return k.img
}

// leftovers says which brokers have replicas or logs that they shouldn't, or lack some.
func (c *cores) leftovers() string {
	for _, h := range c.hosts {
		var want, have []string
		for t := range h.brk.img.Topics() {
			for i, p := range t.Partitions {
				if slices.Contains(p.Replicas, h.brk.id) {
					want = append(want, fmt.Sprintf("%s of %s", tpName(t.Name, int32(i)), t.ID))
				}
			}
		}
		for _, l := range h.brk.logs() {
			have = append(have, fmt.Sprintf("%s of %s", tpName(l.Topic(), l.Partition()), l.TopicID()))
		}
		slices.Sort(want)
		slices.Sort(have)
		if !slices.Equal(want, have) {
			return fmt.Sprintf("host %d has logs %v, and should have %v", h.id, have, want)
		}
	}
	return ""
}
