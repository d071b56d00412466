package cluster

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// changing is a controller on its way out and the next one: each call does what the plan says, the last one from then on.
type changing struct {
	loop
	plan  []func(ctx context.Context, l loop, req kmsg.Request) (kmsg.Response, error)
	calls int
	reset int
}

func (c *changing) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	do := c.plan[min(c.calls, len(c.plan)-1)]
	c.calls++
	return do(ctx, c.loop, req)
}

func (c *changing) Reset() { c.reset++ }

func isGone(context.Context, loop, kmsg.Request) (kmsg.Response, error) {
	resp := kmsg.NewPtrEnvelopeResponse()
	resp.ErrorCode = int16(api.NotController)
	return resp, nil
}

// diesAfter carries the request out, and the answer is lost.
func diesAfter(ctx context.Context, l loop, req kmsg.Request) (kmsg.Response, error) {
	if _, err := l.Call(ctx, req); err != nil {
		return nil, err
	}
	return nil, io.ErrUnexpectedEOF
}

func answers(ctx context.Context, l loop, req kmsg.Request) (kmsg.Response, error) {
	return l.Call(ctx, req)
}

// A request that is forwarded while the controller changes is sent again until the next one answers: the client sees one
// answer, and what it asked for is there once.
func TestForwardingThroughAControllerChange(t *testing.T) {
	n := startNode(t, newMem(), nil)
	ctl := &changing{loop: loop{n.ctl}}
	o := n.broker.o
	o.Controller = ctl
	broker := NewBroker(o)
	create := func(name string) kmsg.CreateTopicsResponseTopic {
		t.Helper()
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis, req.Topics = 5000, append(req.Topics, creatable(name, 2))
		r, err := broker.CallController(t.Context(), req, createVersion)
		if err != nil {
			t.Fatal(err)
		}
		return r.(*kmsg.CreateTopicsResponse).Topics[0]
	}
	ctl.plan = []func(context.Context, loop, kmsg.Request) (kmsg.Response, error){isGone, isGone, answers}
	if got := create("a"); got.ErrorCode != 0 || ctl.calls != 3 || ctl.reset != 2 {
		t.Errorf("after two controllers that are none: %+v, %d calls, %d resets", got, ctl.calls, ctl.reset)
	}
	ctl.plan, ctl.calls = []func(context.Context, loop, kmsg.Request) (kmsg.Response, error){diesAfter, isGone, answers}, 0
	got := create("b")
	topic := n.follower.Image().TopicByName("b")
	if got.ErrorCode != int16(api.TopicAlreadyExists) || topic == nil || len(topic.Partitions) != 2 || ctl.calls != 3 {
		t.Errorf("carried out by a controller that died: %+v, topic %+v, %d calls", got, topic, ctl.calls)
	}
	offset := n.follower.Image().Offset
	set := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res, conf, value := kmsg.NewIncrementalAlterConfigsRequestResource(), kmsg.NewIncrementalAlterConfigsRequestResourceConfig(), "delete"
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, "b"
	conf.Name, conf.Value = "cleanup.policy", &value
	res.Configs = append(res.Configs, conf)
	set.Resources = append(set.Resources, res)
	ctl.calls = 0
	r, err := broker.CallController(t.Context(), set, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 || ctl.calls != 3 {
		t.Errorf("a config that a dead controller set: %+v", got)
	}
	if img := n.follower.Image(); img.Offset != offset+1 {
		t.Errorf("setting it twice made %d records", img.Offset-offset)
	}
}

// A leadership that ends while a request waits for its commit is no answer to the client: the broker asks the next controller.
func TestAnEnvelopeCarriesNoNotController(t *testing.T) {
	n := startNode(t, newMem(), nil)
	co := n.ctl.o
	co.Extra = map[api.Key]ControllerAPI{api.CreateTopics: func(context.Context, *ControllerRequest) kmsg.Response {
		resp, topic := kmsg.NewPtrCreateTopicsResponse(), kmsg.NewCreateTopicsResponseTopic()
		topic.Topic, topic.ErrorCode = "a", int16(api.NotController)
		resp.Topics = append(resp.Topics, topic)
		return resp
	}}
	env := kmsg.NewPtrEnvelopeRequest()
	env.RequestData, env.RequestPrincipal = request(api.CreateTopics, 7, nil), appendPrincipal(nil, "User:a")
	if got := NewController(co).unwrap(t.Context(), env); got.ErrorCode != int16(api.NotController) || len(got.ResponseData) > 0 {
		t.Errorf("the envelope is answered %+v", got)
	}
}

// Without a controller a forwarded request ends at its time-out.
func TestForwardingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := &changing{plan: []func(context.Context, loop, kmsg.Request) (kmsg.Response, error){isGone}}
		b := NewBroker(BrokerOptions{Controller: ctl, ForwardTimeout: 3 * time.Second})
		begin := time.Now()
		_, err := b.CallController(t.Context(), kmsg.NewPtrCreateTopicsRequest(), 7)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errNoController) || time.Since(begin) != 3*time.Second || ctl.calls < 10 {
			t.Errorf("%v after %s and %d calls", err, time.Since(begin), ctl.calls)
		}
	})
}
