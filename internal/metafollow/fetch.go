package metafollow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
)

func isDamage(err error) bool {
	return errors.Is(err, meta.ErrDamaged) || errors.Is(err, meta.ErrInconsistent) || errors.Is(err, ErrRestored)
}

// ErrRestored says that the controllers serve another quorum's metadata than before: theirs was restored from a backup while this node
// ran. To go on would delete the logs of all topics that the backup doesn't have; a start sets them aside.
var ErrRestored = errors.New("the metadata quorum was restored from a backup while this node ran; start the node again: " +
	"what its log directories hold beyond the backup is set aside then, not deleted")

// checkGeneration compares the quorum's generation with that of what was read before.
func (f *Follower) checkGeneration(resp *kmsg.FetchResponse) error {
	generation, ok := generationOf(&resp.UnknownTags)
	switch {
	case !ok:
		return nil // not one of our controllers, or an older one
	case !f.readBefore:
		f.generation, f.readBefore = generation, true
	case generation != f.generation:
		return fmt.Errorf("%w (generation %d, before it was %d)", ErrRestored, generation, f.generation)
	}
	return nil
}

// step fetches once and applies what came.
func (f *Follower) step(ctx context.Context) error {
	img := f.draft.Speculative()
	p, err := f.fetch(ctx, img)
	if err != nil {
		return err
	}
	switch {
	case p.SnapshotID.EndOffset >= 0:
		return f.loadSnapshot(ctx, p.SnapshotID.EndOffset, p.SnapshotID.Epoch)
	case p.DivergingEpoch.EndOffset >= 0 || p.DivergingEpoch.Epoch >= 0:
		return fmt.Errorf("%w: the controller's log ends epoch %d at offset %d, but offset %d of epoch %d was applied here",
			meta.ErrDamaged, p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset, img.Offset, img.Epoch)
	case len(p.RecordBatches) == 0:
		if e := f.expected.Load(); e != nil && img.Offset < e.offset && time.Since(e.since) > uselessFor {
			f.moveOn()
		}
		return nil
	}
	if err := f.draft.ApplyBatches(p.RecordBatches); err != nil {
		return err
	}
	if f.Image().Offset >= 0 {
		f.publish(f.draft.Delta())
		return nil
	}
	if next := f.draft.Image(); next.Offset+1 >= p.HighWatermark {
		f.begin(next)
	}
	return nil
}

// begin publishes the first image. Nobody may see the past: a topic that was deleted since, or a replica that had moved away and is back,
// would cost a log that is in use.
func (f *Follower) begin(next *meta.Image) {
	if next.Offset < f.first.Load() {
		return
	}
	f.draft = next.Draft()
	f.publish(meta.Diff(f.Image(), next))
}

// fetch asks for the records after the image.
func (f *Follower) fetch(ctx context.Context, img *meta.Image) (*kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ClusterID = &f.o.ClusterID
	req.ReplicaID = f.o.NodeID
	req.ReplicaState.ID = f.o.NodeID
	req.MaxWaitMillis = int32(f.o.MaxWait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = f.o.MaxBytes
	req.SessionEpoch = -1 // no fetch session
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset = img.Offset + 1
	part.LastFetchedEpoch = -1
	if img.Offset >= 0 {
		part.LastFetchedEpoch = img.Epoch
	}
	part.PartitionMaxBytes = f.o.MaxBytes
	part.ReplicaDirectoryID = f.o.Directory
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = meta.TopicName, ids.MetadataTopic
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)

	wait, cancel := context.WithTimeout(ctx, f.o.MaxWait+f.o.Timeout)
	defer cancel()
	r, err := f.o.Controller.Call(wait, req)
	if err != nil {
		if wait.Err() != nil && ctx.Err() == nil {
			f.moveOn() // it hangs
		}
		return nil, err
	}
	resp, ok := r.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("the controller answered Fetch with %T", r)
	}
	if err := codeError(resp.ErrorCode); err != nil {
		return nil, err
	}
	if leader, epoch, nodes, ok := leaderOf(resp); ok {
		f.judge(leader, epoch, nodes)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("the controller's Fetch answer has not exactly one partition")
	}
	p := &resp.Topics[0].Partitions[0]
	if api.Code(p.ErrorCode) == api.NotLeaderOrFollower {
		f.moveOn() // it has no part in the quorum, or no leader
	}
	if err := codeError(p.ErrorCode); err != nil {
		return nil, err
	}
	return p, f.checkGeneration(resp)
}

// loadSnapshot replaces the draft by the snapshot.
func (f *Follower) loadSnapshot(ctx context.Context, endOffset int64, epoch int32) error {
	data, err := f.fetchSnapshot(ctx, endOffset, epoch)
	if err != nil {
		return err
	}
	prev := f.Image()
	next, err := meta.ReadSnapshot(f.o.ClusterID, data, endOffset, epoch)
	if err != nil {
		return err
	}
	f.draft = next.Draft()
	if prev.Offset < 0 {
		f.begin(next)
		return nil
	}
	f.publish(meta.Diff(prev, next))
	return nil
}

func (f *Follower) fetchSnapshot(ctx context.Context, endOffset int64, epoch int32) ([]byte, error) {
	// All of it comes from one controller: the bytes of another's may differ.
	from := f.o.Controller
	if l, ok := from.(interface {
		Pin(ctx context.Context) (Caller, error)
	}); ok {
		var err error
		if from, err = l.Pin(ctx); err != nil {
			return nil, err
		}
	}
	var data []byte
	for {
		part, size, err := f.fetchSnapshotPart(ctx, from, endOffset, epoch, int64(len(data)))
		if err != nil {
			return nil, fmt.Errorf("snapshot at offset %d: %w", endOffset, err)
		}
		data = append(data, part...)
		switch {
		case int64(len(data)) >= size:
			return data, nil
		case len(part) == 0:
			return nil, fmt.Errorf("snapshot at offset %d ends at %d of %d bytes", endOffset, len(data), size)
		}
		data = slices.Grow(data, int(min(size-int64(len(data)), int64(f.o.MaxBytes))))
	}
}

func (f *Follower) fetchSnapshotPart(ctx context.Context, from Caller, endOffset int64, epoch int32, position int64) ([]byte, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotPartTimeout)
	defer cancel()
	part, size, err := FetchSnapshotPart(ctx, from, SnapshotPart{
		ClusterID: f.o.ClusterID, Replica: f.o.NodeID, EndOffset: endOffset, Epoch: epoch, Position: position, MaxBytes: f.o.MaxBytes,
	})
	var refused *api.Error
	if err != nil && !errors.As(err, &refused) {
		f.moveOn() // it can't be reached, or makes no sense
	}
	return part, size, err
}

// snapshotPartTimeout bounds the wait for a part of a snapshot, up to MaxBytes of it.
const snapshotPartTimeout = 30 * time.Second

// publish hands the delta to the subscribers and makes its image the current one.
func (f *Follower) publish(d *meta.Delta) {
	for _, fn := range f.subscribers {
		fn(d)
	}
	f.image.Store(d.Next)
	f.mu.Lock()
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
}

// codeError is the error a response's code stands for, nil for none.
func codeError(code int16) error {
	if code == 0 {
		return nil
	}
	return &api.Error{Code: api.Code(code)}
}
