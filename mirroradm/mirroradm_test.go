package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/mirrormsg"
)

// Lag is told only from what was seen of the source just now.
func TestLag(t *testing.T) {
	for name, tc := range map[string]struct {
		p     Partition
		lag   int64
		known bool
	}{
		"behind":              {Partition{SourceOffset: 10, DestinationOffset: 7, SourceAge: time.Second}, 3, true},
		"even":                {Partition{SourceOffset: 10, DestinationOffset: 10}, 0, true},
		"ahead":               {Partition{SourceOffset: 10, DestinationOffset: 12}, 0, true}, // writes after a stop
		"source never seen":   {Partition{SourceOffset: -1, DestinationOffset: 7, SourceAge: -1}, 0, false},
		"destination unknown": {Partition{SourceOffset: 10, DestinationOffset: -1}, 0, false},
		"stale":               {Partition{SourceOffset: 10, DestinationOffset: 7, SourceAge: staleAfter + 1}, 0, false},
	} {
		if lag, known := tc.p.Lag(); lag != tc.lag || known != tc.known {
			t.Errorf("%s: %d %t", name, lag, known)
		}
	}
}

// requester is a cluster that answers with one response, and keeps what it was asked.
type requester struct {
	asked kmsg.Request
	resp  kmsg.Response
	err   error
}

func (r *requester) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	r.asked = req
	return r.resp, r.err
}

func text(s string) *string { return &s }

// What the cluster refuses is an *Error with its code's name and its words, for the request and for each topic.
func TestErrors(t *testing.T) {
	c := NewClient(nil)
	r := &requester{resp: &mirrormsg.CreateClusterMirrorResponse{ErrorCode: int16(api.InvalidConfig), ErrorMessage: text("x is no config")}}
	c.cl = r
	var e *Error
	if err := c.Create(t.Context(), "m", map[string]string{"b": "2", "a": "1"}); !errors.As(err, &e) || e.Name != "INVALID_CONFIG" || err.Error() != "x is no config (INVALID_CONFIG)" {
		t.Errorf("got %v", err)
	}
	req := r.asked.(*mirrormsg.CreateClusterMirrorRequest)
	if req.MirrorName != "m" || len(req.Config) != 2 || req.Config[0].Name != "a" || *req.Config[1].Value != "2" {
		t.Errorf("asked %+v", req)
	}

	r.resp = &mirrormsg.StopMirrorTopicsResponse{Topics: []mirrormsg.StopMirrorTopicResult{{Name: "ok"}, {Name: "bad", ErrorCode: int16(api.UnknownTopicOrPartition)}}}
	rs, err := c.Stop(t.Context(), "m", []string{"ok", "bad"}, nil)
	if err != nil || len(rs) != 2 || rs[0].Err != nil || rs[1].Err == nil || rs[1].Err.Error() != "UNKNOWN_TOPIC_OR_PARTITION" {
		t.Errorf("got %v %v", rs, err)
	}

	r.err = fmt.Errorf("no route")
	if _, err := c.List(t.Context()); !errors.Is(err, r.err) {
		t.Errorf("got %v", err)
	}
}
