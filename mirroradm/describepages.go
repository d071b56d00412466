package mirroradm

import (
	"context"
	"slices"

	"milena/internal/mirrormsg"
)

// describePage is how many topics one request describes.
const describePage = 500

// pages are the topics of the mirrors, by requests; at most one where one request is enough, or nothing could be found out.
func (c *Client) pages(ctx context.Context, o DescribeOptions) (pages [][]string) {
	f := ListFilter{Mirrors: o.Mirrors}
	if o.Mirrors != nil && len(o.Mirrors) == 0 {
		return nil // none, which a filter can't say
	}
	for _, s := range []mirrormsg.State{mirrormsg.Mirroring, mirrormsg.Paused, mirrormsg.Stopped} {
		f.States = append(f.States, s.String())
	}
	ms, err := c.ListWith(ctx, f)
	if err != nil {
		return nil // describing fails too, and says why
	}
	var topics []string
	for _, m := range ms {
		topics = append(topics, m.Topics...)
	}
	slices.Sort(topics)
	return slices.Collect(slices.Chunk(topics, describePage))
}

// describePages asks for one page after the other and puts the answers together. What is said of a mirror as a whole is the first page's.
func (c *Client) describePages(ctx context.Context, o DescribeOptions, pages [][]string) (DescribedMirrors, error) {
	var out DescribedMirrors
	for i, topics := range pages {
		o.Topics = make(map[string][]int32, len(topics))
		for _, t := range topics {
			o.Topics[t] = nil
		}
		ds, err := c.describeOnce(ctx, o)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			out = ds
			continue
		}
		for _, d := range ds {
			at := slices.IndexFunc(out, func(x Described) bool { return x.Name == d.Name })
			if at < 0 {
				continue // created meanwhile
			}
			out[at].Partitions = append(out[at].Partitions, d.Partitions...)
			if out[at].Err == nil {
				out[at].Err = d.Err
			}
		}
	}
	return out, nil
}
