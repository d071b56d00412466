package cluster

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/meta"
	"milena/internal/server"
)

// describeTopicPartitions answers DescribeTopicPartitions (75, KIP-966): topics by name,
// with a cursor where an answer would get too long.
func (b *Broker) describeTopicPartitions(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	if err := r.Decode(req); err != nil {
		r.Reply(server.Response{NoReply: true, CloseConn: true, Code: api.InvalidRequest})
		return
	}
	r.Reply(server.Response{Msg: b.DescribeTopicPartitions(req, r.Conn.ListenerName())})
}

// DescribeTopicPartitions answers a request that came by a listener.
func (b *Broker) DescribeTopicPartitions(req *kmsg.DescribeTopicPartitionsRequest, listener string) *kmsg.DescribeTopicPartitionsResponse {
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	resp.SetVersion(req.Version)
	if !validCursor(req) {
		for _, t := range req.Topics {
			out := kmsg.NewDescribeTopicPartitionsResponseTopic()
			out.Topic, out.AuthorizedOperations, out.ErrorCode = &t.Topic, notAsked, int16(api.InvalidRequest)
			resp.Topics = append(resp.Topics, out)
		}
		return resp
	}
	limit := max(min(b.o.MaxDescribedPartitions, req.ResponsePartitionLimit), 1)
	img := b.o.Image()
	m := &metadataBuilder{img: img, listener: listener, version: 13}
	first := int32(0)
	from := ""
	if req.Cursor != nil {
		from, first = req.Cursor.Topic, req.Cursor.Partition
	}
	for _, name := range describedNames(img, req, from) {
		start := int32(0)
		if name == from {
			start = first
		}
		t := img.TopicByName(name)
		if t == nil {
			resp.Topics = append(resp.Topics, unknownTopic(name))
			continue
		}
		if limit <= 0 {
			resp.NextCursor = cursor(name, start)
			break
		}
		end := min(int64(start)+int64(limit), int64(len(t.Partitions)))
		resp.Topics = append(resp.Topics, m.describe(t, start, int32(end)))
		limit -= max(int32(end)-start, 0)
		if end < int64(len(t.Partitions)) {
			resp.NextCursor = cursor(name, int32(end))
			break
		}
	}
	return resp
}

// validCursor wants a partition that can be, and a topic that was asked for, if any was named.
func validCursor(req *kmsg.DescribeTopicPartitionsRequest) bool {
	c := req.Cursor
	if c == nil {
		return true
	}
	return c.Partition >= 0 && (len(req.Topics) == 0 ||
		slices.ContainsFunc(req.Topics, func(t kmsg.DescribeTopicPartitionsRequestTopic) bool { return t.Topic == c.Topic }))
}

// describedNames are the topics asked for, or all, from the cursor's on.
func describedNames(img *meta.Image, req *kmsg.DescribeTopicPartitionsRequest, from string) []string {
	var names []string
	if len(req.Topics) == 0 {
		for t := range img.TopicsFrom(from) {
			names = append(names, t.Name)
		}
		return names
	}
	for _, t := range req.Topics {
		if t.Topic >= from {
			names = append(names, t.Topic)
		}
	}
	return sortTopics(names)
}

func unknownTopic(name string) kmsg.DescribeTopicPartitionsResponseTopic {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic, out.IsInternal, out.AuthorizedOperations = &name, IsInternal(name), notAsked
	out.ErrorCode = int16(api.UnknownTopicOrPartition)
	if controller.CheckTopicName(name) != nil {
		out.ErrorCode = int16(api.InvalidTopicException)
	}
	return out
}

func cursor(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}

func (m *metadataBuilder) describe(t *meta.Topic, start, end int32) kmsg.DescribeTopicPartitionsResponseTopic {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, IsInternal(t.Name)
	out.AuthorizedOperations = topicOperations()
	for i := start; i < end; i++ {
		p := t.Partitions[i]
		md := m.partition(i, p)
		d := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		d.ErrorCode, d.Partition, d.LeaderID, d.LeaderEpoch = md.ErrorCode, i, md.Leader, md.LeaderEpoch
		d.Replicas, d.ISR, d.OfflineReplicas = md.Replicas, md.ISR, md.OfflineReplicas
		d.EligibleLeaderReplicas, d.LastKnownELR = []int32{}, []int32{}
		d.EligibleLeaderReplicas = append(d.EligibleLeaderReplicas, p.ELR...)
		d.LastKnownELR = append(d.LastKnownELR, p.LastKnownELR...)
		out.Partitions = append(out.Partitions, d)
	}
	return out
}
