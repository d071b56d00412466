package meta

import (
	"maps"
	"slices"

	"milena/internal/ids"
)

// Diff compares two whole images, for when no delta led from one to the other (a snapshot
// was loaded). It costs what the images hold. What is equal in content counts as
// unchanged.
func Diff(prev, next *Image) *Delta {
	out := &Delta{Prev: prev, Next: next}
	touched := map[ids.UUID]map[int32]struct{}{}
	for t := range prev.Topics() {
		if next.TopicByID(t.ID) == nil {
			touched[t.ID] = nil
		}
	}
	for t := range next.Topics() {
		old := prev.TopicByID(t.ID)
		parts := map[int32]struct{}{}
		for i, p := range t.Partitions {
			if o := old.Partition(int32(i)); o == nil || !o.equal(p) {
				parts[int32(i)] = struct{}{}
			}
		}
		if old != nil && again(old, t) {
			for i := range t.Partitions {
				parts[int32(i)] = struct{}{}
			}
		}
		if old == nil || len(parts) > 0 || !old.sameMirror(t) {
			touched[t.ID] = parts
		}
	}
	out.addTopics(touched)
	out.diffConfigs()
	out.diffBrokers()
	out.diffControllers()
	out.diffFeatures()
	return out
}

func (out *Delta) diffConfigs() {
	seen := map[string]Resource{}
	for _, img := range []*Image{out.Prev, out.Next} {
		img.configs.Scan(func(key string, c configs) bool { seen[key] = c.resource; return true })
	}
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		r := seen[key]
		if !maps.Equal(out.Prev.Config(r.Type, r.Name), out.Next.Config(r.Type, r.Name)) {
			out.Configs = append(out.Configs, r)
		}
	}
}

func (out *Delta) diffBrokers() {
	seen := map[int32]struct{}{}
	for _, img := range []*Image{out.Prev, out.Next} {
		for b := range img.Brokers() {
			seen[b.ID] = struct{}{}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		a, b := out.Prev.Broker(id), out.Next.Broker(id)
		if a == nil || b == nil || !a.equal(b) {
			out.Brokers = append(out.Brokers, id)
		}
	}
}

func (out *Delta) diffControllers() {
	seen := map[int32]struct{}{}
	for _, img := range []*Image{out.Prev, out.Next} {
		for c := range img.Controllers() {
			seen[c.ID] = struct{}{}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		a, b := out.Prev.Controller(id), out.Next.Controller(id)
		if a == nil || b == nil || a.IncarnationID != b.IncarnationID ||
			!slices.Equal(a.Endpoints, b.Endpoints) || !slices.Equal(a.Features, b.Features) {
			out.Controllers = append(out.Controllers, id)
		}
	}
}

func (out *Delta) diffFeatures() {
	all := out.Prev.Features()
	maps.Copy(all, out.Next.Features())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if out.Prev.Feature(name) != out.Next.Feature(name) {
			out.Features = append(out.Features, name)
		}
	}
}

func (t *Topic) sameMirror(o *Topic) bool {
	return t.MirrorName == o.MirrorName && t.MirrorDesired == o.MirrorDesired &&
		t.MirrorChangeOffset == o.MirrorChangeOffset
}

func (p *Partition) equal(o *Partition) bool {
	return p.Leader == o.Leader && p.LeaderEpoch == o.LeaderEpoch && p.PartitionEpoch == o.PartitionEpoch &&
		p.LeaderRecoveryState == o.LeaderRecoveryState &&
		slices.Equal(p.Replicas, o.Replicas) && slices.Equal(p.ISR, o.ISR) && slices.Equal(p.Dirs, o.Dirs) &&
		slices.Equal(p.ELR, o.ELR) && slices.Equal(p.LastKnownELR, o.LastKnownELR) &&
		slices.Equal(p.Adding, o.Adding) && slices.Equal(p.Removing, o.Removing) && slices.Equal(p.Unaligned, o.Unaligned)
}

func (b *Broker) equal(o *Broker) bool {
	return b.Epoch == o.Epoch && b.IncarnationID == o.IncarnationID && b.Fenced == o.Fenced &&
		b.ShuttingDown == o.ShuttingDown && sameString(b.Rack, o.Rack) &&
		slices.Equal(b.Endpoints, o.Endpoints) && slices.Equal(b.Features, o.Features) &&
		slices.Equal(b.LogDirs, o.LogDirs) && slices.Equal(b.CordonedDirs, o.CordonedDirs)
}

func sameString(a, b *string) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}
