package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/controller"
	"milena/internal/machine"
)

// electLeaders answers ElectLeaders (43) at the controller.
//
//	v1 unclean elections (KIP-460), and an error of the request as a whole
func (c *Controller) electLeaders(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrElectLeadersResponse()
	req := kmsg.NewPtrElectLeadersRequest()
	if r.Decode(req) != nil {
		return nil
	}
	var wanted []controller.TopicPartition // nil: all
	if req.Topics != nil {
		wanted = []controller.TopicPartition{}
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			wanted = append(wanted, controller.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	kind := controller.PreferredElection
	if r.Version >= 1 {
		kind = controller.ElectionKind(req.ElectionType)
	}
	results, err := ask[[]controller.ElectionResult](ctx, c, millis(req.TimeoutMillis), func(st *controller.State, now time.Time) machine.Result {
		return st.ElectLeaders(now, kind, wanted)
	})
	if err != nil {
		resp.ErrorCode, _ = codeAndMessage(err)
		for _, tp := range wanted { // version 0 has no other place for it
			results = append(results, controller.ElectionResult{TopicPartition: tp})
		}
	}
	at := map[string]int{}
	for _, res := range results {
		i, ok := at[res.Topic]
		if !ok {
			i = len(resp.Topics)
			at[res.Topic] = i
			t := kmsg.NewElectLeadersResponseTopic()
			t.Topic = res.Topic
			resp.Topics = append(resp.Topics, t)
		}
		p := kmsg.NewElectLeadersResponseTopicPartition()
		p.Partition = res.Partition
		p.ErrorCode, p.ErrorMessage = codeAndMessage(res.Err)
		if err != nil {
			p.ErrorCode, p.ErrorMessage = codeAndMessage(err)
		}
		resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, p)
	}
	return resp
}
