package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/config"
	"milena/internal/mirrormsg"
)

// Reached is a cluster as CheckSource reached it.
type Reached struct {
	ClusterID string
	Brokers   int32
}

// CheckSource has every broker of the client's cluster try to reach another cluster as a mirror with the given configs would: by its
// bootstrap servers, and each broker at the address that it gives to clients. Nothing is changed. The error names the brokers that don't
// reach it, or that reached another cluster than the others.
func (c *Client) CheckSource(ctx context.Context, mirror string, configs map[string]string) (Reached, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	brokers, err := c.brokers(ctx)
	if err != nil {
		return Reached{}, err
	}
	req := &mirrormsg.CheckMirrorSourceRequest{MirrorName: mirror, TimeoutMs: c.millis()}
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		v := configs[k]
		req.Config = append(req.Config, mirrormsg.CreateClusterMirrorConfig{Name: k, Value: &v})
	}
	cl, ok := c.cl.(interface{ Broker(int) *kgo.Broker })
	if !ok {
		return Reached{}, errors.New("the client can't ask single brokers")
	}
	got, errs := make([]Reached, len(brokers)), make([]error, len(brokers))
	indexes := make([]int, len(brokers))
	for i := range indexes {
		indexes[i] = i
	}
	each(indexes, func(i int) {
		resp, err := cl.Broker(int(brokers[i])).RetriableRequest(ctx, req)
		if err != nil {
			errs[i] = fmt.Errorf("broker %d: %w", brokers[i], noMirroring(err))
			return
		}
		r, ok := resp.(*mirrormsg.CheckMirrorSourceResponse)
		if !ok {
			errs[i] = fmt.Errorf("the answer of broker %d is a %T", brokers[i], resp)
			return
		}
		got[i] = Reached{r.ClusterID, r.Brokers}
		if err := failure(r.ErrorCode, r.ErrorMessage); err != nil {
			errs[i] = fmt.Errorf("broker %d: %w", brokers[i], err)
		}
	})
	if err := errors.Join(errs...); err != nil {
		return Reached{}, err
	}
	for i := range got {
		if got[i].ClusterID != got[0].ClusterID {
			return Reached{}, fmt.Errorf("broker %d reached cluster %s, broker %d reached %s", brokers[0], got[0].ClusterID, brokers[i], got[i].ClusterID)
		}
	}
	if len(got) == 0 {
		return Reached{}, errors.New("the cluster has no brokers now")
	}
	return got[0], nil
}

// reverse is a mirror to make, or to start again, at what was the source.
type reverse struct {
	at      *Client // the old source, which is to hold it
	name    string
	configs map[string]string
	from    string // the cluster id that it copies from
	// waiting, if not nil, is told what is being waited for.
	waiting func(what string)
}

// check looks whether the reverse mirror can be made, and changes nothing.
func (r *reverse) check(ctx context.Context) error {
	if id := r.configs["mirror.source.cluster.id"]; id != "" && id != r.from {
		return fmt.Errorf("its mirror.source.cluster.id is %s, the cluster that it has to lead to is %s", id, r.from)
	}
	r.configs["mirror.source.cluster.id"] = r.from
	own := maps.Clone(r.configs)
	delete(own, "mirror.source.cluster.id") // so that another cluster is an answer, not an error
	got, err := r.at.CheckSource(ctx, r.name, own)
	switch {
	case err != nil:
		return fmt.Errorf("tried from there: %w", err)
	case got.ClusterID != r.from:
		return fmt.Errorf("tried from there it leads to cluster %s, not to this one, %s", got.ClusterID, r.from)
	}
	ms, err := r.at.List(ctx, r.name)
	if err != nil {
		return err
	}
	for _, m := range ms {
		if m.SourceClusterID != r.from {
			return fmt.Errorf("a mirror %s is there already, of cluster %s: name another", m.Name, m.SourceClusterID)
		}
	}
	return nil
}

// excluded fails if the mirror's exclude patterns match topics that it is to copy, which would be noticed too late else. A start takes out
// of them what is a topic's own name.
func (r *reverse) excluded(ctx context.Context, topics []string) error {
	const key = "mirror.topics.exclude"
	list, given := "__.*", false
	for k, v := range r.configs {
		if config.Canonical(config.ResourceClusterMirror, k) == key {
			list, given = v, true
		}
	}
	if !given {
		cs, err := r.at.Configs(ctx, r.name)
		if err != nil && !errors.Is(err, UnknownClusterMirror) {
			return fmt.Errorf("the configs of mirror %s there: %w", r.name, err)
		}
		for _, x := range cs {
			if x.Key == key && x.Value != nil {
				list = *x.Value
			}
		}
	}
	var errs []error
	for _, t := range topics {
		for p := range strings.SplitSeq(list, ",") {
			p = strings.TrimSpace(p)
			one, err := config.ParsePatterns(p)
			if p == "" || p == t || p == regexp.QuoteMeta(t) || err != nil || !one.Match(t) {
				continue
			}
			errs = append(errs, fmt.Errorf("topic %s is excluded from the mirror back, %s, by %s in mirror.topics.exclude: take that out at the cluster that is to hold it (milena mirrors configs %s --set mirror.topics.exclude=…)", t, r.name, p, r.name))
			break
		}
	}
	return errors.Join(errs...)
}

// create makes the mirror, or gives one that is there the configs.
func (r *reverse) create(ctx context.Context) error {
	err := r.at.Create(ctx, r.name, r.configs)
	if errors.Is(err, ClusterMirrorAlreadyExists) {
		err = r.at.AlterConfigs(ctx, r.name, r.configs)
	}
	return err
}

// start starts topics that are not active in the mirror yet.
func (r *reverse) start(ctx context.Context, topics []StartTopic) error {
	_, active, err := r.actives(ctx)
	if err != nil {
		return err
	}
	var open []StartTopic
	for _, t := range topics {
		if !active[t.Name] {
			open = append(open, t)
		}
	}
	if len(open) == 0 {
		return nil
	}
	rs, err := r.at.Start(ctx, r.name, open, nil, nil)
	if failed := rs.Error(); failed != nil {
		return failed
	}
	return err
}

// actives are the topics that mirrors there copy, or are wished to: other mirrors, by topic, and this one.
func (r *reverse) actives(ctx context.Context) (others map[string]string, own map[string]bool, err error) {
	ms, err := r.at.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	others, own = map[string]string{}, map[string]bool{}
	for _, m := range ms {
		for _, t := range m.Topics {
			if m.Name == r.name && m.SourceClusterID == r.from {
				own[t] = true
			} else {
				others[t] = m.Name
			}
		}
	}
	return others, own, nil
}

// await waits until every partition of the topics is mirrored: it is MIRRORING and has had an answer of its source since.
func (r *reverse) await(ctx context.Context, topics map[string]bool) error {
	return r.until(ctx, topics, func(p *Partition) string {
		switch {
		case p.State != mirroring:
			return "is " + p.State
		case p.SourceOffset < 0:
			return "is MIRRORING and has no answer of its source yet"
		}
		return ""
	})
}

// caughtUp waits until every partition of the topics has come to its source's end.
func (r *reverse) caughtUp(ctx context.Context, topics map[string]bool) error {
	return r.until(ctx, topics, func(p *Partition) string {
		lag, known := p.Lag()
		switch {
		case p.State != mirroring:
			return "is " + p.State
		case !known:
			return "is MIRRORING with a lag that isn't known"
		case lag > 0:
			return fmt.Sprintf("is %d offsets behind", lag)
		}
		return ""
	})
}

const (
	// tellAfter is how long something is waited for before that is told, and tellEvery the pause before it is told again.
	tellAfter = 5 * time.Second
	tellEvery = 10 * time.Second
)

// teller tells what is being waited for.
type teller struct {
	tell  func(what string) // nil: nobody
	begun time.Time
	next  time.Time
}

func (t *teller) waits(now time.Time, why string) {
	if t.tell == nil || now.Sub(t.begun) < tellAfter || now.Before(t.next) {
		return
	}
	t.next = now.Add(tellEvery)
	t.tell(why)
}

func (r *reverse) until(ctx context.Context, topics map[string]bool, missing func(*Partition) string) error {
	var why string
	tell := teller{tell: r.waiting, begun: time.Now()}
	for {
		ds, err := r.at.Describe(ctx, r.name)
		if err == nil {
			err = ds.Error()
		}
		switch {
		case err != nil && ctx.Err() != nil && why != "": // cut short; what was seen before says more
		case err != nil:
			why = err.Error()
		default:
			why = missingOf(ds, topics, missing)
		}
		if why == "" {
			return nil
		}
		tell.waits(time.Now(), why)
		select {
		case <-time.After(stopPause):
		case <-ctx.Done():
			return fmt.Errorf("mirror %s: %s (%w)", r.name, why, context.Cause(ctx))
		}
	}
}

// missingOf says which partitions of the topics lack something, an empty string if none does; topics that are not there lack everything.
func missingOf(ds DescribedMirrors, topics map[string]bool, missing func(*Partition) string) string {
	seen := map[string]bool{}
	var out []string
	more := 0
	for _, d := range ds {
		for i := range d.Partitions {
			p := &d.Partitions[i]
			if !topics[p.Topic] {
				continue
			}
			seen[p.Topic] = true
			why := missing(p)
			if why != "" && p.LastError != "" {
				why += " (" + p.LastError + ")"
			}
			out, more = listed(out, more, p.Topic, p.Partition, why)
		}
	}
	for _, t := range slices.Sorted(maps.Keys(topics)) {
		if !seen[t] {
			out = append(out, "topic "+t+" is not in it yet")
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// mostListed is how many partitions an error names.
const mostListed = 5

func listed(out []string, more int, topic string, partition int32, why string) ([]string, int) {
	switch {
	case why == "":
	case len(out) >= mostListed:
		more++
	default:
		out = append(out, fmt.Sprintf("%s-%d %s", topic, partition, why))
	}
	return out, more
}
