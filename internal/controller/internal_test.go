package controller

import (
	"slices"
	"strings"
	"testing"

	"milena/internal/api"
	"milena/internal/meta"
)

var internalNames = []string{"__consumer_offsets", "__mirror_state", "__share_group_state", "__transaction_state"}

func compacted(name string) NewTopic {
	t := topic(name, 3, 1)
	t.Configs = map[string]*string{"cleanup.policy": str("compact")}
	return t
}

// Growing an internal topic would have its state looked for in other partitions than it is in: whoever asks is refused, by name.
func TestInternalTopicsDoNotGrow(t *testing.T) {
	for _, name := range internalNames {
		for _, more := range []MorePartitions{{Name: name, Count: 4}, {Name: name, Count: 4, Assignments: [][]int32{{1}}}, {Name: name, Count: 4, Internal: true}} {
			b := newBench(t, nil)
			b.up(1)
			b.create(compacted(name), topic("other", 1, 1))
			got, _ := b.run(b.s.CreatePartitions(b.now, []MorePartitions{more, {Name: "other", Count: 2}}, false)).([]TopicResult)
			if len(got) != 2 || code(got[0].Err) != api.InvalidTopicException || code(got[1].Err) != api.NoError {
				t.Fatalf("%s: %+v", name, got)
			}
			if msg := got[0].Err.Message; !strings.Contains(msg, name) || !strings.Contains(msg, "num.partitions") {
				t.Errorf("%s: %s", name, msg)
			}
			if have := len(b.s.Image().TopicByName(name).Partitions); have != 3 {
				t.Errorf("%s has %d partitions", name, have)
			}
		}
	}
}

// State that is kept by key must be compacted, never deleted with age.
func TestInternalTopicsStayCompacted(t *testing.T) {
	key := "cleanup.policy"
	for _, name := range internalNames {
		for what, tt := range map[string]struct {
			r    AlterResource
			want api.Code
		}{
			"delete":             {AlterResource{Changes: []ConfigChange{{Key: key, Op: SetConfig, Value: str("delete")}}}, api.InvalidConfig},
			"both":               {AlterResource{Changes: []ConfigChange{{Key: key, Op: SetConfig, Value: str("compact,delete")}}}, api.InvalidConfig},
			"appended":           {AlterResource{Changes: []ConfigChange{{Key: key, Op: AppendConfig, Value: str("delete")}}}, api.InvalidConfig},
			"removed":            {AlterResource{Changes: []ConfigChange{{Key: key, Op: DeleteConfig}}}, api.InvalidConfig},
			"replaced":           {AlterResource{Replace: true, Changes: []ConfigChange{{Key: "retention.ms", Op: SetConfig, Value: str("5")}}}, api.InvalidConfig},
			"the cluster's own":  {AlterResource{Internal: true, Changes: []ConfigChange{{Key: key, Op: DeleteConfig}}}, api.InvalidConfig},
			"as it is":           {AlterResource{Changes: []ConfigChange{{Key: key, Op: SetConfig, Value: str("compact")}}}, api.NoError},
			"another key":        {AlterResource{Changes: []ConfigChange{{Key: "retention.ms", Op: SetConfig, Value: str("5")}}}, api.NoError},
			"replaced, with key": {AlterResource{Replace: true, Changes: []ConfigChange{{Key: key, Op: SetConfig, Value: str("compact")}}}, api.NoError},
		} {
			if name == "__share_group_state" { // its records are snapshots, older ones of a key may go
				tt.want = api.NoError
			}
			b := newBench(t, nil)
			b.up(1)
			b.create(compacted(name))
			tt.r.Resource = meta.Resource{Type: meta.ResourceTopic, Name: name}
			errs, _ := b.run(b.s.AlterConfigs(b.now, []AlterResource{tt.r}, false)).([]*api.Error)
			if len(errs) != 1 || code(errs[0]) != tt.want {
				t.Errorf("%s, %s: %v", name, what, errs)
				continue
			}
			if policy := b.s.Image().Config(meta.ResourceTopic, name)[key]; tt.want != api.NoError && (policy != "compact" || !strings.Contains(errs[0].Message, name)) {
				t.Errorf("%s, %s: %q, %v", name, what, policy, errs[0])
			}
		}
		if name == "__share_group_state" {
			continue
		}
		for _, policy := range []string{"", "delete", "compact,delete"} {
			b := newBench(t, nil)
			b.up(1)
			nt := topic(name, 1, 1)
			if policy != "" {
				nt.Configs = map[string]*string{key: str(policy)}
			}
			got, _ := b.run(b.s.CreateTopics(b.now, []NewTopic{nt}, false)).([]TopicResult)
			if len(got) != 1 || code(got[0].Err) != api.InvalidConfig {
				t.Errorf("%s made with %q: %+v", name, policy, got)
			}
		}
	}
}

// What Kafka lets an administrator do with an internal topic is possible here too.
func TestInternalTopicsCanBeDeletedAndMoved(t *testing.T) {
	for _, name := range internalNames {
		b := newBench(t, nil)
		b.up(1, 2)
		b.create(compacted(name))
		b.run(b.s.AlterReassignments(b.now, []Reassignment{{TopicPartition{name, 0}, []int32{1, 2}}}, true))
		if p := b.s.Image().Partition(name, 0); !slices.Equal(p.Replicas, []int32{1, 2}) && !slices.Equal(p.Replicas, []int32{2, 1}) {
			t.Errorf("%s: replicas %v", name, p.Replicas)
		}
		got, _ := b.run(b.s.DeleteTopics(b.now, []DeleteTopic{{Name: name}})).([]TopicResult)
		if len(got) != 1 || code(got[0].Err) != api.NoError || b.s.Image().TopicByName(name) != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
