package sim

import (
	"fmt"
	"time"

	"milena/internal/controller"
	"milena/internal/coord/mirrorstate"
	"milena/internal/machine"
	"milena/internal/mirrormsg"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
)

// mirrorStray is a topic of the source that comes and goes, and is found by a pattern.
const mirrorStray = "x"

// strays have the topic created at the source of a leg, written to and deleted, and its mirror stopped and deleted, again and again.
type strays struct {
	p    *mirrorCores
	l    *coreLeg
	f    *coreMirrorFaults
	step int
}

func (s *strays) next() {
	if s.f.over || len(s.p.failed) > 0 {
		return
	}
	src, dst := s.l.src, s.l.dst
	s.step++
	switch s.step % 6 {
	case 1:
		s.f.include(dst, mirrorTopic+","+mirrorStray+".*")
		src.command("create "+mirrorStray, func(st *controller.State, now time.Time) machine.Result {
			return st.CreateTopics(now, []controller.NewTopic{{Name: mirrorStray, Partitions: 1, ReplicationFactor: int16(src.factor)}}, false)
		})
	case 2, 3:
		s.write(src)
	case 4:
		s.remove(src)
	case 5:
		dst.command("stop "+mirrorStray, func(st *controller.State, now time.Time) machine.Result {
			req := mirrormsg.NewStopMirrorTopicsRequest()
			req.MirrorName, req.StateOffset, req.Topics = dst.mirror(), -1, []mirrormsg.StopMirrorTopic{{TopicName: mirrorStray}}
			return mirrorCommands(dst).Stop(&req)(st, now)
		})
	case 0:
		s.remove(dst)
	}
	s.p.after(s.p.between(100*time.Millisecond, 900*time.Millisecond), s.next)
}

func (s *strays) remove(c *cores) {
	c.command("delete "+mirrorStray, func(st *controller.State, now time.Time) machine.Result {
		return st.DeleteTopics(now, []controller.DeleteTopic{{Name: mirrorStray}})
	})
}

// write writes a record to the topic, if somebody leads it.
func (s *strays) write(c *cores) {
	h := c.knownLeader(mirrorStray, 0)
	if h == nil || !h.up {
		return
	}
	p, err := h.brk.mgr.Get(mirrorStray, 0)
	if err != nil {
		return
	}
	b, err := record.Build(record.BuilderOptions{}, record.Record{Timestamp: time.Now().UnixMilli(), Value: []byte("stray")})
	if err == nil {
		_, err = p.Append(b, replica.AppendOptions{Origin: partlog.OriginClient, Acks: -1, Epoch: replica.AnyEpoch})
	}
	h.touched = true
	c.logf("write to %s: %v", mirrorStray, err)
	h.brk.appended(p)
}

// state says what is wrong with the topic's mirror when all is healed: it has to be MIRRORING or at rest, or to have FAILED with a reason.
func (s *strays) state() string {
	dst := s.l.dst
	t := dst.newest().TopicByName(mirrorStray)
	if t == nil || t.MirrorName != dst.mirror() {
		return ""
	}
	st, ok := dst.statusOf(mirrorstate.Key{Mirror: dst.mirror(), TopicID: t.ID})
	switch {
	case !ok:
		return "no coordinator of states"
	case st.State == mirrormsg.Mirroring, st.State == mirrormsg.Stopped, st.State == mirrormsg.Paused, st.State == mirrormsg.Failed && st.Error != "":
		return ""
	}
	return fmt.Sprintf("the mirror of topic %s is %s: %s", mirrorStray, st.State, st.Error)
}
