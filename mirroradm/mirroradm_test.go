package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/mirrormsg"
)

// Lag is told only from what was seen of the source just now.
func TestLag(t *testing.T) {
	for name, tc := range map[string]struct {
		p     Partition
		lag   int64
		known bool
	}{
		"behind":              {Partition{SourceOffset: 10, DestinationOffset: 7, SourceAge: time.Second}, 3, true},
		"even":                {Partition{SourceOffset: 10, DestinationOffset: 10}, 0, true},
		"ahead":               {Partition{SourceOffset: 10, DestinationOffset: 12}, 0, true}, // writes after a stop
		"source never seen":   {Partition{SourceOffset: -1, DestinationOffset: 7, SourceAge: -1}, 0, false},
		"destination unknown": {Partition{SourceOffset: 10, DestinationOffset: -1}, 0, false},
		"stale":               {Partition{SourceOffset: 10, DestinationOffset: 7, SourceAge: staleAfter + 1}, 0, false},
	} {
		if lag, known := tc.p.Lag(); lag != tc.lag || known != tc.known {
			t.Errorf("%s: %d %t", name, lag, known)
		}
	}
}

// requester is a cluster that answers with one response, and keeps what it was asked.
type requester struct {
	asked kmsg.Request
	resp  kmsg.Response
	err   error
}

func (r *requester) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	r.asked = req
	return r.resp, r.err
}

func text(s string) *string { return &s }

// What the cluster refuses is an *Error with its code's name and its words, for the request and for each topic.
func TestErrors(t *testing.T) {
	c := NewClient(nil)
	r := &requester{resp: &mirrormsg.CreateClusterMirrorResponse{ErrorCode: int16(api.InvalidConfig), ErrorMessage: text("x is no config")}}
	c.cl = r
	var e *Error
	if err := c.Create(t.Context(), "m", map[string]string{"b": "2", "a": "1"}); !errors.As(err, &e) || e.Name != "INVALID_CONFIG" || err.Error() != "x is no config (INVALID_CONFIG)" {
		t.Errorf("got %v", err)
	}
	req := r.asked.(*mirrormsg.CreateClusterMirrorRequest)
	if req.MirrorName != "m" || len(req.Config) != 2 || req.Config[0].Name != "a" || *req.Config[1].Value != "2" {
		t.Errorf("asked %+v", req)
	}

	r.resp = &mirrormsg.StopMirrorTopicsResponse{Topics: []mirrormsg.StopMirrorTopicResult{{Name: "ok"}, {Name: "bad", ErrorCode: int16(api.UnknownTopicOrPartition)}}}
	rs, err := c.Stop(t.Context(), "m", []string{"ok", "bad"}, nil)
	if err != nil || len(rs) != 2 || rs[0].Err != nil || rs[1].Err == nil || rs[1].Err.Error() != "UNKNOWN_TOPIC_OR_PARTITION" {
		t.Errorf("got %v %v", rs, err)
	}

	if !errors.Is(rs.Error(), kerr.UnknownTopicOrPartition) || errors.Is(rs.Error(), kerr.TopicAlreadyExists) || rs.Error().Error() != "topic bad: UNKNOWN_TOPIC_OR_PARTITION" {
		t.Errorf("all: %v", rs.Error())
	}
	if x, ok := rs.On("bad"); !ok || x.Err == nil || len(rs.Succeeded()) != 1 || rs.Succeeded()[0] != "ok" {
		t.Errorf("by topic: %v %v", x, rs.Succeeded())
	}
	if _, ok := rs.On("other"); ok || TopicResults(nil).Error() != nil {
		t.Error("a result that isn't there")
	}

	r.resp = &mirrormsg.DeleteClusterMirrorResponse{ErrorCode: int16(api.UnknownClusterMirror)}
	if err := c.Delete(t.Context(), "m"); !errors.Is(err, UnknownClusterMirror) || errors.Is(err, ReadOnlyTopic) || UnknownClusterMirror.Error() != "UNKNOWN_CLUSTER_MIRROR" {
		t.Errorf("got %v", err)
	}

	// A success may come with words.
	r.resp = &mirrormsg.StartMirrorTopicsResponse{Topics: []mirrormsg.StartMirrorTopicResult{{Name: "later", ErrorMessage: text("not yet")}}}
	if rs, err := c.Start(t.Context(), "m", []StartTopic{{Name: "later"}}, nil, nil); err != nil || rs[0].Err != nil || rs[0].Note != "not yet" {
		t.Errorf("got %v %v", rs, err)
	}

	r.err = errors.New("the broker is too old; the broker has already indicated it will not know how to handle the request")
	if _, err := c.List(t.Context()); !errors.Is(err, ErrNoMirroring) {
		t.Errorf("got %v", err)
	}
	r.err = fmt.Errorf("no route")
	if _, err := c.List(t.Context()); !errors.Is(err, r.err) {
		t.Errorf("got %v", err)
	}
}

// null asks for all mirrors, an empty list for none; a filter goes out sorted; what a cluster tells comes back whole.
func TestDescribeWith(t *testing.T) {
	answered := mirrormsg.NewDescribedMirrorPartition()
	answered.PartitionIndex, answered.StateValue, answered.LastMirrorEpoch, answered.LastMirrorOffset, answered.SourceOffsetAgeMs = 1, "STOPPED", 4, 70, 1500
	r := &requester{resp: &mirrormsg.DescribeClusterMirrorsResponse{Mirrors: []mirrormsg.DescribedMirror{
		{MirrorName: "m", SourceBootstrap: text("h:1"), SourceClusterID: text("c"), AuthorizedOperations: 12,
			Topics: []mirrormsg.DescribedMirrorTopic{{TopicName: "t", Partitions: []mirrormsg.DescribedMirrorPartition{answered}}}},
		{MirrorName: "n", ErrorCode: int16(api.UnknownClusterMirror), ErrorMessage: text("none")},
	}}}
	c := NewClient(nil)
	c.cl = r
	c.SetTimeout(7 * time.Second)
	ds, err := c.DescribeWith(t.Context(), DescribeOptions{Mirrors: []string{}, Topics: map[string][]int32{"u": nil, "t": {1}}, State: true, SourceClusterID: "c", Operations: true})
	if err != nil || len(ds) != 2 {
		t.Fatalf("%v %v", ds, err)
	}
	req := r.asked.(*mirrormsg.DescribeClusterMirrorsRequest)
	if req.MirrorNames == nil || req.TimeoutMs != 7000 || !req.IncludeMirrorState || req.IncludeMirrorLags || !req.IncludeAuthorizedOperations || *req.ClusterID != "c" ||
		len(req.TopicPartitions) != 2 || req.TopicPartitions[0].TopicName != "t" || req.TopicPartitions[0].Partitions[0] != 1 || req.TopicPartitions[1].Partitions != nil {
		t.Errorf("asked %+v", req)
	}
	want := Partition{Topic: "t", Partition: 1, State: "STOPPED", SourceOffset: -1, DestinationOffset: -1, SourceAge: 1500 * time.Millisecond, LastMirrorEpoch: 4, LastMirrorOffset: 70,
		LastSourceOffset: -1, LastSourceAge: -time.Millisecond}
	if ds[0].Partitions[0] != want || ds[0].Operations != 12 || ds[0].SourceClusterID != "c" || ds[0].SourceBootstrap != "h:1" {
		t.Errorf("got %+v", ds[0])
	}
	if !errors.Is(ds.Error(), UnknownClusterMirror) || ds.Error().Error() != "mirror n: none (UNKNOWN_CLUSTER_MIRROR)" {
		t.Errorf("got %v", ds.Error())
	}
	if _, err := c.Describe(t.Context()); err != nil || r.asked.(*mirrormsg.DescribeClusterMirrorsRequest).MirrorNames != nil {
		t.Errorf("all: %v", err)
	}
}

// Configs of a mirror are those of resource type 64; what is sensitive has no value.
func TestConfigs(t *testing.T) {
	r := &requester{}
	c := NewClient(nil)
	c.cl = r
	v := "h:1"
	r.resp = &kmsg.DescribeConfigsResponse{Resources: []kmsg.DescribeConfigsResponseResource{{Configs: []kmsg.DescribeConfigsResponseResourceConfig{
		{Name: "sasl.jaas.config", IsSensitive: true, Source: 1}, {Name: "bootstrap.servers", Value: &v, Source: 1}, {Name: "request.timeout.ms", Value: &v, Source: kmsg.ConfigSourceDefaultConfig},
	}}}}
	cs, err := c.Configs(t.Context(), "m")
	if err != nil || len(cs) != 3 || cs[0].Key != "bootstrap.servers" || *cs[0].Value != v || cs[0].Default || !cs[1].Default || !cs[2].Sensitive || cs[2].Value != nil {
		t.Errorf("%+v %v", cs, err)
	}
	if req := r.asked.(*kmsg.DescribeConfigsRequest); req.Resources[0].ResourceType != 64 || req.Resources[0].ResourceName != "m" {
		t.Errorf("asked %+v", req)
	}
	r.resp = &kmsg.DescribeConfigsResponse{Resources: []kmsg.DescribeConfigsResponseResource{{ErrorCode: int16(api.UnknownClusterMirror)}}}
	if _, err := c.Configs(t.Context(), "m"); !errors.Is(err, UnknownClusterMirror) {
		t.Errorf("got %v", err)
	}
	r.resp = &kmsg.IncrementalAlterConfigsResponse{Resources: []kmsg.IncrementalAlterConfigsResponseResource{{ErrorCode: int16(api.InvalidConfig), ErrorMessage: text("no")}}}
	if err := c.AlterConfigs(t.Context(), "m", map[string]string{"b": "2", "a": "1"}, "c"); !errors.Is(err, kerr.InvalidConfig) {
		t.Errorf("got %v", err)
	}
	req := r.asked.(*kmsg.IncrementalAlterConfigsRequest)
	if cs := req.Resources[0].Configs; len(cs) != 3 || cs[0].Name != "a" || *cs[1].Value != "2" || cs[2].Op != kmsg.IncrementalAlterConfigOpDelete || cs[2].Value != nil {
		t.Errorf("asked %+v", req)
	}
}

// answering is a cluster that answers by the kind of request.
type answering func(req kmsg.Request) (kmsg.Response, error)

func (a answering) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) { return a(req) }

// A cluster without mirrors calls their configs an invalid request: the error says what it is, and leaves a real one alone.
func TestConfigsWithoutMirroring(t *testing.T) {
	for name, list := range map[string]error{"no mirroring": errors.New("broker is too old"), "a bad request": nil} {
		c := NewClient(nil)
		c.cl = answering(func(req kmsg.Request) (kmsg.Response, error) {
			switch req.(type) {
			case *kmsg.DescribeConfigsRequest:
				return &kmsg.DescribeConfigsResponse{Resources: []kmsg.DescribeConfigsResponseResource{{ErrorCode: kerr.InvalidRequest.Code}}}, nil
			case *kmsg.IncrementalAlterConfigsRequest:
				return &kmsg.IncrementalAlterConfigsResponse{Resources: []kmsg.IncrementalAlterConfigsResponseResource{{ErrorCode: kerr.InvalidRequest.Code}}}, nil
			}
			return &mirrormsg.ListClusterMirrorsResponse{}, list
		})
		_, err := c.Configs(t.Context(), "m")
		for _, err := range []error{err, c.AlterConfigs(t.Context(), "m", map[string]string{"a": "b"})} {
			if errors.Is(err, ErrNoMirroring) != (list != nil) || errors.Is(err, kerr.InvalidRequest) != (list == nil) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A cluster that doesn't know the fence's config is told apart from one without fences, and nothing is changed there.
func TestNoFence(t *testing.T) {
	c := NewClient(nil)
	var altered, known bool
	value := "true"
	c.cl = answering(func(req kmsg.Request) (kmsg.Response, error) {
		switch req := req.(type) {
		case *kmsg.DescribeConfigsRequest:
			res := kmsg.DescribeConfigsResponseResource{ResourceName: "t"}
			if known {
				res.Configs = append(res.Configs, kmsg.DescribeConfigsResponseResourceConfig{Name: req.Resources[0].ConfigNames[0], Value: &value})
			}
			return &kmsg.DescribeConfigsResponse{Resources: []kmsg.DescribeConfigsResponseResource{res, {ResourceName: "none", ErrorCode: kerr.UnknownTopicOrPartition.Code}}}, nil
		case *kmsg.IncrementalAlterConfigsRequest:
			altered = true
		case *kmsg.MetadataRequest:
			return &kmsg.MetadataResponse{Brokers: []kmsg.MetadataResponseBroker{{NodeID: 1}}}, nil
		}
		return nil, errors.New("unexpected")
	})
	if _, err := c.Fence(t.Context(), "t"); !errors.Is(err, ErrNoFence) || altered {
		t.Errorf("fence: %v", err)
	}
	if err := c.Redirect(t.Context(), time.Now()); !errors.Is(err, ErrNoFence) || altered {
		t.Errorf("redirect: %v", err)
	}
	known = true
	got, err := c.Fences(t.Context(), "t", "none")
	if _, there := got["none"]; err != nil || !got["t"] || there {
		t.Errorf("%v %v", got, err)
	}
}
