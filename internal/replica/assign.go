package replica

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
)

// assigner tells the controller in which directories replicas are, where the
// metadata says another (KIP-858). It repeats until the metadata agrees.
type assigner struct {
	mu    sync.Mutex
	wrong map[*Partition]bool
	wake  chan struct{} // capacity 1: there are entries
}

func (a *assigner) init() {
	a.wrong, a.wake = map[*Partition]bool{}, make(chan struct{}, 1)
}

// check notes whether the metadata has the directory of a replica.
func (a *assigner) check(m *Manager, p *Partition, mp *meta.Partition) {
	dir, known := m.whereIs(p), m.assigned(mp)
	wrong := !dir.IsZero() && slices.Contains(mp.Replicas, m.opts.NodeID) && known != dir
	if dir == ids.LostDir && !known.IsReserved() && !m.dirOnline(known) {
		wrong = false // the controller knows that this directory is offline; where a copy was on its way it may have the other
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !wrong {
		delete(a.wrong, p)
		return
	}
	a.wrong[p] = true
	poke(a.wake)
}

func (a *assigner) run(ctx context.Context, m *Manager) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for a.send(ctx, m) > 0 && ctx.Err() == nil {
			pause(ctx, 10*controllerBackoff)
		}
	}
}

// whereIs is the directory of a replica, ids.LostDir if that is offline, and zero
// if there is no log.
func (m *Manager) whereIs(p *Partition) ids.UUID {
	switch gone := p.st.Load().gone; {
	case errors.Is(gone, logdir.ErrOffline):
		return ids.LostDir
	case gone != nil:
		return ids.Zero
	}
	if to := p.announcedDir(m); !to.IsZero() {
		return to
	}
	return m.opts.Dirs.DirOf(p.topic.name, p.index)
}

// announcedDir is the directory of a copy that is about to take the replica's place, zero if there is none.
func (p *Partition) announcedDir(m *Manager) ids.UUID {
	if mv := p.moving.Load(); mv != nil && mv.announced.Load() {
		if dirs, ok := m.opts.Dirs.(moveDirs); ok {
			return dirs.FutureDir(p.topic.name, p.index)
		}
	}
	return ids.Zero
}

// dirOnline reports whether a directory is one of this broker's that is online.
func (m *Manager) dirOnline(id ids.UUID) bool {
	dirs, ok := m.opts.Dirs.(interface{ Online(id ids.UUID) bool })
	return ok && dirs.Online(id)
}

// take lists, in order, the replicas of which the metadata has a wrong directory.
func (a *assigner) take(m *Manager) []*Partition {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*Partition, 0, len(a.wrong))
	for p := range a.wrong {
		if m.whereIs(p).IsZero() {
			delete(a.wrong, p)
			continue
		}
		list = append(list, p)
	}
	slices.SortFunc(list, byName)
	return list
}

// assignRequest says where replicas are, which are in order.
func (m *Manager) assignRequest(list []*Partition) *kmsg.AssignReplicasToDirsRequest {
	req := kmsg.NewPtrAssignReplicasToDirsRequest()
	req.BrokerID, req.BrokerEpoch = m.opts.NodeID, m.opts.BrokerEpoch()
	for _, p := range list {
		dir := m.whereIs(p)
		if dir.IsZero() {
			continue // it went meanwhile
		}
		at := slices.IndexFunc(req.Directories, func(d kmsg.AssignReplicasToDirsRequestDirectory) bool { return d.ID == dir })
		if at < 0 {
			at = len(req.Directories)
			d := kmsg.NewAssignReplicasToDirsRequestDirectory()
			d.ID = dir
			req.Directories = append(req.Directories, d)
		}
		d := &req.Directories[at]
		if n := len(d.Topics); n == 0 || d.Topics[n-1].TopicID != p.topic.id {
			t := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
			t.TopicID = p.topic.id
			d.Topics = append(d.Topics, t)
		}
		tp := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
		tp.Partition = p.index
		t := &d.Topics[len(d.Topics)-1]
		t.Partitions = append(t.Partitions, tp)
	}
	return req
}

// send tells of all that is wrong and returns how much there was: the metadata
// says later what came of it.
func (a *assigner) send(ctx context.Context, m *Manager) int {
	list := a.take(m)
	if len(list) == 0 {
		return 0
	}
	req := m.assignRequest(list)
	ctx, cancel := context.WithTimeout(ctx, controllerTimeout)
	defer cancel()
	msg, err := m.opts.Controller.Call(ctx, req)
	if err != nil {
		m.log.Debug("AssignReplicasToDirs failed", "replicas", len(list), "error", err)
		return len(list)
	}
	if code := api.Code(msg.(*kmsg.AssignReplicasToDirsResponse).ErrorCode); code != api.NoError {
		m.log.Debug("AssignReplicasToDirs refused", "replicas", len(list), "code", code.Name())
	}
	return len(list)
}
