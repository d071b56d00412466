// Command sarama is one stage of the interop test with the Go client sarama, in a module of its own so that the
// client's dependencies stay out of Milena's. The stages are described in ../scripted.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 3
	records    = 300
	deadline   = 30 * time.Second
)

func codecs() []sarama.CompressionCodec {
	return []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD}
}

type client struct {
	addr, prefix string
	t0           int64 // ms
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: sarama STAGE BOOTSTRAP PREFIX T0")
		os.Exit(2)
	}
	t0, err := strconv.ParseInt(os.Args[4], 10, 64)
	if err == nil {
		c := client{addr: os.Args[2], prefix: os.Args[3], t0: t0}
		err = map[string]func() error{"produce": c.produce, "group": c.group, "time": c.byTime, "delete": c.delete, "keep-producing": c.keepProducing, "keep-consuming": c.keepConsuming}[os.Args[1]]()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sarama:", err)
		os.Exit(1)
	}
}

func (c client) topic(codec sarama.CompressionCodec) string { return c.prefix + "-" + codec.String() }

func config() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.MaxVersion
	cfg.Producer.Return.Successes = true
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Return.Errors = true
	cfg.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	return cfg
}

func (c client) produce() error {
	admin, err := sarama.NewClusterAdmin([]string{c.addr}, config())
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close() }()
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}
	for _, codec := range codecs() {
		if err := admin.CreateTopic(c.topic(codec), detail, false); err != nil {
			return err
		}
	}
	if err := admin.CreateTopic(c.topic(sarama.CompressionNone), detail, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("creating a topic twice: %w", err)
	}
	for _, codec := range codecs() {
		if err := c.produceWith(codec); err != nil {
			return fmt.Errorf("%s: %w", codec, err)
		}
	}
	return nil
}

func (c client) produceWith(codec sarama.CompressionCodec) error {
	cfg := config()
	cfg.Producer.Compression = codec
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Net.MaxOpenRequests = 1
	p, err := sarama.NewSyncProducer([]string{c.addr}, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	for from := 0; from < records; from += 50 {
		var batch []*sarama.ProducerMessage
		for i := from; i < from+50; i++ {
			batch = append(batch, &sarama.ProducerMessage{
				Topic: c.topic(codec), Key: sarama.StringEncoder(fmt.Sprintf("k%d", i%10)),
				Value:     sarama.StringEncoder(fmt.Sprintf("%s-%d the same words, the same words, the same words", codec, i)),
				Headers:   []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("v")}},
				Timestamp: time.UnixMilli(c.t0 + int64(i)*1000),
			})
		}
		if err := p.SendMessages(batch); err != nil {
			return err
		}
	}
	return nil
}

// seen counts the records that the members of a group got.
type seen struct {
	mu sync.Mutex
	at map[string]int
}

// member is a consumer group handler that marks each record and commits.
type member struct {
	group sarama.ConsumerGroup
	stop  context.CancelFunc
	done  chan error
	seen  *seen

	mu    sync.Mutex
	owned int
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.set(0)
	for _, ps := range s.Claims() {
		m.set(len(ps))
	}
	return nil
}

func (m *member) Cleanup(s sarama.ConsumerGroupSession) error {
	s.Commit()
	m.set(0)
	return nil
}

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for msg := range claim.Messages() {
		if len(msg.Headers) != 1 || string(msg.Headers[0].Key) != "h" {
			return fmt.Errorf("headers of %d/%d: %v", msg.Partition, msg.Offset, msg.Headers)
		}
		m.seen.mu.Lock()
		m.seen.at[fmt.Sprintf("%d/%d", msg.Partition, msg.Offset)]++
		m.seen.mu.Unlock()
		s.MarkMessage(msg, "by the test")
	}
	return nil
}

func (m *member) set(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owned = n
}

func (m *member) has() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owned
}

func (c client) join(s *seen) (*member, error) {
	g, err := sarama.NewConsumerGroup([]string{c.addr}, c.prefix+"-group", config())
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{group: g, stop: stop, done: make(chan error, 1), seen: s}
	go func() {
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{c.topic(sarama.CompressionZSTD)}, m); err != nil && ctx.Err() == nil {
				m.done <- err
				return
			}
		}
		m.done <- nil
	}()
	go func() {
		for err := range g.Errors() {
			fmt.Fprintln(os.Stderr, "consumer group:", err)
		}
	}()
	return m, nil
}

func (m *member) leave() error {
	m.stop()
	err := <-m.done
	return errors.Join(err, m.group.Close())
}

func until(what string, is func() bool) error {
	end := time.Now().Add(deadline)
	for !is() {
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %s", what, deadline)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func (c client) group() error {
	s := &seen{at: map[string]int{}}
	a, err := c.join(s)
	if err != nil {
		return err
	}
	if err := until("one member has all", func() bool { return a.has() == partitions }); err != nil {
		return err
	}
	b, err := c.join(s)
	if err != nil {
		return err
	}
	if err := until("two share", func() bool { return a.has() > 0 && b.has() > 0 && a.has()+b.has() == partitions }); err != nil {
		return err
	}
	if err := b.leave(); err != nil {
		return err
	}
	if err := until("one has all again", func() bool { return a.has() == partitions }); err != nil {
		return err
	}
	if err := until("all seen", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.at) == records }); err != nil {
		return err
	}
	if err := a.leave(); err != nil {
		return err
	}
	admin, err := sarama.NewClusterAdmin([]string{c.addr}, config())
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close() }()
	groups, err := admin.DescribeConsumerGroups([]string{c.prefix + "-group"})
	if err != nil {
		return err
	}
	if len(groups) != 1 || groups[0].State != "Empty" {
		return fmt.Errorf("the group is described as %+v", groups[0])
	}
	return nil
}

func (c client) byTime() error {
	cl, err := sarama.NewClient([]string{c.addr}, config())
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }()
	consumer, err := sarama.NewConsumerFromClient(cl)
	if err != nil {
		return err
	}
	topic, start, n := c.topic(sarama.CompressionSnappy), c.t0+150*1000, 0
	for p := range int32(partitions) {
		from, err := cl.GetOffset(topic, p, start)
		if err != nil {
			return err
		}
		end, err := cl.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		if from < 0 || from == end {
			continue
		}
		pc, err := consumer.ConsumePartition(topic, p, from)
		if err != nil {
			return err
		}
		timeout := time.After(deadline)
		for at := from; at < end; at++ {
			select {
			case msg := <-pc.Messages():
				if msg.Offset != at || msg.Timestamp.UnixMilli() < start {
					return fmt.Errorf("got offset %d at %s, want %d", msg.Offset, msg.Timestamp, at)
				}
				n++
			case err := <-pc.Errors():
				return err
			case <-timeout:
				return fmt.Errorf("partition %d: nothing at offset %d", p, at)
			}
		}
		if err := pc.Close(); err != nil {
			return err
		}
	}
	if n != 150 {
		return fmt.Errorf("%d records from the time on, want 150", n)
	}
	return nil
}

func (c client) delete() error {
	admin, err := sarama.NewClusterAdmin([]string{c.addr}, config())
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close() }()
	if err := admin.DeleteRecords(c.topic(sarama.CompressionLZ4), map[int32]int64{0: 5}); err != nil {
		return err
	}
	if err := admin.DeleteConsumerGroup(c.prefix + "-group"); err != nil {
		return err
	}
	for _, codec := range codecs() {
		if codec == sarama.CompressionLZ4 {
			continue
		}
		if err := admin.DeleteTopic(c.topic(codec)); err != nil {
			return err
		}
	}
	return nil
}
