package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/controller/mirrors"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

const (
	// refreshGap keeps refreshes that are asked for apart, where the interval is longer.
	refreshGap = time.Second
	// leastGap keeps any refreshes apart.
	leastGap = 20 * time.Millisecond
)

// refreshSoon asks for a refresh before the interval is over.
func (mi *mirror) refreshSoon() {
	select {
	case mi.wake <- struct{}{}:
	default:
	}
}

// refreshLoop refreshes at once, then at the interval and when it is asked for (spec 8.14, D9). Each mirror has its own, so
// that an unreachable source delays no other.
func (mi *mirror) refreshLoop() {
	for mi.ctx.Err() == nil {
		if !mi.turn("refresh", mi.refresh, func(h *Health) (*time.Time, *string) { return &h.Refreshed, &h.RefreshError }) {
			return
		}
		began := time.Now()
		gap := max(min(refreshGap, mi.mgr.opts.RefreshInterval()), leastGap)
		if !mi.pause(gap) || !mi.every(began, mi.mgr.opts.RefreshInterval, mi.wake) {
			return
		}
	}
}

// turn does one run of the periodic work of a kind and notes how it went; false if the mirror is closed.
func (mi *mirror) turn(kind string, work func(context.Context) error, health func(*Health) (at *time.Time, failed *string)) bool {
	ctx, cancel := context.WithTimeout(mi.ctx, 2*mi.set().Client.RequestTimeout)
	defer cancel()
	err := work(ctx)
	if mi.ctx.Err() != nil {
		return false
	}
	mi.note(kind, err, health)
	return true
}

// note keeps how a run of periodic work went.
func (mi *mirror) note(kind string, err error, health func(*Health) (at *time.Time, failed *string)) {
	if err != nil {
		mi.log.Warn("periodic work of a mirror failed", "kind", kind, "error", err)
		mi.mgr.metrics.syncFailed(mi.name, kind)
	}
	mi.mu.Lock()
	defer mi.mu.Unlock()
	at, failed := health(&mi.health)
	if *failed = ""; err == nil {
		*at = time.Now()
	} else {
		*failed = err.Error()
	}
}

// noticed is within what time a changed interval takes effect.
const noticed = 5 * time.Second

// every waits until an interval has passed since began, by what it is then, or until wake says so; false if the mirror is closed.
func (mi *mirror) every(began time.Time, interval func() time.Duration, wake <-chan struct{}) bool {
	for {
		left := interval() - time.Since(began)
		if left <= 0 {
			return mi.ctx.Err() == nil
		}
		switch mi.mgr.tasks.Wait(mi.ctx, min(left, noticed), wake) {
		case WokenEnd:
			return false
		case WokenSignal:
			return true
		case WokenTime:
		}
	}
}

// pause waits for d; false if the mirror is closed.
func (mi *mirror) pause(d time.Duration) bool {
	return mi.every(time.Now(), func() time.Duration { return d }, nil)
}

func (mi *mirror) refresh(ctx context.Context) error {
	if err := mi.checkIdentity(ctx); err != nil {
		return err
	}
	names := mi.topics(mirrormsg.Mirroring, mirrormsg.Paused)
	found, err := mi.source.Refresh(ctx, names)
	if err != nil {
		return err
	}
	if err := mi.checkTopics(ctx, names, found); err != nil {
		return err
	}
	for _, p := range mi.mgr.partitions(func(p *Partition) bool { return p.mirror == mi.name && p.target.Load() == nil }) {
		p.kick()
	}
	active := mi.topics(mirrormsg.Mirroring)
	present := slices.DeleteFunc(slices.Clone(active), func(n string) bool { return found[n] == nil || found[n].Err != nil })
	if !mi.mgr.owns(mi.name) {
		// Looked at here as well, so that it is known when the owner is gone, and the source with it.
		_, err := mi.source.TopicConfigs(ctx, present)
		return errors.Join(err, mi.compareStrength(ctx, present))
	}
	var errs []error
	for _, n := range names {
		if t := found[n]; t != nil && t.Err != nil {
			errs = append(errs, t.Err)
		}
	}
	errs = append(errs, mi.expand(ctx, active, found))
	if len(present) > 0 {
		_, err := mi.syncConfigs(ctx, present)
		if mi.ctx.Err() == nil {
			mi.note("configs", err, func(h *Health) (*time.Time, *string) { return &h.Configs, &h.ConfigsError })
		}
		errs = append(errs, mi.compareStrength(ctx, present))
	}
	errs = append(errs, mi.bumpAhead(ctx, active), mi.enforceExclude(ctx, names), mi.discover(ctx))
	return errors.Join(errs...)
}

// checkIdentity makes sure that the address still leads to the cluster the mirror was made for.
func (mi *mirror) checkIdentity(ctx context.Context) error {
	err := mi.source.Verify(ctx)
	if errors.Is(err, errSourceIdentity) {
		for _, p := range mi.mgr.partitions(func(p *Partition) bool { return p.mirror == mi.name }) {
			p.abort(err)
		}
	}
	return err
}

// checkTopics looks for topics that the source deleted, or deleted and created again. A topic has to be missing in two
// refreshes, and then in a list of all, before its partitions fail.
func (mi *mirror) checkTopics(ctx context.Context, names []string, found map[string]*SourceTopic) error {
	var suspects []string
	for _, n := range names {
		t := found[n]
		if t == nil {
			if mi.missing[n]++; mi.missing[n] >= 2 {
				suspects = append(suspects, n)
			}
			continue
		}
		delete(mi.missing, n)
		if own := mi.mgr.topic(n); own != nil && !t.ID.IsZero() && t.ID != own.ID {
			mi.fatal(n, errRecreated(t.ID, own.ID))
		}
	}
	maps.DeleteFunc(mi.missing, func(n string, _ int) bool { return !slices.Contains(names, n) })
	if len(suspects) == 0 {
		return nil
	}
	all, err := mi.source.List(ctx)
	if err != nil {
		return err
	}
	for _, n := range suspects {
		if !slices.ContainsFunc(all, func(t SourceTopic) bool { return t.Name == n }) {
			mi.fatal(n, fmt.Errorf("the source topic was deleted, on cluster %s; milena mirrors stop %s --topics %s makes the copy writable", mi.set().SourceClusterID, mi.name, n))
		}
	}
	return nil
}

func (mi *mirror) fatal(topic string, err error) {
	for _, p := range mi.mgr.partitions(func(p *Partition) bool { return p.mirror == mi.name && p.tp.topic == topic }) {
		p.abort(err)
	}
}

// expand adds the partitions that the source has more. A topic never shrinks.
func (mi *mirror) expand(ctx context.Context, names []string, found map[string]*SourceTopic) error {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 3000
	for _, n := range names {
		src, own := found[n], mi.mgr.topic(n)
		if src == nil || src.Err != nil || own == nil || int(src.Partitions) <= len(own.Partitions) {
			continue
		}
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = n, src.Partitions
		req.Topics = append(req.Topics, rt)
	}
	if len(req.Topics) == 0 {
		return nil
	}
	resp, err := mi.mgr.opts.Controller.Call(ctx, req)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range resp.(*kmsg.CreatePartitionsResponse).Topics {
		if t.ErrorCode != 0 {
			errs = append(errs, api.Errorf(api.Code(t.ErrorCode), "adding partitions to %s: %s", t.Topic, text(t.ErrorMessage)))
		}
	}
	return errors.Join(errs...)
}

// syncConfigs sets on the topics what the source's have set and ours don't have, and returns what they shall have. A key
// that was removed at the source is left alone. A topic that fails does not keep the others from theirs.
func (mi *mirror) syncConfigs(ctx context.Context, topics []string) (map[string]map[string]string, error) {
	source, err := mi.source.TopicConfigs(ctx, topics)
	errs := []error{err}
	exclude := mi.set().TopicConfigsExclude
	img := mi.mgr.image.Load()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	want := map[string]map[string]string{}
	for _, topic := range topics {
		set, ok := source[topic]
		if !ok {
			if err == nil {
				errs = append(errs, fmt.Errorf("the source's answer lacks the configs of topic %s", topic))
			}
			continue
		}
		want[topic] = carried(set, exclude)
		if res := alteration(topic, img.Config(meta.ResourceTopic, topic), want[topic]); len(res.Configs) > 0 {
			req.Resources = append(req.Resources, res)
		}
	}
	if len(req.Resources) > 0 {
		resp, err := mi.mgr.opts.Controller.Call(ctx, req)
		if err != nil {
			return nil, errors.Join(append(errs, err)...)
		}
		for _, r := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
			if r.ErrorCode != 0 {
				errs = append(errs, api.Errorf(api.Code(r.ErrorCode), "configs of topic %s: %s", r.ResourceName, text(r.ErrorMessage)))
			}
		}
	}
	return want, errors.Join(errs...)
}

// carried are the configs of a source topic that are taken over.
func carried(source map[string]string, exclude config.Patterns) map[string]string {
	out := map[string]string{}
	for k, v := range source {
		if !exclude.Match(k) && mirrors.Carried(k) {
			out[k] = v
		}
	}
	return out
}

// alteration sets what a topic lacks of want.
func alteration(topic string, have, want map[string]string) kmsg.IncrementalAlterConfigsRequestResource {
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for _, k := range slices.Sorted(maps.Keys(want)) {
		v := want[k]
		if old, ok := have[k]; ok && old == v {
			continue
		}
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op, c.Value = k, kmsg.IncrementalAlterConfigOpSet, &v
		res.Configs = append(res.Configs, c)
	}
	return res
}

// bumpAhead keeps the leader epochs ahead of the source's (the periodic bump of spec 8.5).
func (mi *mirror) bumpAhead(ctx context.Context, names []string) error {
	least := map[tp]int32{}
	for _, n := range names {
		t := mi.mgr.topic(n)
		if t == nil {
			continue
		}
		for i, p := range t.Partitions {
			if l, ok := mi.source.Leader(n, int32(i)); ok && l.Epoch > p.LeaderEpoch-epochMargin {
				least[tp{n, int32(i)}] = l.Epoch + epochIncrement
			}
		}
	}
	if len(least) == 0 {
		return nil
	}
	return mi.mgr.bumpEpochs(ctx, least)
}

// discover starts the source's topics that the include patterns match and that are not in the mirror yet.
func (mi *mirror) discover(ctx context.Context) error {
	s := mi.set()
	refused := map[string]string{}
	defer func() {
		mi.mu.Lock()
		defer mi.mu.Unlock()
		mi.refused = refused
	}()
	if s.TopicsInclude.Empty() {
		return nil
	}
	all, err := mi.source.List(ctx)
	if err != nil {
		return err
	}
	req := &mirrormsg.StartMirrorTopicsRequest{MirrorName: mi.name, StateOffset: -1, TimeoutMs: int32(s.Client.RequestTimeout.Milliseconds())}
	for _, t := range all {
		if !s.TopicsInclude.Match(t.Name) || s.TopicsExclude.Match(t.Name) {
			continue
		}
		if own := mi.mgr.topic(t.Name); own != nil && own.MirrorName != "" {
			continue
		}
		req.Topics = append(req.Topics, mirrormsg.StartMirrorTopic{TopicID: t.ID, TopicName: t.Name, NumPartitions: t.Partitions})
	}
	if len(req.Topics) == 0 {
		return nil
	}
	resp, err := mi.mgr.opts.Controller.Call(ctx, req)
	if err != nil {
		return err
	}
	r := resp.(*mirrormsg.StartMirrorTopicsResponse)
	var errs []error
	for _, t := range r.Topics {
		if t.ErrorCode != 0 {
			err := api.Errorf(api.Code(t.ErrorCode), "start of topic %s: %s", t.Name, text(t.ErrorMessage))
			errs, refused[t.Name] = append(errs, err), err.Error()
		}
	}
	if len(errs) == 0 && r.ErrorCode != 0 {
		errs = append(errs, api.Errorf(api.Code(r.ErrorCode), "start of found topics: %s", text(r.ErrorMessage)))
	}
	return errors.Join(errs...)
}

// enforceExclude stops topics that the exclude patterns have come to match.
func (mi *mirror) enforceExclude(ctx context.Context, names []string) error {
	req := &mirrormsg.StopMirrorTopicsRequest{MirrorName: mi.name, StateOffset: -1, TimeoutMs: int32(mi.set().Client.RequestTimeout.Milliseconds())}
	for _, n := range names {
		if mi.set().TopicsExclude.Match(n) {
			req.Topics = append(req.Topics, mirrormsg.StopMirrorTopic{TopicName: n})
		}
	}
	if len(req.Topics) == 0 {
		return nil
	}
	resp, err := mi.mgr.opts.Controller.Call(ctx, req)
	if err != nil {
		return err
	}
	r := resp.(*mirrormsg.StopMirrorTopicsResponse)
	if r.ErrorCode != 0 {
		return api.Errorf(api.Code(r.ErrorCode), "stop of excluded topics: %s", text(r.ErrorMessage))
	}
	var errs []error
	for _, t := range r.Topics {
		if t.ErrorCode != 0 {
			errs = append(errs, api.Errorf(api.Code(t.ErrorCode), "stop of excluded topic %s: %s", t.Name, text(t.ErrorMessage)))
		}
	}
	return errors.Join(errs...)
}
