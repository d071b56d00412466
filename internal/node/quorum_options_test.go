package node

import (
	"maps"
	"testing"
	"time"

	"milena/internal/config"
	"milena/internal/ids"
)

// The keys controller.quorum.* reach raft's clock, the transport between voters, and the search for the active controller. What these do
// with them is tested in quorum, transport and metafollow, and from the keys to a takeover by cluster.TestControllerFailover.
func TestQuorumKeysReachTheQuorum(t *testing.T) {
	ms := time.Millisecond
	for name, tt := range map[string]struct {
		props                      map[string]string
		election, request, backoff time.Duration
	}{
		"default":                 {nil, 500 * ms, 2000 * ms, 20 * ms},
		"a longer fetch":          {map[string]string{"controller.quorum.fetch.timeout.ms": "1500"}, 1500 * ms, 2000 * ms, 20 * ms},
		"a longer election":       {map[string]string{"controller.quorum.election.timeout.ms": "700"}, 700 * ms, 2000 * ms, 20 * ms},
		"a shorter one alone":     {map[string]string{"controller.quorum.election.timeout.ms": "100"}, 500 * ms, 2000 * ms, 20 * ms},
		"both shorter":            {map[string]string{"controller.quorum.election.timeout.ms": "200", "controller.quorum.fetch.timeout.ms": "300"}, 300 * ms, 2000 * ms, 20 * ms},
		"Kafka's":                 {map[string]string{"controller.quorum.election.timeout.ms": "1000", "controller.quorum.fetch.timeout.ms": "2000"}, 2000 * ms, 2000 * ms, 20 * ms},
		"requests and their rest": {map[string]string{"controller.quorum.request.timeout.ms": "3456", "controller.quorum.retry.backoff.ms": "78"}, 500 * ms, 3456 * ms, 78 * ms},
	} {
		props := map[string]string{"controller.listener.names": "CONTROLLER", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.quorum.bootstrap.servers": "c:1"}
		maps.Copy(props, tt.props)
		conf, _, err := config.Load(props, config.Env{Hostname: func() (string, error) { return "h", nil }})
		if err != nil {
			t.Fatal(err)
		}
		n := &Node{o: Options{Config: conf}}
		q := n.quorumOptions(ids.UUID{1})
		if got := q.Tick * time.Duration(q.ElectionTicks); got != tt.election || q.ElectionTicks < 5 {
			t.Errorf("%s: an election after %d ticks of %v, want %v", name, q.ElectionTicks, q.Tick, tt.election)
		}
		if o := n.transportOptions(nil); o.RequestTimeout != tt.request || o.RetryBackoff != tt.backoff {
			t.Errorf("%s: the transport has %v and %v, want %v and %v", name, o.RequestTimeout, o.RetryBackoff, tt.request, tt.backoff)
		}
		if o := n.finderOptions(); o.Timeout != tt.request || o.Backoff != tt.backoff {
			t.Errorf("%s: the finder has %v and %v, want %v and %v", name, o.Timeout, o.Backoff, tt.request, tt.backoff)
		}
	}
}
