package meta

import (
	"slices"
	"testing"
)

// 94. Metadata image and delta: a state-change record sets mirror name and desired state of the topic; null mirror name clears them; removal
// of the topic removes them; snapshot round trip keeps them.
func TestScenario94(t *testing.T) {
	d := Empty("c").Draft()
	next := apply(t, d, 0, &TopicRecord{TopicName: "a", TopicID: id(1)}, &PartitionRecord{TopicID: id(1)}, &TopicRecord{TopicName: "b", TopicID: id(2)})
	d.Delta()
	wish := func(topic, mirror string, desired int8, offset int64) {
		t.Helper()
		x := d.Image().TopicByName(topic)
		if x.MirrorName != mirror || x.MirrorDesired != desired || x.MirrorChangeOffset != offset {
			t.Errorf("topic %s: mirror %q, wished state %d, changed at %d; want %q, %d, %d", topic, x.MirrorName, x.MirrorDesired, x.MirrorChangeOffset, mirror, desired, offset)
		}
	}
	// changed is that the delta has topic a alone, without partitions: its wish is all that changed.
	changed := func(before int8) {
		t.Helper()
		delta := d.Delta()
		if len(delta.Topics) != 1 || delta.Topics[0].Topic().Name != "a" || delta.Topics[0].Prev.MirrorDesired != before || len(delta.Topics[0].Partitions) != 0 {
			t.Errorf("the delta has %+v", delta.Topics)
		}
	}
	wish("a", "", MirrorDesiredUnknown, -1)
	next = apply(t, d, next, &MirrorTopicStateChangeRecord{TopicName: "a", MirrorName: ptr("m"), DesiredState: 3, ChangeOffset: -1})
	wish("a", "m", 3, next-1)
	wish("b", "", MirrorDesiredUnknown, -1)
	changed(MirrorDesiredUnknown)
	next = apply(t, d, next, &MirrorTopicStateChangeRecord{TopicName: "a", MirrorName: ptr("m"), DesiredState: 7, ChangeOffset: -1})
	wish("a", "m", 7, next-1)
	changed(3)

	loaded := Empty("c").Draft()
	for r := range d.Image().Records() {
		apply(t, loaded, d.Image().Offset, r)
	}
	if got, want := contents(loaded.Image()), contents(d.Image()); got != want {
		t.Errorf("the snapshot gives\n%s\nthe log\n%s", got, want)
	}
	if delta := Diff(d.Image(), loaded.Image()); len(delta.Topics) != 0 {
		t.Errorf("the snapshot differs in %+v", delta.Topics)
	}

	next = apply(t, d, next, &MirrorTopicStateChangeRecord{TopicName: "a", DesiredState: MirrorDesiredUnknown, ChangeOffset: -1})
	wish("a", "", MirrorDesiredUnknown, -1)
	changed(7)
	next = apply(t, d, next, &MirrorTopicStateChangeRecord{TopicName: "a", MirrorName: ptr("m"), DesiredState: 3, ChangeOffset: -1},
		&RemoveTopicRecord{TopicID: id(1)}, &TopicRecord{TopicName: "a", TopicID: id(3)})
	wish("a", "", MirrorDesiredUnknown, -1)
	// A late record about the topic that was removed says nothing about its successor.
	apply(t, d, next, &MirrorTopicStateChangeRecord{TopicName: "a", TopicID: id(1), MirrorName: ptr("m"), DesiredState: 3, ChangeOffset: -1})
	wish("a", "", MirrorDesiredUnknown, -1)
	if slices.ContainsFunc(slices.Collect(d.Image().Records()), func(r Record) bool { return r.ID() == idMirrorTopicStateChange }) {
		t.Error("a snapshot has the wish of a topic that was removed")
	}
}
