package mirroradm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/client"
)

const (
	fenceKey    = "milena.write.fence"
	redirectKey = "milena.redirect.clients.until.ms"
)

// ErrNoFence is wrapped by the errors of calls about fences to a cluster that has none.
var ErrNoFence = errors.New("the cluster has no write fence: it is not Milena, or an older release")

// Software is an option for kgo.NewClient with which the client is one of Milena's tools: [Client.Redirect] does not send it away.
func Software() kgo.Opt { return client.OwnSoftware() }

// Fence refuses clients' writes to topics: produce requests and DeleteRecords are answered POLICY_VIOLATION. What mirrors and followers
// append goes on, and so do reads and commits. It returns when every broker has applied it: nothing that a client wrote is then still on
// its way into a log. The results say what became of each topic; the error is of the request as a whole, or of a broker that did not
// confirm: writes may still be taken there.
func (c *Client) Fence(ctx context.Context, topics ...string) (TopicResults, error) {
	if _, err := c.Fences(ctx, topics...); err != nil {
		return nil, err
	}
	on := "true"
	rs, err := c.setFence(ctx, topics, kmsg.IncrementalAlterConfigOpSet, &on)
	if err != nil {
		return rs, err
	}
	return rs, c.awaitFence(ctx, rs.Succeeded(), true)
}

// Unfence takes the fence off topics, also of some that have none. It returns when every broker has applied it.
func (c *Client) Unfence(ctx context.Context, topics ...string) (TopicResults, error) {
	if _, err := c.Fences(ctx, topics...); err != nil {
		return nil, err
	}
	rs, err := c.setFence(ctx, topics, kmsg.IncrementalAlterConfigOpDelete, nil)
	if err != nil {
		return rs, err
	}
	return rs, c.awaitFence(ctx, rs.Succeeded(), false)
}

// setFence answers for each topic.
func (c *Client) setFence(ctx context.Context, topics []string, op kmsg.IncrementalAlterConfigOp, value *string) (TopicResults, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, t := range topics {
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, t
		x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		x.Name, x.Op, x.Value = fenceKey, op, value
		res.Configs = append(res.Configs, x)
		req.Resources = append(req.Resources, res)
	}
	r, err := ask[*kmsg.IncrementalAlterConfigsResponse](ctx, c, req)
	if err != nil {
		return nil, err
	}
	var out TopicResults
	for _, x := range r.Resources {
		out = append(out, result(x.ResourceName, x.ErrorCode, x.ErrorMessage))
	}
	return out, nil
}

// Fences says which of the topics are fenced; those that don't exist are missing. The error wraps ErrNoFence if the cluster has no fences.
func (c *Client) Fences(ctx context.Context, topics ...string) (map[string]bool, error) {
	if len(topics) == 0 {
		return map[string]bool{}, nil
	}
	r, err := ask[*kmsg.DescribeConfigsResponse](ctx, c, fencesRequest(topics))
	if err != nil {
		return nil, err
	}
	return fencesOf(r)
}

func fencesRequest(topics []string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, t := range topics {
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeTopic, t, []string{fenceKey}
		req.Resources = append(req.Resources, res)
	}
	return req
}

func fencesOf(r *kmsg.DescribeConfigsResponse) (map[string]bool, error) {
	out := map[string]bool{}
	for _, res := range r.Resources {
		if res.ErrorCode != 0 {
			continue
		}
		i := slices.IndexFunc(res.Configs, func(x kmsg.DescribeConfigsResponseResourceConfig) bool { return x.Name == fenceKey })
		if i < 0 {
			return nil, ErrNoFence
		}
		out[res.ResourceName] = deref(res.Configs[i].Value) == "true"
	}
	return out, nil
}

// confirmPause is the pause before a broker is asked again.
const confirmPause = 20 * time.Millisecond

// awaitFence waits until every broker shows the topics fenced, or not. A broker shows a config when its partitions go by it.
func (c *Client) awaitFence(ctx context.Context, topics []string, fenced bool) error {
	if len(topics) == 0 {
		return nil
	}
	req := func(int32) *kmsg.DescribeConfigsRequest { return fencesRequest(topics) }
	return c.confirmed(ctx, req, func(r *kmsg.DescribeConfigsResponse) string {
		have, err := fencesOf(r)
		if err != nil {
			return err.Error()
		}
		for _, t := range topics {
			if on, ok := have[t]; !ok || on != fenced {
				return fmt.Sprintf("it has not taken over the change of topic %s yet", t)
			}
		}
		return ""
	})
}

// confirmed asks every broker until it answers what it should: ok returns an empty string then, else what is missing.
func (c *Client) confirmed(ctx context.Context, req func(broker int32) *kmsg.DescribeConfigsRequest, ok func(*kmsg.DescribeConfigsResponse) string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	brokers, err := c.brokers(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(brokers))
	indexes := make([]int, len(brokers))
	for i := range indexes {
		indexes[i] = i
	}
	each(indexes, func(i int) {
		for {
			why := c.askedOne(ctx, brokers[i], req(brokers[i]), ok)
			if why == "" {
				return
			}
			select {
			case <-time.After(confirmPause):
			case <-ctx.Done():
				errs[i] = fmt.Errorf("broker %d has not confirmed: %s", brokers[i], why)
				return
			}
		}
	})
	return errors.Join(errs...)
}

func (c *Client) askedOne(ctx context.Context, broker int32, req *kmsg.DescribeConfigsRequest, ok func(*kmsg.DescribeConfigsResponse) string) string {
	cl, single := c.cl.(interface{ Broker(int) *kgo.Broker })
	if !single {
		return "the client can't ask single brokers"
	}
	resp, err := cl.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return err.Error()
	}
	r, isIt := resp.(*kmsg.DescribeConfigsResponse)
	if !isIt {
		return fmt.Sprintf("its answer is a %T", resp)
	}
	return ok(r)
}

// Redirect sends the cluster's clients back to their bootstrap servers until a time (KIP-1102): Metadata requests of version 13 are
// answered REBOOTSTRAP_REQUIRED, connections of older clients are closed, and so are at once all that clients have now. Brokers, mirrors
// and clients with [Software] stay. It returns when every broker does so.
func (c *Client) Redirect(ctx context.Context, until time.Time) error {
	v := strconv.FormatInt(until.UnixMilli(), 10)
	return c.setRedirect(ctx, kmsg.IncrementalAlterConfigOpSet, &v)
}

// EndRedirect ends what Redirect began.
func (c *Client) EndRedirect(ctx context.Context) error {
	return c.setRedirect(ctx, kmsg.IncrementalAlterConfigOpDelete, nil)
}

func (c *Client) setRedirect(ctx context.Context, op kmsg.IncrementalAlterConfigOp, value *string) error {
	if _, err := c.redirected(ctx); err != nil {
		return err
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType = kmsg.ConfigResourceTypeBroker // of all brokers, without a name
	x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	x.Name, x.Op, x.Value = redirectKey, op, value
	res.Configs = append(res.Configs, x)
	req.Resources = append(req.Resources, res)
	r, err := ask[*kmsg.IncrementalAlterConfigsResponse](ctx, c, req)
	if err != nil {
		return err
	}
	for _, x := range r.Resources {
		if err := failure(x.ErrorCode, x.ErrorMessage); err != nil {
			return err
		}
	}
	want := cmp.Or(deref(value), "0")
	return c.confirmed(ctx, redirectRequest, func(r *kmsg.DescribeConfigsResponse) string {
		if have, _ := redirectOf(r); have != want {
			return "it has not taken over the change of " + redirectKey + " yet"
		}
		return ""
	})
}

// Redirected is the time until which clients are sent away, zero if none was set. It may be over.
func (c *Client) Redirected(ctx context.Context) (time.Time, error) {
	v, err := c.redirected(ctx)
	if err != nil {
		return time.Time{}, err
	}
	ms, err := strconv.ParseInt(v, 10, 64)
	if err != nil || ms == 0 {
		return time.Time{}, err
	}
	return time.UnixMilli(ms), nil
}

func (c *Client) redirected(ctx context.Context) (string, error) {
	brokers, err := c.brokers(ctx)
	if err != nil {
		return "", err
	}
	if len(brokers) == 0 {
		return "", errors.New("the cluster has no brokers now")
	}
	r, err := ask[*kmsg.DescribeConfigsResponse](ctx, c, redirectRequest(brokers[0]))
	if err != nil {
		return "", err
	}
	v, ok := redirectOf(r)
	if !ok {
		return "", ErrNoFence
	}
	return v, nil
}

func redirectRequest(broker int32) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(broker)), []string{redirectKey}
	req.Resources = append(req.Resources, res)
	return req
}

// redirectOf is the value of the redirect at a broker; false if it doesn't know it.
func redirectOf(r *kmsg.DescribeConfigsResponse) (string, bool) {
	for _, res := range r.Resources {
		for _, x := range res.Configs {
			if x.Name == redirectKey {
				return deref(x.Value), res.ErrorCode == 0
			}
		}
	}
	return "", false
}
