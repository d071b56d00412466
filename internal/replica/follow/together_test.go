package follow

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
)

// A loop syncs and appends to many partitions at once, so that their syncs come together; a core by itself goes one by one, in order.
func TestSideBySide(t *testing.T) {
	c := NewCore(1, 2, func() Settings { return Settings{} }, slog.New(slog.DiscardHandler))
	var order []int
	c.each(5, func(i int) { order = append(order, i) })
	if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
		t.Errorf("one by one: %v", order)
	}
	l := newLoop(&Fetchers{o: Options{NodeID: 1, Settings: c.settings}, log: c.log}, loopKey{leader: 2})
	const n = 3 * sideBySide
	var mu sync.Mutex
	at, most := 0, 0
	full := make(chan struct{}) // closed when as many run as may
	done := make([]bool, n)
	l.core.each(n, func(i int) {
		mu.Lock()
		at++
		if most = max(most, at); at == sideBySide {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		<-full
		mu.Lock()
		at--
		done[i] = true
		mu.Unlock()
	})
	if most != sideBySide || slices.Contains(done, false) {
		t.Errorf("%d at once, want %d; done: %v", most, sideBySide, done)
	}
}
