package mirroradm

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/mirrormsg"
)

// broker listens and hands each connection to serve, until the test is over.
func broker(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { c.Close() })
			wg.Go(func() {
				defer stop()
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); cancel(); wg.Wait() })
	return l.Addr().String()
}

// lists answers ApiVersions, and ListClusterMirrors with one mirror.
func lists(c net.Conn) {
	for {
		size := make([]byte, 4)
		if _, err := io.ReadFull(c, size); err != nil {
			return
		}
		r := kbin.Reader{Src: size}
		body := make([]byte, r.Int32())
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		h := kbin.Reader{Src: body}
		key, version, id := h.Int16(), h.Int16(), h.Int32()
		out := kbin.AppendInt32(nil, id)
		list := (&mirrormsg.ListClusterMirrorsRequest{}).Key()
		if key == 18 {
			resp := kmsg.NewPtrApiVersionsResponse()
			resp.Version = version
			for _, k := range []int16{18, list} {
				x := kmsg.NewApiVersionsResponseApiKey()
				x.ApiKey = k
				if k == 18 {
					x.MaxVersion = 3
				}
				resp.ApiKeys = append(resp.ApiKeys, x)
			}
			if version > 3 {
				resp.Version, resp.ErrorCode = 0, 35
			}
			out = resp.AppendTo(out)
		} else {
			resp := &mirrormsg.ListClusterMirrorsResponse{Mirrors: []mirrormsg.ListedMirror{{MirrorName: "dr"}}}
			resp.SetVersion(version)
			out = resp.AppendTo(append(out, 0)) // no tags in the header
		}
		if _, err := c.Write(append(kbin.AppendInt32(nil, int32(len(out))), out...)); err != nil {
			return
		}
	}
}

// A broker that accepts a connection and answers nothing, as one that hangs does, keeps nothing that another can answer.
func TestHungBroker(t *testing.T) {
	hung := broker(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	good := broker(t, lists)
	cl, err := kgo.NewClient(kgo.SeedBrokers(hung, good), kgo.MaxVersions(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	c := NewClient(cl)
	c.cl.(*anyBroker).answers = 100 * time.Millisecond
	for range 2 {
		ms, err := c.List(t.Context())
		if err != nil || len(ms) != 1 || ms[0].Name != "dr" {
			t.Fatalf("%v %v", ms, err)
		}
	}
}

// What might be done twice goes to one broker.
func TestRepeatable(t *testing.T) {
	broker := kmsg.NewPtrDescribeConfigsRequest()
	broker.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker}}
	for _, req := range []kmsg.Request{&mirrormsg.CreateClusterMirrorRequest{}, &mirrormsg.DeleteClusterMirrorRequest{}, &mirrormsg.StartMirrorTopicsRequest{}, broker, &mirrormsg.MirrorCutsRequest{}} {
		if repeatable(req) {
			t.Errorf("%T", req)
		}
	}
	if !repeatable(&mirrormsg.StopMirrorTopicsRequest{}) {
		t.Error("a stop that one broker does not answer is not sent to another")
	}
}

// What is waited for is told after some seconds, and then now and again.
func TestTeller(t *testing.T) {
	var told []string
	begun := time.Unix(0, 0)
	x := teller{tell: func(s string) { told = append(told, s) }, begun: begun}
	for _, s := range []int{0, 4, 5, 6, 14, 15, 16} {
		x.waits(begun.Add(time.Duration(s)*time.Second), string(rune('a'+s)))
	}
	if len(told) != 2 || told[0] != "f" || told[1] != "p" {
		t.Error(told)
	}
	(&teller{begun: begun}).waits(begun.Add(time.Minute), "nobody listens")
}
