package cluster

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/server"
)

// Metadata (3) from the broker's image.
//
//	v0 an empty list means all topics; from v1 null does, and an empty list none
//	v1 controller, racks, internal topics; v2 cluster id (KIP-78)
//	v4 whether topics may be created; below they may
//	v5 offline replicas (KIP-112); v7 leader epochs (KIP-320)
//	v8 authorized operations (KIP-430), those of the cluster up to v10 only
//	v10 topic ids in responses, v12 in requests (KIP-516)
//	v13 an error for the whole response (KIP-1102)
func (b *Broker) metadata(ctx context.Context, r *server.Request) {
	req := kmsg.NewPtrMetadataRequest()
	if err := r.Decode(req); err != nil {
		r.Reply(server.Response{NoReply: true, CloseConn: true, Code: api.InvalidRequest})
		return
	}
	r.Reply(server.Response{Msg: b.Metadata(ctx, req, r.Conn.ListenerName())})
}

// Metadata answers a request that came by a listener.
func (b *Broker) Metadata(ctx context.Context, req *kmsg.MetadataRequest, listener string) *kmsg.MetadataResponse {
	v := req.Version
	img := b.o.Image()
	resp := kmsg.NewPtrMetadataResponse()
	resp.SetVersion(v)
	resp.AuthorizedOperations = notAsked
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations()
	}
	if code := checkMetadataRequest(req); code != api.NoError {
		b.addCluster(resp, img, listener)
		failAll(req, resp, code)
		return resp
	}
	all := req.Topics == nil || v == 0 && len(req.Topics) == 0
	m := &metadataBuilder{img: img, listener: listener, version: v, topicOps: notAsked}
	if req.IncludeTopicAuthorizedOperations {
		m.topicOps = topicOperations()
	}
	if all {
		for t := range img.Topics() {
			resp.Topics = append(resp.Topics, m.topic(t))
		}
	} else {
		allowCreate := req.AllowAutoTopicCreation || v < 4
		m.img = b.addTopics(ctx, req, resp, m, allowCreate)
	}
	b.addCluster(resp, m.img, listener)
	return resp
}

// checkMetadataRequest refuses topic ids in versions that have the field but not yet the
// feature.
func checkMetadataRequest(req *kmsg.MetadataRequest) api.Code {
	for _, t := range req.Topics {
		if req.Version < 12 && (t.Topic == nil || !ids.UUID(t.TopicID).IsZero()) {
			return api.InvalidRequest
		}
	}
	return api.NoError
}

func failAll(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse, code api.Code) {
	for _, t := range req.Topics {
		out := kmsg.NewMetadataResponseTopic()
		out.Topic, out.TopicID, out.ErrorCode = t.Topic, t.TopicID, int16(code)
		if out.Topic == nil {
			out.Topic = kmsg.StringPtr("")
		}
		resp.Topics = append(resp.Topics, out)
	}
}

// addCluster adds the live brokers of the listener, and one of them as the controller:
// clients send what is for the controller to any broker (KIP-590).
func (b *Broker) addCluster(resp *kmsg.MetadataResponse, img *meta.Image, listener string) {
	resp.ClusterID = &b.o.ClusterID
	resp.ControllerID = -1
	for br := range img.Brokers() {
		e, ok := br.Endpoint(listener)
		if !ok || br.Fenced {
			continue
		}
		out := kmsg.NewMetadataResponseBroker()
		out.NodeID, out.Host, out.Port, out.Rack = br.ID, e.Host, int32(e.Port), br.Rack
		resp.Brokers = append(resp.Brokers, out)
		if resp.ControllerID < 0 || br.ID == b.o.NodeID {
			resp.ControllerID = br.ID
		}
	}
}

// addTopics adds the topics that are asked for, creating what may be created. It returns
// the image the answer was made from.
func (b *Broker) addTopics(ctx context.Context, req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse, m *metadataBuilder, allowCreate bool) *meta.Image {
	var names []string
	byID := slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool { return !ids.UUID(t.TopicID).IsZero() })
	for _, t := range req.Topics {
		id := ids.UUID(t.TopicID)
		switch {
		case byID && id.IsZero(): // ids and names are not mixed, ids win
		case byID || t.Topic == nil:
			if known := m.img.TopicByID(id); known != nil {
				names = append(names, known.Name)
				continue
			}
			out := kmsg.NewMetadataResponseTopic()
			out.TopicID, out.ErrorCode = t.TopicID, int16(api.UnknownTopicID)
			out.AuthorizedOperations = notAsked
			resp.Topics = append(resp.Topics, out)
		default:
			names = append(names, *t.Topic)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var create []string
	for _, name := range names {
		if m.img.TopicByName(name) == nil && controller.CheckTopicName(name) == nil {
			create = append(create, name)
		}
	}
	failed := map[string]api.Code{}
	if len(create) > 0 && allowCreate && !byID && b.o.AutoCreate() {
		failed = b.autoCreate(ctx, create)
		m.img = b.o.Image()
	}
	for _, name := range names {
		resp.Topics = append(resp.Topics, m.named(name, failed))
	}
	return m.img
}

// metadataBuilder makes the topics of one response.
type metadataBuilder struct {
	img      *meta.Image
	listener string
	version  int16
	topicOps int32
}

func (m *metadataBuilder) named(name string, failed map[string]api.Code) kmsg.MetadataResponseTopic {
	if t := m.img.TopicByName(name); t != nil {
		return m.topic(t)
	}
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.IsInternal, out.AuthorizedOperations = &name, IsInternal(name), m.topicOps
	switch code, tried := failed[name]; {
	case controller.CheckTopicName(name) != nil:
		out.ErrorCode = int16(api.InvalidTopicException)
	case tried:
		out.ErrorCode = int16(code)
	default:
		out.ErrorCode = int16(api.UnknownTopicOrPartition)
	}
	return out
}

func (m *metadataBuilder) topic(t *meta.Topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, IsInternal(t.Name)
	out.AuthorizedOperations = m.topicOps
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(t.Partitions))
	for i, p := range t.Partitions {
		out.Partitions = append(out.Partitions, m.partition(int32(i), p))
	}
	return out
}

func (m *metadataBuilder) partition(i int32, p *meta.Partition) kmsg.MetadataResponseTopicPartition {
	out := kmsg.NewMetadataResponseTopicPartition()
	out.Partition, out.Leader, out.LeaderEpoch = i, p.Leader, p.LeaderEpoch
	out.Replicas, out.ISR = p.Replicas, p.ISR
	out.OfflineReplicas = offline(m.img, p)
	out.ErrorCode = int16(m.leaderCode(p))
	if out.ErrorCode != 0 {
		out.Leader = meta.NoLeader
	}
	if m.version == 0 { // clients of this version can't bear replicas without an address
		gone := func(b int32) bool { return !m.reachable(b) }
		out.Replicas = slices.DeleteFunc(slices.Clone(p.Replicas), gone)
		out.ISR = slices.DeleteFunc(slices.Clone(p.ISR), gone)
		if out.ErrorCode == 0 && len(out.Replicas)+len(out.ISR) < len(p.Replicas)+len(p.ISR) {
			out.ErrorCode = int16(api.ReplicaNotAvailable)
		}
	}
	return out
}

func (m *metadataBuilder) leaderCode(p *meta.Partition) api.Code {
	br := m.img.Broker(p.Leader)
	switch {
	case br == nil || br.Fenced:
		return api.LeaderNotAvailable
	case m.reachable(p.Leader):
		return api.NoError
	case m.version >= 6: // KIP-302's sibling: the listener is missing on that broker
		return api.ListenerNotFound
	default:
		return api.LeaderNotAvailable
	}
}

// reachable reports whether clients of the listener can talk to the broker.
func (m *metadataBuilder) reachable(broker int32) bool {
	br := m.img.Broker(broker)
	if br == nil || br.Fenced {
		return false
	}
	_, ok := br.Endpoint(m.listener)
	return ok
}

// offline lists the replicas on brokers that are not alive or directories that have failed.
func offline(img *meta.Image, p *meta.Partition) []int32 {
	out := []int32{}
	for i, r := range p.Replicas {
		br := img.Broker(r)
		if br == nil || br.Fenced || i < len(p.Dirs) && !br.HasDir(p.Dirs[i]) {
			out = append(out, r)
		}
	}
	return out
}

// sortTopics orders names as all listings do.
func sortTopics(names []string) []string {
	slices.SortFunc(names, cmp.Compare[string])
	return slices.Compact(names)
}
