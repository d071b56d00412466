package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

// Features of this release. Raising a level needs every node's support (KIP-584).
const (
	MirrorFeature      = meta.MirrorFeature    // 1: Cluster Mirroring; 2: replicas to be cut are in the metadata
	GroupFeature       = "group.version"       // 1: the consumer group protocol of KIP-848
	TransactionFeature = "transaction.version" // 1 and 2: KIP-890
)

// Features are the levels this release supports, by name. A feature whose level can only be
// 0 isn't there yet: its name is known, so that it can be raised after an upgrade.
func Features() []meta.FeatureRange {
	return []meta.FeatureRange{
		{Name: GroupFeature, Min: 0, Max: 0},
		{Name: meta.MetadataVersionFeature, Min: 7, Max: 33},
		{Name: MirrorFeature, Min: 0, Max: meta.UnalignedLevel},
		{Name: TransactionFeature, Min: 0, Max: 0},
	}
}

// Bootstrap are the first records of a metadata log that was formatted with nothing else
// said: the newest levels (spec D15).
func Bootstrap() []meta.Record {
	recs := []meta.Record{}
	for _, f := range Features() {
		r := &meta.FeatureLevelRecord{Feature: f.Name, Level: f.Max}
		switch {
		case f.Name == meta.MetadataVersionFeature: // it says what may follow
			recs = slices.Insert(recs, 0, meta.Record(r))
		case f.Max > 0:
			recs = append(recs, r)
		}
	}
	return recs
}

// mirrorMetadata is the first metadata.version with leader epochs in PartitionChangeRecords
// (4.4-IV1), without which mirrors could not raise them.
const mirrorMetadata = 32

// FeatureUpdate asks for another level of a feature.
type FeatureUpdate struct {
	Name  string
	Level int16 // 0 removes it
	Kind  FeatureUpdateKind
}

// FeatureUpdateKind says which way a level may go, with the protocol's numbers.
type FeatureUpdateKind int8

// Kinds of updates.
const (
	UpgradeFeature         FeatureUpdateKind = 1
	DowngradeFeature       FeatureUpdateKind = 2 // only if nothing is lost
	UnsafeDowngradeFeature FeatureUpdateKind = 3
)

// UpdateFeatures changes the finalized levels, all of them or none (KIP-1022). The reply is
// an []*api.Error in the order of updates; with any error nothing was changed.
func (s *State) UpdateFeatures(_ time.Time, updates []FeatureUpdate, validateOnly bool) machine.Result {
	img := s.Image()
	errs := make([]*api.Error, len(updates))
	next := img.Features()
	seen := map[string]bool{}
	failed := false
	var recs []meta.Record
	for i, u := range updates {
		if seen[u.Name] {
			errs[i] = api.Errorf(api.InvalidRequest, "feature %s is in the request more than once", u.Name)
		} else {
			errs[i] = s.checkFeatureUpdate(img, u)
		}
		seen[u.Name] = true
		failed = failed || errs[i] != nil
		if next[u.Name] != u.Level {
			recs = append(recs, &meta.FeatureLevelRecord{Feature: u.Name, Level: u.Level})
		}
		next[u.Name] = u.Level
	}
	if level := next[meta.MetadataVersionFeature]; !failed && next[MirrorFeature] > 0 && level < mirrorMetadata {
		for i, u := range updates {
			if u.Name == MirrorFeature || u.Name == meta.MetadataVersionFeature {
				errs[i] = api.Errorf(api.InvalidUpdateVersion, "%s %d needs %s %d or above, and that is at %d",
					MirrorFeature, next[MirrorFeature], meta.MetadataVersionFeature, mirrorMetadata, level)
				failed = true
			}
		}
	}
	if failed || validateOnly {
		return s.result(errs)
	}
	// metadata.version goes up before and down after what needs it.
	slices.SortStableFunc(recs, func(a, b meta.Record) int { return featureOrder(img, a) - featureOrder(img, b) })
	return s.result(errs, recs...)
}

func featureOrder(img *meta.Image, r meta.Record) int {
	f, ok := r.(*meta.FeatureLevelRecord)
	switch {
	case !ok || f.Feature != meta.MetadataVersionFeature:
		return 1
	case f.Level > img.Feature(f.Feature):
		return 0
	default:
		return 2
	}
}

func (s *State) checkFeatureUpdate(img *meta.Image, u FeatureUpdate) *api.Error {
	now := img.Feature(u.Name)
	switch {
	case u.Kind < UpgradeFeature || u.Kind > UnsafeDowngradeFeature:
		return api.Errorf(api.InvalidRequest, "feature %s: upgrade type %d is unknown", u.Name, u.Kind)
	case u.Level < 0:
		return api.Errorf(api.InvalidUpdateVersion, "feature %s: a level can't be below 0", u.Name)
	case !slices.ContainsFunc(s.o.Features, func(f meta.FeatureRange) bool { return f.Name == u.Name }):
		return api.Errorf(api.InvalidUpdateVersion, "feature %s is unknown to the controller", u.Name)
	case u.Level < now && u.Kind == UpgradeFeature:
		return api.Errorf(api.InvalidUpdateVersion, "feature %s is at level %d: going down to %d is a downgrade, which has to be asked for as safe or unsafe", u.Name, now, u.Level)
	case u.Level > now && u.Kind != UpgradeFeature:
		return api.Errorf(api.InvalidUpdateVersion, "feature %s is at level %d: going up to %d is no downgrade", u.Name, now, u.Level)
	case u.Level == now:
		return nil
	}
	if err := s.checkNodes(img, u); err != nil {
		return err
	}
	if u.Name == meta.MetadataVersionFeature && u.Level < now && u.Level < lossless(now) {
		if u.Kind == DowngradeFeature {
			return api.Errorf(api.InvalidUpdateVersion,
				"%s can't go from %d to %d without losing metadata; %d is as low as is safe", u.Name, now, u.Level, lossless(now))
		}
		return api.Errorf(api.InvalidUpdateVersion, "%s can't go from %d to %d: unsafe downgrades of it aren't supported", u.Name, now, u.Level)
	}
	if u.Name == MirrorFeature && u.Level < meta.UnalignedLevel {
		if err := checkAligned(img, u); err != nil {
			return err
		}
	}
	return s.guard(Op{Kind: OpUpdateFeature, Feature: u.Name, Level: u.Level})
}

// checkAligned refuses a level by which it would be forgotten that replicas hold records that their partition has given up.
func checkAligned(img *meta.Image, u FeatureUpdate) *api.Error {
	for t := range img.Topics() {
		for i, p := range t.Partitions {
			for _, un := range p.Unaligned {
				if un.Replica != meta.AnyReplica {
					return api.Errorf(api.InvalidUpdateVersion, "feature %s can't get level %d: replica %d of partition %d of topic %s has to be cut to offset %d when it is back, which that level doesn't know; start the broker, or take it out of the partition",
						u.Name, u.Level, un.Replica, i, t.Name, un.Offset)
				}
			}
		}
	}
	return nil
}

// lossless is the lowest metadata.version that holds all that the given one may have
// written, which is the newest one up to it that changed the records (Kafka's list).
func lossless(level int16) int16 {
	for _, changed := range []int16{33, 32, 30, 23, 17, 15, 14, 13, 11, 8} {
		if changed <= level {
			return changed
		}
	}
	return level
}

// checkNodes checks that every registered node supports the level.
func (s *State) checkNodes(img *meta.Image, u FeatureUpdate) *api.Error {
	refuse := func(node string, list []meta.FeatureRange) *api.Error {
		if why := unsupported(list, u.Name, u.Level); why != "" {
			return api.Errorf(api.InvalidUpdateVersion, "feature %s can't get level %d: %s %s", u.Name, u.Level, node, why)
		}
		return nil
	}
	if err := refuse("this controller", s.o.Features); err != nil {
		return err
	}
	for c := range img.Controllers() {
		if err := refuse(fmt.Sprintf("controller %d", c.ID), c.Features); err != nil {
			return err
		}
	}
	for b := range img.Brokers() {
		if err := refuse(fmt.Sprintf("broker %d", b.ID), b.Features); err != nil {
			return err
		}
	}
	return nil
}

// unsupported says why a node with these ranges doesn't support a level, "" if it does.
// Everybody supports that a feature isn't there.
func unsupported(list []meta.FeatureRange, name string, level int16) string {
	for _, f := range list {
		switch {
		case f.Name != name:
		case level < f.Min || level > f.Max:
			return fmt.Sprintf("supports levels %d to %d", f.Min, f.Max)
		default:
			return ""
		}
	}
	if level == 0 {
		return ""
	}
	return "doesn't know it"
}

// checkFeatures checks that a node that wants to join supports the finalized levels.
func checkFeatures(img *meta.Image, node string, list []meta.FeatureRange) error {
	levels := img.Features()
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		if why := unsupported(list, name, levels[name]); why != "" {
			return api.Errorf(api.UnsupportedVersion, "the cluster has %s at level %d: %s %s", name, levels[name], node, why)
		}
	}
	return nil
}

// ControllerRegistration asks to register a controller (KIP-919).
type ControllerRegistration struct {
	ID          int32
	Incarnation ids.UUID
	Endpoints   []meta.Endpoint
	Features    []meta.FeatureRange
}

// RegisterController notes where a controller is and what it supports. The reply is nil.
func (s *State) RegisterController(_ time.Time, r ControllerRegistration) machine.Result {
	img := s.Image()
	switch {
	case r.ID < 0:
		return machine.Result{Err: api.Errorf(api.InvalidRegistration, "controller id %d is negative", r.ID)}
	case r.Incarnation.IsZero():
		return machine.Result{Err: api.Errorf(api.InvalidRegistration, "controller %d has no incarnation id", r.ID)}
	}
	if err := checkFeatures(img, fmt.Sprintf("controller %d", r.ID), r.Features); err != nil {
		return machine.Result{Err: err}
	}
	features := slices.SortedFunc(slices.Values(r.Features), func(a, b meta.FeatureRange) int { return cmp.Compare(a.Name, b.Name) })
	if c := img.Controller(r.ID); c != nil && c.IncarnationID == r.Incarnation &&
		slices.Equal(c.Endpoints, r.Endpoints) && slices.Equal(c.Features, features) {
		return machine.Result{}
	}
	s.o.Logger.Info("controller registers", "controller", r.ID)
	return s.result(nil, &meta.RegisterControllerRecord{ControllerID: r.ID, IncarnationID: r.Incarnation, EndPoints: r.Endpoints, Features: features})
}

// UnregisterBroker takes a broker out of the cluster; its replicas stay assigned to it. The
// reply is nil, the error BROKER_ID_NOT_REGISTERED if there is no such broker.
func (s *State) UnregisterBroker(_ time.Time, id int32) machine.Result {
	img := s.Image()
	b := img.Broker(id)
	if b == nil {
		return machine.Result{Err: api.Errorf(api.BrokerIDNotRegistered, "broker %d is not registered", id)}
	}
	s.o.Logger.Info("broker is unregistered", "broker", id, "epoch", b.Epoch)
	delete(s.sessions, id)
	if s.timers != nil {
		s.timers.Cancel(sessionTimer(id))
	}
	recs := s.spread(img, event{leaves: id, joins: -1}, nil)
	return s.result(nil, append(recs, &meta.UnregisterBrokerRecord{BrokerID: id, BrokerEpoch: b.Epoch})...)
}
