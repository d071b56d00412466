package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
)

// clusterTools lets Kafka's own tools look at, break and mend a cluster of three nodes, to which a fourth comes and from
// which it goes again.
type clusterTools struct {
	*part
	c      *peertest.Cluster
	fourth *peertest.Broker
	adm    *kadm.Client
	noise  noise
}

const (
	// movesTopic has three replicas of three partitions, each with another preferred leader.
	movesTopic = "moves"
	// soloTopic has its only replica on node 3.
	soloTopic = "solo"
	// pairTopic is on nodes 4 and 3, so that both can be lost and the quorum stays.
	pairTopic = "pair"
	// movesBytes is what each partition of movesTopic holds.
	movesBytes = 2 << 20
)

func runClusterTools(ctx context.Context, p *part) error {
	c := &clusterTools{part: p, noise: newNoise(5)}
	return p.steps(ctx,
		step{"start three nodes", c.start},
		step{"metadata-quorum", c.quorum},
		step{"cluster, broker-api-versions", c.versions},
		step{"topics on three nodes", c.topics},
		step{"topics with a node lost", c.nodeLost},
		step{"leader-election preferred", c.preferred},
		step{"metadata-quorum add-controller, remove-controller", c.voters},
		step{"reassign-partitions generate, execute, list, cancel", c.reassignCancelled},
		step{"reassign-partitions execute, verify; log-dirs", c.reassign},
		step{"log-dirs with a disk lost and replaced", c.lostDisk},
		step{"leader-election unclean", c.unclean},
		step{"features", c.features},
		step{"configs of broker-loggers", c.loggers},
		step{"cluster unregister", c.unregister},
	)
}

// newCluster prepares a cluster of the target's kind in the part's folder; its nodes are the part's brokers.
func (p *part) newCluster(ctx context.Context, name string, nodes int, props map[string]string) (*peertest.Cluster, error) {
	// A lost node is to be noticed in seconds.
	all := map[string]string{"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500", "replica.lag.time.max.ms": "3000",
		"auto.leader.rebalance.enable": "false"}
	maps.Copy(all, props)
	o := peertest.ClusterOptions{Binary: p.milena, Tools: p.kafka, Dir: filepath.Join(p.dir, name), Nodes: nodes, Properties: all}
	if p.setting.target == "kafka" {
		o.Binary = ""
	}
	c, err := peertest.NewCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, b := range c.Brokers {
		p.addBroker(b)
	}
	return c, c.Start(ctx)
}

func (c *clusterTools) start(ctx context.Context) (err error) {
	if c.c, err = c.newCluster(ctx, "cluster", 3, nil); err != nil {
		return err
	}
	c.adm, err = c.admin(c.c.Bootstrap())
	return err
}

// kafkaTool runs one of Kafka's tools against the nodes that last: the first two.
func (c *clusterTools) kafkaTool(ctx context.Context, name string, args ...string) (string, error) {
	out, err := c.kafka.Run(ctx, name, append([]string{"--bootstrap-server", c.c.Brokers[0].Addr + "," + c.c.Brokers[1].Addr}, args...)...)
	return out.Stdout, err
}

// clusterTool runs kafka-cluster, whose options follow its command.
func (c *clusterTools) clusterTool(ctx context.Context, command string, args ...string) (string, error) {
	out, err := c.kafka.Run(ctx, "cluster", append([]string{command, "--bootstrap-server", c.c.Brokers[0].Addr}, args...)...)
	return out.Stdout, err
}

// quorumStatus is what `kafka-metadata-quorum describe --status` says.
type quorumStatus struct {
	cluster           string
	leader            int32
	epoch             int64
	voters, observers []quorumMember
}

type quorumMember struct {
	ID          int32
	DirectoryID string `json:"directoryId"`
	Endpoints   []string
}

func parseQuorumStatus(out string) (quorumStatus, error) {
	var s quorumStatus
	var errs []error
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "ClusterId":
			s.cluster = value
		case "LeaderId":
			id, err := strconv.ParseInt(value, 10, 32)
			s.leader, errs = int32(id), append(errs, err)
		case "LeaderEpoch":
			epoch, err := strconv.ParseInt(value, 10, 64)
			s.epoch, errs = epoch, append(errs, err)
		case "HighWatermark":
			if n, err := strconv.ParseInt(value, 10, 64); err != nil || n <= 0 {
				errs = append(errs, fmt.Errorf("high watermark %q", value))
			}
		case "CurrentVoters":
			errs = append(errs, json.Unmarshal([]byte(value), &s.voters))
		case "CurrentObservers":
			errs = append(errs, json.Unmarshal([]byte(value), &s.observers))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return s, fmt.Errorf("metadata-quorum describe --status: %w:\n%s", err, out)
	}
	return s, nil
}

func (c *clusterTools) status(ctx context.Context) (quorumStatus, error) {
	out, err := c.kafkaTool(ctx, "metadata-quorum", "describe", "--status")
	if err != nil {
		return quorumStatus{}, err
	}
	return parseQuorumStatus(out)
}

func memberIDs(ms []quorumMember) []int32 {
	var out []int32
	for _, m := range ms {
		out = append(out, m.ID)
	}
	slices.Sort(out)
	return out
}

func (c *clusterTools) quorum(ctx context.Context) error {
	s, err := c.status(ctx)
	if err != nil {
		return err
	}
	if s.cluster != c.c.ID || s.leader < 1 || s.leader > 3 || s.epoch < 1 || len(s.observers) != 0 || !slices.Equal(memberIDs(s.voters), []int32{1, 2, 3}) {
		return fmt.Errorf("quorum: %+v", s)
	}
	for _, v := range s.voters {
		if want := "CONTROLLER://" + c.c.Brokers[v.ID-1].ControllerAddr; !slices.Equal(v.Endpoints, []string{want}) || len(v.DirectoryID) != 22 {
			return fmt.Errorf("voter %+v, want the endpoint %s", v, want)
		}
	}
	// By the controllers' own listener as well.
	out, err := c.kafka.Run(ctx, "metadata-quorum", "--bootstrap-controller", c.c.ControllerBootstrap(), "describe", "--replication")
	if err != nil {
		return err
	}
	leaders := 0
	for id := range int32(3) {
		rows := fields(out.Stdout, 0, itoa(id+1))
		// NodeId DirectoryId LogEndOffset Lag LastFetchTimestamp LastCaughtUpTimestamp Status
		if len(rows) != 1 || len(rows[0]) != 7 {
			return fmt.Errorf("metadata-quorum describe --replication: node %d: %s", id+1, out.Stdout)
		}
		end, err1 := strconv.ParseInt(rows[0][2], 10, 64)
		lag, err2 := strconv.ParseInt(rows[0][3], 10, 64)
		if errors.Join(err1, err2) != nil || end <= 0 || lag < 0 || lag > end {
			return fmt.Errorf("metadata-quorum describe --replication: node %d: %s", id+1, out.Stdout)
		}
		if rows[0][6] == "Leader" {
			leaders++
			if lag != 0 || id+1 != s.leader {
				return fmt.Errorf("metadata-quorum describe --replication: leader %d, status says %d: %s", id+1, s.leader, out.Stdout)
			}
		} else if rows[0][6] != "Follower" {
			return fmt.Errorf("metadata-quorum describe --replication: %s", out.Stdout)
		}
	}
	if leaders != 1 {
		return fmt.Errorf("metadata-quorum describe --replication: %d leaders: %s", leaders, out.Stdout)
	}
	return nil
}

func (c *clusterTools) versions(ctx context.Context) error {
	out, err := c.clusterTool(ctx, "cluster-id")
	if err != nil {
		return err
	}
	if err := wantAll(out, "Cluster ID: "+c.c.ID); err != nil {
		return err
	}
	if out, err = c.clusterTool(ctx, "list-endpoints"); err != nil {
		return err
	}
	versions, err := c.kafkaTool(ctx, "broker-api-versions")
	if err != nil {
		return err
	}
	for _, b := range c.c.Brokers {
		host, port, _ := strings.Cut(b.Addr, ":")
		// ID HOST PORT RACK STATE ENDPOINT_TYPE
		rows := fields(out, 0, itoa(b.ID))
		if len(rows) != 1 || len(rows[0]) != 6 || rows[0][1] != host || rows[0][2] != port || rows[0][4] != "unfenced" || rows[0][5] != "broker" {
			return fmt.Errorf("cluster list-endpoints: node %d: %s", b.ID, out)
		}
		if err := wantAll(versions, fmt.Sprintf("%s (id: %d rack: null isFenced: false)", b.Addr, b.ID)); err != nil {
			return err
		}
	}
	controllers, err := c.kafka.Run(ctx, "cluster", "list-endpoints", "--bootstrap-controller", c.c.ControllerBootstrap())
	if err != nil {
		return err
	}
	for _, b := range c.c.Brokers {
		rows := fields(controllers.Stdout, 0, itoa(b.ID))
		if len(rows) != 1 || !strings.Contains(strings.Join(rows[0], " "), "controller") || !strings.HasSuffix(b.ControllerAddr, ":"+rows[0][2]) {
			return fmt.Errorf("cluster list-endpoints --bootstrap-controller: node %d: %s", b.ID, controllers.Stdout)
		}
	}
	return nil
}

// partitionLine is one partition of `kafka-topics --describe`.
type partitionLine struct {
	leader                    int32 // -1 for none
	replicas, isr, elr, known []int32
}

var partitionPattern = regexp.MustCompile(`Topic: (\S+)\s+Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S*)\s+Isr: (\S*)(?:\s+Elr: (\S*)\s+LastKnownElr: (\S*))?`)

// parseDescribe reads what `kafka-topics --describe` prints, by topic-partition.
func parseDescribe(out string) (map[string]partitionLine, error) {
	got := map[string]partitionLine{}
	for line := range strings.Lines(out) {
		m := partitionPattern.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		l := partitionLine{leader: -1}
		if m[3] != "none" {
			n, err := strconv.ParseInt(m[3], 10, 32)
			if err != nil {
				return nil, fmt.Errorf("topics --describe: %q: %w", line, err)
			}
			l.leader = int32(n)
		}
		for i, into := range []*[]int32{&l.replicas, &l.isr, &l.elr, &l.known} {
			for _, f := range strings.Split(m[4+i], ",") {
				if f == "" || f == "N/A" {
					continue
				}
				n, err := strconv.ParseInt(f, 10, 32)
				if err != nil {
					return nil, fmt.Errorf("topics --describe: %q: %w", line, err)
				}
				*into = append(*into, int32(n))
			}
		}
		slices.Sort(l.isr)
		got[m[1]+"-"+m[2]] = l
	}
	return got, nil
}

func (c *clusterTools) describe(ctx context.Context, args ...string) (map[string]partitionLine, error) {
	out, err := c.kafkaTool(ctx, "topics", append([]string{"--describe"}, args...)...)
	if err != nil {
		return nil, err
	}
	return parseDescribe(out)
}

// awaitPartition waits for a state of a partition, as the cluster's metadata have it.
func (c *clusterTools) awaitPartition(ctx context.Context, topic string, partition int32, what string, ok func(kadm.PartitionDetail) bool) error {
	return peertest.WaitFor(ctx, 40*time.Second, fmt.Sprintf("%s-%d %s", topic, partition, what), func(ctx context.Context) error {
		ts, err := c.adm.ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		p, found := ts[topic].Partitions[partition]
		if !found || !ok(p) {
			return fmt.Errorf("%s-%d: %+v", topic, partition, p)
		}
		return nil
	})
}

func (c *clusterTools) topics(ctx context.Context) error {
	for _, t := range [][]string{
		{movesTopic, "--replica-assignment", "1:2:3,2:3:1,3:1:2", "--config", "min.insync.replicas=2"},
		{soloTopic, "--replica-assignment", "3"},
	} {
		out, err := c.kafkaTool(ctx, "topics", append([]string{"--create", "--topic"}, t...)...)
		if err != nil {
			return err
		}
		if err := wantAll(out, "Created topic "+t[0]+"."); err != nil {
			return err
		}
	}
	// A factor that the cluster can't give is refused by name.
	_, err := c.kafkaTool(ctx, "topics", "--create", "--topic", "wide", "--partitions", "1", "--replication-factor", "4")
	var exit *peertest.ExitError
	if !errors.As(err, &exit) || !strings.Contains(exit.Output.Stdout+exit.Output.Stderr, "InvalidReplicationFactorException") {
		return fmt.Errorf("four replicas on three nodes: %w", err)
	}
	got, err := c.describe(ctx, "--topic", movesTopic)
	if err != nil {
		return err
	}
	for i, replicas := range [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}} {
		l := got[fmt.Sprintf("%s-%d", movesTopic, i)]
		if l.leader != replicas[0] || !slices.Equal(l.replicas, replicas) || !slices.Equal(l.isr, []int32{1, 2, 3}) || len(l.elr) != 0 {
			return fmt.Errorf("%s-%d: %+v, want replicas %v", movesTopic, i, l, replicas)
		}
	}
	return c.fill(ctx, movesTopic, 3, movesBytes)
}

// fill produces bytes that don't compress to each partition.
func (c *clusterTools) fill(ctx context.Context, topic string, partitions int32, bytes int) error {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.c.Brokers[0].Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	var recs []*kgo.Record
	for p := range partitions {
		for left := bytes; left > 0; left -= 64 << 10 {
			recs = append(recs, &kgo.Record{Topic: topic, Partition: p, Value: c.noise.random(min(left, 64<<10))})
		}
	}
	return cl.ProduceSync(ctx, recs...).FirstErr()
}

func (c *clusterTools) nodeLost(ctx context.Context) error {
	lost := c.c.Brokers[2]
	if err := lost.Kill(); err != nil {
		return err
	}
	for p := range int32(3) {
		err := c.awaitPartition(ctx, movesTopic, p, "is in sync on 1 and 2", func(d kadm.PartitionDetail) bool {
			return len(d.ISR) == 2 && !slices.Contains(d.ISR, 3) && d.Leader > 0 && d.Leader != 3
		})
		if err != nil {
			return err
		}
	}
	moves := []string{"moves-0", "moves-1", "moves-2"}
	for _, t := range []struct {
		flag string
		want []string
	}{
		{"--under-replicated-partitions", append(slices.Clone(moves), "solo-0")},
		{"--at-min-isr-partitions", moves},
		{"--unavailable-partitions", []string{"solo-0"}},
		{"--under-min-isr-partitions", []string{"solo-0"}},
	} {
		got, err := c.describe(ctx, t.flag)
		if err != nil {
			return err
		}
		maps.DeleteFunc(got, func(name string, _ partitionLine) bool { return strings.HasPrefix(name, "__") })
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, t.want) {
			return fmt.Errorf("topics --describe %s with node 3 gone: %v, want %v", t.flag, names, t.want)
		}
		if l := got["solo-0"]; t.flag == "--unavailable-partitions" && (l.leader > 0 || !slices.Equal(append(l.isr, l.elr...), []int32{3})) {
			return fmt.Errorf("solo-0 with node 3 gone: %+v", l)
		}
	}
	// Two in-sync replicas are enough for it.
	if err := c.fill(ctx, movesTopic, 3, 1000); err != nil {
		return err
	}
	if err := lost.Start(ctx); err != nil {
		return err
	}
	for p := range int32(3) {
		if err := c.awaitPartition(ctx, movesTopic, p, "is in sync", func(d kadm.PartitionDetail) bool { return len(d.ISR) == 3 }); err != nil {
			return err
		}
	}
	err := c.awaitPartition(ctx, soloTopic, 0, "is led", func(d kadm.PartitionDetail) bool { return d.Leader == 3 })
	if err != nil {
		return err
	}
	got, err := c.describe(ctx, "--under-replicated-partitions")
	if err != nil || len(got) != 0 {
		return fmt.Errorf("topics --describe --under-replicated-partitions with all nodes: %v, %w", got, err)
	}
	return nil
}

func (c *clusterTools) preferred(ctx context.Context) error {
	// The leader that was lost is not the leader again until asked for.
	got, err := c.describe(ctx, "--topic", movesTopic)
	if err != nil {
		return err
	}
	if l := got["moves-2"]; l.leader == 3 || l.replicas[0] != 3 {
		return fmt.Errorf("moves-2: %+v, want the preferred leader 3 to be back and not to lead", l)
	}
	elect := func() (string, error) {
		return c.kafkaTool(ctx, "leader-election", "--election-type", "preferred", "--topic", movesTopic, "--partition", "2")
	}
	out, err := elect()
	if err != nil {
		return err
	}
	if err := wantAll(out, "Successfully completed leader election (PREFERRED) for partitions moves-2"); err != nil {
		return err
	}
	if got, err = c.describe(ctx, "--topic", movesTopic); err != nil {
		return err
	}
	if l := got["moves-2"]; l.leader != 3 {
		return fmt.Errorf("moves-2 after the election: %+v", l)
	}
	if out, err = elect(); err != nil {
		return err
	}
	return wantAll(out, "Valid replica already elected for partitions moves-2")
}
