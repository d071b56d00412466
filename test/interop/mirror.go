package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
)

// mirror copies topics of a real Apache Kafka to two Milenas at once: one mirrors in plain text, the other over
// SASL_SSL by two mirrors with different logins and stores. Both are killed five times on the way, Kafka is stopped and
// killed once each, which raises its leader epochs.
type mirror struct {
	*part
	src, plain, secure *peertest.Broker
	sec                *peertest.Security
	srcAdm             *kadm.Client
	load               *load
	// starts are the source's log starts, of which one is not 0.
	starts kadm.ListedOffsets
	ends   kadm.ListedOffsets
}

const (
	ordersTopic, eventsTopic, tableTopic = "orders.eu", "events", "customers"
	bigBatch                             = 8 << 20
	// readerGroup is a group that really consumed; the others were committed for.
	readerGroup = "reader"
)

// mirrored are the mirrored topics and their numbers of partitions, 12 in all.
func mirrored() map[string]int32 {
	return map[string]int32{ordersTopic: 6, eventsTopic: 4, tableTopic: 2}
}

// standby is a Milena and the mirrors on it by name, with the pattern of the topics of each.
type standby struct {
	*peertest.Broker
	mirrors map[string]string
}

func (m *mirror) standbys() []standby {
	return []standby{
		{m.plain, map[string]string{"plain": "orders.*,events,customers"}},
		{m.secure, map[string]string{"scram": "orders.*,customers", "login": "events"}},
	}
}

func runMirrorKafka(ctx context.Context, p *part) error {
	m := &mirror{part: p}
	return p.steps(ctx,
		step{"start Kafka and two Milenas", m.start},
		step{"fill and compact at the source", m.prepareSource},
		step{"create mirrors", m.create},
		step{"produce while mirroring, with kills and restarts", m.disturb},
		step{"commit offsets at the source", m.commitOffsets},
		step{"catch up", m.catchUp},
		step{"compare segment files", m.compare},
		step{"compare configs and offsets", m.compareOffsets},
		step{"compare group offsets", m.compareGroups},
		step{"Kafka reads Milena's files", m.dump},
		step{"writes refused before stop", m.refused},
		step{"stop mirrors and write", m.stop},
	)
}

func (m *mirror) start(ctx context.Context) (err error) {
	if m.sec, err = peertest.NewSecurity(ctx, filepath.Join(m.dir, "security")); err != nil {
		return err
	}
	m.src, err = peertest.NewKafka(ctx, peertest.KafkaOptions{Tools: m.kafka, Dir: filepath.Join(m.dir, "source"), Security: m.sec,
		Properties: map[string]string{"log.cleaner.backoff.ms": "200", "broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}})
	if err != nil {
		return err
	}
	m.addBroker(m.src)
	if err := m.src.Launch(); err != nil {
		return err
	}
	if m.plain, err = m.newMilena("standby-plain", "", nil); err != nil {
		return err
	}
	m.addBroker(m.plain)
	if m.secure, err = m.newMilena("standby-secure", "", nil); err != nil {
		return err
	}
	m.addBroker(m.secure)
	for _, b := range []*peertest.Broker{m.plain, m.secure} {
		if err := b.Start(ctx); err != nil {
			return err
		}
	}
	if err := m.src.AwaitReady(ctx); err != nil {
		return err
	}
	m.srcAdm, err = m.admin(m.src.Addr)
	return err
}

// cli runs a command of milena's own against one of the standbys.
func (m *mirror) cli(ctx context.Context, b *peertest.Broker, args ...string) (string, error) {
	return m.run(ctx, b.Addr, args...)
}

func (m *mirror) create(ctx context.Context) error {
	if err := m.createMirror(ctx, m.plain, "plain", []string{"--source", m.src.Addr}, "orders.*", "events", "customers"); err != nil {
		return err
	}
	for _, s := range []struct {
		name, mechanism, store string
		topics                 []string
	}{
		{"scram", "SCRAM-SHA-512", "JKS", []string{"orders.*", "customers"}},
		{"login", "PLAIN", "PEM", []string{"events"}},
	} {
		file := filepath.Join(m.dir, s.name+".properties")
		if err := peertest.WriteProperties(file, m.sec.ClientProperties(s.mechanism, s.store)); err != nil {
			return err
		}
		if err := m.createMirror(ctx, m.secure, s.name, []string{"--source", m.src.SASLAddr, "--source-config", file}, s.topics...); err != nil {
			return err
		}
	}
	return nil
}

func (m *mirror) createMirror(ctx context.Context, b *peertest.Broker, name string, source []string, topics ...string) error {
	args := append([]string{"mirrors", "create", name, "--config", "mirror.groups.sync.interval.ms=500"}, source...)
	for _, t := range topics {
		args = append(args, "--topics", t)
	}
	_, err := m.cli(ctx, b, args...)
	return err
}

// disturb kills and restarts while the load runs: one thing after each tenth of it.
func (m *mirror) disturb(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	tenth := make(chan struct{})
	go func() { done <- m.load.run(ctx, m.mirrorBytes, tenth) }()
	kill := func() error {
		for _, s := range m.standbys() {
			if err := s.Kill(); err != nil {
				return err
			}
		}
		for _, s := range m.standbys() {
			if err := s.Start(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	acts := []func() error{
		kill,
		kill,
		func() error { return m.src.Restart(ctx) },
		kill,
		func() error {
			if err := m.src.Kill(); err != nil {
				return err
			}
			return m.src.Start(ctx)
		},
		kill,
		func() error { return m.progress(ctx) },
		kill,
	}
	for _, act := range acts {
		select {
		case <-tenth:
		case err := <-done:
			return fmt.Errorf("the load ended early: %w", err)
		}
		if err := act(); err != nil {
			return err
		}
	}
	for {
		select {
		case <-tenth:
		case err := <-done:
			return err
		}
	}
}

// progress wants something mirrored on each standby by now.
func (m *mirror) progress(ctx context.Context) error {
	for _, s := range m.standbys() {
		err := peertest.WaitFor(ctx, 30*time.Second, s.Addr+" mirrors", func(ctx context.Context) error {
			ps, err := m.describe(ctx, s)
			if err != nil {
				return err
			}
			for _, p := range ps {
				if p.DestinationOffset != nil && *p.DestinationOffset > 0 && p.State == "MIRRORING" {
					return nil
				}
			}
			return fmt.Errorf("nothing is mirrored: %+v", ps)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *mirror) describe(ctx context.Context, s standby) ([]described, error) {
	all, err := m.mirrors(ctx, s.Addr)
	if err != nil {
		return nil, err
	}
	if len(all) != len(s.mirrors) {
		return nil, fmt.Errorf("%d mirrors described, want %d", len(all), len(s.mirrors))
	}
	var ps []described
	for _, x := range all {
		if s.mirrors[x.Mirror] == "" {
			return nil, fmt.Errorf("mirror %q was not created", x.Mirror)
		}
		ps = append(ps, x.Partitions...)
	}
	return ps, nil
}

// catchUp waits until every partition's offset is the end of the source's.
func (m *mirror) catchUp(ctx context.Context) (err error) {
	topics := []string{ordersTopic, eventsTopic, tableTopic}
	if m.starts, err = m.srcAdm.ListStartOffsets(ctx, topics...); err != nil {
		return err
	}
	if m.ends, err = m.srcAdm.ListEndOffsets(ctx, topics...); err != nil {
		return err
	}
	for _, s := range m.standbys() {
		err := peertest.WaitFor(ctx, 3*time.Minute, s.Addr+" caught up", func(ctx context.Context) error {
			if err := s.Running(); err != nil {
				return err
			}
			ps, err := m.describe(ctx, s)
			if err != nil {
				return err
			}
			if len(ps) != 12 {
				return fmt.Errorf("%d partitions described: %+v", len(ps), ps)
			}
			for _, p := range ps {
				end, ok := m.ends.Lookup(p.Topic, p.Partition)
				if !ok || p.State != "MIRRORING" || p.DestinationOffset == nil || *p.DestinationOffset != end.Offset || p.Lag == nil || *p.Lag != 0 {
					return fmt.Errorf("%s-%d is %s at %s of %d, last error %q", p.Topic, p.Partition, p.State, offset(p.DestinationOffset), end.Offset, p.LastError)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func offset(o *int64) string {
	if o == nil {
		return "unknown"
	}
	return itoa(*o)
}

// refused wants a write to a mirrored topic refused for good, by name.
func (m *mirror) refused(ctx context.Context) error {
	for _, s := range m.standbys() {
		err := m.write(ctx, s.Broker, ordersTopic, nil)
		if !errors.Is(err, kerr.PolicyViolation) {
			return fmt.Errorf("a write to mirrored topic %s of %s: %w, want POLICY_VIOLATION", ordersTopic, s.Addr, err)
		}
	}
	return nil
}

// write produces a record to each partition; where tells the offsets if it isn't nil.
func (m *mirror) write(ctx context.Context, b *peertest.Broker, topic string, where map[int32]int64) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	var recs []*kgo.Record
	for p := range mirrored()[topic] {
		recs = append(recs, &kgo.Record{Topic: topic, Partition: p, Key: []byte("new"), Value: []byte("written at the standby")})
	}
	if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		return err
	}
	for _, r := range recs {
		if where != nil {
			where[r.Partition] = r.Offset
		}
	}
	return nil
}

// stop ends the mirrors with the source gone, and then the standbys are clusters of their own.
func (m *mirror) stop(ctx context.Context) error {
	if err := m.src.Kill(); err != nil {
		return err
	}
	for _, s := range m.standbys() {
		for name, topics := range s.mirrors {
			if _, err := m.cli(ctx, s.Broker, "mirrors", "stop", name, "--topics", topics); err != nil {
				return err
			}
		}
		for topic, n := range mirrored() {
			where := map[int32]int64{}
			if err := m.write(ctx, s.Broker, topic, where); err != nil {
				return fmt.Errorf("write to %s of %s after stop: %w", topic, s.Addr, err)
			}
			for p := range n {
				if end, _ := m.ends.Lookup(topic, p); where[p] < end.Offset {
					return fmt.Errorf("%s-%d: written at %d, but the source ended at %d", topic, p, where[p], end.Offset)
				}
			}
		}
		if err := m.resumes(ctx, s); err != nil {
			return err
		}
		// It stays stopped and writable.
		if err := s.Kill(); err != nil {
			return err
		}
		if err := s.Start(ctx); err != nil {
			return err
		}
		if err := m.write(ctx, s.Broker, eventsTopic, nil); err != nil {
			return fmt.Errorf("write after stop and kill -9: %w", err)
		}
	}
	// What the stop appended must not trouble Kafka's tool either.
	files, err := peertest.Segments(m.plain.PartitionDir(tableTopic, 0))
	if err != nil {
		return err
	}
	_, err = m.dumpCompacted(ctx, files, "--deep-iteration")
	return err
}

// resumes wants a group to go on at the standby where it was at the source.
func (m *mirror) resumes(ctx context.Context, s standby) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.ConsumerGroup(readerGroup), kgo.ConsumeTopics(tableTopic))
	if err != nil {
		return err
	}
	defer cl.Close()
	n := 0
	for n < int(mirrored()[tableTopic]) {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return err
		}
		for r := range fs.RecordsAll() {
			if string(r.Key) != "new" {
				return fmt.Errorf("group %s had read all of %s at the source, but gets offset %d of partition %d again", readerGroup, tableTopic, r.Offset, r.Partition)
			}
			n++
		}
	}
	return nil
}
