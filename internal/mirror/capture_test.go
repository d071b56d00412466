package mirror_test

import (
	"fmt"
	"testing"

	"milena/internal/mirrormsg"
)

// What was mirrored counts in the last mirror epoch once every in-sync replica has it: a stop that captured more would have the next leader
// keep, at a failback, what it doesn't have (D2).
func TestCaptureWaitsForTheCommit(t *testing.T) {
	a, b := newCluster(t, "source"), newTrio(t)
	b.mirrorAt("m", a.addr, a.n.ClusterID())
	topic := b.apart(a, "m")
	leader := b.leader(topic)
	rep := b.replica(leader, topic)
	b.isolate(leader, true) // its followers stay in sync for a while
	a.produce(topic, 0, 3)
	eventually(t, func() error {
		if end, hw := rep.LogEndOffset(), rep.HighWatermark(); end != 9 || hw != 6 {
			return fmt.Errorf("the leader ends at %d, high watermark %d", end, hw)
		}
		return nil
	})
	var early []string
	captured := false
	b.losing(func(p *mirrormsg.WriteMirrorStatesPartition) loss {
		if p.StopWishOffset != -1 {
			captured = true
			if hw := rep.HighWatermark(); p.LastMirrorOffset > hw {
				early = append(early, fmt.Sprintf("offset %d at high watermark %d", p.LastMirrorOffset, hw))
			}
		}
		return lossNone
	})
	b.stop("m", topic)
	b.awaitState("m", topic, "STOPPING")
	b.isolate(leader, false)
	b.awaitState("m", topic, "STOPPED")
	b.losing(nil)
	if !captured || len(early) > 0 {
		t.Errorf("captured: %v, before the commit: %v", captured, early)
	}
	if p := b.lastMirror(a.n.ClusterID(), topic); p.LastMirrorOffset != 9 {
		t.Errorf("last mirror offset %d, want 9", p.LastMirrorOffset)
	}
}
