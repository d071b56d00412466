package metafollow

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
)

// hasty is a controller that answers everything at once. After far more requests than make sense it lets them hang, so that a loop
// that never waits ends.
type hasty struct {
	calls  atomic.Int64
	answer func(req kmsg.Request) (kmsg.Response, error)
}

const tooMany = 20_000

func (h *hasty) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if h.calls.Add(1) > tooMany {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.answer(req)
}

// No answer that comes at once, whatever it says, has the follower ask again and again without a pause.
func TestFollowerNeverSpins(t *testing.T) {
	snapshot := func(p *kmsg.FetchResponseTopicPartition) { p.SnapshotID.EndOffset, p.SnapshotID.Epoch = 7, 1 }
	for name, edit := range map[string]func(p *kmsg.FetchResponseTopicPartition){
		"nothing": func(*kmsg.FetchResponseTopicPartition) {},
		"no leader": func(p *kmsg.FetchResponseTopicPartition) {
			p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = -1, 3
		},
		"an error": func(p *kmsg.FetchResponseTopicPartition) { p.ErrorCode = int16(api.NotLeaderOrFollower) },
		"the same again": func(p *kmsg.FetchResponseTopicPartition) {
			p.RecordBatches, p.HighWatermark = batch(t, 0, 1, topicRec(1)), 1
		},
		"a snapshot": snapshot,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hasty{}
				h.answer = func(req kmsg.Request) (kmsg.Response, error) {
					if _, ok := req.(*kmsg.FetchSnapshotRequest); ok {
						return snapshotPart(0, int64(len(batch(t, 0, 1, topicRec(0)))), batch(t, 0, 1, topicRec(0)))(req)
					}
					return fetched(edit)(req)
				}
				f := New(Options{NodeID: 1, ClusterID: "c", Controller: h})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- f.Run(ctx) }()
				time.Sleep(10 * time.Second)
				cancel()
				<-done
				if n := h.calls.Load(); n > 100 {
					t.Errorf("%d requests in 10 s", n)
				}
			})
		})
	}
}

// A registration that is dropped as soon as it is made isn't made anew without a pause.
func TestSessionNeverSpins(t *testing.T) {
	for name, code := range map[string]api.Code{"stale": api.StaleBrokerEpoch, "unknown": api.BrokerIDNotRegistered, "not the controller": api.NotController} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hasty{answer: func(req kmsg.Request) (kmsg.Response, error) {
					switch req.(type) {
					case *kmsg.BrokerRegistrationRequest:
						resp := kmsg.NewPtrBrokerRegistrationResponse()
						resp.BrokerEpoch = 1
						return resp, nil
					default:
						resp := kmsg.NewPtrBrokerHeartbeatResponse()
						resp.ErrorCode = int16(code)
						return resp, nil
					}
				}}
				f := New(Options{NodeID: 1, ClusterID: "c", Controller: h})
				imageOf(f, 5, 1, true)
				s := NewSession(SessionOptions{
					NodeID: 1, ClusterID: "c", Incarnation: ids.UUID{15: 1}, Controller: h, Follower: f, Retry: 2 * time.Millisecond,
					Endpoints: []meta.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 1}},
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- s.Run(ctx) }()
				time.Sleep(10 * time.Second)
				cancel()
				<-done
				if n := h.calls.Load(); n > 400 { // pauses grow to 100 ms
					t.Errorf("%d requests in 10 s", n)
				}
			})
		})
	}
}
