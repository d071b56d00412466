package mirror_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"milena/internal/api"
	"milena/internal/peertest"
)

// line is the line from a destination to its source, which can be cut, and counts the requests that go over it.
type line struct {
	mu     sync.Mutex
	source string
	down   bool
	conns  []net.Conn
	asked  map[api.Key]int
	refuse map[api.Key]bool // requests that end the connection
}

func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	l.mu.Lock()
	ours, down := addr == l.source, l.down
	l.mu.Unlock()
	if ours && down {
		return nil, errors.New("no route")
	}
	c, err := d.DialContext(ctx, network, addr)
	if !ours || err != nil {
		return c, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errors.Join(errors.New("no route"), c.Close())
	}
	l.conns = append(l.conns, c)
	return &lineConn{c, l}, nil
}

// cut cuts the line, or mends it.
func (l *line) cut(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	if down {
		for _, c := range l.conns {
			_ = c.Close()
		}
		l.conns = nil
	}
}

// refuses sets the requests that don't get through.
func (l *line) refuses(keys ...api.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = map[api.Key]bool{}
	for _, k := range keys {
		l.refuse[k] = true
	}
}

func (l *line) count(k api.Key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked[k]
}

type lineConn struct {
	net.Conn
	l *line
}

func (c *lineConn) Write(b []byte) (int, error) {
	if len(b) >= 6 { // requests are written whole
		key := api.Key(binary.BigEndian.Uint16(b[4:]))
		c.l.mu.Lock()
		c.l.asked[key]++
		refused := c.l.refuse[key]
		c.l.mu.Unlock()
		if refused {
			return 0, errors.Join(errLost, c.Close())
		}
	}
	return c.Conn.Write(b)
}

// 146. 10,000 partitions, source link flaps for a minute: number of RPCs to source and coordinators stays bounded, recovery time is bounded.
func TestScenario146(t *testing.T) { flappingLine(t) }

// FieldCase 78: "A flapping line floods the controller": 50,000 partitions (scale down to fit), 1 flap/s for 5 min; metadata records/s bounded.
func TestFieldCase78(t *testing.T) { flappingLine(t) }

// flappingLine cuts the line of many partitions for moments: no state of theirs changes, so that neither coordinators nor the controller
// have any work, and the source is asked for its metadata a few times a flap, not once a partition.
func flappingLine(t *testing.T) {
	const partitions, flaps = 200, 5
	a := newCluster(t, "source")
	l := &line{source: a.addr, asked: map[api.Key]int{}}
	b := newClusterOn(t, "destination", l.dial, "mirror.metadata.refresh.interval.ms", "3600000")
	a.topic("t", partitions)
	b.mirror("m", a, "mirror.fetch.backoff.ms", "500", "mirror.groups.include", "")
	b.begin("m", "t")
	level := func(n int) {
		t.Helper()
		for p := range int32(partitions) {
			a.produce("t", p, 1)
		}
		eventually(t, func() error {
			ends, err := b.adm.ListEndOffsets(t.Context(), "t")
			if err != nil {
				return err
			}
			for p := range int32(partitions) {
				if e, _ := ends.Lookup("t", p); e.Offset != int64(n) {
					return fmt.Errorf("partition %d ends at %d, want %d", p, e.Offset, n)
				}
			}
			return nil
		})
	}
	level(1)
	eventually(t, func() error { // the first batches have leader epochs raised ahead of the source's, which is not what is counted
		for p, x := range b.n.Image().TopicByName("t").Partitions {
			if x.LeaderEpoch < 3 {
				return fmt.Errorf("partition %d has leader epoch %d", p, x.LeaderEpoch)
			}
		}
		return nil
	})
	changes := func() int { return strings.Count(b.logs.text(), "mirror partition changed its state") }
	before, asked, records := changes(), l.count(api.Metadata), b.n.Image().Offset
	for i := range flaps {
		l.cut(true)
		if err := peertest.Pause(t.Context(), 20*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		l.cut(false)
		level(2 + i)
	}
	if n := changes() - before; n != 0 {
		t.Errorf("%d changes of state", n)
	}
	if n := l.count(api.Metadata) - asked; n > 10*flaps {
		t.Errorf("the source was asked for metadata %d times", n)
	}
	if n := b.n.Image().Offset - records; n > 10*flaps {
		t.Errorf("%d records of metadata", n)
	}
}

// 8.4 makes partitions FAILED at once when a connection is lost; here a source broker that dies is waited for, and the partition is fetched
// from the new leader as soon as there is one.
func TestSourceBrokerDies(t *testing.T) {
	a, b := newTrio(t), newCluster(t, "destination")
	if _, err := a.adm.CreateTopic(t.Context(), 1, 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("1")}, "t"); err != nil {
		t.Fatal(err)
	}
	a.produce("t", 0, 3)
	b.mirrorAt("m", strings.Join(a.nodes.Addrs(), ","), a.nodes.ID, "mirror.fetch.backoff.ms", "2000")
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	before := len(b.logs.text())
	a.nodes.Kill(a.leader("t"))
	eventually(t, func() error { return a.trySay("t", "by the new leader") })
	b.awaitEnd("t", 0, a.end("t", 0))
	b.awaitTopic("m", "t")
	if strings.Contains(b.logs.text()[before:], "to=FAILED") {
		t.Error("the partition failed on the way to the new leader")
	}
}
