package peertest

import (
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"time"
)

// OldKafkaOptions say how to run an Apache Kafka of the time when it kept its metadata in ZooKeeper.
type OldKafkaOptions struct {
	Tools *KafkaTools
	// Version is one that test/interop/setup.sh fetched.
	Version string
	// Dir gets properties, data and logs; it is created.
	Dir string
	// Brokers is how many there are; their numbers count from 1.
	Brokers int
	// Properties are added to, and replace, the defaults here, on each broker.
	Properties map[string]string
}

// OldKafka is such a cluster. ZooKeeper is started first, then the brokers, in any order.
type OldKafka struct {
	// ZooKeeper is the program that the brokers need while they run.
	ZooKeeper Command
	Brokers   []*Broker
}

// NewOldKafka writes the properties of ZooKeeper and the brokers, on free loopback ports.
func NewOldKafka(o OldKafkaOptions) (*OldKafka, error) {
	if o.Brokers < 1 || o.Version == "" {
		return nil, errors.New("a cluster needs brokers and a version")
	}
	addrs, err := freeAddrs(o.Brokers + 1)
	if err != nil {
		return nil, err
	}
	env := []string{"KAFKA_VERSION=" + o.Version, "KAFKA_HEAP=256m"}
	program := func(dir, name string, props map[string]string) (Command, error) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return Command{}, err
		}
		path := filepath.Join(dir, name+".properties")
		return Command{Path: o.Tools.Script, Args: []string{name, path}, Dir: dir, Env: env}, WriteProperties(path, props)
	}
	host, port, err := net.SplitHostPort(addrs[0])
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Dir, "zookeeper")
	k := &OldKafka{}
	k.ZooKeeper, err = program(dir, "zookeeper", map[string]string{
		"dataDir": filepath.Join(dir, "data"), "clientPort": port, "clientPortAddress": host, "maxClientCnxns": "0", "admin.enableServer": "false",
	})
	if err != nil {
		return nil, err
	}
	for i, addr := range addrs[1:] {
		dir := filepath.Join(o.Dir, "broker"+itoa(i+1))
		b := &Broker{Kind: "kafka", ID: int32(i + 1), Addr: addr, DataDir: filepath.Join(dir, "data"), LogFile: filepath.Join(dir, "kafka.log"), readyWithin: 2 * time.Minute}
		props := map[string]string{
			"broker.id":         itoa(i + 1),
			"zookeeper.connect": addrs[0],
			// ZooKeeper may start beside the brokers; a lost broker is to be noticed in seconds.
			"zookeeper.connection.timeout.ms":  "60000",
			"zookeeper.session.timeout.ms":     "6000",
			"listeners":                        "PLAINTEXT://" + addr,
			"log.dirs":                         b.DataDir,
			"offsets.topic.num.partitions":     "5",
			"offsets.topic.replication.factor": itoa(o.Brokers),
			"group.initial.rebalance.delay.ms": "0",
			"controlled.shutdown.enable":       "false",
		}
		maps.Copy(props, o.Properties)
		if b.command, err = program(dir, "server", props); err != nil {
			return nil, err
		}
		k.Brokers = append(k.Brokers, b)
	}
	return k, nil
}
