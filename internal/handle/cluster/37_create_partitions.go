package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/controller"
	"milena/internal/machine"
)

// createPartitions answers CreatePartitions (37, KIP-195) at the controller.
func (c *Controller) createPartitions(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrCreatePartitionsResponse()
	req := kmsg.NewPtrCreatePartitionsRequest()
	if r.Decode(req) != nil {
		return nil
	}
	var topics []controller.MorePartitions
	for _, t := range req.Topics {
		m := controller.MorePartitions{Name: t.Topic, Count: t.Count, Internal: r.Own()}
		for _, a := range t.Assignment {
			m.Assignments = append(m.Assignments, a.Replicas)
		}
		topics = append(topics, m)
	}
	results, err := ask[[]controller.TopicResult](ctx, c, millis(req.TimeoutMillis), func(st *controller.State, now time.Time) machine.Result {
		return st.CreatePartitions(now, topics, req.ValidateOnly)
	})
	if err != nil {
		for _, t := range topics {
			results = append(results, controller.TopicResult{Name: t.Name})
		}
	}
	for _, res := range results {
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = res.Name
		out.ErrorCode, out.ErrorMessage = c.topicCode(res.Err)
		if err != nil {
			out.ErrorCode, out.ErrorMessage = codeAndMessage(err)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
