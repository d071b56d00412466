package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord/mirrorstate"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
	"milena/internal/peer"
)

// ClusterOptions configure a Cluster. All but Tasks and one of Dial and Call are required.
type ClusterOptions struct {
	NodeID int32
	Image  func() *meta.Image
	// Local are the states that this broker coordinates.
	Local States
	Dial  DialBroker
	// Call, if not nil, asks another broker instead of a connection of Dial.
	Call func(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error)
	// Tasks, if not nil, run what goes on side by side, instead of goroutines.
	Tasks Tasks
	// Timeout bounds a request to another broker.
	Timeout time.Duration
}

// Cluster reaches what the brokers of this cluster hold of mirrors, here or elsewhere: states at the leader of their partition
// of __mirror_state (spec 6.8), progress at the leader of the data partition. Its methods may be called from any goroutine.
type Cluster struct {
	o       ClusterOptions
	brokers *brokers
}

// call sends a request to another broker.
func (c *Cluster) call(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	if c.o.Call != nil {
		return c.o.Call(ctx, broker, req)
	}
	return c.brokers.call(ctx, broker, req)
}

// NewCluster returns a Cluster without connections.
func NewCluster(o ClusterOptions) *Cluster {
	return &Cluster{o, &brokers{dial: o.Dial, clientID: fmt.Sprintf("mirror-broker-%d", o.NodeID), conns: map[int32]*peer.Conn{}}}
}

// Close ends the connections.
func (c *Cluster) Close() { c.brokers.close() }

// coordinator is the broker that holds the states of k; COORDINATOR_NOT_AVAILABLE if none does now.
func (c *Cluster) coordinator(img *meta.Image, k mirrorstate.Key) (int32, error) {
	t := img.TopicByName(mirrorstate.Topic)
	if t == nil || len(t.Partitions) == 0 {
		return -1, api.Errorf(api.CoordinatorNotAvailable, "%s does not exist yet", mirrorstate.Topic)
	}
	slot := mirrormsg.Slot(k.Slot(), int32(len(t.Partitions)))
	if l := t.Partitions[slot].Leader; l >= 0 {
		return l, nil
	}
	return -1, api.Errorf(api.CoordinatorNotAvailable, "%s-%d has no leader now", mirrorstate.Topic, slot)
}

// Read returns the status of a partition, as mirrorstate.Service does, wherever its coordinator is.
func (c *Cluster) Read(ctx context.Context, k mirrorstate.Key, leaderEpoch int32) (mirrorstate.Status, error) {
	img := c.o.Image()
	broker, err := c.coordinator(img, k)
	if err != nil {
		return mirrorstate.NoStatus(), err
	}
	if broker == c.o.NodeID {
		return c.o.Local.Read(ctx, k, leaderEpoch)
	}
	out := c.readFrom(ctx, img, broker, k.Mirror, []read{{k, leaderEpoch}})
	return out[0].Status, out[0].Err
}

// Write makes one change, as mirrorstate.Service does, wherever the coordinator is.
func (c *Cluster) Write(ctx context.Context, w mirrorstate.Write) (mirrorstate.Status, error) {
	none, img := mirrorstate.NoStatus(), c.o.Image()
	broker, err := c.coordinator(img, w.Key)
	if err != nil {
		return none, err
	}
	if broker == c.o.NodeID {
		return c.o.Local.Write(ctx, w)
	}
	t := img.TopicByID(w.Key.TopicID)
	if t == nil {
		return none, api.Errorf(api.UnknownTopicID, "topic %s is gone", w.Key.TopicID)
	}
	p := mirrormsg.NewWriteMirrorStatesPartition()
	p.PartitionIndex, p.State, p.LeaderEpoch, p.StateEpoch = w.Key.Partition, int8(w.State), w.LeaderEpoch, w.StateEpoch
	p.LastMirrorEpoch, p.LastMirrorOffset, p.StopWishOffset = w.LastMirrorEpoch, w.LastMirrorOffset, w.StopWish
	p.NonRetryable, p.RetryAttempt = w.NonRetryable, int32(w.RetryAttempt)
	if w.Error != "" {
		p.ErrorMessage = &w.Error
	}
	req := &mirrormsg.WriteMirrorStatesRequest{MirrorName: w.Key.Mirror, Topics: []mirrormsg.WriteMirrorStatesTopic{
		{TopicName: t.Name, Partitions: []mirrormsg.WriteMirrorStatesPartition{p}},
	}}
	if err := c.write(ctx, broker, req); err != nil {
		return none, err
	}
	// The answer has not all of the status that holds now.
	st := c.readFrom(ctx, img, broker, w.Key.Mirror, []read{{w.Key, -1}})[0]
	if st.Err == nil && w.StopWish != -1 {
		st.StopWish = w.StopWish
	}
	return st.Status, st.Err
}

func (c *Cluster) write(ctx context.Context, broker int32, req *mirrormsg.WriteMirrorStatesRequest) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	resp, err := c.call(ctx, broker, req)
	if err != nil {
		return notReached(broker, err)
	}
	r := resp.(*mirrormsg.WriteMirrorStatesResponse)
	if r.ErrorCode != 0 {
		return api.Errorf(api.Code(r.ErrorCode), "%s", text(r.ErrorMessage))
	}
	if len(r.Topics) > 0 && len(r.Topics[0].Partitions) > 0 {
		if p := r.Topics[0].Partitions[0]; p.ErrorCode != 0 {
			return api.Errorf(api.Code(p.ErrorCode), "%s", text(p.ErrorMessage))
		}
		return nil
	}
	return api.Errorf(api.UnknownServerError, "broker %d did not say what became of a mirror state", broker)
}

// notReached is the error of a request that another broker did not answer.
func notReached(broker int32, err error) error {
	return &api.Error{Code: api.CoordinatorNotAvailable, Message: fmt.Sprintf("broker %d could not be asked about mirrors", broker), Err: err}
}

// StateResult is the status of one partition, or why it isn't known.
type StateResult struct {
	mirrorstate.Status
	Err error
}

// read is a key with the leader epoch of its reader.
type read struct {
	key   mirrorstate.Key
	epoch int32
}

// ReadAll returns the statuses of a mirror's partitions, in order: one request to each coordinator.
func (c *Cluster) ReadAll(ctx context.Context, mirror string, keys []mirrorstate.Key) []StateResult {
	img := c.o.Image()
	out := make([]StateResult, len(keys))
	byBroker := map[int32][]int{}
	for i, k := range keys {
		broker, err := c.coordinator(img, k)
		if err != nil {
			out[i] = StateResult{mirrorstate.NoStatus(), err}
			continue
		}
		byBroker[broker] = append(byBroker[broker], i)
	}
	c.each(byBroker, func(broker int32, at []int) {
		if broker == c.o.NodeID {
			for _, i := range at {
				out[i].Status, out[i].Err = c.o.Local.Read(ctx, keys[i], -1)
			}
			return
		}
		reads := make([]read, len(at))
		for j, i := range at {
			reads[j] = read{keys[i], -1}
		}
		for j, r := range c.readFrom(ctx, img, broker, mirror, reads) {
			out[at[j]] = r
		}
	})
	return out
}

// each runs fn for all brokers side by side.
func (c *Cluster) each(byBroker map[int32][]int, fn func(broker int32, at []int)) {
	asking := crew{tasks: c.o.Tasks}
	for _, broker := range slices.Sorted(maps.Keys(byBroker)) {
		asking.Go(func() { fn(broker, byBroker[broker]) })
	}
	asking.Wait()
}

// readFrom asks the broker for the statuses of a mirror's partitions, and returns them in the order asked for.
func (c *Cluster) readFrom(ctx context.Context, img *meta.Image, broker int32, mirror string, reads []read) []StateResult {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	out := make([]StateResult, len(reads))
	at := map[tp]int{}
	req := &mirrormsg.ReadMirrorStatesRequest{MirrorName: mirror}
	topics := map[string]int{}
	for i, r := range reads {
		out[i] = StateResult{mirrorstate.NoStatus(), api.Errorf(api.UnknownServerError, "broker %d did not answer for a mirror state", broker)}
		t := img.TopicByID(r.key.TopicID)
		if t == nil {
			out[i].Err = api.Errorf(api.UnknownTopicID, "topic %s is gone", r.key.TopicID)
			continue
		}
		at[tp{t.Name, r.key.Partition}] = i
		n, ok := topics[t.Name]
		if !ok {
			n = len(req.Topics)
			topics[t.Name] = n
			req.Topics = append(req.Topics, mirrormsg.ReadMirrorStatesTopic{TopicName: t.Name})
		}
		req.Topics[n].Partitions = append(req.Topics[n].Partitions, mirrormsg.ReadMirrorStatesPartition{PartitionIndex: r.key.Partition, LeaderEpoch: r.epoch})
	}
	if len(req.Topics) == 0 {
		return out
	}
	resp, err := c.call(ctx, broker, req)
	if err != nil {
		err = notReached(broker, err)
	} else if r := resp.(*mirrormsg.ReadMirrorStatesResponse); r.ErrorCode != 0 {
		err = api.Errorf(api.Code(r.ErrorCode), "%s", text(r.ErrorMessage))
	} else {
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				if i, ok := at[tp{t.TopicName, p.PartitionIndex}]; ok {
					out[i] = stateOf(&p)
				}
			}
		}
		return out
	}
	for _, i := range at {
		out[i].Err = err
	}
	return out
}

func stateOf(p *mirrormsg.ReadMirrorStatesPartitionResult) StateResult {
	st := mirrorstate.NoStatus()
	if p.ErrorCode != 0 {
		return StateResult{st, api.Errorf(api.Code(p.ErrorCode), "%s", text(p.ErrorMessage))}
	}
	st.State, st.LeaderEpoch, st.StateEpoch = mirrormsg.State(p.State), p.LeaderEpoch, p.StateEpoch
	st.Error, st.RetryAttempt, st.Previous = text(p.ErrorMessage), p.RetryAttempt, mirrormsg.State(p.PreviousState)
	st.LastMirrorEpoch, st.LastMirrorOffset = p.LastMirrorEpoch, p.LastMirrorOffset
	return StateResult{Status: st}
}

// ReadOffsets asks the leaders of a mirror's partitions how far each has come: one request to each broker. What isn't known is
// -1, and so is all of a partition whose leader did not answer.
func (c *Cluster) ReadOffsets(ctx context.Context, mirror string, parts []PartitionOf, here func(topic string, partition int32) mirrormsg.ReadMirrorOffsetsPartitionResult) []mirrormsg.ReadMirrorOffsetsPartitionResult {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	out := make([]mirrormsg.ReadMirrorOffsetsPartitionResult, len(parts))
	byBroker := map[int32][]int{}
	for i, p := range parts {
		out[i] = mirrormsg.NewReadMirrorOffsetsPartitionResult()
		out[i].PartitionIndex = p.Partition
		if leader := p.Topic.Partitions[p.Partition].Leader; leader >= 0 {
			byBroker[leader] = append(byBroker[leader], i)
		}
	}
	c.each(byBroker, func(broker int32, at []int) {
		if broker == c.o.NodeID {
			for _, i := range at {
				out[i] = here(parts[i].Topic.Name, parts[i].Partition)
			}
			return
		}
		req := &mirrormsg.ReadMirrorOffsetsRequest{MirrorName: mirror}
		where := map[tp]int{}
		for _, i := range at {
			name := parts[i].Topic.Name
			where[tp{name, parts[i].Partition}] = i
			if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicName != name {
				req.Topics = append(req.Topics, mirrormsg.ReadMirrorOffsetsTopic{TopicName: name})
			}
			last := &req.Topics[len(req.Topics)-1]
			last.Partitions = append(last.Partitions, parts[i].Partition)
		}
		resp, err := c.call(ctx, broker, req)
		if err != nil {
			msg := notReached(broker, err).Error()
			for _, i := range at {
				out[i].ErrorMessage = &msg
			}
			return
		}
		for _, t := range resp.(*mirrormsg.ReadMirrorOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if i, ok := where[tp{t.TopicName, p.PartitionIndex}]; ok {
					out[i] = p
				}
			}
		}
	})
	return out
}

// PartitionOf is a partition of a topic as the metadata has it.
type PartitionOf struct {
	Topic     *meta.Topic
	Partition int32
}

// ClampOffsets has another broker take back committed offsets of a partition above end, of the groups it coordinates, and returns those.
func (c *Cluster) ClampOffsets(ctx context.Context, broker int32, topic string, id ids.UUID, partition int32, end int64, epoch int32) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	resp, err := c.call(ctx, broker, &mirrormsg.ClampGroupOffsetsRequest{TopicName: topic, TopicID: id, PartitionIndex: partition, EndOffset: end, LeaderEpoch: epoch})
	if err != nil {
		return nil, notReached(broker, err)
	}
	r := resp.(*mirrormsg.ClampGroupOffsetsResponse)
	if r.ErrorCode != 0 {
		return r.Groups, api.Errorf(api.Code(r.ErrorCode), "broker %d: %s", broker, text(r.ErrorMessage))
	}
	return r.Groups, nil
}
