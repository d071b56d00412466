package controller

import (
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

// DirAssignment says in which directory of a broker its replica of a partition lies.
type DirAssignment struct {
	Dir       ids.UUID // ids.LostDir: in one that has failed
	Topic     ids.UUID
	Partition int32
}

// AssignDirs notes where replicas of a broker lie (AssignReplicasToDirs, KIP-858). The reply
// is an []*api.Error in the order of assignments. A replica that lies in a directory which
// isn't online leaves its ISR, ELR and leadership.
func (s *State) AssignDirs(_ time.Time, broker int32, brokerEpoch int64, assignments []DirAssignment) machine.Result {
	img := s.Image()
	b, err := checkBroker(img, broker, brokerEpoch)
	if err != nil {
		return machine.Result{Err: err}
	}
	errs := make([]*api.Error, len(assignments))
	type key struct {
		topic     ids.UUID
		partition int32
	}
	seen := map[key]bool{}
	var recs []meta.Record
	for i, a := range assignments {
		k := key{a.Topic, a.Partition}
		t := img.TopicByID(a.Topic)
		p := t.Partition(a.Partition)
		switch {
		case seen[k]:
			errs[i] = api.Errorf(api.InvalidRequest, "partition %d of topic %s is in the request more than once", a.Partition, a.Topic)
		case a.Dir.IsReserved() && a.Dir != ids.LostDir:
			errs[i] = api.Errorf(api.InvalidRequest, "%s is no id of a directory", a.Dir)
		case t == nil:
			errs[i] = api.Errorf(api.UnknownTopicID, "there is no topic with id %s", a.Topic)
		case p == nil:
			errs[i] = api.Errorf(api.UnknownTopicOrPartition, "topic %s has no partition %d", t.Name, a.Partition)
		case !slices.Contains(p.Replicas, broker):
			errs[i] = api.Errorf(api.NotLeaderOrFollower, "broker %d has no replica of partition %d of topic %s", broker, a.Partition, t.Name)
		default:
			if r := s.assignDir(img, b, t, a); r != nil {
				recs = append(recs, r)
			}
		}
		seen[k] = true
	}
	return s.result(errs, recs...)
}

func (s *State) assignDir(img *meta.Image, b *meta.Broker, t *meta.Topic, a DirAssignment) *meta.PartitionChangeRecord {
	ev := event{leaves: -1, joins: -1}
	anew := madeAnew(b, t.Partitions[a.Partition], a.Dir)
	if anew || !b.HasDir(a.Dir) {
		ev.leaves, ev.distrusted = b.ID, true
	}
	c := s.planEvent(img, t, a.Partition, ev)
	if anew {
		c.forgotten = b.ID
	}
	at := slices.Index(c.replicas, b.ID)
	c.dirs = slices.Clone(c.dirs)
	for len(c.dirs) < len(c.replicas) {
		c.dirs = append(c.dirs, ids.UnassignedDir)
	}
	c.dirs[at] = a.Dir
	return c.record()
}

// madeAnew reports whether a replica that the broker says lies in dir now was made there
// without its records: it lay in a directory that the broker no longer has, as after a disk
// was replaced. It must not be elected for what it once had.
func madeAnew(b *meta.Broker, p *meta.Partition, dir ids.UUID) bool {
	at := slices.Index(p.Replicas, b.ID)
	if at >= len(p.Dirs) || !b.HasDir(dir) {
		return false
	}
	was := p.Dirs[at]
	return was != ids.LostDir && !b.HasDir(was) // of a lost one nobody knows which it was: it may be back
}
