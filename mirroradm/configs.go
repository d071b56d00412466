package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// resourceType is the config resource type of mirrors.
const resourceType = kmsg.ConfigResourceType(64)

// Config is a config of a mirror.
type Config struct {
	Key string
	// Value is nil if the config has none, or is sensitive.
	Value *string
	// Default says that the mirror doesn't set it.
	Default bool
	// Sensitive says that the cluster keeps the value to itself.
	Sensitive bool
}

// Configs returns a mirror's configs, defaults included, sorted by key.
func (c *Client) Configs(ctx context.Context, mirror string) ([]Config, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = resourceType, mirror
	req.Resources = append(req.Resources, res)
	r, err := ask[*kmsg.DescribeConfigsResponse](ctx, c, req)
	if err != nil {
		return nil, err
	}
	if len(r.Resources) != 1 {
		return nil, fmt.Errorf("the answer has %d mirrors instead of one", len(r.Resources))
	}
	if err := failure(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage); err != nil {
		return nil, c.unknownType(ctx, err)
	}
	var out []Config
	for _, x := range r.Resources[0].Configs {
		out = append(out, Config{Key: x.Name, Value: x.Value, Default: x.Source == kmsg.ConfigSourceDefaultConfig, Sensitive: x.IsSensitive})
	}
	slices.SortFunc(out, func(a, b Config) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return out, nil
}

// AlterConfigs sets configs of a mirror, and takes others back to their defaults. Either all of it happens or nothing.
func (c *Client) AlterConfigs(ctx context.Context, mirror string, set map[string]string, remove ...string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = resourceType, mirror
	for _, k := range slices.Sorted(maps.Keys(set)) {
		v := set[k]
		x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		x.Name, x.Op, x.Value = k, kmsg.IncrementalAlterConfigOpSet, &v
		res.Configs = append(res.Configs, x)
	}
	for _, k := range remove {
		x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		x.Name, x.Op = k, kmsg.IncrementalAlterConfigOpDelete
		res.Configs = append(res.Configs, x)
	}
	req.Resources = append(req.Resources, res)
	r, err := ask[*kmsg.IncrementalAlterConfigsResponse](ctx, c, req)
	if err != nil {
		return err
	}
	for _, x := range r.Resources {
		if err := failure(x.ErrorCode, x.ErrorMessage); err != nil {
			return c.unknownType(ctx, err)
		}
	}
	return nil
}

// unknownType tells a cluster that has no configs of mirrors, which calls them an invalid request, from one that refuses the request.
func (c *Client) unknownType(ctx context.Context, err error) error {
	if errors.Is(err, kerr.InvalidRequest) {
		if _, none := c.List(ctx); errors.Is(none, ErrNoMirroring) {
			return none
		}
	}
	return err
}
