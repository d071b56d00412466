package peertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Broker is a node, Milena or Apache Kafka, that can be killed and started again on the same data and ports.
// Not safe for concurrent use, but for reading its fields.
type Broker struct {
	// Kind is "milena" or "kafka".
	Kind string
	// ID is the number of a node of a Cluster, else 0.
	ID int32
	// Addr is the PLAINTEXT listener, host:port.
	Addr string
	// ControllerAddr is the controller listener of a node of a Cluster, and Config its properties file.
	ControllerAddr, Config string
	// SASLAddr is the SASL_SSL listener, if the broker was given Security.
	SASLAddr string
	// HTTP is Milena's address for metrics and health.
	HTTP string
	// DataDir holds the partitions' folders.
	DataDir string
	// LogFile is what the process prints, all starts in one file.
	LogFile string

	command     Command
	netns       string
	readyWithin time.Duration
	proc        *Process
	ended       bool // by us
}

// Start starts the process and waits until clients are served.
func (b *Broker) Start(ctx context.Context) error {
	if err := b.Launch(); err != nil {
		return err
	}
	return b.AwaitReady(ctx)
}

// Launch starts the process without waiting for it.
func (b *Broker) Launch() error {
	if b.proc != nil && b.proc.Running() == nil {
		return fmt.Errorf("%s on %s runs already", b.Kind, b.Addr)
	}
	p, err := Start(b.command, b.LogFile)
	if err != nil {
		return err
	}
	b.proc, b.ended = p, false
	return nil
}

// AwaitReady waits until clients are served, or the process has ended.
func (b *Broker) AwaitReady(ctx context.Context) error {
	var ended error
	err := WaitFor(ctx, b.readyWithin, b.Kind+" on "+b.Addr+" ready", func(ctx context.Context) error {
		if ended = b.proc.Running(); ended != nil {
			return nil
		}
		if b.HTTP != "" {
			if err := httpReady(ctx, b.HTTP); err != nil {
				return err
			}
		}
		return serves(ctx, b.Addr)
	})
	if ended != nil {
		return ended
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, TailFile(b.LogFile, 25))
	}
	return nil
}

// Ended waits for the process to end by itself and returns its exit code.
func (b *Broker) Ended(ctx context.Context, within time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-b.proc.Done():
		b.ended = true
		return b.proc.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s still runs after %s", b.Kind, within)
	}
}

// Started says whether the broker is meant to run: started, and neither killed nor stopped by this package since.
func (b *Broker) Started() bool { return b.proc != nil && !b.ended }

// Running is nil as long as the process runs, else it says how it ended.
func (b *Broker) Running() error {
	if b.proc == nil {
		return errors.New(b.Kind + " was not started")
	}
	return b.proc.Running()
}

// Pid is the process's id.
func (b *Broker) Pid() int { return b.proc.Pid() }

// Kill ends the process with SIGKILL, as a crash. Killing one that has ended is no error.
func (b *Broker) Kill() error {
	if b.proc == nil {
		return nil
	}
	b.ended = true
	return b.proc.Kill()
}

// Stop ends the process with SIGTERM, as a clean shutdown.
func (b *Broker) Stop() error {
	if b.proc == nil {
		return nil
	}
	b.ended = true
	return b.proc.Stop(30 * time.Second)
}

// Restart stops the process cleanly and starts it again.
func (b *Broker) Restart(ctx context.Context) error {
	if err := b.Stop(); err != nil {
		return err
	}
	return b.Start(ctx)
}

// PartitionDir is the folder of a partition's files.
func (b *Broker) PartitionDir(topic string, partition int32) string {
	return filepath.Join(b.DataDir, topic+"-"+strconv.Itoa(int(partition)))
}

// PeakMemory is the most memory the process has held so far, in bytes (VmHWM).
func (b *Broker) PeakMemory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.Pid()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("no VmHWM in the process's status")
}

// LogDirOf is PartitionDir for a node with several log directories: where among log.dirs the partition is.
func LogDirOf(b *Broker, topic string, partition int32) string {
	name := topic + "-" + strconv.Itoa(int(partition))
	found, err := filepath.Glob(filepath.Join(filepath.Dir(b.DataDir), "data*", name))
	if err != nil || len(found) == 0 {
		return b.PartitionDir(topic, partition)
	}
	return found[0]
}

func httpReady(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", resp.Status)
	}
	return nil
}

// serves asks for the cluster's metadata and wants a broker and a controller in it.
func serves(ctx context.Context, addr string) error {
	// Without a listener the client below would spend its own retries first.
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer c.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		return err
	}
	if len(resp.Brokers) == 0 || resp.ControllerID < 0 {
		return fmt.Errorf("metadata of %s: %d brokers, controller %d", addr, len(resp.Brokers), resp.ControllerID)
	}
	return nil
}
