package replica

import (
	"cmp"
	"errors"
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

// CutSelves cuts the partitions that this broker was chosen to lead though they have given up records that it holds, and returns the
// AlterPartition request that says so, nil if there are none. The answer is of no interest: the metadata say what came of it.
func (m *Manager) CutSelves() *kmsg.AlterPartitionRequest {
	_, list := m.selves.cut(m)
	if len(list) == 0 {
		return nil
	}
	return m.alterRequest(list)
}

// ShrinkISRs proposes what the followers' lag asks for now, partition by partition in order.
func (m *Manager) ShrinkISRs(now time.Time) {
	for _, p := range m.ordered() {
		p.shrink(now)
	}
}

// ordered is all local partitions in a fixed order.
func (m *Manager) ordered() (ps []*Partition) {
	m.Partitions(func(p *Partition) bool { ps = append(ps, p); return true })
	slices.SortFunc(ps, byName)
	return ps
}

func byName(x, y *Partition) int {
	return cmp.Or(cmp.Compare(x.topic.name, y.topic.name), cmp.Compare(x.index, y.index))
}

// TakeAssign returns the AssignReplicasToDirs request that is due, nil if none is. It is due again until the metadata agree.
func (m *Manager) TakeAssign() *kmsg.AssignReplicasToDirsRequest {
	list := m.assign.take(m)
	if len(list) == 0 {
		return nil
	}
	return m.assignRequest(list)
}

// StepMoves goes a step on with each move between log directories.
func (m *Manager) StepMoves() {
	dirs, ok := m.opts.Dirs.(moveDirs)
	if !ok {
		return
	}
	for _, mv := range m.moves.list() {
		done, err := m.moveStep(mv, dirs)
		switch {
		case done:
			m.moves.forget(mv)
			m.checkDir(mv.p)
		case err != nil && !errors.Is(err, errNotAnnounced) && !errors.Is(err, errNotNow):
			m.heldUp(mv, err)
		}
	}
}

// DirectoryLost is DirectoryOffline, done when it returns. It must not be called from within an append.
func (m *Manager) DirectoryLost(path string, cause error) { m.directoryOffline(path, cause) }

// RetryLogs makes the logs that could not be made for lack of space.
func (m *Manager) RetryLogs() { m.retryLogs() }
