package mirror_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/mirrormsg"
)

// renumbered is a mirror request by the prototype's number.
type renumbered struct{ kmsg.Request }

func (r renumbered) Key() int16 { return r.Request.Key() - 1000 }

// "mirror.code.points=prototype selects the prototype's" (0.2b): in what the controller answers too.
func TestPrototypesErrorNumbers(t *testing.T) {
	c := newCluster(t, "destination", "mirror.code.points", "prototype")
	ask := func(req kmsg.Request) kmsg.Response {
		t.Helper()
		resp, err := c.cl.Request(t.Context(), renumbered{req})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	value := func(s string) *string { return &s }
	create := &mirrormsg.CreateClusterMirrorRequest{MirrorName: "m", Config: []mirrormsg.CreateClusterMirrorConfig{
		{Name: "bootstrap.servers", Value: value("127.0.0.1:1")}, {Name: "mirror.source.cluster.id", Value: value("x")},
	}}
	if r := ask(create).(*mirrormsg.CreateClusterMirrorResponse); r.ErrorCode != 0 {
		t.Fatal(r.ErrorCode)
	}
	if r := ask(create).(*mirrormsg.CreateClusterMirrorResponse); r.ErrorCode != 136 {
		t.Errorf("a second create: %d, want CLUSTER_MIRROR_ALREADY_EXISTS (136)", r.ErrorCode)
	}
	c.topic("own", 1)
	stop := mirrormsg.NewStopMirrorTopicsRequest()
	stop.MirrorName, stop.Topics = "m", []mirrormsg.StopMirrorTopic{{TopicName: "own"}}
	if r := ask(&stop).(*mirrormsg.StopMirrorTopicsResponse); len(r.Topics) != 1 || r.Topics[0].ErrorCode != 137 {
		t.Errorf("a topic in no mirror: %+v, want UNKNOWN_CLUSTER_MIRROR (137)", r)
	}
}
