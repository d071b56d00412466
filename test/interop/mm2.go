package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
)

// fromMM2 replaces a real MirrorMaker 2, which copies one Kafka, the primary, to another, the copy, by the commands of the runbook in
// docs/mirroring.md: first a mirror of the primary takes the copy's place, then the copy itself is migrated.
type fromMM2 struct {
	*part
	primary, copied mm2Side
	// standby mirrors the primary; next is what the copy is migrated to.
	standby, next mm2Side
	mm            *peertest.Process
	noise         noise
}

// mm2Side is one of the four clusters.
type mm2Side struct {
	*peertest.Broker
	adm *kadm.Client
}

const (
	mm2Orders = "orders"
	// mm2Events is written to in a transaction.
	mm2Events = "events"
	// mm2Ledger is an application's topic whose name ends as those of MirrorMaker 2 do.
	mm2Ledger = "ledger.internal"
	mm2Group  = "billing"
	// mm2Deleted is how many records of orders-0 are gone before MirrorMaker 2 comes.
	mm2Deleted = 50
)

// mm2Topics are the application's topics at the primary and their numbers of partitions.
func mm2Topics() map[string]int32 { return map[string]int32{mm2Orders: 6, mm2Events: 2, mm2Ledger: 1} }

// mm2Names are their names in order, at the copy with a prefix.
func mm2Names(prefix string) []string {
	var names []string
	for topic := range mm2Topics() {
		names = append(names, prefix+topic)
	}
	slices.Sort(names)
	return names
}

// mm2AtSource is what MirrorMaker 2 makes at its source, in the order of the names.
func mm2AtSource() []string {
	return []string{"heartbeats", "mm2-configs.copy.internal", "mm2-offset-syncs.copy.internal", "mm2-offsets.copy.internal", "mm2-status.copy.internal"}
}

func runFromMM2(ctx context.Context, p *part) error {
	m := &fromMM2{part: p, noise: newNoise(11)}
	return p.steps(ctx,
		step{"start two Kafkas and two nodes", m.start},
		step{"MirrorMaker 2 starts", m.startMM2},
		step{"MirrorMaker 2 copies", m.copy},
		step{"on the source: a mirror of the primary, beside it", m.mirrorPrimary},
		step{"on the source: MirrorMaker 2 and its topics go", m.retire},
		step{"on the copy: its applications write and read", m.work},
		step{"on the copy: a mirror of it", m.mirrorCopy},
		step{"on the copy: switch over", m.switchOver},
	)
}

func (m *fromMM2) start(ctx context.Context) error {
	sides := []*mm2Side{&m.primary, &m.copied, &m.standby, &m.next}
	for i, name := range []string{"primary", "copy", "standby", "next"} {
		s, dir := sides[i], filepath.Join(m.dir, name)
		var err error
		if i < 2 {
			s.Broker, err = peertest.NewKafka(ctx, peertest.KafkaOptions{Tools: m.kafka, Dir: dir, Properties: map[string]string{"auto.create.topics.enable": "false"}})
		} else {
			s.Broker, err = m.newMilena(name, "", map[string]string{"mirror.metadata.refresh.interval.ms": "1000"})
		}
		if err != nil {
			return err
		}
		m.addBroker(s.Broker)
		if err := s.Launch(); err != nil {
			return err
		}
	}
	for _, s := range sides {
		if err := s.AwaitReady(ctx); err != nil {
			return err
		}
		var err error
		if s.adm, err = m.admin(s.Addr); err != nil {
			return err
		}
	}
	return m.prepare(ctx)
}

// prepare makes the topics, with something that a group has read and something that is gone again, so that the copy can't have the
// offsets of its source.
func (m *fromMM2) prepare(ctx context.Context) error {
	for topic, n := range mm2Topics() {
		if _, err := m.primary.adm.CreateTopic(ctx, n, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, topic); err != nil {
			return err
		}
	}
	for _, topic := range []string{mm2Orders, mm2Ledger} {
		if err := produceEach(ctx, m.primary.Addr, topic, mm2Topics()[topic], 100); err != nil {
			return err
		}
	}
	if err := m.transaction(ctx); err != nil {
		return err
	}
	if _, err := m.consume(ctx, m.primary, mm2Orders); err != nil {
		return err
	}
	if err := checkCommitted(ctx, m.primary.adm, mm2Group, mm2Orders); err != nil {
		return err
	}
	var o kadm.Offsets
	o.AddOffset(mm2Orders, 0, mm2Deleted, -1)
	r, err := m.primary.adm.DeleteRecords(ctx, o)
	return errors.Join(err, r.Error())
}

// transaction writes ten records to each partition of the events and commits.
func (m *fromMM2) transaction(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.primary.Addr), kgo.TransactionalID("mm2"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	var recs []*kgo.Record
	for i := range 10 * mm2Topics()[mm2Events] {
		recs = append(recs, &kgo.Record{Topic: mm2Events, Partition: i % mm2Topics()[mm2Events], Value: []byte(strconv.Itoa(int(i)))})
	}
	if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		return err
	}
	return cl.EndTransaction(ctx, kgo.TryCommit)
}

// startMM2 runs MirrorMaker 2 as a process of its own, with the default replication policy, and waits until it has made its topics.
func (m *fromMM2) startMM2(ctx context.Context) error {
	props := map[string]string{
		"clusters": "primary, copy", "primary.bootstrap.servers": m.primary.Addr, "copy.bootstrap.servers": m.copied.Addr,
		"primary->copy.enabled": "true", "primary->copy.topics": ".*", "primary->copy.groups": ".*", "sync.group.offsets.enabled": "true",
		// Seconds where it would be minutes.
		"sync.group.offsets.interval.seconds": "1", "emit.checkpoints.interval.seconds": "1", "emit.heartbeats.interval.seconds": "1",
		"refresh.topics.interval.seconds": "1", "refresh.groups.interval.seconds": "1", "offset.flush.interval.ms": "1000",
		// Otherwise it looks into all of its jars for plugins first, which takes most of a minute.
		"primary.plugin.discovery": "service_load", "copy.plugin.discovery": "service_load",
	}
	for _, k := range []string{"replication.factor", "checkpoints.topic.replication.factor", "heartbeats.topic.replication.factor",
		"offset-syncs.topic.replication.factor", "offset.storage.replication.factor", "status.storage.replication.factor", "config.storage.replication.factor"} {
		props[k] = "1"
	}
	path := filepath.Join(m.dir, "mm2.properties")
	if err := peertest.WriteProperties(path, props); err != nil {
		return err
	}
	c := m.kafka.Command("connect-mirror-maker", path)
	c.Env = []string{"KAFKA_HEAP=512m"}
	var err error
	if m.mm, err = m.part.start("mm2", c); err != nil {
		return err
	}
	return peertest.WaitFor(ctx, 2*time.Minute, "topics of MirrorMaker 2", func(ctx context.Context) error {
		if err := m.mm.Running(); err != nil {
			return err
		}
		atSource, err := m.primary.adm.ListTopics(ctx)
		if err != nil {
			return err
		}
		atCopy, err := m.copied.adm.ListTopics(ctx)
		if err != nil {
			return err
		}
		want := slices.Sorted(slices.Values(append(mm2AtSource(), mm2Names("")...)))
		if got := atSource.Names(); !slices.Equal(got, want) {
			return fmt.Errorf("at the source: %v, want %v", got, want)
		}
		want = []string{"heartbeats", "mm2-configs.primary.internal", "mm2-offsets.primary.internal", "mm2-status.primary.internal", "primary.checkpoints.internal",
			"primary." + mm2Events, "primary.heartbeats", "primary." + mm2Ledger, "primary." + mm2Orders}
		if got := atCopy.Names(); !slices.Equal(got, want) {
			return fmt.Errorf("at the copy: %v, want %v", got, want)
		}
		return nil
	})
}

// mm2Usage is what a process has used so far.
type mm2Usage struct {
	cpu  time.Duration
	peak int64 // bytes
}

func usageOf(pid int) (mm2Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return mm2Usage{}, err
	}
	// The fields after the name, which is in parentheses, begin with the third; 14 and 15 are hundredths of seconds.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var u mm2Usage
	for _, s := range f[11:13] {
		n, err := strconv.Atoi(s)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(n) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	hwm := fields(string(status), 0, "VmHWM:")
	if len(hwm) != 1 {
		return u, errors.New("no VmHWM in the process's status")
	}
	kb, err := strconv.ParseInt(hwm[0][1], 10, 64)
	u.peak = kb << 10
	return u, err
}

// measured runs copying and logs what the process used for it.
func (m *fromMM2) measured(who string, pid int, copying func() error) error {
	before, err := usageOf(pid)
	if err != nil {
		return err
	}
	if err := copying(); err != nil {
		return err
	}
	after, err := usageOf(pid)
	m.logf("%s: %.1f CPU seconds for %d MiB, %.1f since its start; %d MiB of memory at most", who, (after.cpu - before.cpu).Seconds(), m.bytes()>>20,
		after.cpu.Seconds(), after.peak>>20)
	return err
}

// bytes is how much is produced to the orders.
func (m *fromMM2) bytes() int64 { return m.mirrorBytes / 4 }

// copy fills the orders and waits until the copy has as many records of every partition, under other offsets.
func (m *fromMM2) copy(ctx context.Context) error {
	err := m.measured("MirrorMaker 2", m.mm.Pid(), func() error {
		if err := m.fill(ctx); err != nil {
			return err
		}
		return peertest.WaitFor(ctx, 3*time.Minute, "MirrorMaker 2 has copied", func(ctx context.Context) error {
			src, err := m.records(ctx, m.primary, mm2Orders)
			if err != nil {
				return err
			}
			copied, err := m.records(ctx, m.copied, "primary."+mm2Orders)
			if err == nil && copied != src {
				err = fmt.Errorf("%d of %d records", copied, src)
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	for topic, fewer := range map[string]int64{mm2Orders: mm2Deleted, mm2Events: 1} { // the marker of the transaction
		src, err := m.end(ctx, m.primary, topic)
		if err != nil {
			return err
		}
		copied, err := m.end(ctx, m.copied, "primary."+topic)
		if err != nil {
			return err
		}
		if copied != src-fewer {
			return fmt.Errorf("primary.%s-0 ends at %d, want %d fewer than %d", topic, copied, fewer, src)
		}
	}
	return peertest.WaitFor(ctx, time.Minute, "MirrorMaker 2 has synced the group", func(ctx context.Context) error {
		at, err := m.copied.adm.FetchOffsets(ctx, mm2Group)
		if err != nil {
			return err
		}
		// It translates to an offset at or before the group's: the first record there is the first that is left of the source.
		if o, ok := at.Lookup("primary."+mm2Orders, 0); !ok || o.At < 1 || o.At > 100-mm2Deleted {
			return fmt.Errorf("group %s is at %d of primary.%s-0 (%v)", mm2Group, o.At, mm2Orders, ok)
		}
		return nil
	})
}

// fill produces to the orders at the primary, spread over all partitions.
func (m *fromMM2) fill(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.primary.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for left := m.bytes(); left > 0; {
		var recs []*kgo.Record
		for i := range int32(2000) {
			recs = append(recs, &kgo.Record{Topic: mm2Orders, Partition: i % mm2Topics()[mm2Orders], Value: m.noise.bytes(1024)})
			left -= 1024
		}
		if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// records is how many offsets a topic has between log starts and ends.
func (m *fromMM2) records(ctx context.Context, s mm2Side, topic string) (int64, error) {
	starts, err := s.adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	ends, err := s.adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) {
		start, _ := starts.Lookup(topic, o.Partition)
		n += o.Offset - start.Offset
	})
	return n, errors.Join(starts.Error(), ends.Error())
}

// end is the log end offset of a topic's first partition.
func (m *fromMM2) end(ctx context.Context, s mm2Side, topic string) (int64, error) {
	ends, err := s.adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	o, ok := ends.Lookup(topic, 0)
	if !ok {
		return 0, fmt.Errorf("%s-0 has no end offset", topic)
	}
	return o.Offset, o.Err
}

// consume reads a topic in the group, from where it is to the end, and says how many records those were.
func (m *fromMM2) consume(ctx context.Context, s mm2Side, topic string) (int64, error) {
	out, err := m.run(ctx, s.Addr, "consume", topic, "--group", mm2Group, "--from-beginning", "--exit-at-end", "--format", "%p")
	return int64(strings.Count(out, "\n")), err
}

// consumes wants the group to find this many records.
func (m *fromMM2) consumes(ctx context.Context, s mm2Side, topic string, want int64) error {
	got, err := m.consume(ctx, s, topic)
	if err == nil && got != want {
		err = fmt.Errorf("group %s has read %d records of %s, want %d", mm2Group, got, topic, want)
	}
	return err
}

// uncommitted is how many offsets of a topic lie between the group's and the ends.
func (m *fromMM2) uncommitted(ctx context.Context, s mm2Side, topic string) (int64, error) {
	at, err := s.adm.FetchOffsets(ctx, mm2Group)
	if err != nil {
		return 0, err
	}
	ends, err := s.adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	var n int64
	ends.Each(func(e kadm.ListedOffset) {
		o, _ := at.Lookup(topic, e.Partition) // nothing committed: from the start, which is 0
		n += e.Offset - max(o.At, 0)
	})
	return n, ends.Error()
}

// dryRun says which topics and groups would come over.
func (m *fromMM2) dryRun(ctx context.Context, dst mm2Side, args []string) (topics, groups []string, err error) {
	out, err := m.run(ctx, dst.Addr, append(slices.Clone(args), "--dry-run", "--json")...)
	if err != nil {
		return nil, nil, err
	}
	var s struct {
		Topics []struct{ Topic, Refused string }
		Groups []struct{ Group, Skipped string }
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return nil, nil, fmt.Errorf("%w: %s", err, out)
	}
	for _, t := range s.Topics {
		topics = append(topics, t.Topic+t.Refused)
	}
	for _, g := range s.Groups {
		if g.Skipped == "" {
			groups = append(groups, g.Group)
		}
	}
	return topics, groups, nil
}

// mirror makes the mirror mig of src on dst with the runbook's options, after a dry run, and waits until it is level and verified.
func (m *fromMM2) mirror(ctx context.Context, src, dst mm2Side, prefix string, exclude ...string) error {
	args := []string{"mirrors", "create", "mig", "--source", src.Addr, "--topics", ".*"}
	for _, e := range exclude {
		args = append(args, "--exclude", e)
	}
	topics, groups, err := m.dryRun(ctx, dst, args)
	if err != nil {
		return err
	}
	if !slices.Equal(topics, mm2Names(prefix)) || !slices.Equal(groups, []string{mm2Group}) {
		return fmt.Errorf("the dry run says topics %v, groups %v; want %v and %s", topics, groups, mm2Names(prefix), mm2Group)
	}
	err = m.measured("a node", dst.Pid(), func() error {
		if _, err := m.run(ctx, dst.Addr, args...); err != nil {
			return err
		}
		return m.level(ctx, src, dst, prefix)
	})
	if err != nil {
		return err
	}
	return m.verify(ctx, dst)
}

// level waits until all partitions of the application's topics, and no others, are mirrored to the source's end.
func (m *fromMM2) level(ctx context.Context, src, dst mm2Side, prefix string) error {
	want, err := src.adm.ListEndOffsets(ctx, mm2Names(prefix)...)
	if err != nil {
		return err
	}
	return peertest.WaitFor(ctx, 2*time.Minute, "the mirror is level", func(ctx context.Context) error {
		all, err := m.mirrors(ctx, dst.Addr, "mig")
		if err != nil {
			return err
		}
		for _, p := range all[0].Partitions {
			end, ok := want.Lookup(p.Topic, p.Partition)
			if !ok || p.State != "MIRRORING" || p.DestinationOffset == nil || *p.DestinationOffset < end.Offset {
				return fmt.Errorf("%s-%d is %s at %s of %d: %s", p.Topic, p.Partition, p.State, offset(p.DestinationOffset), end.Offset, p.LastError)
			}
		}
		if n := len(all[0].Partitions); n != 9 {
			return fmt.Errorf("%d partitions are mirrored", n)
		}
		return nil
	})
}

func (m *fromMM2) verify(ctx context.Context, dst mm2Side) error {
	out, err := m.run(ctx, dst.Addr, "mirrors", "verify", "mig")
	if err != nil {
		return err
	}
	return wantAll(out, "Mirror mig and its source are equal.")
}

// sameGroup waits until the group's offsets at dst are those at src.
func (m *fromMM2) sameGroup(ctx context.Context, src, dst mm2Side) error {
	want, err := src.adm.FetchOffsets(ctx, mm2Group)
	if err != nil {
		return err
	}
	return peertest.WaitFor(ctx, 30*time.Second, "offsets of the group", func(ctx context.Context) error {
		got, err := dst.adm.FetchOffsets(ctx, mm2Group)
		if err != nil {
			return err
		}
		return sameCommitted(got, want)
	})
}

func (m *fromMM2) mirrorPrimary(ctx context.Context) error {
	if err := m.mirror(ctx, m.primary, m.standby, "", "mm2-.*", "heartbeats"); err != nil {
		return err
	}
	if err := m.mm.Running(); err != nil {
		return err
	}
	return m.sameGroup(ctx, m.primary, m.standby)
}

// retire stops MirrorMaker 2 and deletes what it has left at the source; the mirror goes on.
func (m *fromMM2) retire(ctx context.Context) error {
	if err := m.mm.Stop(30 * time.Second); err != nil {
		return err
	}
	if _, err := m.run(ctx, m.primary.Addr, append([]string{"topics", "delete", "--if-exists"}, mm2AtSource()...)...); err != nil {
		return err
	}
	for _, s := range []mm2Side{m.primary, m.standby} {
		ts, err := s.adm.ListTopics(ctx)
		if err != nil {
			return err
		}
		got := slices.DeleteFunc(ts.Names(), func(name string) bool { return strings.HasPrefix(name, "__") })
		if !slices.Equal(got, mm2Names("")) {
			return fmt.Errorf("topics %v, want %v", got, mm2Names(""))
		}
	}
	if err := produceEach(ctx, m.primary.Addr, mm2Orders, mm2Topics()[mm2Orders], 10); err != nil {
		return err
	}
	if _, err := m.consume(ctx, m.primary, mm2Orders); err != nil {
		return err
	}
	return errors.Join(m.level(ctx, m.primary, m.standby, ""), m.sameGroup(ctx, m.primary, m.standby), m.verify(ctx, m.standby))
}

// work is the applications on the copy: the group goes on where MirrorMaker 2 has put it, and something is written.
func (m *fromMM2) work(ctx context.Context) error {
	const topic = "primary." + mm2Orders
	want, err := m.uncommitted(ctx, m.copied, topic)
	if err != nil {
		return err
	}
	if err := m.consumes(ctx, m.copied, topic, want); err != nil {
		return err
	}
	return produceEach(ctx, m.copied.Addr, topic, mm2Topics()[mm2Orders], 7)
}

func (m *fromMM2) mirrorCopy(ctx context.Context) error {
	err := m.mirror(ctx, m.copied, m.next, "primary.", "mm2-.*", `primary\.checkpoints\.internal`, `(primary\.)?heartbeats`)
	if err != nil {
		return err
	}
	return m.sameGroup(ctx, m.copied, m.next)
}

// switchOver makes the copy's copy the one that is written to; the group reads what it had not read, and what is written now.
func (m *fromMM2) switchOver(ctx context.Context) error {
	out, err := m.run(ctx, m.next.Addr, "mirrors", "switchover", "mig", "--yes", "--quiet", "1s")
	if err != nil {
		return err
	}
	if err := wantAll(out, "Records lost: 0."); err != nil {
		return err
	}
	for topic, n := range mm2Topics() {
		if err := produceEach(ctx, m.next.Addr, "primary."+topic, n, 5); err != nil {
			return err
		}
	}
	const topic = "primary." + mm2Orders
	if err := m.consumes(ctx, m.next, topic, 6*(7+5)); err != nil {
		return err
	}
	return checkCommitted(ctx, m.next.adm, mm2Group, topic)
}
