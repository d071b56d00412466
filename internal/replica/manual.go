package replica

import (
	"cmp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What follows drives a Manager without the goroutines of Start, for simulations.

// TakeAlter returns the AlterPartition request that is due, nil if none is. answered takes over
// the controller's answer, or the error; what has to be sent again is due again then.
func (m *Manager) TakeAlter() (req *kmsg.AlterPartitionRequest, answered func(*kmsg.AlterPartitionResponse, error)) {
	list := m.alters.take()
	if len(list) == 0 {
		return nil, nil
	}
	return m.alterRequest(list), func(resp *kmsg.AlterPartitionResponse, err error) {
		for _, x := range m.alterAnswered(list, resp, err) {
			m.alters.mu.Lock()
			if m.alters.queue[x.p] == nil {
				m.alters.queue[x.p] = x.pr
			}
			m.alters.mu.Unlock()
		}
	}
}

// ShrinkISRs proposes what the followers' lag asks for now, partition by partition in order.
func (m *Manager) ShrinkISRs(now time.Time) {
	var ps []*Partition
	m.Partitions(func(p *Partition) bool { ps = append(ps, p); return true })
	slices.SortFunc(ps, func(x, y *Partition) int {
		return cmp.Or(cmp.Compare(x.topic.name, y.topic.name), cmp.Compare(x.index, y.index))
	})
	for _, p := range ps {
		p.shrink(now)
	}
}

// RetryLogs makes the logs that could not be made for lack of space.
func (m *Manager) RetryLogs() { m.retryLogs() }
