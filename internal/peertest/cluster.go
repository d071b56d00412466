package peertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"milena/internal/ids"
)

// ClusterOptions say how to run several nodes, each broker and controller, with a dynamic quorum of the first ones.
type ClusterOptions struct {
	// Binary is the milena program. Empty runs Apache Kafka by Tools.
	Binary string
	Tools  *KafkaTools
	// Dir gets a folder nodeN for each node with its properties, data and log; it is created.
	Dir string
	// Nodes is how many there are; their numbers count from 1.
	Nodes int
	// Properties are added to, and replace, the defaults here, on each node.
	Properties map[string]string
	// Place says where a node runs; nil puts all on free loopback ports.
	Place func(node int) Place
	// Heap is the JVM's -Xmx; empty means 384m.
	Heap string
}

// Place is where a node runs.
type Place struct {
	// Host is the address it listens on, with Kafka's usual ports.
	Host string
	// Netns is the network namespace that the host belongs to.
	Netns string
	// DataDir is where its data goes.
	DataDir string
}

// Cluster is a cluster whose nodes are formatted; Start runs them. Not safe for concurrent use.
type Cluster struct {
	// ID is the cluster's id.
	ID string
	// Brokers are the nodes; node n stands at n-1.
	Brokers []*Broker

	o ClusterOptions
}

// NewCluster formats the nodes as the voters of one quorum.
func NewCluster(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	if o.Nodes < 1 || o.Binary == "" && o.Tools == nil {
		return nil, errors.New("a cluster needs nodes, and a binary or Kafka's tools")
	}
	if o.Heap == "" {
		o.Heap = "384m"
	}
	id, err := ids.New(rand.Reader)
	if err != nil {
		return nil, err
	}
	c := &Cluster{ID: id.String(), o: o}
	voters := make([]string, o.Nodes)
	for i := range o.Nodes {
		if err := c.prepare(); err != nil {
			return nil, err
		}
		dir, err := ids.New(rand.Reader)
		if err != nil {
			return nil, err
		}
		voters[i] = fmt.Sprintf("%d@%s:%s", i+1, c.Brokers[i].ControllerAddr, dir)
	}
	how := []string{"--initial-controllers", strings.Join(voters, ",")}
	if o.Nodes == 1 {
		how = []string{"--standalone"}
	}
	for _, b := range c.Brokers {
		if err := c.format(ctx, b, "broker,controller", nil, how...); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Add prepares one more node, which finds the quorum and is no voter of it; roles is process.roles. Start it by itself.
func (c *Cluster) Add(ctx context.Context, roles string, props map[string]string) (*Broker, error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}
	b := c.Brokers[len(c.Brokers)-1]
	return b, c.format(ctx, b, roles, props, "--no-initial-controllers")
}

// prepare chooses the addresses and folders of the next node.
func (c *Cluster) prepare() error {
	node := len(c.Brokers) + 1
	dir := filepath.Join(c.o.Dir, "node"+strconv.Itoa(node))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b := &Broker{Kind: "milena", ID: int32(node), DataDir: filepath.Join(dir, "data"), LogFile: filepath.Join(dir, "server.log"),
		Config: filepath.Join(dir, "server.properties"), readyWithin: 40 * time.Second}
	if c.o.Place != nil {
		p := c.o.Place(node)
		b.Addr, b.ControllerAddr, b.HTTP = net.JoinHostPort(p.Host, "9092"), net.JoinHostPort(p.Host, "9093"), net.JoinHostPort(p.Host, "9644")
		b.DataDir, b.netns = p.DataDir, p.Netns
	} else {
		addrs, err := freeAddrs(3)
		if err != nil {
			return err
		}
		b.Addr, b.ControllerAddr, b.HTTP = addrs[0], addrs[1], addrs[2]
	}
	if c.o.Binary == "" {
		b.Kind, b.HTTP, b.readyWithin = "kafka", "", 2*time.Minute
	}
	c.Brokers = append(c.Brokers, b)
	return nil
}

func (c *Cluster) format(ctx context.Context, b *Broker, roles string, props map[string]string, how ...string) error {
	var bootstrap []string
	for _, v := range c.Brokers[:c.o.Nodes] {
		bootstrap = append(bootstrap, v.ControllerAddr)
	}
	all := map[string]string{
		"process.roles":                            roles,
		"node.id":                                  itoa(b.ID),
		"controller.quorum.bootstrap.servers":      strings.Join(bootstrap, ","),
		"controller.listener.names":                "CONTROLLER",
		"listeners":                                "PLAINTEXT://" + b.Addr + ",CONTROLLER://" + b.ControllerAddr,
		"listener.security.protocol.map":           "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                                 b.DataDir,
		"default.replication.factor":               itoa(min(c.o.Nodes, 3)),
		"offsets.topic.num.partitions":             "5",
		"transaction.state.log.num.partitions":     "3",
		"offsets.topic.replication.factor":         itoa(min(c.o.Nodes, 3)),
		"transaction.state.log.replication.factor": itoa(min(c.o.Nodes, 3)),
		"group.initial.rebalance.delay.ms":         "0",
	}
	if !strings.Contains(roles, "broker") {
		all["listeners"] = "CONTROLLER://" + b.ControllerAddr
	}
	maps.Copy(all, c.o.Properties)
	maps.Copy(all, props)
	if err := WriteProperties(b.Config, all); err != nil {
		return err
	}
	args := append([]string{"storage", "format", "--cluster-id", c.ID, "--config", b.Config}, how...)
	run := Command{Path: c.o.Binary, Args: args}
	start := Command{Path: c.o.Binary, Args: []string{"server", "start", "--config", b.Config, "--http", b.HTTP}, Dir: filepath.Dir(b.Config)}
	if b.Kind == "kafka" {
		run = c.o.Tools.Command(args[0], args[1:]...)
		start = Command{Path: c.o.Tools.Script, Args: []string{"server", b.Config}, Dir: filepath.Dir(b.Config), Env: []string{"KAFKA_HEAP=" + c.o.Heap}}
	}
	if b.netns != "" {
		// ip replaces itself by the program, which keeps the process id.
		start.Args = append([]string{"netns", "exec", b.netns, start.Path}, start.Args...)
		start.Path = "ip"
	}
	b.command = start
	_, err := Run(ctx, run)
	return err
}

// Start starts all nodes and waits until each serves clients.
func (c *Cluster) Start(ctx context.Context) error {
	for _, b := range c.Brokers {
		if err := b.Launch(); err != nil {
			return err
		}
	}
	for _, b := range c.Brokers {
		if err := b.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Bootstrap is the bootstrap list of the first nodes' client listeners.
func (c *Cluster) Bootstrap() string {
	var addrs []string
	for _, b := range c.Brokers[:c.o.Nodes] {
		addrs = append(addrs, b.Addr)
	}
	return strings.Join(addrs, ",")
}

// ControllerBootstrap is the same of the controller listeners.
func (c *Cluster) ControllerBootstrap() string {
	var addrs []string
	for _, b := range c.Brokers[:c.o.Nodes] {
		addrs = append(addrs, b.ControllerAddr)
	}
	return strings.Join(addrs, ",")
}

func itoa[T ~int | ~int32](n T) string { return strconv.FormatInt(int64(n), 10) }
