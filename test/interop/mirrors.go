package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
)

// run runs a command of milena's own against the servers of bootstrap.
func (p *part) run(ctx context.Context, bootstrap string, args ...string) (string, error) {
	out, err := peertest.Run(ctx, peertest.Command{Path: p.milena, Args: append(args, "--bootstrap-server", bootstrap), Timeout: time.Minute})
	return out.Stdout, err
}

// describedMirror and described are a mirror and a partition as `mirrors describe --json` shows them.
type (
	describedMirror struct {
		Mirror     string
		Partitions []described
	}
	described struct {
		Topic             string
		Partition         int32
		State             string
		SourceOffset      *int64 `json:"source_offset"`
		DestinationOffset *int64 `json:"destination_offset"`
		Lag               *int64
		LastError         string `json:"last_error"`
	}
)

// mirrors describes the mirrors with these names, all without any.
func (p *part) mirrors(ctx context.Context, bootstrap string, names ...string) ([]describedMirror, error) {
	out, err := p.run(ctx, bootstrap, append(append([]string{"mirrors", "describe"}, names...), "--json")...)
	if err != nil {
		return nil, err
	}
	var all struct{ Mirrors []describedMirror }
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("mirrors describe --json: %w: %s", err, out)
	}
	if len(names) > 0 && len(all.Mirrors) != len(names) {
		return nil, fmt.Errorf("%d mirrors described, want %v", len(all.Mirrors), names)
	}
	return all.Mirrors, nil
}

// nodes is a part with three nodes that mirror.
type nodes struct {
	*part
	c      *peertest.Cluster
	dstAdm *kadm.Client
}

func (m *nodes) start(ctx context.Context) (err error) {
	m.c, err = m.newCluster(ctx, "cluster", 3, map[string]string{"mirror.state.topic.num.partitions": "5", "mirror.metadata.refresh.interval.ms": "1000"})
	if err != nil {
		return err
	}
	m.dstAdm, err = m.admin(m.c.Bootstrap())
	return err
}

// cli runs a command of milena's own against the nodes.
func (m *nodes) cli(ctx context.Context, args ...string) (string, error) {
	return m.run(ctx, m.c.Bootstrap(), args...)
}

// states waits until the mirror's partitions, n of them, are in a state, and, while MIRRORING, without lag.
func (m *nodes) states(ctx context.Context, name, state string, n int) error {
	return peertest.WaitFor(ctx, 2*time.Minute, fmt.Sprintf("%d partitions of %s %s", n, name, state), func(ctx context.Context) error {
		all, err := m.mirrors(ctx, m.c.Bootstrap(), name)
		if err != nil {
			return err
		}
		for _, p := range all[0].Partitions {
			if p.State != state || state == "MIRRORING" && (p.Lag == nil || *p.Lag != 0) {
				return fmt.Errorf("%s-%d is %s with lag %s: %s", p.Topic, p.Partition, p.State, offset(p.Lag), p.LastError)
			}
		}
		if got := len(all[0].Partitions); got != n {
			return fmt.Errorf("%d partitions", got)
		}
		return nil
	})
}

// equal waits until the batches of the source and of all three nodes are equal; src is a partition's folder there.
func (m *nodes) equal(ctx context.Context, src func(topic string, partition int32) string, topics map[string]int32) error {
	return peertest.WaitFor(ctx, time.Minute, "equal batches", func(context.Context) error {
		for topic, n := range topics {
			for p := range n {
				for _, b := range m.c.Brokers {
					c, err := peertest.Compare(src(topic, p), b.PartitionDir(topic, p), peertest.CompareOptions{})
					if err != nil {
						return err
					}
					if c.Records == 0 {
						return fmt.Errorf("%s-%d is empty", topic, p)
					}
				}
			}
		}
		return nil
	})
}

// produceEach writes n records to each partition of a topic.
func produceEach(ctx context.Context, addrs, topic string, partitions int32, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addrs, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	var recs []*kgo.Record
	for p := range partitions {
		for i := range n {
			recs = append(recs, &kgo.Record{Topic: topic, Partition: p, Key: []byte(strconv.Itoa(i)), Value: []byte("value of " + addrs)})
		}
	}
	return cl.ProduceSync(ctx, recs...).FirstErr()
}
