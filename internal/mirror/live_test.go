package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// set changes configs of c's topic, or of its broker if topic is empty; an empty value removes the key.
func (c *cluster) set(topic, key, value string) {
	c.t.Helper()
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value}
	if value == "" {
		change = kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key}
	}
	var rs kadm.AlterConfigsResponses
	var err error
	if topic == "" {
		rs, err = c.adm.AlterBrokerConfigs(c.t.Context(), []kadm.AlterConfig{change}, 1)
	} else {
		rs, err = c.adm.AlterTopicConfigs(c.t.Context(), []kadm.AlterConfig{change}, topic)
	}
	if err == nil {
		err = rs[0].Err
	}
	if err != nil {
		c.t.Fatalf("%s=%s: %v", key, value, err)
	}
}

// Scenario 154 as an operator does it: both configs take effect while the mirror runs, and so does taking them away.
func TestThrottleConfigs(t *testing.T) {
	a, b := pair(t)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	level := func() { t.Helper(); b.awaitEnd("t", 0, a.end("t", 0)) }
	paused := func() {
		t.Helper()
		eventually(t, func() error {
			a.produce("t", 0, 1)
			p, err := b.state("m", "t", 0)
			if lag, known := p.Lag(); err == nil && (!known || lag < 3 || p.State != "MIRRORING") {
				err = fmt.Errorf("lag %d (%t): %+v", lag, known, p)
			}
			return err
		})
	}
	b.set("t", "mirror.replication.throttled.replicas", "*")
	b.set("", "mirror.replication.throttled.rate", "0")
	paused()
	b.set("t", "mirror.replication.throttled.replicas", "1:1,0:2")
	level()
	b.set("t", "mirror.replication.throttled.replicas", "0:1")
	paused()
	b.set("", "mirror.replication.throttled.rate", "10000000")
	level()
	b.set("", "mirror.replication.throttled.rate", "0")
	paused()
	b.set("", "mirror.replication.throttled.rate", "")
	level()
}

// counting counts connections to a source by the receive buffer that was set (0: none).
type counting struct {
	mu   sync.Mutex
	open map[int]int
	ever map[int]int
}

func (c *counting) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	x := &counted{TCPConn: conn.(*net.TCPConn), c: c}
	c.note(0, 1)
	return x, nil
}

func (c *counting) note(size, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open, c.ever = map[int]int{}, map[int]int{}
	}
	c.open[size] += n
	c.ever[size] += max(n, 0)
}

func (c *counting) await(t *testing.T, size, n int) {
	t.Helper()
	eventually(t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.open[size] != n {
			return errors.New("connections by receive buffer: " + fmt.Sprint(c.open) + ", want " + strconv.Itoa(n) + " of " + strconv.Itoa(size))
		}
		return nil
	})
}

type counted struct {
	*net.TCPConn
	c    *counting
	size int
	once sync.Once
}

func (c *counted) SetReadBuffer(n int) error {
	c.c.note(c.size, -1)
	c.size = n
	c.c.note(c.size, 1)
	return c.TCPConn.SetReadBuffer(n)
}

func (c *counted) Close() error {
	c.once.Do(func() { c.c.note(c.size, -1) })
	return c.TCPConn.Close()
}

// mirror.socket.receive.buffer.bytes is set on the connections of fetchers, and mirror.num.replica.fetchers says how many there are; both
// change while the mirror runs.
func TestFetcherConnections(t *testing.T) {
	line := &counting{}
	a, b := newCluster(t, "source"), newClusterOn(t, "destination", line.dial)
	a.topic("t", 8)
	b.mirror("m", a, "mirror.socket.receive.buffer.bytes", "54321")
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	line.await(t, 54321, 1)
	b.set("", "mirror.num.replica.fetchers", "2")
	line.await(t, 54321, 2)
	b.set("", "mirror.num.replica.fetchers", "4")
	line.await(t, 54321, 4)
	b.alterMirror("m", kadm.AlterConfig{Op: kadm.SetConfig, Name: "mirror.socket.receive.buffer.bytes", Value: kadm.StringPtr("65432")})
	line.await(t, 65432, 4)
	line.await(t, 54321, 0)
	a.produce("t", 3, 2)
	b.awaitEnd("t", 3, 2)
}
