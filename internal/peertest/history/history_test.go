package history

import (
	"strings"
	"testing"
)

// sound is a history in which all is well: two partitions, two producers, one group.
func sound() (*History, map[int32]int64, *ReadBack, *ReadBack) {
	h := New()
	a, b := NewReadBack("franz-go"), NewReadBack("librdkafka")
	for _, r := range []struct {
		at Place
		id RecordID
	}{
		{Place{0, 0}, "f0.0"}, {Place{0, 1}, "7.0"}, {Place{0, 2}, "f0.1"}, {Place{1, 0}, "7.1"}, {Place{1, 1}, "7.3"},
	} {
		if r.id != "7.3" { // which nobody was told about
			h.Ack(r.id, r.at)
		}
		h.Read("g", r.at, r.id)
		a.Add(r.at, r.id)
		b.Add(r.at, r.id)
	}
	h.Commit("g", 0, 3)
	return h, map[int32]int64{0: 3, 1: 2}, a, b
}

func TestCheckFindsWhatIsBroken(t *testing.T) {
	for _, tt := range []struct {
		name string
		harm func(h *History, ends map[int32]int64, a, b *ReadBack)
		want string
	}{
		{"sound", func(*History, map[int32]int64, *ReadBack, *ReadBack) {}, ""},
		{"lost at the end", func(h *History, _ map[int32]int64, _, _ *ReadBack) { h.Ack("7.4", Place{1, 2}) }, "record 7.4, acknowledged at 1@2, is lost"},
		{"replaced", func(h *History, _ map[int32]int64, _, _ *ReadBack) { h.Ack("f0.2", Place{0, 2}) }, "record f0.2, acknowledged at 0@2, is lost; there is \"f0.1\""},
		{"elsewhere", func(h *History, _ map[int32]int64, _, _ *ReadBack) { h.acked["7.1"] = Place{1, 1} }, "record 7.1 was acknowledged at 1@1 and is at 1@0"},
		{"not told the offset", func(h *History, _ map[int32]int64, _, _ *ReadBack) { h.acked["7.1"] = Place{1, -1} }, ""},
		{"twice in the log", func(h *History, ends map[int32]int64, a, b *ReadBack) {
			ends[1] = 3
			h.Read("g", Place{1, 2}, "7.1")
			a.Add(Place{1, 2}, "7.1")
			b.Add(Place{1, 2}, "7.1")
		}, "record 7.1 is there twice, at 1@0 and 1@2"},
		{"out of order", func(h *History, ends map[int32]int64, a, b *ReadBack) {
			ends[1] = 3
			h.Read("g", Place{1, 2}, "7.2")
			a.Add(Place{1, 2}, "7.2")
			b.Add(Place{1, 2}, "7.2")
		}, "out of order: record 7.2 at 1@2 stands behind 7.3"},
		{"a gap", func(_ *History, ends map[int32]int64, a, _ *ReadBack) {
			ends[1] = 4
			a.Add(Place{1, 3}, "7.5")
		}, "franz-go read offset 3 of partition 1 where 2 comes next"},
		{"read twice", func(_ *History, _ map[int32]int64, a, _ *ReadBack) { a.Add(Place{1, 1}, "7.3") }, "read offset 1 of partition 1 where 2 comes next"},
		{"clients differ", func(_ *History, _ map[int32]int64, _, b *ReadBack) { b.records[0][1].id = "7.9" }, `franz-go and librdkafka read different logs: at 0@1 "7.0" and "7.9"`},
		{"read and gone", func(h *History, _ map[int32]int64, _, _ *ReadBack) { h.Read("g", Place{1, 2}, "7.8") }, `group g read record 7.8 at 1@2, where now is ""`},
		{"never read", func(h *History, _ map[int32]int64, _, _ *ReadBack) { delete(h.reads["g"], Place{0, 1}) }, "group g was never given 1 of 5 records"},
		{"a Place changes", func(h *History, _ map[int32]int64, _, _ *ReadBack) { h.Read("g", Place{0, 1}, "7.7") }, "group g read 7.0 at 0@1, and later 7.7 there"},
		{"commits go back", func(h *History, _ map[int32]int64, _, _ *ReadBack) { h.Commit("g", 0, 2) }, "committed offset of group g for partition 0 went back from 3 to 2"},
		{"acknowledged twice", func(h *History, _ map[int32]int64, _, _ *ReadBack) { h.Ack("7.0", Place{0, 1}) }, "record 7.0 was acknowledged twice"},
		{"a stranger", func(h *History, ends map[int32]int64, a, b *ReadBack) {
			ends[1] = 3
			h.Read("g", Place{1, 2}, "x")
			a.Add(Place{1, 2}, "x")
			b.Add(Place{1, 2}, "x")
		}, `"x" is no record of this test`},
	} {
		h, ends, a, b := sound()
		tt.harm(h, ends, a, b)
		got := strings.Join(h.Check(ends, a, b), "\n")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: check says %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestHistoryReadsVerifiableLines(t *testing.T) {
	h := New()
	for _, l := range []string{
		`{"timestamp":1,"name":"producer_send_success","key":"3","value":"7.12","offset":5,"topic":"chaos","partition":2}`,
		`{"timestamp":1,"name":"producer_send_error","key":"3","value":"7.13","topic":"chaos","exception":"class X","message":"m"}`,
		`{"timestamp":1,"name":"record_data","key":null,"value":"f2.1 padding","topic":"chaos","partition":2,"offset":4}`,
		`{"name":"broken_promise","message":"OUT_OF_ORDER_SEQUENCE"}`,
	} {
		if !h.Line("java", "g", l) {
			t.Errorf("%s was not taken", l)
		}
	}
	if h.Line("java", "g", "[main] WARN something {") {
		t.Error("a log line was taken")
	}
	if h.acked["7.12"] != (Place{2, 5}) || h.failed["java"] != 1 || h.reads["g"][Place{2, 4}] != "f2.1" || len(h.broken) != 1 {
		t.Errorf("%+v", h)
	}
}
