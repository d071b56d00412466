package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"milena/internal/partlog"
)

// A bad history for every rule, and good ones beside them: a checker that can't fail proves nothing.
func TestCheckerCatches(t *testing.T) {
	t0 := time.Unix(1000, 0)
	isr := []int32{1, 2}
	by := vouched{isr, t0, t0}
	zero := func(batchSum) time.Time { return t0 }
	sent3 := func(h *history) {
		for n := range 3 {
			v := fmt.Sprintf("p0-%d", n)
			h.send("t-0", 0, n, v, t0)
			h.ack("t-0", v, int64(n), isr)
		}
	}
	good := []rec{{0, "p0-0"}, {1, "p0-1"}, {2, "p0-2"}}
	a, b := batchSum{0, 2, 1, 7}, batchSum{2, 5, 1, 8}
	for _, c := range []struct {
		rule string // "": no rule is broken
		name string
		bad  func(h *history)
	}{
		{"", "all is well", func(h *history) { sent3(h); h.final("t-0", good) }},
		{"", "what wasn't acknowledged may be missing", func(h *history) {
			sent3(h)
			h.send("t-0", 0, 3, "p0-3", t0)
			h.final("t-0", good)
		}},
		{"lost", "an acknowledged record is missing", func(h *history) { sent3(h); h.final("t-0", good[:2]) }},
		{"lost", "one of two replicas that vouched lost its page cache", func(h *history) {
			sent3(h)
			h.stop(1, t0.Add(1), true)
			h.final("t-0", good[:2])
		}},
		{"", "both did", func(h *history) {
			sent3(h)
			h.stop(1, t0.Add(1), true)
			h.stop(2, t0.Add(2), true)
			h.final("t-0", good[:2])
		}},
		{"lost", "both did, but before", func(h *history) {
			sent3(h)
			h.stop(1, t0.Add(-1), true)
			h.stop(2, t0.Add(-1), true)
			h.final("t-0", good[:2])
		}},
		{"lost", "both processes were killed, which loses nothing", func(h *history) {
			sent3(h)
			h.stop(1, t0.Add(1), false)
			h.stop(2, t0.Add(2), false)
			h.final("t-0", good[:2])
		}},
		{"", "a last known leader was elected when all that were in sync had lost their page caches", func(h *history) {
			sent3(h)
			h.stop(1, t0.Add(1), true)
			h.elect("t-0", t0.Add(2), []int32{1})
			h.final("t-0", good[:2])
		}},
		{"lost", "a last known leader was elected though another was whole", func(h *history) {
			sent3(h)
			h.stop(1, t0.Add(1), true)
			h.elect("t-0", t0.Add(2), []int32{1, 2})
			h.final("t-0", good[:2])
		}},
		{"lost", "that election came before the record", func(h *history) {
			sent3(h)
			h.stop(1, t0.Add(-2), true)
			h.elect("t-0", t0.Add(-1), []int32{1})
			h.final("t-0", good[:2])
		}},
		{"lost", "a consumer is told that what it read is gone", func(h *history) {
			sent3(h)
			h.consume("t-0", 2, 3, "p0-2", isr)
			h.gone("t-0", 3, "OFFSET_OUT_OF_RANGE")
		}},
		{"repeated", "a record is there twice", func(h *history) { sent3(h); h.final("t-0", append(slices.Clone(good), rec{3, "p0-2"})) }},
		{"order", "two records changed places", func(h *history) {
			sent3(h)
			h.send("t-0", 0, 3, "p0-3", t0)
			h.send("t-0", 0, 4, "p0-4", t0)
			h.final("t-0", append(slices.Clone(good), rec{3, "p0-4"}, rec{4, "p0-3"}))
		}},
		{"unknown", "a record that nobody sent", func(h *history) { sent3(h); h.final("t-0", append(slices.Clone(good), rec{3, "?"})) }},
		{"unknown", "an answer that nobody asked for", func(h *history) { h.ack("t-0", "?", 1, isr) }},
		{"moved", "a record is not where it was acknowledged", func(h *history) {
			sent3(h)
			h.final("t-0", []rec{{0, "p0-0"}, {1, "p0-1"}, {3, "p0-2"}})
		}},
		{"", "replicas agree", func(h *history) {
			h.replica("t-0", 1, []batchSum{a, b}, isr, zero)
			h.replica("t-0", 2, []batchSum{a, b}, isr, zero)
		}},
		{"replicas", "another content at an offset", func(h *history) {
			h.replica("t-0", 1, []batchSum{a, b}, isr, zero)
			h.replica("t-0", 2, []batchSum{a, {2, 5, 1, 9}}, isr, zero)
		}},
		{"replicas", "another epoch", func(h *history) {
			h.replica("t-0", 1, []batchSum{a, b}, isr, zero)
			h.replica("t-0", 2, []batchSum{a, {2, 5, 2, 8}}, isr, zero)
		}},
		{"replicas", "another cut", func(h *history) {
			h.replica("t-0", 1, []batchSum{a, b}, isr, zero)
			h.replica("t-0", 2, []batchSum{{0, 3, 1, 7}}, isr, zero)
		}},
		{"replicas", "a batch where the other's has none that begins there", func(h *history) {
			h.replica("t-0", 1, []batchSum{a, b}, isr, zero)
			h.replica("t-0", 2, []batchSum{{3, 5, 1, 7}}, isr, zero)
		}},
		{"changed", "a consumer saw something else", func(h *history) {
			sent3(h)
			h.consume("t-0", 1, 3, "p0-1", isr)
			h.consume("t-0", 1, 3, "p0-2", isr)
		}},
		{"changed", "the log holds something else", func(h *history) {
			sent3(h)
			h.send("t-0", 1, 0, "p1-0", t0)
			h.consume("t-0", 1, 3, "p1-0", isr)
			h.final("t-0", good)
		}},
		{"above", "a consumer saw the high watermark", func(h *history) { sent3(h); h.consume("t-0", 2, 2, "p0-2", isr) }},
		{"", "epochs grow and the cache says so", func(h *history) {
			h.log("t-0", 1, []batchSum{a, b, {5, 6, 4, 1}}, 0, []partlog.EpochEntry{{Epoch: 1, Start: 0}, {Epoch: 4, Start: 5}})
		}},
		{"epochs", "an epoch decreases", func(h *history) {
			h.log("t-0", 1, []batchSum{{0, 2, 3, 7}, b}, 0, []partlog.EpochEntry{{Epoch: 3, Start: 0}, {Epoch: 1, Start: 2}})
		}},
		{"cache", "the cache lacks an epoch", func(h *history) {
			h.log("t-0", 1, []batchSum{a, {2, 5, 2, 8}}, 0, []partlog.EpochEntry{{Epoch: 1, Start: 0}})
		}},
		{"cache", "the cache has an epoch without batches", func(h *history) {
			h.log("t-0", 1, []batchSum{a}, 0, []partlog.EpochEntry{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 2}})
		}},
		{"cache", "an epoch begins elsewhere", func(h *history) {
			h.log("t-0", 1, []batchSum{a, {2, 5, 2, 8}}, 0, []partlog.EpochEntry{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 3}})
		}},
		{"", "committed offsets grow", func(h *history) {
			h.tryCommit("g", 5)
			h.ackCommit("g", 1, 5, by)
			h.tryCommit("g", 9)
			h.fetched("g", t0.Add(1), 1, 9, by)
			h.fetched("g", t0.Add(2), 2, 9, by)
		}},
		{"offset", "a committed offset went back", func(h *history) {
			h.tryCommit("g", 5)
			h.ackCommit("g", 1, 5, by)
			h.fetched("g", t0.Add(1), 1, 3, by)
		}},
		{"offset", "a committed offset is gone with its coordinator", func(h *history) {
			h.tryCommit("g", 5)
			h.ackCommit("g", 1, 5, by)
			h.fetched("g", t0.Add(1), 2, -1, by)
		}},
		{"", "a coordinator that was replaced a moment ago", func(h *history) {
			h.tryCommit("g", 5)
			h.ackCommit("g", 2, 5, by)
			h.fetched("g", t0.Add(time.Second), 1, 3, by)
		}},
		{"offset", "a coordinator that was replaced long ago", func(h *history) {
			h.tryCommit("g", 5)
			h.ackCommit("g", 2, 5, by)
			h.fetched("g", t0.Add(time.Minute), 1, 3, by)
		}},
		{"offset", "what was read once went back", func(h *history) {
			h.tryCommit("g", 5)
			h.fetched("g", t0.Add(1), 1, 5, by)
			h.fetched("g", t0.Add(2), 2, 4, by)
		}},
		{"offset", "an offset that nobody committed", func(h *history) { h.tryCommit("g", 5); h.fetched("g", t0, 1, 6, by) }},
		{"leaders", "two controllers in one epoch", func(h *history) { h.lead(0, 3); h.lead(1, 4); h.lead(2, 3) }},
		{"metadata", "two images of one offset", func(h *history) { h.metadata(4, 1); h.metadata(5, 2); h.metadata(4, 3) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var broken []string
			h := newHistory(func(rule, format string, args ...any) { broken = append(broken, rule) })
			h.now = func() time.Time { return t0 }
			c.bad(h)
			if c.rule == "" && len(broken) > 0 || c.rule != "" && !slices.Contains(broken, c.rule) {
				t.Errorf("broken rules: %v, want %q", broken, c.rule)
			}
		})
	}
}
