package main

import (
	"strings"
	"testing"
)

// sound is a history in which all is well: two partitions, two producers, one group.
func sound() (*history, map[int32]int64, *readBack, *readBack) {
	h := newHistory()
	a, b := newReadBack("franz-go"), newReadBack("librdkafka")
	for _, r := range []struct {
		at place
		id recordID
	}{
		{place{0, 0}, "f0.0"}, {place{0, 1}, "7.0"}, {place{0, 2}, "f0.1"}, {place{1, 0}, "7.1"}, {place{1, 1}, "7.3"},
	} {
		if r.id != "7.3" { // which nobody was told about
			h.ack(r.id, r.at)
		}
		h.read("g", r.at, r.id)
		a.add(r.at, r.id)
		b.add(r.at, r.id)
	}
	h.commit("g", 0, 3)
	return h, map[int32]int64{0: 3, 1: 2}, a, b
}

func TestCheckFindsWhatIsBroken(t *testing.T) {
	for _, tt := range []struct {
		name string
		harm func(h *history, ends map[int32]int64, a, b *readBack)
		want string
	}{
		{"sound", func(*history, map[int32]int64, *readBack, *readBack) {}, ""},
		{"lost at the end", func(h *history, _ map[int32]int64, _, _ *readBack) { h.ack("7.4", place{1, 2}) }, "record 7.4, acknowledged at 1@2, is lost"},
		{"replaced", func(h *history, _ map[int32]int64, _, _ *readBack) { h.ack("f0.2", place{0, 2}) }, "record f0.2, acknowledged at 0@2, is lost; there is \"f0.1\""},
		{"elsewhere", func(h *history, _ map[int32]int64, _, _ *readBack) { h.acked["7.1"] = place{1, 1} }, "record 7.1 was acknowledged at 1@1 and is at 1@0"},
		{"not told the offset", func(h *history, _ map[int32]int64, _, _ *readBack) { h.acked["7.1"] = place{1, -1} }, ""},
		{"twice in the log", func(h *history, ends map[int32]int64, a, b *readBack) {
			ends[1] = 3
			h.read("g", place{1, 2}, "7.1")
			a.add(place{1, 2}, "7.1")
			b.add(place{1, 2}, "7.1")
		}, "record 7.1 is there twice, at 1@0 and 1@2"},
		{"out of order", func(h *history, ends map[int32]int64, a, b *readBack) {
			ends[1] = 3
			h.read("g", place{1, 2}, "7.2")
			a.add(place{1, 2}, "7.2")
			b.add(place{1, 2}, "7.2")
		}, "out of order: record 7.2 at 1@2 stands behind 7.3"},
		{"a gap", func(_ *history, ends map[int32]int64, a, _ *readBack) {
			ends[1] = 4
			a.add(place{1, 3}, "7.5")
		}, "franz-go read offset 3 of partition 1 where 2 comes next"},
		{"read twice", func(_ *history, _ map[int32]int64, a, _ *readBack) { a.add(place{1, 1}, "7.3") }, "read offset 1 of partition 1 where 2 comes next"},
		{"clients differ", func(_ *history, _ map[int32]int64, _, b *readBack) { b.records[0][1].id = "7.9" }, `franz-go and librdkafka read different logs: at 0@1 "7.0" and "7.9"`},
		{"read and gone", func(h *history, _ map[int32]int64, _, _ *readBack) { h.read("g", place{1, 2}, "7.8") }, `group g read record 7.8 at 1@2, where now is ""`},
		{"never read", func(h *history, _ map[int32]int64, _, _ *readBack) { delete(h.reads["g"], place{0, 1}) }, "group g was never given 1 of 5 records"},
		{"a place changes", func(h *history, _ map[int32]int64, _, _ *readBack) { h.read("g", place{0, 1}, "7.7") }, "group g read 7.0 at 0@1, and later 7.7 there"},
		{"commits go back", func(h *history, _ map[int32]int64, _, _ *readBack) { h.commit("g", 0, 2) }, "committed offset of group g for partition 0 went back from 3 to 2"},
		{"acknowledged twice", func(h *history, _ map[int32]int64, _, _ *readBack) { h.ack("7.0", place{0, 1}) }, "record 7.0 was acknowledged twice"},
		{"a stranger", func(h *history, ends map[int32]int64, a, b *readBack) {
			ends[1] = 3
			h.read("g", place{1, 2}, "x")
			a.add(place{1, 2}, "x")
			b.add(place{1, 2}, "x")
		}, `"x" is no record of this test`},
	} {
		h, ends, a, b := sound()
		tt.harm(h, ends, a, b)
		got := strings.Join(h.check(ends, a, b), "\n")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: check says %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestHistoryReadsVerifiableLines(t *testing.T) {
	h := newHistory()
	for _, l := range []string{
		`{"timestamp":1,"name":"producer_send_success","key":"3","value":"7.12","offset":5,"topic":"chaos","partition":2}`,
		`{"timestamp":1,"name":"producer_send_error","key":"3","value":"7.13","topic":"chaos","exception":"class X","message":"m"}`,
		`{"timestamp":1,"name":"record_data","key":null,"value":"f2.1 padding","topic":"chaos","partition":2,"offset":4}`,
		`{"name":"broken_promise","message":"OUT_OF_ORDER_SEQUENCE"}`,
	} {
		if !h.line("java", "g", l) {
			t.Errorf("%s was not taken", l)
		}
	}
	if h.line("java", "g", "[main] WARN something {") {
		t.Error("a log line was taken")
	}
	if h.acked["7.12"] != (place{2, 5}) || h.failed["java"] != 1 || h.reads["g"][place{2, 4}] != "f2.1" || len(h.broken) != 1 {
		t.Errorf("%+v", h)
	}
}
