package peertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"milena/internal/ids"
)

// KafkaTools runs Apache Kafka's own programs from the jars that test/interop/setup.sh fetched.
type KafkaTools struct {
	// Script is test/interop/kafka.sh.
	Script string
}

// FindKafkaTools checks that the jars are there.
func FindKafkaTools(root string) (*KafkaTools, error) {
	t := &KafkaTools{Script: filepath.Join(root, "test", "interop", "kafka.sh")}
	cache := CacheDir(root)
	found, err := filepath.Glob(filepath.Join(cache, "kafka-*", ".complete"))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errors.New("Apache Kafka's jars are missing: run test/interop/setup.sh")
	}
	return t, nil
}

// CacheDir is where setup.sh puts what it fetches.
func CacheDir(root string) string {
	if dir := os.Getenv("MILENA_INTEROP_CACHE"); dir != "" {
		return dir
	}
	return filepath.Join(root, ".cache", "interop")
}

// Command is one of Kafka's programs by its script's name without "kafka-" and ".sh".
func (t *KafkaTools) Command(name string, args ...string) Command {
	return Command{Path: t.Script, Args: append([]string{name}, args...), Env: []string{"KAFKA_HEAP=192m"}}
}

// Run runs one of Kafka's programs to its end.
func (t *KafkaTools) Run(ctx context.Context, name string, args ...string) (Output, error) {
	return Run(ctx, t.Command(name, args...))
}

// KafkaOptions say how to run an Apache Kafka node, broker and controller in one.
type KafkaOptions struct {
	Tools *KafkaTools
	// Dir gets properties, data and log; it is created.
	Dir string
	// Properties are added to, and replace, the defaults here.
	Properties map[string]string
	// Security adds a SASL_SSL listener.
	Security *Security
	// Heap is the JVM's -Xmx; empty means 512m.
	Heap string
}

// NewKafka formats a single node on free loopback ports; Start runs it.
func NewKafka(ctx context.Context, o KafkaOptions) (*Broker, error) {
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(o.Dir, "data")
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	b := &Broker{Kind: "kafka", Addr: addrs[0], DataDir: data, LogFile: filepath.Join(o.Dir, "kafka.log"),
		readyWithin: 90 * time.Second}
	props := kafkaDefaults(addrs, data)
	format := []string{}
	if s := o.Security; s != nil {
		b.SASLAddr = addrs[2]
		props["listeners"] += ",SASL_SSL://" + addrs[2]
		maps.Copy(props, s.brokerProperties())
		format = s.formatArgs()
	}
	maps.Copy(props, o.Properties)
	path := filepath.Join(o.Dir, "server.properties")
	if err := WriteProperties(path, props); err != nil {
		return nil, err
	}
	cluster, err := ids.New(rand.Reader)
	if err != nil {
		return nil, err
	}
	if _, err := o.Tools.Run(ctx, "storage", append([]string{"format", "-t", cluster.String(), "-c", path}, format...)...); err != nil {
		return nil, err
	}
	heap := o.Heap
	if heap == "" {
		heap = "512m"
	}
	b.command = Command{Path: o.Tools.Script, Args: []string{"server", path}, Dir: o.Dir, Env: []string{"KAFKA_HEAP=" + heap}}
	return b, nil
}

func kafkaDefaults(addrs []string, data string) map[string]string {
	return map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        "1",
		"controller.quorum.voters":       "1@" + addrs[1],
		"controller.listener.names":      "CONTROLLER",
		"listeners":                      "PLAINTEXT://" + addrs[0] + ",CONTROLLER://" + addrs[1],
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
		"log.dirs":                       data,
		"num.network.threads":            "2",
		"num.io.threads":                 "4",
		// One node: nothing to replicate to, and no need for 50 folders.
		"offsets.topic.replication.factor":         "1",
		"offsets.topic.num.partitions":             "5",
		"transaction.state.log.replication.factor": "1",
		"transaction.state.log.min.isr":            "1",
		"transaction.state.log.num.partitions":     "3",
		"group.initial.rebalance.delay.ms":         "0",
	}
}

// WriteProperties writes a Java properties file, readable by the owner only: it may hold passwords.
func WriteProperties(path string, props map[string]string) error {
	var sb strings.Builder
	for _, k := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&sb, "%s=%s\n", k, props[k])
	}
	return os.WriteFile(path, []byte(sb.String()), 0o600)
}
