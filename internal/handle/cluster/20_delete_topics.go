package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/ids"
	"milena/internal/machine"
)

// deleteTopics answers DeleteTopics (20) at the controller.
//
//	v3 TOPIC_DELETION_DISABLED, INVALID_REQUEST before; v5 messages; v6 topic ids (KIP-516)
func (c *Controller) deleteTopics(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrDeleteTopicsResponse()
	req := kmsg.NewPtrDeleteTopicsRequest()
	if r.Decode(req) != nil {
		return nil
	}
	var topics []controller.DeleteTopic
	for _, name := range req.TopicNames {
		topics = append(topics, controller.DeleteTopic{Name: name, Internal: r.Own()})
	}
	for _, t := range req.Topics {
		d := controller.DeleteTopic{ID: ids.UUID(t.TopicID), Internal: r.Own()}
		if t.Topic != nil {
			d.Name = *t.Topic
		}
		topics = append(topics, d)
	}
	results, err := ask[[]controller.TopicResult](ctx, c, millis(req.TimeoutMillis), func(st *controller.State, now time.Time) machine.Result {
		return st.DeleteTopics(now, topics)
	})
	if err != nil {
		for _, t := range topics {
			results = append(results, controller.TopicResult{Name: t.Name, ID: t.ID})
		}
	}
	for _, res := range results {
		out := kmsg.NewDeleteTopicsResponseTopic()
		if res.Name != "" {
			out.Topic = &res.Name
		}
		out.TopicID = res.ID
		out.ErrorCode, out.ErrorMessage = c.topicCode(res.Err)
		if err != nil {
			out.ErrorCode, out.ErrorMessage = codeAndMessage(err)
		}
		if out.ErrorCode == int16(api.TopicDeletionDisabled) && r.Version < 3 {
			out.ErrorCode = int16(api.InvalidRequest)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
