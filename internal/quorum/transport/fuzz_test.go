package transport_test

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/quorum"
	"milena/internal/quorum/transport"
)

func exampleRequest() *transport.Request {
	return &transport.Request{
		ClusterID: testCluster, Generation: 1 << 63, Messages: [][]byte{{1, 2}, {3}},
		From: quorum.Voter{Member: quorum.Member{ID: 1, Directory: ids.UUID{1}}, Endpoints: []quorum.Endpoint{{Name: "C", Host: "h", Port: 65535}}},
		To:   quorum.Member{ID: 2, Directory: ids.UUID{2}},
		Observers: []quorum.Replica{
			{Member: quorum.Member{ID: 7}, EndOffset: 9, LastFetch: time.Now().Add(-time.Second)},
		},
	}
}

func TestRequestRoundTrip(t *testing.T) {
	want := exampleRequest()
	got := &transport.Request{}
	if err := got.ReadFrom(want.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	o := got.Observers[0]
	if age := time.Since(o.LastFetch); age < time.Second || age > 3*time.Second || !o.LastCaughtUp.IsZero() || o.EndOffset != 9 || o.ID != 7 {
		t.Errorf("observer %+v", o)
	}
	got.Observers, want.Observers = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	b := want.AppendTo(nil)
	for n := range b {
		if err := got.ReadFrom(b[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken", n, len(b))
		}
	}
	text := "why"
	resp, again := &transport.Response{ErrorCode: 7, ErrorMessage: &text}, &transport.Response{}
	if err := again.ReadFrom(resp.AppendTo(nil)); err != nil || !reflect.DeepEqual(resp, again) {
		t.Errorf("%+v, %v", again, err)
	}
}

// FuzzRequest: whatever comes is taken or refused, and what is taken can be said again.
// Messages that decode are handed to a node.
func FuzzRequest(f *testing.F) {
	f.Add(exampleRequest().AppendTo(nil))
	f.Add((&transport.Request{}).AppendTo(nil))
	self := quorum.Voter{Member: quorum.Member{ID: 2, Directory: ids.UUID{2}}}
	n, err := quorum.Open(quorum.Options{FS: disk.NewMem(1), Dir: "/m", Self: self.Member, Voters: []quorum.Voter{self}, Fatal: func(error) {}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = n.Close() })
	f.Fuzz(func(t *testing.T, data []byte) {
		req := &transport.Request{}
		if err := req.ReadFrom(data); err != nil {
			return
		}
		req.Observers = nil // ages move on
		b := req.AppendTo(nil)
		again := &transport.Request{}
		if err := again.ReadFrom(b); err != nil {
			t.Fatalf("what was read can't be read again: %v", err)
		}
		if !bytes.Equal(again.AppendTo(nil), b) {
			t.Error("not the same again")
		}
		for _, m := range req.Messages {
			_ = n.Step(t.Context(), req.From, m) // refused or taken
		}
	})
}
