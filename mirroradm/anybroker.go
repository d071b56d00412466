package mirroradm

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/mirrormsg"
)

const (
	// answers is how long a broker may take to show that it answers at all.
	answers = 3 * time.Second
	// perBroker is how much longer than a request's own time-out one broker's answer is waited for.
	perBroker = 2 * time.Second
)

// anyBroker sends requests that any broker can answer, and that do no harm twice, to one broker after another until one answers: one that
// hangs must not take all the time there is. Those that the client was given come first. Other requests go as the client sends them.
type anyBroker struct {
	*kgo.Client
	answers time.Duration
	// good is the place in the list of the broker that answered last.
	good atomic.Int64
}

// repeatable says whether a request may go to any broker, and to several.
func repeatable(req kmsg.Request) bool {
	switch r := req.(type) {
	case *mirrormsg.ListClusterMirrorsRequest, *mirrormsg.DescribeClusterMirrorsRequest, *mirrormsg.StopMirrorTopicsRequest,
		*mirrormsg.PauseMirrorTopicsRequest, *mirrormsg.ResumeMirrorTopicsRequest, *mirrormsg.RecoverMirrorTopicsRequest,
		*kmsg.MetadataRequest, *kmsg.DescribeClusterRequest:
		return true
	case *kmsg.DescribeConfigsRequest:
		return !slices.ContainsFunc(r.Resources, func(x kmsg.DescribeConfigsRequestResource) bool {
			return x.ResourceType != resourceType && x.ResourceType != kmsg.ConfigResourceTypeTopic
		})
	case *kmsg.IncrementalAlterConfigsRequest:
		return !slices.ContainsFunc(r.Resources, func(x kmsg.IncrementalAlterConfigsRequestResource) bool { return x.ResourceType != resourceType })
	}
	return false
}

// ownTimeout is how long the cluster may take over a request.
func ownTimeout(req kmsg.Request) time.Duration {
	ms := int32(0)
	switch r := req.(type) {
	case *mirrormsg.DescribeClusterMirrorsRequest:
		ms = r.TimeoutMs
	case *mirrormsg.StopMirrorTopicsRequest:
		ms = r.TimeoutMs
	case *mirrormsg.PauseMirrorTopicsRequest:
		ms = r.TimeoutMs
	case *mirrormsg.ResumeMirrorTopicsRequest:
		ms = r.TimeoutMs
	}
	if ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return 10 * time.Second
}

// Request sends a request until a broker answers, or ctx ends.
func (a *anyBroker) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	brokers := slices.Concat(a.SeedBrokers(), a.DiscoveredBrokers())
	if !repeatable(req) || len(brokers) == 0 {
		return a.Client.Request(ctx, req)
	}
	first := int(a.good.Load())
	for i := 0; ; i++ {
		at := (first + i) % len(brokers)
		resp, err := a.one(ctx, brokers[at], req)
		if err == nil {
			a.good.Store(int64(at))
			return resp, nil
		}
		if ctx.Err() != nil || errors.Is(noMirroring(err), ErrNoMirroring) {
			return nil, err
		}
		if (i+1)%len(brokers) != 0 {
			continue
		}
		select {
		case <-time.After(stopPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// one sends a request to a broker that answers something.
func (a *anyBroker) one(ctx context.Context, b *kgo.Broker, req kmsg.Request) (kmsg.Response, error) {
	ask, cancel := context.WithTimeout(ctx, a.answers)
	_, err := b.Request(ask, kmsg.NewPtrApiVersionsRequest())
	cancel()
	if err != nil {
		return nil, err
	}
	ctx, cancel = context.WithTimeout(ctx, ownTimeout(req)+perBroker)
	defer cancel()
	return b.Request(ctx, req)
}
