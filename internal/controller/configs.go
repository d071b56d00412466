package controller

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"milena/internal/api"
	"milena/internal/machine"
	"milena/internal/meta"
)

// ConfigOp is what to do with a config entry, with the protocol's numbers.
type ConfigOp int8

// Operations of IncrementalAlterConfigs (KIP-339).
const (
	SetConfig      ConfigOp = 0
	DeleteConfig   ConfigOp = 1
	AppendConfig   ConfigOp = 2
	SubtractConfig ConfigOp = 3
)

// ConfigChange changes one entry of a resource.
type ConfigChange struct {
	Key   string
	Op    ConfigOp
	Value *string
}

// AlterResource changes the configs of one resource.
type AlterResource struct {
	Resource meta.Resource
	Changes  []ConfigChange
	// Replace removes all entries that Changes doesn't set: the old AlterConfigs.
	Replace bool
	// Internal: the cluster itself asks, the guards are not.
	Internal bool
}

// AlterConfigs changes the configs of each resource whose changes are all valid. The reply
// is a []*api.Error in the order of resources.
func (s *State) AlterConfigs(_ time.Time, resources []AlterResource, validateOnly bool) machine.Result {
	count := map[meta.Resource]int{}
	for _, r := range resources {
		count[r.Resource]++
	}
	errs := make([]*api.Error, len(resources))
	var recs []meta.Record
	for i, r := range resources {
		if count[r.Resource] > 1 {
			errs[i] = api.Errorf(api.InvalidRequest, "each resource may be in a request only once, %s is not", resourceText(r.Resource))
			continue
		}
		add, err := s.PlanConfigs(r)
		errs[i] = err
		recs = append(recs, add...)
	}
	if validateOnly {
		recs = nil
	}
	return s.result(errs, recs...)
}

// PlanConfigs returns the records that change an existing resource's configs. Entries that have the value already give no record.
func (s *State) PlanConfigs(r AlterResource) ([]meta.Record, *api.Error) {
	img := s.Image()
	if err := checkResource(img, r.Resource); err != nil {
		return nil, err
	}
	next, err := s.changed(img, r)
	if err != nil {
		return nil, err
	}
	have := img.Config(r.Resource.Type, r.Resource.Name)
	var recs []meta.Record
	var keys []string
	all := maps.Clone(have)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, next)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		old, had := have[key]
		value, has := next[key]
		if had == has && old == value {
			continue
		}
		keys = append(keys, key)
		rec := &meta.ConfigRecord{ResourceType: r.Resource.Type, ResourceName: r.Resource.Name, Key: key}
		if !has && key == minISRKey && r.Resource == (meta.Resource{Type: meta.ResourceBroker}) {
			// Leaders would go by their properties files again, and the controller by its own.
			return nil, api.Errorf(api.InvalidConfig, "the cluster-wide %s can't be removed, set it to another value", minISRKey)
		}
		if has {
			if err := s.Validate(r.Resource.Type, r.Resource.Name, key, value); err != nil {
				return nil, configError(err)
			}
			rec.Value = &value
		}
		recs = append(recs, rec)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	if err := s.o.Configs.ValidateAll(r.Resource.Type, r.Resource.Name, next); err != nil {
		return nil, configError(err)
	}
	if r.Resource.Type == meta.ResourceTopic && slices.Contains(keys, cleanupKey) {
		if err := checkCleanup(r.Resource.Name, next); err != nil {
			return nil, err
		}
	}
	if r.Resource.Type == meta.ResourceClusterMirror && len(next) == 0 {
		return nil, api.Errorf(api.InvalidRequest, "%s must keep at least one config, since it exists by having any; delete the mirror instead", resourceText(r.Resource))
	}
	recs = append(recs, s.elrChanges(img, r.Resource, keys, next)...)
	if slices.Contains(keys, uncleanKey) {
		s.soon(uncleanTimer, 0, s.electLeaderless) // when the change has been applied
	}
	if r.Internal {
		return recs, nil
	}
	op := Op{Kind: OpAlterConfigs, Resource: r.Resource, Keys: keys}
	if r.Resource.Type == meta.ResourceTopic {
		op.Topic = img.TopicByName(r.Resource.Name)
	}
	if err := s.guard(op); err != nil {
		return nil, err
	}
	return recs, nil
}

// elrChanges are the partitions whose ISR suffices by a new min.insync.replicas: their high
// watermark moves again, so what left the ISR is no longer eligible (KIP-966).
func (s *State) elrChanges(img *meta.Image, r meta.Resource, keys []string, next map[string]string) []meta.Record {
	if !slices.Contains(keys, minISRKey) {
		return nil
	}
	var recs []meta.Record
	change := func(t *meta.Topic, value string) {
		for i, p := range t.Partitions {
			if len(p.ELR) == 0 || p.Leader == meta.NoLeader {
				continue
			}
			c := s.plan(img, t, int32(i))
			c.minISR = s.parseMinISR(value)
			if rec := c.record(); rec != nil {
				recs = append(recs, rec)
			}
		}
	}
	cluster := img.Config(meta.ResourceBroker, "")[minISRKey]
	switch {
	case r.Type == meta.ResourceTopic:
		value, ok := next[minISRKey]
		if !ok {
			value = cluster
		}
		change(img.TopicByName(r.Name), value)
	case r.Type == meta.ResourceBroker && r.Name == "":
		for t := range img.Topics() {
			if _, own := img.Config(meta.ResourceTopic, t.Name)[minISRKey]; !own {
				change(t, next[minISRKey])
			}
		}
	}
	return recs
}

// changed returns the resource's entries as the changes make them.
func (s *State) changed(img *meta.Image, r AlterResource) (map[string]string, *api.Error) {
	next := map[string]string{}
	if !r.Replace {
		maps.Copy(next, img.Config(r.Resource.Type, r.Resource.Name))
	}
	seen := map[string]bool{}
	given := map[string]string{}
	for _, c := range r.Changes {
		name := c.Key
		c.Key = s.o.Configs.Canonical(r.Resource.Type, name)
		if first, ok := given[c.Key]; ok && first != name {
			return nil, errBothNames(first, name)
		}
		given[c.Key] = name
		if seen[c.Key] {
			return nil, api.Errorf(api.InvalidRequest, "config %s of %s is changed more than once", c.Key, resourceText(r.Resource))
		}
		seen[c.Key] = true
		if err := s.change(next, r.Resource, c); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// errBothNames is the error of one config given by two names.
func errBothNames(a, b string) *api.Error {
	return api.Errorf(api.InvalidConfig, "%s and %s are one config by two names: give one of them", a, b)
}

// canonical are a new topic's configs by the names that they are stored under.
func (s *State) canonical(configs map[string]*string) (map[string]*string, *api.Error) {
	out := make(map[string]*string, len(configs))
	given := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		key := s.o.Configs.Canonical(meta.ResourceTopic, name)
		if first, ok := given[key]; ok {
			return nil, errBothNames(first, name)
		}
		out[key], given[key] = configs[name], name
	}
	return out, nil
}

func (s *State) change(entries map[string]string, r meta.Resource, c ConfigChange) *api.Error {
	if c.Op == DeleteConfig {
		delete(entries, c.Key)
		return nil
	}
	if c.Value == nil {
		return api.Errorf(api.InvalidRequest, "config %s of %s has a null value", c.Key, resourceText(r))
	}
	if err := checkLength(c.Key, *c.Value); err != nil {
		return configError(err)
	}
	switch c.Op {
	case SetConfig:
		entries[c.Key] = *c.Value
		// A value that is set is checked even if it is there already.
		if err := s.Validate(r.Type, r.Name, c.Key, *c.Value); err != nil {
			return configError(err)
		}
		return nil
	case AppendConfig, SubtractConfig:
	default:
		return api.Errorf(api.InvalidRequest, "config %s of %s: operation %d is unknown", c.Key, resourceText(r), c.Op)
	}
	def, ok := s.o.Configs.List(r.Type, c.Key)
	if !ok {
		return api.Errorf(api.InvalidConfig, "config %s is no list, nothing can be appended or subtracted", c.Key)
	}
	current, has := entries[c.Key]
	if !has {
		current = def
	}
	list := splitList(current)
	for _, item := range splitList(*c.Value) {
		switch i := slices.Index(list, item); {
		case c.Op == AppendConfig && i < 0:
			list = append(list, item)
		case c.Op == SubtractConfig && i >= 0:
			list = slices.Delete(list, i, i+1)
		}
	}
	entries[c.Key] = strings.Join(list, ",")
	return nil
}

func splitList(s string) []string {
	var out []string
	for _, item := range strings.Split(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// checkResource checks that there is such a resource to configure.
func checkResource(img *meta.Image, r meta.Resource) *api.Error {
	switch r.Type {
	case meta.ResourceTopic:
		if img.TopicByName(r.Name) == nil {
			if err := CheckTopicName(r.Name); err != nil {
				return err
			}
			return api.Errorf(api.UnknownTopicOrPartition, "there is no topic %s", r.Name)
		}
	case meta.ResourceBroker:
		if r.Name == "" {
			return nil // the default of all brokers
		}
		id, err := strconv.ParseInt(r.Name, 10, 32)
		if err != nil {
			return api.Errorf(api.InvalidRequest, "broker id %q is no number", r.Name)
		}
		if img.Broker(int32(id)) == nil {
			return api.Errorf(api.BrokerIDNotRegistered, "broker %d is not registered", id)
		}
	case meta.ResourceClusterMirror:
		if len(img.Config(r.Type, r.Name)) == 0 { // spec 6.1: it exists if it has a config
			return api.Errorf(api.UnknownClusterMirror, "there is no mirror %q", r.Name)
		}
	case meta.ResourceGroup, meta.ResourceClientMetrics:
		if r.Name == "" {
			return api.Errorf(api.InvalidRequest, "%s needs a name", resourceText(r))
		}
	default:
		return api.Errorf(api.InvalidRequest, "configs of resource type %d can't be changed here", r.Type)
	}
	return nil
}

func resourceText(r meta.Resource) string {
	kind := map[int8]string{
		meta.ResourceTopic: "topic", meta.ResourceBroker: "broker", meta.ResourceGroup: "group",
		meta.ResourceClientMetrics: "client metrics", meta.ResourceClusterMirror: "mirror",
	}[r.Type]
	if kind == "" {
		kind = fmt.Sprintf("resource of type %d", r.Type)
	}
	return kind + " " + strconv.Quote(r.Name)
}
