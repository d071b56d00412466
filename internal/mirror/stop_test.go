package mirror_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"milena/internal/api"
	"milena/internal/coord/mirrorstate"
	"milena/internal/disk"
	"milena/internal/mirrormsg"
	"milena/internal/record"
	"milena/mirroradm"
)

// loss is what is lost of a request.
type loss int

const (
	lossNone loss = iota
	lossRequest
	lossAnswer // the other side has done what was asked
)

// lossyConn is a connection between nodes that loses what its trio says.
type lossyConn struct {
	net.Conn
	on   *trio
	deaf atomic.Bool
}

var errLost = errors.New("connection lost")

func (c *lossyConn) Write(b []byte) (int, error) {
	switch c.on.loses(b) {
	case lossRequest:
		return 0, errors.Join(errLost, c.Close())
	case lossAnswer:
		c.deaf.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.Load() {
		return 0, errors.Join(errLost, c.Close())
	}
	return n, err
}

// loses is what becomes of a frame; frames are written whole.
func (c *trio) loses(b []byte) loss {
	if len(b) < 14 || api.Key(binary.BigEndian.Uint16(b[4:])) != api.WriteMirrorStates {
		return lossNone
	}
	body := b[14:] // size, key, version, correlation id, and the length of the client id
	if n := int16(binary.BigEndian.Uint16(b[12:])); n > 0 {
		body = body[n:]
	}
	req := &mirrormsg.WriteMirrorStatesRequest{}
	if len(body) < 1 || req.ReadFrom(body[1:]) != nil { // no tags
		return lossNone
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lose == nil {
		return lossNone
	}
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			if l := c.lose(&req.Topics[i].Partitions[j]); l != lossNone {
				c.lost++
				return l
			}
		}
	}
	return lossNone
}

// losing sets what is lost from now on.
func (c *trio) losing(f func(*mirrormsg.WriteMirrorStatesPartition) loss) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose, c.lost = f, 0
}

func (c *trio) awaitLost(n int) {
	c.t.Helper()
	eventually(c.t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.lost < n {
			return fmt.Errorf("%d writes of states were lost, want %d", c.lost, n)
		}
		return nil
	})
}

// captures loses writes of last mirror epochs, stops those of STOPPED.
func captures(l loss) func(*mirrormsg.WriteMirrorStatesPartition) loss {
	return func(p *mirrormsg.WriteMirrorStatesPartition) loss {
		if p.StopWishOffset != -1 {
			return l
		}
		return lossNone
	}
}

func stops(l loss) func(*mirrormsg.WriteMirrorStatesPartition) loss {
	return func(p *mirrormsg.WriteMirrorStatesPartition) loss {
		if p.State == int8(mirrormsg.Stopped) {
			return l
		}
		return lossNone
	}
}

// coordinator is the node that coordinates partition 0 of a topic in a mirror.
func (c *trio) coordinator(mirror, topic string) (id int32) {
	c.t.Helper()
	c.leader(mirrorstate.Topic)
	for _, n := range c.nodes.IDs() {
		nd := c.nodes.Node(n)
		if nd == nil {
			continue
		}
		img := nd.Image()
		states := img.TopicByName(mirrorstate.Topic)
		slot := mirrormsg.Slot(mirrorstate.Key{Mirror: mirror, TopicID: img.TopicByName(topic).ID}.Slot(), int32(len(states.Partitions)))
		return states.Partitions[slot].Leader
	}
	return -1
}

// apart mirrors a topic of a to the trio whose leader there isn't its coordinator, with records of several epochs, the last one in six
// records from the epoch on, and level.
func (c *trio) apart(a *cluster, mirror string) (topic string) {
	c.t.Helper()
	for i := 0; ; i++ {
		topic = fmt.Sprintf("t%d", i)
		a.topic(topic, 1)
		c.begin(mirror, topic)
		c.awaitLevel(mirror, topic)
		if c.leader(topic) != c.coordinator(mirror, topic) {
			break
		}
	}
	a.produce(topic, 0, 2)
	a.restart()
	a.produce(topic, 0, 4)
	c.awaitReplicas(topic, 6, c.nodes.IDs()...)
	return topic
}

// lastEpoch is the leader epoch of the last batch of a one-node cluster's partition 0.
func (c *cluster) lastEpoch(topic string) int32 {
	c.t.Helper()
	p, err := c.n.Replicas().Get(topic, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	return p.Log().LatestEpoch()
}

// lastMirror is the last mirror epoch and offset of partition 0, as a failback is told.
func (c *cluster) lastMirror(source, topic string) (out mirroradm.Partition) {
	c.t.Helper()
	eventually(c.t, func() error {
		ds, err := c.mir.DescribeWith(c.t.Context(), mirroradm.DescribeOptions{SourceClusterID: source, State: true, Topics: map[string][]int32{topic: {0}}})
		if err != nil {
			return err
		}
		for _, d := range ds {
			if d.Err != nil {
				return d.Err
			}
			if len(d.Partitions) == 1 {
				out = d.Partitions[0]
				return nil
			}
		}
		return fmt.Errorf("no last mirror epoch of %s is told", topic)
	})
	return out
}

// controls are the control batches of a replica from an offset on, by kind, with the offset of the last.
func controls(text string, from int64) (kinds map[record.ControlType]int, err error) {
	kinds = map[record.ControlType]int{}
	for b, err := range record.Batches([]byte(text)) {
		if err != nil {
			return nil, err
		}
		if b.BaseOffset() < from {
			continue
		}
		if c, ok, err := b.Control(); err != nil {
			return nil, err
		} else if ok {
			kinds[c.Type]++
		}
	}
	return kinds, nil
}

// stopped waits until a topic of 6 mirrored records is STOPPED, and checks that the stop was made once and the failback is told the truth.
func (c *trio) stopped(a *cluster, mirror, topic string) {
	c.t.Helper()
	c.awaitState(mirror, topic, "STOPPED")
	if p := c.lastMirror(a.n.ClusterID(), topic); p.LastMirrorEpoch != a.lastEpoch(topic) || p.LastMirrorOffset != 6 {
		c.t.Errorf("last mirror epoch %d, offset %d, want %d and 6", p.LastMirrorEpoch, p.LastMirrorOffset, a.lastEpoch(topic))
	}
	text, err := content(c.replica(c.leader(topic), topic))
	if err != nil {
		c.t.Fatal(err)
	}
	kinds, err := controls(text, 6)
	if err != nil || kinds[record.ControlMirrorPIDReset] != 1 || len(kinds) != 1 {
		c.t.Errorf("the stop wrote %v (%v), want one reset of the producers", kinds, err)
	}
	eventually(c.t, func() error { return c.trySay(topic, "after the stop") }) // leaders are known everywhere a moment later
}

// 135. LME write lost (network) for a remote coordinator: STOPPED is not reached before the LME is acknowledged.
func TestScenario135(t *testing.T) {
	a, b := newCluster(t, "source"), newTrio(t)
	b.mirrorAt("m", a.addr, a.n.ClusterID())
	topic := b.apart(a, "m")
	b.losing(captures(lossRequest))
	b.stop("m", topic)
	b.awaitLost(2)
	p, err := b.state("m", topic, 0)
	if err != nil || p.State != "STOPPING" {
		t.Fatalf("without an acknowledged last mirror epoch: %+v, %v", p, err)
	}
	if end := b.replica(b.leader(topic), topic).LogEndOffset(); end != 6 {
		t.Errorf("before the last mirror epoch is stored the stop has appended up to %d", end)
	}
	if err := b.trySay(topic, "x"); err == nil || !strings.Contains(err.Error(), "POLICY_VIOLATION") {
		t.Errorf("a produce meanwhile: %v", err)
	}
	// Once it arrives and only its acknowledgement is lost: what is stored is found again.
	b.losing(func(p *mirrormsg.WriteMirrorStatesPartition) loss {
		if p.StopWishOffset != -1 && b.lost == 0 {
			return lossAnswer
		}
		return lossNone
	})
	b.stopped(a, "m", topic)
}

// 133. Coordinator killed between LME write and STOPPED: after recovery the LME equals the pre-bump epoch, exactly one effective stop, PID
// reset present.
func TestScenario133(t *testing.T) {
	a, b := newCluster(t, "source"), newTrio(t)
	b.mirrorAt("m", a.addr, a.n.ClusterID())
	topic := b.apart(a, "m")
	b.losing(stops(lossRequest))
	b.stop("m", topic)
	b.awaitLost(1)
	b.nodes.Kill(b.coordinator("m", topic))
	b.losing(nil)
	b.stopped(a, "m", topic)
}

// 161. Desired STOPPED is written, the mirror leader dies before the LME is stored, a new leader is elected: the LME is the epoch of the last
// mirrored batch, never the new leader's own; a following failback cuts at the true point.
func TestScenario161(t *testing.T) { leaderDiesInStop(t, captures(lossRequest)) }

// The same a step later: the last mirror epoch is stored, and the log has what the stop appends, but not STOPPED.
func TestLeaderDiesBeforeStopped(t *testing.T) { leaderDiesInStop(t, stops(lossRequest)) }

func leaderDiesInStop(t *testing.T, lose func(*mirrormsg.WriteMirrorStatesPartition) loss) {
	a, b := newCluster(t, "source"), newTrio(t)
	b.mirrorAt("m", a.addr, a.n.ClusterID())
	topic := b.apart(a, "m")
	first := b.leader(topic)
	b.losing(lose)
	b.stop("m", topic)
	b.awaitLost(1)
	b.nodes.Kill(first)
	b.losing(nil)
	b.stopped(a, "m", topic)
	// The old source has written on, under the epoch that the standby's new leader has.
	for p := b.replica(b.leader(topic), topic); a.lastEpoch(topic) < p.Log().LatestEpoch(); {
		a.restart()
		a.produce(topic, 0, 1)
	}
	b.nodes.StartNodes(first)
	a.mirrorAt("back", strings.Join(b.nodes.Addrs(), ","), b.nodes.ID)
	a.begin("back", topic)
	a.awaitTopic("back", topic)
	b.awaitSame(a, topic)
	if cut := a.cutRecords(mirroradm.CutFilter{}); len(cut) == 0 || !strings.HasPrefix(cut[0], "6:") {
		t.Errorf("cut: %v, want what the old source wrote from 6 on", cut)
	}
}

// 175. Power loss of all destination brokers right after STOPPED was answered: state and LME are there after restart.
func TestScenario175(t *testing.T) {
	a, b := newCluster(t, "source"), newTrio(t)
	b.mirrorAt("m", a.addr, a.n.ClusterID())
	topic := b.apart(a, "m")
	b.stop("m", topic)
	b.awaitState("m", topic, "STOPPED")
	for _, id := range b.nodes.IDs() { // none gets to flush what it has
		b.nodes.SetFS(id, b.nodes.FS(id).(*disk.Mem).CrashClone(false, 1))
	}
	b.nodes.KillAll()
	b.nodes.StartAll()
	b.stopped(a, "m", topic)
}
