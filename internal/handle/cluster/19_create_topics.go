package cluster

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// CreateTopics (19) at the controller.
//
//	v4 the defaults of partitions and replication factor (KIP-464); v5 the configs and
//	placement of what was created (KIP-525); v7 topic ids (KIP-516); v8 the id of the topic
//	that a new one is the copy of (KIP-1279)
func (c *Controller) createTopics(ctx context.Context, r *ControllerRequest) kmsg.Response {
	resp := kmsg.NewPtrCreateTopicsResponse()
	req, mirrored, err := decodeCreateTopics(r)
	if err != nil {
		return nil
	}
	var topics []controller.NewTopic
	for i, t := range req.Topics {
		nt, err := newTopic(t)
		if err == nil && mirrored != nil {
			err = copyOf(&nt, mirrored[i].MirrorInfo)
		}
		if err != nil {
			resp.Topics = append(resp.Topics, failedTopic(t.Topic, err))
			continue
		}
		topics = append(topics, nt)
	}
	results, err := ask[[]controller.TopicResult](ctx, c, millis(req.TimeoutMillis), func(st *controller.State, now time.Time) machine.Result {
		return st.CreateTopics(now, topics, req.ValidateOnly)
	})
	if err != nil {
		for _, t := range topics {
			resp.Topics = append(resp.Topics, failedTopic(t.Name, err))
		}
		return resp
	}
	for _, res := range results {
		resp.Topics = append(resp.Topics, c.createdTopic(res, req.ValidateOnly))
	}
	return resp
}

// decodeCreateTopics reads a request of any version; mirrored are its topics with their MirrorInfo from version 8 on.
func decodeCreateTopics(r *ControllerRequest) (*kmsg.CreateTopicsRequest, []mirrormsg.CreatableTopic, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	if r.Version < mirrormsg.CreateTopicsVersion {
		return req, nil, r.Decode(req)
	}
	m := &mirrormsg.CreateTopicsRequest{}
	if err := r.Decode(m); err != nil {
		return nil, nil, err
	}
	req.TimeoutMillis, req.ValidateOnly = m.TimeoutMs, m.ValidateOnly
	for _, t := range m.Topics {
		kt := kmsg.NewCreateTopicsRequestTopic()
		kt.Topic, kt.NumPartitions, kt.ReplicationFactor = t.Name, t.NumPartitions, t.ReplicationFactor
		for _, a := range t.Assignments {
			ka := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			ka.Partition, ka.Replicas = a.PartitionIndex, a.BrokerIDs
			kt.ReplicaAssignment = append(kt.ReplicaAssignment, ka)
		}
		for _, e := range t.Configs {
			ke := kmsg.NewCreateTopicsRequestTopicConfig()
			ke.Name, ke.Value = e.Name, e.Value
			kt.Configs = append(kt.Configs, ke)
		}
		req.Topics = append(req.Topics, kt)
	}
	return req, m.Topics, nil
}

// copyOf makes a new topic the copy of a source's, which may have no replica on a broker that isn't active: one could come back with
// an old log of the same id.
func copyOf(nt *controller.NewTopic, info *mirrormsg.MirrorInfo) *api.Error {
	if info == nil {
		return nil
	}
	if info.TopicID.IsZero() {
		return api.Errorf(api.InvalidRequest, "topic %s is to be the copy of a topic without an id", nt.Name)
	}
	nt.ID, nt.ActiveOnly = info.TopicID, true
	return nil
}

func newTopic(t kmsg.CreateTopicsRequestTopic) (controller.NewTopic, *api.Error) {
	nt := controller.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
	if t.Topic == meta.TopicName {
		return nt, api.Errorf(api.TopicAuthorizationFailed, "%s is the metadata log, it can't be created as a topic", t.Topic)
	}
	if len(t.ReplicaAssignment) > 0 {
		nt.Assignments = map[int32][]int32{}
	}
	for _, a := range t.ReplicaAssignment {
		if _, twice := nt.Assignments[a.Partition]; twice {
			return nt, api.Errorf(api.InvalidReplicaAssignment, "partition %d is assigned more than once", a.Partition)
		}
		nt.Assignments[a.Partition] = a.Replicas
	}
	if len(t.Configs) > 0 {
		nt.Configs = map[string]*string{}
	}
	for _, e := range t.Configs {
		nt.Configs[e.Name] = e.Value
	}
	return nt, nil
}

func failedTopic(name string, err error) kmsg.CreateTopicsResponseTopic {
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic = name
	out.ErrorCode, out.ErrorMessage = codeAndMessage(err)
	out.NumPartitions, out.ReplicationFactor = -1, -1
	return out
}

func (c *Controller) createdTopic(res controller.TopicResult, validateOnly bool) kmsg.CreateTopicsResponseTopic {
	if res.Err != nil {
		return failedTopic(res.Name, res.Err)
	}
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic = res.Name
	if !validateOnly {
		out.TopicID = res.ID
	}
	out.NumPartitions, out.ReplicationFactor = res.Partitions, res.ReplicationFactor
	out.Configs = []kmsg.CreateTopicsResponseTopicConfig{} // the Java client can't bear null
	if c.o.TopicConfigs != nil {
		out.Configs = c.o.TopicConfigs(res.Configs)
	}
	return out
}
