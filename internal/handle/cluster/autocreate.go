package cluster

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// createVersion is the version of CreateTopics that brokers use.
const createVersion = 7

// autoCreate asks the controller for topics with the cluster's defaults, internal ones
// with their own, and returns what Metadata says of those that aren't there afterwards.
func (b *Broker) autoCreate(ctx context.Context, names []string) map[string]api.Code {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(b.o.ForwardTimeout.Milliseconds())
	for _, name := range names {
		req.Topics = append(req.Topics, b.creatable(name))
	}
	codes := map[string]api.Code{}
	for _, name := range names {
		codes[name] = api.LeaderNotAvailable // on its way, as far as is known
	}
	r, err := b.CallController(ctx, req, createVersion)
	if err != nil {
		b.o.Logger.Warn("creating topics for a client failed", "topics", names, "error", err)
		return codes
	}
	resp, ok := r.(*kmsg.CreateTopicsResponse)
	if !ok {
		return codes
	}
	for _, t := range resp.Topics {
		switch code := api.Code(t.ErrorCode); code {
		case api.NoError, api.TopicAlreadyExists, api.RequestTimedOut, api.NotController:
		case api.InvalidTopicException, api.InvalidReplicationFactor, api.PolicyViolation:
			codes[t.Topic] = code
			b.o.Logger.Warn("a topic can't be created for a client", "topic", t.Topic, "error", message(t.ErrorMessage, code))
		default:
			codes[t.Topic] = api.UnknownTopicOrPartition
			b.o.Logger.Warn("a topic can't be created for a client", "topic", t.Topic, "error", message(t.ErrorMessage, code))
		}
	}
	return codes
}

// EnsureTopic creates an internal topic if it doesn't exist, and returns when this
// broker's metadata has it.
func (b *Broker) EnsureTopic(ctx context.Context, name string) error {
	if b.o.Image().TopicByName(name) != nil {
		return nil
	}
	code := b.autoCreate(ctx, []string{name})[name]
	if b.o.Image().TopicByName(name) != nil {
		return nil
	}
	return api.Errorf(code, "the internal topic %s is not there yet", name)
}

func (b *Broker) creatable(name string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	it, ok := b.o.InternalTopics[name]
	if !ok {
		return t
	}
	var live int16
	for br := range b.o.Image().Brokers() {
		if !br.Fenced {
			live++
		}
	}
	t.NumPartitions = it.Partitions
	t.ReplicationFactor = max(1, min(it.ReplicationFactor, live))
	for _, key := range slices.Sorted(maps.Keys(it.Configs)) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		value := it.Configs[key]
		c.Name, c.Value = key, &value
		t.Configs = append(t.Configs, c)
	}
	return t
}

func message(m *string, code api.Code) string {
	if m != nil && *m != "" {
		return *m
	}
	return code.Message()
}
