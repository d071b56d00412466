package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/config"
	"milena/internal/node"
)

// cluster is a node with the clients that the story uses on it.
type cluster struct {
	name string
	dir  string
	addr string
	node *node.Node
	cl   *kgo.Client
	adm  *kadm.Client
	down bool
}

// settings of both clusters: an ordinary single node, with intervals that suit a short story.
func settings(dir string) map[string]string {
	return map[string]string{
		"listeners":                                     "PLAINTEXT://127.0.0.1:0",
		"log.dirs":                                      dir,
		"milena.http.listen":                            "off",
		"offsets.topic.num.partitions":                  "4",
		"mirror.state.topic.num.partitions":             "4",
		"group.initial.rebalance.delay.ms":              "0",
		"log.cleaner.backoff.ms":                        "100",
		"mirror.metadata.refresh.interval.ms":           "1000",
		"mirror.failed.retry.max.backoff.ms":            "1000",
		"auto.create.topics.enable":                     "false",
		"log.retention.check.interval.ms":               "1000",
		"replica.high.watermark.checkpoint.interval.ms": "1000",
	}
}

func startCluster(ctx context.Context, o Options, name, dir string) (*cluster, error) {
	conf, _, err := config.Load(settings(dir), config.Env{Hostname: os.Hostname})
	if err != nil {
		return nil, fmt.Errorf("settings of the %s: %w", name, err)
	}
	n, err := node.Start(ctx, node.Options{Config: conf, Logger: o.Logger.With("cluster", name), Version: o.Version})
	if err != nil {
		return nil, fmt.Errorf("start of the %s: %w", name, err)
	}
	c := &cluster{name: name, dir: dir, addr: n.Addr(), node: n}
	if c.cl, err = c.client(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	c.adm = kadm.NewClient(c.cl)
	return c, nil
}

// client makes a client of the cluster. Versions are not capped, for the mirror requests.
func (c *cluster) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.addr), kgo.ClientID("milena-demo"), kgo.MaxVersions(nil), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.ProducerLinger(0),
	}, opts...)...)
}

// stop ends the node cleanly. Its files stay.
func (c *cluster) stop() error {
	if c.down {
		return nil
	}
	c.down = true
	if c.cl != nil {
		c.cl.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.node.Shutdown(ctx)
}

// kill ends the node as a crash would. Its files stay.
func (c *cluster) kill() {
	c.down = true
	c.cl.Close()
	c.node.Kill()
}

func (c *cluster) close() error {
	if c.down {
		return nil
	}
	return c.stop()
}

// partitionDir is where a partition's segment files are.
func (c *cluster) partitionDir(topic string, partition int32) string {
	return filepath.Join(c.dir, fmt.Sprintf("%s-%d", topic, partition))
}
