package meta

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"milena/internal/ids"
)

// contents is an image as plain data, to compare images by.
func contents(m *Image) string {
	s := fmt.Sprintf("features %v producer ids %d partitions %d\n", m.Features(), m.NextProducerID(), m.PartitionCount())
	for b := range m.Brokers() {
		rack := "none"
		if b.Rack != nil {
			rack = *b.Rack
		}
		c := *b
		c.Rack = nil
		s += fmt.Sprintf("broker %+v rack %s\n", c, rack)
	}
	for c := range m.Controllers() {
		s += fmt.Sprintf("controller %+v\n", *c)
	}
	for t := range m.Topics() {
		if alike := strings.ReplaceAll(t.Name, ".", "_"); alike != t.Name && m.TopicAlike(alike) != t.Name {
			s += fmt.Sprintf("topic %s is alike %s, and %s is found\n", t.Name, alike, m.TopicAlike(alike))
		}
		if m.TopicByID(t.ID) != t {
			s += fmt.Sprintf("topic %s is not the one its id leads to\n", t.Name)
		}
		s += fmt.Sprintf("topic %s %s mirror %q %d %d\n", t.Name, t.ID, t.MirrorName, t.MirrorDesired, t.MirrorChangeOffset)
		for i, p := range t.Partitions {
			s += fmt.Sprintf("  %d %+v\n", i, *p)
		}
	}
	for _, kind := range []int8{ResourceTopic, ResourceBroker, ResourceGroup, ResourceClusterMirror} {
		for name, entries := range m.Configs(kind) {
			for _, k := range slices.Sorted(maps.Keys(entries)) {
				s += fmt.Sprintf("config %d %q %s=%s\n", kind, name, k, entries[k])
			}
		}
	}
	return s
}

func apply(t interface{ Fatal(...any) }, d *Draft, from int64, recs ...Record) int64 {
	for _, r := range recs {
		b, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		dec, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Apply(from, 1, dec); err != nil {
			t.Fatal(err)
		}
		from++
	}
	return from
}

func id(n byte) ids.UUID { return ids.UUID{0: 1, 15: n} }

// randomRecord makes a record that fits the image.
func randomRecord(t *rapid.T, img *Image, n int) Record {
	var topics []*Topic
	for x := range img.Topics() {
		topics = append(topics, x)
	}
	var brokers []*Broker
	for b := range img.Brokers() {
		brokers = append(brokers, b)
	}
	kinds := []string{"topic", "register", "controller", "config", "feature", "producers", "no-op"}
	if len(topics) > 0 {
		kinds = append(kinds, "partition", "partition", "change", "change", "change", "remove", "mirror", "unmirror", "topic config")
	}
	if len(brokers) > 0 {
		kinds = append(kinds, "broker change", "unregister")
	}
	list := rapid.SliceOfN(rapid.Int32Range(0, 3), 0, 3)
	pick := func(label string) *Topic { return rapid.SampledFrom(topics).Draw(t, label) }
	value := func() *string {
		if rapid.Bool().Draw(t, "removed") {
			return nil
		}
		return ptr(rapid.StringMatching(`[a-c]{0,2}`).Draw(t, "value"))
	}
	switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
	case "topic":
		name := fmt.Sprintf("t%s%d", []string{"", ".", "_"}[n%3], n)
		return &TopicRecord{TopicName: name, TopicID: ids.UUID{0: 1, 14: byte(n >> 8), 15: byte(n)}}
	case "partition":
		x := pick("topic")
		return &PartitionRecord{
			TopicID: x.ID, PartitionID: int32(len(x.Partitions)), Replicas: list.Draw(t, "replicas"),
			ISR: list.Draw(t, "isr"), ELR: list.Draw(t, "elr"), Leader: rapid.Int32Range(-1, 3).Draw(t, "leader"),
			LeaderRecoveryState: rapid.Int8Range(0, 1).Draw(t, "recovery"), LeaderEpoch: int32(n),
			Directories: []ids.UUID{id(byte(n))},
		}
	case "change":
		x := pick("topic")
		if len(x.Partitions) == 0 {
			return &NoOpRecord{}
		}
		r := NewPartitionChange(x.ID, rapid.Int32Range(0, int32(len(x.Partitions)-1)).Draw(t, "partition"))
		r.Leader = rapid.Int32Range(-2, 3).Draw(t, "leader")
		r.LeaderEpoch = rapid.Int32Range(-1, 9).Draw(t, "epoch")
		if rapid.Bool().Draw(t, "with isr") {
			r.ISR = append([]int32{}, list.Draw(t, "isr")...)
		}
		return r
	case "remove":
		return &RemoveTopicRecord{TopicID: pick("topic").ID}
	case "mirror":
		return &MirrorTopicStateChangeRecord{TopicName: pick("topic").Name, MirrorName: ptr("m"), DesiredState: 3, ChangeOffset: -1}
	case "unmirror":
		return &MirrorTopicStateChangeRecord{TopicName: pick("topic").Name, DesiredState: MirrorDesiredUnknown, ChangeOffset: -1}
	case "topic config":
		return &ConfigRecord{ResourceType: ResourceTopic, ResourceName: pick("topic").Name, Key: "k", Value: value()}
	case "config":
		return &ConfigRecord{ResourceType: ResourceBroker, ResourceName: rapid.SampledFrom([]string{"", "1"}).Draw(t, "broker"),
			Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), Value: value()}
	case "feature":
		return &FeatureLevelRecord{Feature: rapid.SampledFrom([]string{MetadataVersionFeature, "x"}).Draw(t, "feature"), Level: rapid.Int16Range(0, 3).Draw(t, "level")}
	case "producers":
		return &ProducerIdsRecord{NextProducerID: img.NextProducerID() + 10}
	case "register":
		return &RegisterBrokerRecord{BrokerID: rapid.Int32Range(0, 3).Draw(t, "broker"), BrokerEpoch: int64(n), IncarnationID: id(byte(n)),
			EndPoints: []Endpoint{{Name: "A", Host: "h", Port: uint16(n)}}, Fenced: true, Rack: value()}
	case "controller":
		return &RegisterControllerRecord{ControllerID: rapid.Int32Range(0, 3).Draw(t, "controller"), IncarnationID: id(byte(n)),
			EndPoints: []Endpoint{{Name: "A", Host: "h", Port: uint16(n)}}, Features: []FeatureRange{{Name: "x", Max: int16(n)}}}
	case "broker change":
		b := rapid.SampledFrom(brokers).Draw(t, "broker")
		return &BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: rapid.Int8Range(-1, 1).Draw(t, "fenced")}
	case "unregister":
		b := rapid.SampledFrom(brokers).Draw(t, "broker")
		return &UnregisterBrokerRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch}
	default:
		return &NoOpRecord{}
	}
}

// Replaying a log from its start, applying it piece by piece with images taken in between,
// and loading a snapshot give equal images; no image changes after it was taken; and a
// delta names exactly what differs.
func TestImagesAreTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piecewise := Empty("c").Draft()
		var log []Record
		type taken struct {
			img  *Image
			was  string
			upTo int
		}
		var images []taken
		prev := piecewise.Image()
		for n := range rapid.IntRange(1, 40).Draw(t, "records") {
			r := randomRecord(t, piecewise.Speculative(), n)
			log = append(log, r)
			apply(t, piecewise, int64(n), r)
			if rapid.IntRange(0, 4).Draw(t, "look") == 0 {
				d := piecewise.Delta()
				checkDelta(t, d, prev)
				prev = d.Next
				images = append(images, taken{d.Next, contents(d.Next), n + 1})
			}
		}
		for _, im := range images {
			if got := contents(im.img); got != im.was {
				t.Fatalf("an image changed after it was taken:\n%s\nwas\n%s", got, im.was)
			}
			whole := Empty("c").Draft()
			apply(t, whole, 0, log[:im.upTo]...)
			if got := contents(whole.Image()); got != im.was {
				t.Fatalf("replay gives\n%s\npiece by piece\n%s", got, im.was)
			}
			snapshot := Empty("c").Draft()
			for r := range im.img.Records() {
				apply(t, snapshot, im.img.Offset, r)
			}
			if got := contents(snapshot.Image()); got != im.was {
				t.Fatalf("the snapshot gives\n%s\nthe log\n%s", got, im.was)
			}
			if d := Diff(im.img, snapshot.Image()); len(d.Topics)+len(d.Brokers)+len(d.Controllers)+len(d.Configs)+len(d.Features) > 0 {
				t.Fatalf("equal images differ: %+v", d)
			}
		}
	})
}

func checkDelta(t *rapid.T, d *Delta, prev *Image) {
	if d.Prev != prev {
		t.Fatal("a delta doesn't begin where the last one ended")
	}
	full := Diff(d.Prev, d.Next)
	for _, td := range full.Topics {
		i := slices.IndexFunc(d.Topics, func(x TopicDelta) bool { return x.Topic().ID == td.Topic().ID })
		if i < 0 {
			t.Fatalf("topic %s changed and is not in the delta", td.Topic().Name)
		}
		for _, p := range td.Partitions {
			if !slices.Contains(d.Topics[i].Partitions, p) {
				t.Fatalf("partition %d of %s changed and is not in the delta", p, td.Topic().Name)
			}
		}
	}
	for _, b := range full.Brokers {
		if !slices.Contains(d.Brokers, b) {
			t.Fatalf("broker %d changed and is not in the delta", b)
		}
	}
	if !slices.Equal(full.Controllers, d.Controllers) {
		t.Fatalf("delta has controllers %v, want %v", d.Controllers, full.Controllers)
	}
	if !slices.Equal(full.Configs, d.Configs) || !slices.Equal(full.Features, d.Features) {
		t.Fatalf("delta has configs %v features %v, want %v %v", d.Configs, d.Features, full.Configs, full.Features)
	}
}

func TestTransactionsShowAsAWhole(t *testing.T) {
	d := Empty("c").Draft()
	next := apply(t, d, 0, &TopicRecord{TopicName: "a", TopicID: id(1)})
	d.Delta()
	next = apply(t, d, next, &BeginTransactionRecord{}, &TopicRecord{TopicName: "b", TopicID: id(2)})
	if img := d.Image(); img.TopicByName("b") != nil || img.Offset != 0 {
		t.Errorf("an open transaction shows: topic b %v, offset %d", img.TopicByName("b"), img.Offset)
	}
	if d.Speculative().TopicByName("b") == nil {
		t.Error("the speculative image lacks the open transaction")
	}
	if delta := d.Delta(); len(delta.Topics) != 0 {
		t.Errorf("an open transaction shows in a delta: %+v", delta.Topics)
	}
	next = apply(t, d, next, &PartitionRecord{TopicID: id(2)}, &EndTransactionRecord{})
	delta := d.Delta()
	if len(delta.Topics) != 1 || delta.Topics[0].Next.Name != "b" || !slices.Equal(delta.Topics[0].Partitions, []int32{0}) {
		t.Errorf("after the end the delta has %+v, want topic b with partition 0", delta.Topics)
	}
	next = apply(t, d, next, &BeginTransactionRecord{}, &RemoveTopicRecord{TopicID: id(1)}, &AbortTransactionRecord{})
	if img := d.Image(); img.TopicByName("a") == nil || img.Offset != next-1 || img.PartitionCount() != 1 {
		t.Errorf("after an abort: topic a %v, offset %d", img.TopicByName("a"), img.Offset)
	}
	if delta := d.Delta(); len(delta.Topics) != 0 {
		t.Errorf("an aborted transaction shows in a delta: %+v", delta.Topics)
	}
}

func TestLeaderEpochs(t *testing.T) {
	for _, tt := range []struct {
		name    string
		version int16
		leader  int32
		epoch   int32
		want    int32
	}{
		{"version 2 with a leader raises it by one", 2, 1, -1, 6},
		{"version 2 without a leader leaves it", 2, NoLeaderChange, -1, 5},
		{"version 3 says it", 3, 1, 9, 9},
		{"version 3 bumps without a leader", 3, NoLeaderChange, 12, 12},
		{"version 3 with the same leader and no epoch leaves it", 3, 1, -1, 5},
	} {
		r := NewPartitionChange(id(1), 0)
		r.decodedVersion, r.Leader, r.LeaderEpoch = tt.version, tt.leader, tt.epoch
		p := r.Change(Partition{Leader: 1, LeaderEpoch: 5, PartitionEpoch: 7})
		if p.LeaderEpoch != tt.want || p.PartitionEpoch != 8 {
			t.Errorf("%s: leader epoch %d, partition epoch %d; want %d, 8", tt.name, p.LeaderEpoch, p.PartitionEpoch, tt.want)
		}
	}
}

func TestTopicAlike(t *testing.T) {
	d := Empty("c").Untracked()
	next := apply(t, d, 0, &TopicRecord{TopicName: "a.b_c", TopicID: id(1)}, &TopicRecord{TopicName: "plain", TopicID: id(2)})
	for name, want := range map[string]string{"a_b.c": "a.b_c", "a_b_c": "a.b_c", "a.b_c": "", "a.b-c": "", "plain": "", "p.lain": ""} {
		if got := d.Image().TopicAlike(name); got != want {
			t.Errorf("%s is alike %q, want %q", name, got, want)
		}
	}
	apply(t, d, next, &RemoveTopicRecord{TopicID: id(1)})
	if got := d.Image().TopicAlike("a_b_c"); got != "" {
		t.Errorf("a deleted topic, %s, is still alike", got)
	}
}

func TestDeletedAndCreatedAgain(t *testing.T) {
	d := Empty("c").Draft()
	next := apply(t, d, 0, &TopicRecord{TopicName: "a", TopicID: id(1)}, &PartitionRecord{TopicID: id(1)},
		&ConfigRecord{ResourceType: ResourceTopic, ResourceName: "a", Key: "k", Value: ptr("v")})
	d.Delta()
	apply(t, d, next, &RemoveTopicRecord{TopicID: id(1)}, &TopicRecord{TopicName: "a", TopicID: id(2)}, &PartitionRecord{TopicID: id(2)})
	delta := d.Delta()
	if len(delta.Topics) != 2 || !delta.Topics[0].Deleted() || delta.Topics[0].Prev.ID != id(1) ||
		!delta.Topics[1].Created() || delta.Topics[1].Next.ID != id(2) {
		t.Errorf("delta has %+v, want a deleted and a created topic", delta.Topics)
	}
	if len(delta.Next.Config(ResourceTopic, "a")) != 0 || len(delta.Configs) != 1 {
		t.Errorf("the new topic has configs %v, changed %v", delta.Next.Config(ResourceTopic, "a"), delta.Configs)
	}
}

func TestRecordsThatDontFit(t *testing.T) {
	for _, r := range []Record{
		&PartitionRecord{TopicID: id(9)},
		&PartitionRecord{TopicID: id(1), PartitionID: 2},
		&TopicRecord{TopicName: "a", TopicID: id(3)},
		&TopicRecord{TopicName: "z", TopicID: id(1)},
		NewPartitionChange(id(1), 5),
		&RemoveTopicRecord{TopicID: id(9)},
		&UnregisterBrokerRecord{BrokerID: 1},
		&MirrorTopicStateChangeRecord{TopicName: "z", ChangeOffset: -1},
		&EndTransactionRecord{},
		&AbortTransactionRecord{},
		&ProducerIdsRecord{NextProducerID: -1},
	} {
		d := Empty("c").Draft()
		apply(t, d, 0, &TopicRecord{TopicName: "a", TopicID: id(1)}, &PartitionRecord{TopicID: id(1)})
		if err := d.Apply(2, 1, r); !errors.Is(err, ErrInconsistent) {
			t.Errorf("%s: error %v, want ErrInconsistent", r.Name(), err)
		}
	}
}

// A change to one of many topics must not copy the others.
func BenchmarkChangeOnePartition(b *testing.B) {
	d := Empty("c").Draft()
	n := int64(0)
	for i := range 20_000 {
		tid := ids.UUID{0: 1, 12: byte(i >> 16), 13: byte(i >> 8), 14: byte(i)}
		_ = d.Apply(n, 1, &TopicRecord{TopicName: fmt.Sprintf("topic-%d", i), TopicID: tid})
		_ = d.Apply(n+1, 1, &PartitionRecord{TopicID: tid, Replicas: []int32{1}, ISR: []int32{1}})
		n += 2
	}
	d.Delta()
	b.ReportAllocs()
	for b.Loop() {
		r := NewPartitionChange(ids.UUID{0: 1, 14: 7}, 0)
		r.LeaderEpoch = int32(n)
		if err := d.Apply(n, 1, r); err != nil {
			b.Fatal(err)
		}
		n++
		d.Delta()
	}
}
