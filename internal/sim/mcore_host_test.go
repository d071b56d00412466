package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/controller/mirrors"
	"milena/internal/coord/group"
	"milena/internal/coord/mirrorstate"
	"milena/internal/disk"
	"milena/internal/handle/cluster"
	handlemirror "milena/internal/handle/mirror"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/mirror"
	"milena/internal/mirrormsg"
	"milena/internal/replica"
)

// mirrorHost is what mirroring adds to a broker: the product's mirror.Manager with all its work as tasks, the coordinator of partition
// states, and the requests of the one and the other to this cluster's brokers and its controller.
type mirrorHost struct {
	*tasks
	b        *broker
	states   hosted
	shard    *mirrorstate.Shard
	cluster  *mirror.Cluster
	mgr      *mirror.Manager
	apis     map[api.Key]cluster.ControllerAPI
	applying bool
	applied  func() // what waits for the end of applying
}

func startMirrors(b *broker) (*mirrorHost, error) {
	c, log := b.c, b.c.logger(b.h)
	m := &mirrorHost{tasks: &tasks{c: c, h: b.h}, b: b}
	m.states = hosted{b: b, topic: mirrorstate.Topic, epoch: -1, loaded: m.stateLoaded, build: func() machine.Machine {
		m.shard = mirrorstate.NewShard(mirrorstate.Options{MaxAttempts: retries, Logger: log})
		return m.shard
	}}
	m.cluster = mirror.NewCluster(mirror.ClusterOptions{
		NodeID: b.id, Image: func() *meta.Image { return b.img }, Local: m, Call: m.askBroker, Tasks: m, Timeout: rpcTimeout,
	})
	m.apis = handlemirror.ControllerAPIs(handlemirror.ControllerOptions{Do: m.do, Commands: mirrorCommands(c)})
	var err error
	m.mgr, err = mirror.New(mirror.Options{
		NodeID: b.id, ClusterID: c.clusterID, Replicas: b.mgr, States: m.cluster, Controller: m, Local: m, ClampOffsets: m.clampOffsets,
		FS: disk.Faulty(b.h.fs, b.h.diskRule), LogDirs: coreDirs, Links: m, Tasks: m, FetchMemory: 1 << 30, Logger: log,
		Retry:           mirror.Retry{Initial: 100 * time.Millisecond, Max: time.Second, MaxAttempts: retries, Random: c.rnd.Float64},
		RefreshInterval: func() time.Duration { return time.Second },
	})
	if err != nil {
		return nil, err
	}
	b.mgr.SetGateFactory(m.mgr.Gate)
	b.mgr.SetAlignments(m.mgr.Alignment)
	b.mgr.OnSelfCut(m.mgr.SetAside)
	m.cutSelves()
	return m, nil
}

// retries is how often a FAILED partition is tried again by itself: always.
const retries = 10_000

func mirrorCommands(c *cores) mirrors.Commands {
	return mirrors.Commands{StatePartitions: 1, StateFactor: int16(c.factor)}
}

// apply follows the metadata; until it is through, the next change waits.
func (m *mirrorHost) apply(d *meta.Delta) {
	m.states.apply(d)
	gone := map[string]bool{}
	for _, r := range d.Configs {
		if r.Type == meta.ResourceClusterMirror && len(d.Next.Config(r.Type, r.Name)) == 0 {
			gone[r.Name] = true
		}
	}
	deleted := map[ids.UUID]bool{}
	for _, t := range d.Topics {
		if t.Prev != nil && (t.Deleted() || t.Next.ID != t.Prev.ID) {
			deleted[t.Prev.ID] = true
		}
	}
	if len(gone)+len(deleted) > 0 && m.states.core != nil {
		m.forget(func(k mirrorstate.Key) bool { return gone[k.Mirror] || deleted[k.TopicID] })
	}
	if len(deleted) > 0 && m.b.group.core != nil {
		var refs []group.TopicRef
		for _, t := range d.Topics {
			if t.Prev != nil && deleted[t.Prev.ID] {
				refs = append(refs, group.TopicRef{Name: t.Prev.Name, ID: t.Prev.ID})
			}
		}
		m.b.group.do(func(now time.Time, g *group.Machine) group.Effects { return g.TopicsDeleted(now, refs, func(error) {}) }, func(error) {})
	}
	m.applying = true
	m.Go(func() {
		m.mgr.Apply(d)
		m.applying = false
		if fn := m.applied; fn != nil {
			m.applied = nil
			fn()
		}
	})
}

func (m *mirrorHost) whenApplied(fn func()) {
	if m.applying {
		m.applied = fn
		return
	}
	fn()
}

// stateLoaded does what mirrorstate.Service does with a loaded shard.
func (m *mirrorHost) stateLoaded() {
	img := m.b.img
	m.b.after(0, func() {
		if m.states.core != nil {
			m.forget(func(k mirrorstate.Key) bool {
				return len(m.b.img.Config(meta.ResourceClusterMirror, k.Mirror)) == 0 || m.b.img.TopicByID(k.TopicID) == nil && img.Offset >= 0
			})
			m.mgr.CoordinatorLoaded(0)
		}
	})
}

func (m *mirrorHost) forget(gone func(mirrorstate.Key) bool) {
	m.states.exec(m.shard.Forget(gone), func(any, error) {})
}

// cutSelves does what replica.Manager's own loop does for replicas that were away during a cut and are chosen to lead.
func (m *mirrorHost) cutSelves() {
	if req := m.b.mgr.CutSelves(); req != nil {
		m.b.request(alterCommand(req), func(_ any, err error) { m.c.logf("host %d: cut its own log: %v", m.h.id, err) })
	}
	m.b.after(m.c.between(50*time.Millisecond, 300*time.Millisecond), m.cutSelves)
}

// exec runs a command of the shard.
func (m *mirrorHost) exec(ctx context.Context, cmd func() machine.Command) (any, error) {
	if m.states.core == nil {
		return nil, api.Errorf(api.CoordinatorNotAvailable, "the states are not loaded here")
	}
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	v, err := await(m.tasks, ctx, func(done func(any, error)) { m.states.exec(cmd(), done) })
	if errors.Is(err, machine.ErrLost) || errors.Is(err, machine.ErrClosed) {
		err = &api.Error{Code: api.NotCoordinator, Err: err}
	}
	return v, err
}

// Read implements mirror.States for what is coordinated here.
func (m *mirrorHost) Read(ctx context.Context, k mirrorstate.Key, leaderEpoch int32) (mirrorstate.Status, error) {
	v, err := m.exec(ctx, func() machine.Command { return m.shard.Read([]mirrorstate.Key{k}, []int32{leaderEpoch}) })
	if err != nil {
		return mirrorstate.NoStatus(), err
	}
	return v.([]mirrorstate.Status)[0], nil
}

// Write implements mirror.States.
func (m *mirrorHost) Write(ctx context.Context, w mirrorstate.Write) (mirrorstate.Status, error) {
	if len(m.b.img.Config(meta.ResourceClusterMirror, w.Key.Mirror)) == 0 {
		return mirrorstate.NoStatus(), api.Errorf(api.UnknownClusterMirror, "there is no mirror %s", w.Key.Mirror)
	}
	v, err := m.exec(ctx, func() machine.Command { return m.shard.Write([]mirrorstate.Write{w}) })
	if err != nil {
		return mirrorstate.NoStatus(), err
	}
	r := v.([]mirrorstate.WriteResult)[0]
	m.c.logf("host %d: state of %s-%d is to be %s in leader epoch %d, state epoch %d, last mirror %d/%d: %v", m.h.id, w.Key.Mirror, w.Key.Partition, w.State, w.LeaderEpoch, w.StateEpoch, w.LastMirrorEpoch, w.LastMirrorOffset, r.Err)
	return r.Status, r.Err
}

// askBroker sends a request to another broker of this cluster.
func (m *mirrorHost) askBroker(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	to := m.c.hosts[id]
	return await(m.tasks, ctx, func(done func(kmsg.Response, error)) {
		call(m.c.net, m.h, to, rpcTimeout, func(reply func(kmsg.Response, error)) {
			to.brk.mirrors.Go(func() { reply(to.brk.mirrors.serveBroker(req)) })
		}, done)
	})
}

// serveBroker answers another broker.
func (m *mirrorHost) serveBroker(req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), rpcTimeout)
	defer cancel()
	switch req := req.(type) {
	case *mirrormsg.ReadMirrorStatesRequest:
		return m.readStates(ctx, req), nil
	case *mirrormsg.WriteMirrorStatesRequest:
		return m.writeStates(ctx, req), nil
	case *mirrormsg.ClampGroupOffsetsRequest:
		resp := &mirrormsg.ClampGroupOffsetsResponse{}
		var err error
		resp.Groups, err = m.clampHere(ctx, req.TopicName, req.TopicID, req.PartitionIndex, req.EndOffset, req.LeaderEpoch)
		resp.ErrorCode, resp.ErrorMessage = codeOf(err)
		return resp, nil
	}
	return nil, fmt.Errorf("sim: no broker answers %T", req)
}

func codeOf(err error) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	code, text := api.CodeOf(err)
	return int16(code), &text
}

func (m *mirrorHost) readStates(ctx context.Context, req *mirrormsg.ReadMirrorStatesRequest) *mirrormsg.ReadMirrorStatesResponse {
	resp := &mirrormsg.ReadMirrorStatesResponse{}
	for _, t := range req.Topics {
		rt := mirrormsg.ReadMirrorStatesTopicResult{TopicName: t.TopicName}
		for _, p := range t.Partitions {
			st, err := mirrorstate.NoStatus(), error(api.Errorf(api.UnknownTopicOrPartition, "no topic %s", t.TopicName))
			if mt := m.b.img.TopicByName(t.TopicName); mt != nil {
				st, err = m.Read(ctx, mirrorstate.Key{Mirror: req.MirrorName, TopicID: mt.ID, Partition: p.PartitionIndex}, p.LeaderEpoch)
			}
			x := mirrormsg.ReadMirrorStatesPartitionResult{PartitionIndex: p.PartitionIndex, State: int8(st.State), LeaderEpoch: st.LeaderEpoch, StateEpoch: st.StateEpoch,
				RetryAttempt: st.RetryAttempt, PreviousState: int8(st.Previous), LastMirrorEpoch: st.LastMirrorEpoch, LastMirrorOffset: st.LastMirrorOffset}
			if x.ErrorCode, x.ErrorMessage = codeOf(err); err == nil && st.Error != "" {
				x.ErrorMessage = &st.Error
			}
			rt.Partitions = append(rt.Partitions, x)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (m *mirrorHost) writeStates(ctx context.Context, req *mirrormsg.WriteMirrorStatesRequest) *mirrormsg.WriteMirrorStatesResponse {
	resp := &mirrormsg.WriteMirrorStatesResponse{}
	for _, t := range req.Topics {
		rt := mirrormsg.WriteMirrorStatesTopicResult{TopicName: t.TopicName}
		for _, p := range t.Partitions {
			err := error(api.Errorf(api.UnknownTopicOrPartition, "no topic %s", t.TopicName))
			if mt := m.b.img.TopicByName(t.TopicName); mt != nil {
				w := mirrorstate.Write{Key: mirrorstate.Key{Mirror: req.MirrorName, TopicID: mt.ID, Partition: p.PartitionIndex}, State: mirrormsg.State(p.State), LeaderEpoch: p.LeaderEpoch, StateEpoch: p.StateEpoch,
					StopWish: p.StopWishOffset, LastMirrorEpoch: p.LastMirrorEpoch, LastMirrorOffset: p.LastMirrorOffset, NonRetryable: p.NonRetryable, RetryAttempt: int16(p.RetryAttempt)}
				if p.ErrorMessage != nil {
					w.Error = *p.ErrorMessage
				}
				_, err = m.Write(ctx, w)
			}
			x := mirrormsg.WriteMirrorStatesPartitionResult{PartitionIndex: p.PartitionIndex}
			x.ErrorCode, x.ErrorMessage = codeOf(err)
			rt.Partitions = append(rt.Partitions, x)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// do runs a command on the active controller.
func (m *mirrorHost) do(ctx context.Context, cmd controller.Command) (any, error) {
	return await(m.tasks, ctx, func(done func(any, error)) { m.b.request(cmd, done) })
}

// Call implements mirror.Controller.
func (m *mirrorHost) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	switch req := req.(type) {
	case *kmsg.CreatePartitionsRequest:
		resp := kmsg.NewPtrCreatePartitionsResponse()
		var more []controller.MorePartitions
		for _, t := range req.Topics {
			more = append(more, controller.MorePartitions{Name: t.Topic, Count: t.Count})
		}
		_, err := m.do(ctx, func(s *controller.State, now time.Time) machine.Result { return s.CreatePartitions(now, more, false) })
		return resp, err
	case *kmsg.IncrementalAlterConfigsRequest:
		return m.alterConfigs(ctx, req)
	}
	fn := m.apis[api.Key(req.Key())]
	if fn == nil {
		return nil, fmt.Errorf("sim: no controller answers %T", req)
	}
	return fn(ctx, &cluster.ControllerRequest{Key: api.Key(req.Key()), Version: req.GetVersion(), Body: req.AppendTo(nil), Node: true}), nil
}

func (m *mirrorHost) alterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	var list []controller.AlterResource
	for _, r := range req.Resources {
		x := controller.AlterResource{Resource: meta.Resource{Type: int8(r.ResourceType), Name: r.ResourceName}}
		for _, c := range r.Configs {
			x.Changes = append(x.Changes, controller.ConfigChange{Key: c.Name, Op: controller.ConfigOp(c.Op), Value: c.Value})
		}
		list = append(list, x)
	}
	_, err := m.do(ctx, func(s *controller.State, now time.Time) machine.Result { return s.AlterConfigs(now, list, false) })
	return resp, err
}

// clampOffsets does what a node does: it takes committed offsets back wherever their groups are coordinated.
func (m *mirrorHost) clampOffsets(ctx context.Context, topic string, id ids.UUID, partition int32, end int64, epoch int32) ([]string, error) {
	p := m.b.img.Partition(group.Topic, 0)
	switch {
	case p == nil || p.Leader < 0:
		return nil, api.Errorf(api.CoordinatorNotAvailable, "%s-0 has no leader now", group.Topic)
	case p.Leader == m.b.id:
		return m.clampHere(ctx, topic, id, partition, end, epoch)
	}
	return m.cluster.ClampOffsets(ctx, p.Leader, topic, id, partition, end, epoch)
}

// clampHere is clampOffsets of the groups that are coordinated here.
func (m *mirrorHost) clampHere(ctx context.Context, topic string, id ids.UUID, partition int32, end int64, epoch int32) ([]string, error) {
	return await(m.tasks, ctx, func(done func([]string, error)) {
		var groups []string
		m.b.group.do(func(now time.Time, g *group.Machine) group.Effects {
			return g.ClampOffsets(now, group.TopicRef{Name: topic, ID: id}, partition, end, epoch, func(_ error, moved []group.Clamped) {
				for _, x := range moved {
					groups = append(groups, x.Group)
				}
			})
		}, func(err error) {
			if err == nil {
				m.c.logf("host %d: offsets of %s-%d above %d are taken back of %v", m.h.id, topic, partition, end, groups)
			}
			done(groups, err)
		})
	})
}

// What follows implements mirror.LocalAdmin.

// FetchOffsets implements mirror.LocalAdmin.
func (m *mirrorHost) FetchOffsets(ctx context.Context, groupID string) (kadm.OffsetResponses, error) {
	return fetchOffsets(m.tasks, ctx, m.c.net, m.c, groupID)
}

// fetchOffsets asks a cluster's group coordinator for the offsets of the mirrored topic.
func fetchOffsets(t *tasks, ctx context.Context, by *wires, c *cores, groupID string) (kadm.OffsetResponses, error) {
	out := kadm.OffsetResponses{}
	to := c.knownLeader(group.Topic, 0)
	if to == nil {
		return nil, errNet
	}
	for part := range int32(mirrorPartitions) {
		o, err := await(t, ctx, func(done func(group.FetchedPartition, error)) {
			call(by, t.h, to, rpcTimeout, func(reply func(group.FetchedPartition, error)) {
				to.brk.group.fetchOne(groupID, mirrorTopic, part, reply)
			}, done)
		})
		if err != nil {
			return nil, err
		}
		if o.Offset >= 0 {
			out.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: mirrorTopic, Partition: part, At: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata}})
		}
	}
	return out, nil
}

// CommitOffsets implements mirror.LocalAdmin.
func (m *mirrorHost) CommitOffsets(ctx context.Context, groupID string, os kadm.Offsets) (kadm.OffsetResponses, error) {
	out := kadm.OffsetResponses{}
	to := m.c.knownLeader(group.Topic, 0)
	if to == nil {
		return nil, errNet
	}
	for _, o := range os.Sorted() {
		_, err := await(m.tasks, ctx, func(done func(struct{}, error)) {
			call(m.c.net, m.h, to, rpcTimeout, func(reply func(struct{}, error)) {
				to.brk.group.commitAt(groupID, o.Topic, o.Partition, o.At, o.LeaderEpoch, func(err error) { reply(struct{}{}, err) })
			}, done)
		})
		if err != nil {
			return nil, err
		}
		m.c.logf("host %d: %s of %s-%d is synced: %d, epoch %d", m.h.id, groupID, o.Topic, o.Partition, o.At, o.LeaderEpoch)
		out.Add(kadm.OffsetResponse{Offset: o})
	}
	return out, nil
}

// ListStartOffsets implements mirror.LocalAdmin.
func (m *mirrorHost) ListStartOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
	return m.listOffsets(ctx, replica.TimeEarliest, topics)
}

// ListEndOffsets implements mirror.LocalAdmin.
func (m *mirrorHost) ListEndOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
	return m.listOffsets(ctx, replica.TimeLatest, topics)
}

func (m *mirrorHost) listOffsets(ctx context.Context, at int64, topics []string) (kadm.ListedOffsets, error) {
	out := kadm.ListedOffsets{}
	for _, name := range topics {
		t := m.b.img.TopicByName(name)
		if t == nil {
			continue
		}
		out[name] = map[int32]kadm.ListedOffset{}
		for i, mp := range t.Partitions {
			x := kadm.ListedOffset{Topic: name, Partition: int32(i), Offset: -1, LeaderEpoch: -1, Err: errNet}
			if mp.Leader >= 0 {
				var o offsetAt
				o, x.Err = m.listOne(ctx, m.c.hosts[mp.Leader], name, int32(i), at)
				x.Offset, x.LeaderEpoch = o.offset, o.epoch
			}
			out[name][int32(i)] = x
		}
	}
	return out, nil
}

// offsetAt is an offset and the epoch of what is there.
type offsetAt struct {
	offset int64
	epoch  int32
}

func (m *mirrorHost) listOne(ctx context.Context, to *host, topic string, partition int32, at int64) (offsetAt, error) {
	return await(m.tasks, ctx, func(done func(offsetAt, error)) {
		call(m.c.net, m.h, to, rpcTimeout, func(reply func(offsetAt, error)) {
			reply(to.brk.offsetAt(topicPartition{topic: topic, partition: partition}, -1, at, replica.ReadUncommitted))
		}, done)
	})
}

// DescribeTopicConfigs implements mirror.LocalAdmin.
func (m *mirrorHost) DescribeTopicConfigs(_ context.Context, topics ...string) (kadm.ResourceConfigs, error) {
	return m.b.topicConfigs(topics), nil
}
