package mirror_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

// tools is a client as the tool's own, with patience for leaders that move.
func (c *trio) tools() *kgo.Client {
	c.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.nodes.Addrs()...), kgo.MaxVersions(nil), mirroradm.Software(), kgo.MetadataMinAge(10*time.Millisecond), kgo.DialTimeout(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.RetryTimeout(time.Second), kgo.RequestRetries(1000))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// back is how the other cluster's mirror reaches this one.
func (c *trio) back() map[string]string {
	return map[string]string{"bootstrap.servers": strings.Join(c.nodes.Addrs(), ","), "mirror.fetch.wait.max.ms": "50", "mirror.fetch.backoff.ms": "20"}
}

// mirroredBy makes topic t with 20 records, and a mirror m of it on b.
func (c *trio) mirroredBy(b *trio) (records []string) {
	c.t.Helper()
	if _, err := c.adm.CreateTopic(c.t.Context(), 1, 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("2")}, "t"); err != nil {
		c.t.Fatal(err)
	}
	records = some("a", 20)
	c.say("t", records...)
	b.mirrorAt("m", strings.Join(c.nodes.Addrs(), ","), c.nodes.ID)
	b.begin("m", "t")
	b.awaitLevel("m", "t")
	return records
}

// killLeader ends the node that leads topic t, once.
func (c *trio) killLeader(once *bool) {
	c.t.Helper()
	if !*once {
		*once = true
		c.nodes.Kill(c.leader("t"))
	}
}

// all starts what is down, and reads topic t from its start.
func (c *trio) all() []string {
	c.t.Helper()
	c.nodes.StartAll()
	c.addr = c.nodes.Addrs()[0]
	return c.values("t")
}

// A switchover between two clusters of three brokers loses the leader of the standby behind the fence, and the source's behind the stop. The
// same command goes on from there; nothing is lost, and the mirror back copies what is written then.
func TestSwitchoverLosesLeaders(t *testing.T) {
	a, b := newTrio(t), newTrio(t)
	want := a.mirroredBy(b)
	src, dst := a.tools(), b.tools()
	var here, there, done bool
	var lost int64
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s, err := mirroradm.PlanSwitchover(ctx, src, dst, "m", mirroradm.SwitchoverOptions{Reverse: b.back(), MaxLag: 1000, Quiet: time.Second})
		if err != nil {
			return err
		}
		err = s.Run(ctx, func(x mirroradm.SwitchoverStep) {
			switch x.Name {
			case "fence":
				b.killLeader(&here)
			case "stop":
				a.killLeader(&there)
			}
		})
		n, _ := s.Lost()
		lost, done = lost+n, s.Done
		return err
	})
	if !here || !there || !done || lost != 0 {
		t.Errorf("leaders lost: %t, %t; done %t, %d records lost", here, there, done, lost)
	}
	b.say("t", "b")
	if got := b.all(); fmt.Sprint(got) != fmt.Sprint(append(want, "b")) {
		t.Errorf("here are %v", got)
	}
	a.awaitLevel("m", "t")
	if got := a.all(); fmt.Sprint(got) != fmt.Sprint(append(want, "b")) {
		t.Errorf("at the old source are %v", got)
	}
}

// A failback between two clusters of three brokers loses the leader of the old source behind its fence, and the one of the new source when the
// mirror has been started. What the old source alone has is cut and set aside all the same.
func TestFailbackLosesLeaders(t *testing.T) {
	a, b := newTrio(t), newTrio(t)
	want := a.mirroredBy(b)
	b.stop("m", "t")
	b.awaitStopped("t")
	a.say("t", "lost 1", "lost 2")
	b.say("t", "b")
	src, dst := a.tools(), b.tools()
	var here, there bool
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		f, err := mirroradm.PlanFailback(ctx, src, dst, "m", mirroradm.FailbackOptions{Reverse: b.back()})
		if err != nil {
			if here && strings.Contains(err.Error(), "it is copied back already") {
				return nil // by the run before
			}
			return err
		}
		return f.Run(ctx, func(x mirroradm.SwitchoverStep) {
			switch x.Name {
			case "fence":
				a.killLeader(&here)
			case "start":
				b.killLeader(&there)
			}
		})
	})
	if !here || !there {
		t.Errorf("leaders lost: %t, %t", here, there)
	}
	a.awaitLevel("m", "t")
	if got := a.all(); fmt.Sprint(got) != fmt.Sprint(append(want, "b")) {
		t.Errorf("the old source has %v", got)
	}
	eventually(t, func() error { // each broker is asked
		if got := a.cutRecords(mirroradm.CutFilter{}); fmt.Sprint(got) != "[20:lost 1 21:lost 2]" {
			return fmt.Errorf("set aside: %v", got)
		}
		return nil
	})
}
