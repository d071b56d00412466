package replica

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/metafollow"
)

const (
	// controllerTimeout is how long the controller has for an answer.
	controllerTimeout = 30 * time.Second
	// controllerBackoff is the pause after a request to the controller failed.
	controllerBackoff = 50 * time.Millisecond
)

// alterer sends proposed changes of ISRs to the controller, one request at a
// time: what comes up meanwhile goes together with the next.
type alterer struct {
	mu    sync.Mutex
	queue map[*Partition]*proposal
	wake  chan struct{} // capacity 1: the queue has entries
}

func (a *alterer) init() {
	a.queue, a.wake = map[*Partition]*proposal{}, make(chan struct{}, 1)
}

// add queues a proposal, in place of an older one of the partition.
func (a *alterer) add(p *Partition, pr *proposal) {
	a.mu.Lock()
	a.queue[p] = pr
	a.mu.Unlock()
	poke(a.wake)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// proposing is a proposal with its partition.
type proposing struct {
	p  *Partition
	pr *proposal
}

// take empties the queue, in a fixed order.
func (a *alterer) take() []proposing {
	a.mu.Lock()
	out := make([]proposing, 0, len(a.queue))
	for p, pr := range a.queue {
		out = append(out, proposing{p, pr})
	}
	clear(a.queue)
	a.mu.Unlock()
	out = slices.DeleteFunc(out, func(x proposing) bool { return !x.p.proposed(x.pr) })
	slices.SortFunc(out, func(x, y proposing) int {
		return cmp.Or(cmp.Compare(x.p.topic.name, y.p.topic.name), cmp.Compare(x.p.index, y.p.index))
	})
	return out
}

func (a *alterer) run(ctx context.Context, m *Manager) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		list := a.take()
		if len(list) == 0 {
			continue
		}
		again := m.alterPartitions(ctx, list)
		if len(again) == 0 {
			continue
		}
		pause(ctx, controllerBackoff)
		for _, x := range again {
			a.mu.Lock()
			if a.queue[x.p] == nil {
				a.queue[x.p] = x.pr
			}
			a.mu.Unlock()
		}
		poke(a.wake)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// alterPartitions sends one AlterPartition request and returns what has to be
// sent again.
func (m *Manager) alterPartitions(ctx context.Context, list []proposing) (again []proposing) {
	ctx, cancel := context.WithTimeout(ctx, controllerTimeout)
	defer cancel()
	msg, err := m.opts.Controller.Call(ctx, m.alterRequest(list))
	return m.alterAnswered(list, msg, err)
}

// alterAnswered takes over the answer to an AlterPartition request and returns what has to be
// sent again.
func (m *Manager) alterAnswered(list []proposing, msg kmsg.Response, err error) (again []proposing) {
	if err != nil {
		m.log.Debug("AlterPartition failed", "partitions", len(list), "error", err)
		return list
	}
	resp := msg.(*kmsg.AlterPartitionResponse)
	if code := api.Code(resp.ErrorCode); code != api.NoError {
		// NOT_CONTROLLER, STALE_BROKER_EPOCH until the broker has registered again, ...
		m.log.Debug("AlterPartition refused", "partitions", len(list), "code", code.Name())
		return list
	}
	type key struct {
		id        ids.UUID
		partition int32
	}
	answers := map[key]alteration{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for _, p := range t.Partitions {
			answers[key{t.TopidID, p.Partition}] = alteration{
				code: api.Code(p.ErrorCode), epoch: p.LeaderEpoch, version: p.PartitionEpoch, isr: p.ISR,
			}
		}
	}
	for _, x := range list {
		a, ok := answers[key{x.p.topic.id, x.p.index}]
		if !ok {
			a.code = api.UnknownServerError
		}
		if a.code != api.NoError {
			m.log.Info("change of the ISR refused", "topic", x.p.topic.name, "partition", x.p.index, "epoch", x.pr.epoch, "isr", x.pr.isr, "code", a.code.Name())
		}
		if x.p.altered(x.pr, a) {
			again = append(again, x)
		}
	}
	return again
}

func (m *Manager) alterRequest(list []proposing) *kmsg.AlterPartitionRequest {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID, req.BrokerEpoch = m.opts.NodeID, m.opts.BrokerEpoch()
	for _, x := range list {
		n := len(req.Topics)
		if n == 0 || req.Topics[n-1].TopicID != x.p.topic.id {
			t := kmsg.NewAlterPartitionRequestTopic()
			t.TopicID = x.p.topic.id
			req.Topics = append(req.Topics, t)
			n++
		}
		p := kmsg.NewAlterPartitionRequestTopicPartition()
		p.Partition, p.LeaderEpoch, p.PartitionEpoch = x.p.index, x.pr.epoch, x.pr.version
		if x.pr.cut >= 0 {
			metafollow.SetCut(&p.UnknownTags, x.pr.cut)
		}
		for i, id := range x.pr.isr {
			e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			e.BrokerID, e.BrokerEpoch = id, x.pr.brokerEpochs[i]
			if id == m.opts.NodeID {
				e.BrokerEpoch = req.BrokerEpoch
			}
			p.NewEpochISR = append(p.NewEpochISR, e)
		}
		req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, p)
	}
	return req
}
