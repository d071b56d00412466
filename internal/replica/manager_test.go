package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
)

func TestRestartKeepsTheHighWatermark(t *testing.T) {
	fs := disk.NewMem(1)
	r := newRigOn(t, fs, nil)
	name := r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2})
	p := r.get(name, 0)
	r.append(p, 5)
	_ = followed(p, 2, 3)
	r.close()
	r.open()
	r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2})
	p = r.get(name, 0)
	if hw, end := p.HighWatermark(), p.LogEndOffset(); hw != 3 || end != 5 {
		t.Fatalf("high watermark %d, log end %d; want 3, 5", hw, end)
	}
}

func TestRecreatedTopicIsEmpty(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, 1)
	r.append(r.get(name, 0), 5)
	r.apply(&meta.RemoveTopicRecord{TopicID: topicID(1)}, &meta.TopicRecord{TopicName: name, TopicID: topicID(2)},
		&meta.PartitionRecord{TopicID: topicID(2), Replicas: []int32{self}, ISR: []int32{self}, Leader: self, Directories: make([]ids.UUID, 1)})
	p := r.get(name, 0)
	if p.TopicID() != topicID(2) || p.LogEndOffset() != 0 {
		t.Fatalf("topic id %v, log end %d", p.TopicID(), p.LogEndOffset())
	}
	if hw := p.HighWatermark(); hw != 0 {
		t.Fatalf("high watermark %d", hw)
	}
}

func TestErrorsOfGet(t *testing.T) {
	r := newRig(t)
	r.topic(1, 1)
	r.topicOn(2, 1, []int32{2}, []int32{2})
	for _, c := range []struct {
		topic     string
		partition int32
		want      api.Code
	}{
		{"t1", 0, api.NoError}, {"t1", 1, api.UnknownTopicOrPartition}, {"t1", -1, api.UnknownTopicOrPartition},
		{"nope", 0, api.UnknownTopicOrPartition}, {"t2", 0, api.NotLeaderOrFollower},
	} {
		_, err := r.m.Get(c.topic, c.partition)
		wantCode(t, err, c.want)
	}
	_, err := r.m.GetByID(topicID(9), 0)
	wantCode(t, err, api.UnknownTopicID)
}

func TestEvents(t *testing.T) {
	r := newRig(t)
	r.topic(1, 1)
	var got []string
	r.m.Subscribe(func(e Event) {
		s := e.Partition.Topic()
		if e.Leader {
			s += " leads"
		}
		if e.Deleted {
			s += " deleted"
		}
		got = append(got, s)
	})
	r.lead(1, 2, 1)
	r.lead(1, self, 2)
	r.apply(metaISR(1, self)) // no change of role
	r.topic(2, 1)
	r.apply(&meta.RemoveTopicRecord{TopicID: topicID(1)})
	want := []string{"t1 leads", "t1", "t1 leads", "t2 leads", "t1 deleted"}
	if !slices.Equal(got, want) {
		t.Fatalf("events %q, want %q", got, want)
	}
}

func TestFailedDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := false
		fs := disk.Faulty(disk.NewMem(1), func(op disk.Op, name string) error {
			if broken && op == disk.OpWrite && strings.HasSuffix(name, ".log") {
				return errors.New("disk on fire")
			}
			return nil
		})
		r := newRigOn(t, fs, nil)
		name := r.topicOn(1, 1, []int32{self, 2}, []int32{self, 2})
		p := r.get(name, 0)
		r.append(p, 1)
		var waited error
		p.AwaitHW(0, 1, func(err error) { waited = err })
		var events []Event
		r.m.Subscribe(func(e Event) { events = append(events, e) })
		broken = true
		_, err := p.Append(batch(t, 1), AppendOptions{Epoch: AnyEpoch})
		wantCode(t, err, api.KafkaStorageError)
		synctest.Wait()
		wantCode(t, waited, api.KafkaStorageError)
		_, err = r.m.Get(name, 0)
		wantCode(t, err, api.KafkaStorageError)
		if last := events[len(events)-1]; !last.Offline {
			t.Fatalf("last event: %+v", last)
		}
	})
}

func TestMetrics(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topic(1, 1), 0)
	p.CountAppend(r.append(p, 3))
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(r.m.Metrics())
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"kafka_server_brokertopicmetrics_messagesin_total":          3,
		"kafka_server_brokertopicmetrics_messagesin_total topic=t1": 3,
		"kafka_server_replicamanager_partitioncount":                1,
		"kafka_server_replicamanager_leadercount":                   1,
		"kafka_server_replicamanager_offlinereplicacount":           0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %v, want %v", name, v, want)
		}
	}
}

func TestALogThatCouldNotBeOpenedIsTriedAgain(t *testing.T) {
	r := newRig(t)
	r.dirs.openErr = errors.New("no directory is online")
	name := r.topic(1, 1)
	_, err := r.m.Get(name, 0)
	wantCode(t, err, api.KafkaStorageError)
	r.dirs.openErr = nil
	r.lead(1, self, 1)
	r.append(r.get(name, 0), 1)
}

// A replica whose directory the metadata doesn't know may be made anywhere only if it was placed here in this broker's life;
// one that can't be opened because a directory is offline is told of as lost.
func TestUnknownDirectory(t *testing.T) {
	r := newRig(t)
	r.topic(1, 1)
	if r.dirs.in == ids.LostDir {
		t.Errorf("a new replica goes to %s", r.dirs.in)
	}
	r.m.opts.BrokerEpoch = func() int64 { return 1 << 40 } // registered after what follows
	r.dirs.openErr = logdir.ErrOffline
	name := r.topic(2, 1)
	if r.dirs.in != ids.LostDir {
		t.Errorf("an old replica goes to %s", r.dirs.in)
	}
	told := 0
	r.m.Partitions(func(p *Partition) bool {
		if p.topic.name == name && r.m.whereIs(p) == ids.LostDir && r.m.assign.wrong[p] {
			told++
		}
		return true
	})
	if told != 1 {
		t.Errorf("%d replicas are told of as lost", told)
	}
	// Lack of space passes: the log is made later, without new metadata.
	r.dirs.openErr = disk.ErrNoSpace
	name = r.topic(3, 1)
	_, err := r.m.Get(name, 0)
	wantCode(t, err, api.KafkaStorageError)
	r.dirs.openErr = nil
	r.m.retryLogs()
	r.append(r.get(name, 0), 1)
}

func TestGatesFollowTheTopic(t *testing.T) {
	r := newRig(t)
	asked := map[int32]int{}
	r.m.SetGateFactory(func(_ *meta.Topic, partition int32) Gate { asked[partition]++; return nil })
	r.topic(1, 2)
	r.lead(1, self, 1) // partition 0 is in the delta, 1 isn't
	if asked[0] != 2 || asked[1] != 2 {
		t.Fatalf("asked %v times, want twice for each", asked)
	}
	r.m.SetGateFactory(func(_ *meta.Topic, partition int32) Gate { asked[partition]++; return nil })
	if asked[0] != 3 || asked[1] != 3 {
		t.Fatalf("asked %v times after the factory was replaced", asked)
	}
}
