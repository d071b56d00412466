package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/compare"
)

// VerifyOptions choose what PlanVerify takes.
type VerifyOptions struct {
	// Topics says which topics of the mirror; nil: all.
	Topics func(topic string) bool
	// From is the lowest offset, not below 0; 0 begins where both logs do.
	From int64
}

// PlanVerify finds the ranges of a mirror's partitions that have to be equal on both sides: from where both logs begin to where
// the shorter one ends, and of a stopped partition no further than what was mirrored. A range without an offset says why there is
// none. What can't be compared is among the results, with its error; so is a destination that holds more than its source. The error says why nothing could be found out.
func PlanVerify(ctx context.Context, mirror string, source, destination *kgo.Client, o VerifyOptions) ([]VerifyRange, []VerifyResult, error) {
	c := NewClient(destination)
	parts, id, err := c.mirrored(ctx, mirror, o.Topics)
	if err != nil {
		return nil, nil, err
	}
	p := planner{src: kadm.NewClient(source), dst: kadm.NewClient(destination), from: o.From}
	if err := p.look(ctx, parts, id); err != nil {
		return nil, nil, err
	}
	var ranges []VerifyRange
	var decided []VerifyResult
	for _, part := range parts {
		r, d, err := p.plan(ctx, part)
		if err != nil || d != nil {
			decided = append(decided, VerifyResult{Range: r, Proven: r.From, Difference: d, Err: err})
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges, decided, nil
}

// mirrored are a mirror's partitions with what their last stop stored, and the source's cluster id.
func (c *Client) mirrored(ctx context.Context, mirror string, topics func(string) bool) ([]Partition, string, error) {
	ms, err := c.List(ctx, mirror)
	if err != nil {
		return nil, "", err
	}
	if len(ms) != 1 {
		return nil, "", failure(int16(UnknownClusterMirror), nil)
	}
	ds, err := c.DescribeWith(ctx, DescribeOptions{Mirrors: []string{mirror}, State: true, SourceClusterID: ms[0].SourceClusterID})
	if err == nil {
		err = ds.Error()
	}
	if err != nil {
		return nil, "", err
	}
	var out []Partition
	for _, d := range ds {
		for _, p := range d.Partitions {
			if topics == nil || topics(p.Topic) {
				out = append(out, p)
			}
		}
	}
	return out, ms[0].SourceClusterID, nil
}

// planner holds what both sides say of the partitions.
type planner struct {
	src, dst *kadm.Client
	from     int64

	srcTopics, dstTopics               kadm.TopicDetails
	srcStart, srcEnd, dstStart, dstEnd kadm.ListedOffsets
	compacted                          map[string]bool
}

func (p *planner) look(ctx context.Context, parts []Partition, id string) error {
	names := map[string]bool{}
	var topics []string
	for _, x := range parts {
		if !names[x.Topic] {
			names[x.Topic] = true
			topics = append(topics, x.Topic)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	sm, err := p.src.Metadata(ctx, topics...)
	if err != nil {
		return fmt.Errorf("asking the source: %w", err)
	}
	if sm.Cluster != id {
		return fmt.Errorf("the source's cluster id is %s, the mirror's source is %s", sm.Cluster, id)
	}
	dm, err := p.dst.Metadata(ctx, topics...)
	if err != nil {
		return err
	}
	p.srcTopics, p.dstTopics = sm.Topics, dm.Topics
	p.compacted = map[string]bool{}
	for name, adm := range map[string]*kadm.Client{"source": p.src, "destination": p.dst} {
		cs, err := adm.DescribeTopicConfigs(ctx, topics...)
		if err != nil {
			return fmt.Errorf("topic configs of the %s: %w", name, err)
		}
		for _, r := range cs {
			for _, kv := range r.Configs {
				if kv.Key == "cleanup.policy" && strings.Contains(kv.MaybeValue(), "compact") {
					p.compacted[r.Name] = true
				}
			}
		}
	}
	if p.dstStart, err = p.dst.ListStartOffsets(ctx, topics...); err != nil {
		return err
	}
	if p.dstEnd, err = p.dst.ListEndOffsets(ctx, topics...); err != nil {
		return err
	}
	// The source's come later: what the destination has, the source had then.
	if p.srcStart, err = p.src.ListStartOffsets(ctx, topics...); err == nil {
		p.srcEnd, err = p.src.ListEndOffsets(ctx, topics...)
	}
	if err != nil {
		return fmt.Errorf("asking the source for its offsets: %w", err)
	}
	return nil
}

// patience is how long a source may take to show as committed what it has given away already: after an election its high
// watermark is behind for a moment.
const patience = 5 * time.Second

func (p *planner) plan(ctx context.Context, x Partition) (VerifyRange, *Difference, error) {
	r := VerifyRange{Topic: x.Topic, Partition: x.Partition, SourceID: p.srcTopics[x.Topic].ID, DestinationID: p.dstTopics[x.Topic].ID, Compacted: p.compacted[x.Topic]}
	offset := func(side string, l kadm.ListedOffsets) (int64, error) {
		o, ok := l.Lookup(x.Topic, x.Partition)
		switch {
		case !ok:
			return 0, fmt.Errorf("the %s has no partition %s-%d", side, x.Topic, x.Partition)
		case o.Err != nil:
			return 0, fmt.Errorf("%s-%d on the %s: %w", x.Topic, x.Partition, side, o.Err)
		}
		return o.Offset, nil
	}
	srcStart, err1 := offset("source", p.srcStart)
	srcEnd, err2 := offset("source", p.srcEnd)
	dstStart, err3 := offset("destination", p.dstStart)
	dstEnd, err4 := offset("destination", p.dstEnd)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			return r, nil, err
		}
	}
	switch {
	case x.State == "UNKNOWN":
		return r, nil, errors.New("the partition's state is unknown")
	case x.State == "LOG_TRUNCATION":
		return r, nil, errors.New("the partition's log is being aligned with the source (LOG_TRUNCATION): verify again when it is MIRRORING")
	case x.State == "STOPPED":
		dstEnd = min(dstEnd, max(x.LastMirrorOffset, 0))
	default:
		for deadline := time.Now().Add(patience); dstEnd > srcEnd && time.Now().Before(deadline); {
			l, err := p.src.ListEndOffsets(ctx, x.Topic)
			if err == nil {
				srcEnd, err = offset("source", l)
			}
			if err != nil {
				return r, nil, err
			}
			if dstEnd > srcEnd {
				select {
				case <-time.After(compare.Pause):
				case <-ctx.Done():
					return r, nil, ctx.Err()
				}
			}
		}
	}
	r.From = max(p.from, srcStart, dstStart)
	r.To = max(min(srcEnd, dstEnd), r.From)
	if r.From == r.To {
		r.Nothing = nothing(p.from, srcStart, srcEnd, dstStart, dstEnd)
	}
	if dstEnd > srcEnd && x.State != "STOPPED" {
		return r, &Difference{Offset: srcEnd, Source: "-", Destination: "?", What: fmt.Sprintf("the source ends at %d, the destination at %d", srcEnd, dstEnd)}, nil
	}
	return r, nil, nil
}

// nothing says why there is no offset to compare; empty if both logs are empty and end at the same offset.
func nothing(from, srcStart, srcEnd, dstStart, dstEnd int64) string {
	switch {
	case from > max(srcStart, dstStart):
		return fmt.Sprintf("what both sides hold ends at offset %d, and was to be compared from %d on", min(srcEnd, dstEnd), from)
	case srcStart == srcEnd && dstStart == dstEnd && srcEnd == dstEnd:
		return ""
	}
	held := func(start, end int64) string {
		if start >= end {
			return "none"
		}
		return fmt.Sprintf("those from %d to %d", start, end-1)
	}
	return fmt.Sprintf("no offset is on both sides: the source holds %s, the mirror %s", held(srcStart, srcEnd), held(dstStart, dstEnd))
}

// SourceProperties are the client properties by which a mirror reaches its source, as far as its cluster shows them, and the
// keys of those that it keeps to itself.
func (c *Client) SourceProperties(ctx context.Context, mirror string) (props map[string]string, hidden []string, err error) {
	cs, err := c.Configs(ctx, mirror)
	if err != nil {
		return nil, nil, err
	}
	props = map[string]string{}
	for _, x := range cs {
		switch {
		case x.Default || strings.HasPrefix(x.Key, "mirror."):
		case x.Sensitive:
			hidden = append(hidden, x.Key)
		case x.Value != nil:
			props[x.Key] = *x.Value
		}
	}
	return props, hidden, nil
}
