package mirroradm

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/mirrormsg"
)

// large is a cluster with one mirror of many topics. It keeps how many topics each description was asked for.
type large struct {
	topics int
	pages  []int
}

func (l *large) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	m := mirrormsg.DescribedMirror{MirrorName: "m", Weaker: []string{"t: weak"}}
	switch req := req.(type) {
	case *mirrormsg.ListClusterMirrorsRequest:
		out := mirrormsg.ListedMirror{MirrorName: "m"}
		for i := range l.topics {
			out.TopicNames = append(out.TopicNames, fmt.Sprintf("t%04d", i))
		}
		return &mirrormsg.ListClusterMirrorsResponse{Mirrors: []mirrormsg.ListedMirror{out}}, nil
	case *mirrormsg.DescribeClusterMirrorsRequest:
		l.pages = append(l.pages, len(req.TopicPartitions))
		for _, t := range req.TopicPartitions {
			m.Topics = append(m.Topics, mirrormsg.DescribedMirrorTopic{TopicName: t.TopicName, Partitions: []mirrormsg.DescribedMirrorPartition{{}, {PartitionIndex: 1}}})
		}
		return &mirrormsg.DescribeClusterMirrorsResponse{Mirrors: []mirrormsg.DescribedMirror{m}}, nil
	}
	return nil, fmt.Errorf("%T", req)
}

// "Describe has no paging; a mirror with 100,000 partitions gives a huge response" (open issue AN): many topics are several requests.
func TestDescribePages(t *testing.T) {
	for topics, want := range map[int]string{describePage: "[0]", 2*describePage + 1: fmt.Sprint([]int{describePage, describePage, 1})} {
		l := &large{topics: topics}
		c := NewClient(nil)
		c.cl = l
		ds, err := c.Describe(t.Context(), "m")
		if err != nil || len(ds) != 1 || len(ds[0].Weaker) != 1 {
			t.Fatalf("%d topics: %+v %v", topics, ds, err)
		}
		if fmt.Sprint(l.pages) != want || len(l.pages) > 1 && len(ds[0].Partitions) != 2*topics {
			t.Errorf("%d topics: pages %v, want %s, %d partitions", topics, l.pages, want, len(ds[0].Partitions))
		}
	}
}
