package metafollow

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/meta"
)

// several is a link to controllers that are asked in turn: Reset goes on to the next.
type several struct {
	list  []Caller
	at    atomic.Int64
	moves atomic.Int64
}

func (s *several) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return s.list[int(s.at.Load())%len(s.list)].Call(ctx, req)
}
func (s *several) Reset() { s.at.Add(1); s.moves.Add(1) }

func generation(g uint64, answer func(kmsg.Request) (kmsg.Response, error)) *hasty {
	return &hasty{answer: func(req kmsg.Request) (kmsg.Response, error) {
		resp, err := answer(req)
		if r, ok := resp.(*kmsg.FetchResponse); ok {
			SetGeneration(&r.UnknownTags, g)
		}
		return resp, err
	}}
}

// Controllers whose metadata was restored from a backup while a node ran give it other metadata, in which topics may be missing that it has
// logs of. It applies nothing of them and ends, with an error that says what to do. One such controller alone, among those of the quorum
// that it has read from, is passed over.
func TestRestoredWhileRunning(t *testing.T) {
	snapshot := fetched(func(p *kmsg.FetchResponseTopicPartition) { p.SnapshotID.EndOffset, p.SnapshotID.Epoch = 1_000_000, 50 })
	slow := func(kmsg.Request) (kmsg.Response, error) {
		time.Sleep(500 * time.Millisecond)
		return fetched(func(p *kmsg.FetchResponseTopicPartition) { p.HighWatermark = 3 })(nil)
	}
	for name, tt := range map[string]struct {
		others []Caller // after the first answer
		fails  bool
	}{
		"all of them":        {[]Caller{generation(77, snapshot), generation(77, snapshot)}, true},
		"one of them":        {[]Caller{generation(77, snapshot), generation(5, slow)}, false},
		"the same":           {[]Caller{generation(5, slow)}, false},
		"one without a word": {[]Caller{&hasty{answer: slow}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := &several{}
				first := generation(5, data(batch(t, 0, 1, topicRec(0), topicRec(1), topicRec(2)), 3))
				link.list = []Caller{&hasty{answer: func(req kmsg.Request) (kmsg.Response, error) {
					link.list = tt.others
					return first.answer(req)
				}}}
				f := New(Options{NodeID: 1, ClusterID: "c", Controller: link})
				f.Subscribe(func(d *meta.Delta) {
					if d.Next.TopicCount() < d.Prev.TopicCount() {
						t.Error("topics were taken away")
					}
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- f.Run(ctx) }()
				time.Sleep(30 * time.Second)
				synctest.Wait()
				select {
				case err := <-done:
					if !tt.fails || !errors.Is(err, ErrRestored) || !strings.Contains(err.Error(), "start the node again") {
						t.Errorf("ended with %v", err)
					}
				default:
					if tt.fails {
						t.Error("it goes on")
					}
					cancel()
					<-done
				}
				if n := f.Image().TopicCount(); n != 3 {
					t.Errorf("%d topics", n)
				}
			})
		})
	}
}
