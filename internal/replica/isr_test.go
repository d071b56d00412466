package replica

import "testing"

func TestCommitted(t *testing.T) {
	at := func(ends ...int64) map[int32]*follower {
		m := map[int32]*follower{}
		for i, e := range ends {
			m[int32(i+2)] = &follower{end: e}
		}
		return m
	}
	for _, c := range []struct {
		name      string
		end       int64
		isr       []int32
		followers map[int32]*follower
		want      int64
	}{
		{"alone", 7, []int32{1}, nil, 7},
		{"alone in the ISR, a follower lags", 7, []int32{1}, at(3), 7},
		{"the slowest in-sync replica decides", 7, []int32{1, 2, 3}, at(5, 6), 5},
		{"out of sync doesn't hold back", 7, []int32{1, 3}, at(0, 6), 6},
		{"a follower ahead doesn't push", 7, []int32{1, 2}, at(9), 7},
		{"unknown follower", 7, []int32{1, 2}, at(-1), -1},
		{"in the ISR but not a replica", 7, []int32{1, 9}, at(7), -1},
		{"empty", 0, []int32{1, 2}, at(0), 0},
	} {
		if got := committed(1, c.end, c.isr, c.followers); got != c.want {
			t.Errorf("%s: committed = %d, want %d", c.name, got, c.want)
		}
	}
}

func TestUnderMinISR(t *testing.T) {
	for _, c := range []struct {
		replicas, isr, min int
		want               bool
	}{
		{1, 1, 1, false}, {1, 1, 2, false}, {3, 1, 2, true}, {3, 2, 2, false}, {3, 3, 9, false}, {3, 2, 9, true}, {1, 0, 1, true},
	} {
		s := &state{replicas: make([]int32, c.replicas), isr: make([]int32, c.isr)}
		if got := underMinISR(s, c.min); got != c.want {
			t.Errorf("%d replicas, %d in sync, min %d: %v, want %v", c.replicas, c.isr, c.min, got, c.want)
		}
	}
}

func TestHighWatermarkFollowsTheISR(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topicOn(1, 1, []int32{self, 2, 3}, []int32{self, 2}), 0)
	r.append(p, 5)
	if hw := p.HighWatermark(); hw != 0 {
		t.Fatalf("high watermark %d before a follower fetched", hw)
	}
	fetch := func(id int32, off int64) {
		t.Helper()
		if _, err := p.Read(ReadParams{Offset: off, MaxBytes: 1 << 20, ReplicaID: id, CurrentEpoch: -1, LastFetched: -1}); err != nil {
			t.Fatal(err)
		}
	}
	done := false
	p.AwaitHW(5, func(err error) { done = err == nil })
	fetch(3, 5) // not in sync: doesn't count
	if hw := p.HighWatermark(); hw != 0 {
		t.Fatalf("high watermark %d by a replica out of sync", hw)
	}
	fetch(2, 5)
	if hw := p.HighWatermark(); hw != 5 || !done {
		t.Fatalf("high watermark %d, woken %v; want 5, true", hw, done)
	}
	r.append(p, 2)
	fetch(2, 5)
	if hw := p.HighWatermark(); hw != 5 {
		t.Fatalf("high watermark %d, want 5", hw)
	}
	r.apply(metaISR(1, self, 2, 3))
	fetch(3, 6)
	fetch(2, 7)
	if hw := p.HighWatermark(); hw != 6 {
		t.Fatalf("high watermark %d with three in sync, want 6", hw)
	}
	r.apply(metaISR(1, self, 2))
	if hw := p.HighWatermark(); hw != 7 {
		t.Fatalf("high watermark %d after the ISR shrank, want 7", hw)
	}
	if _, err := p.Read(ReadParams{ReplicaID: 9, CurrentEpoch: -1, LastFetched: -1}); err == nil {
		t.Fatal("a broker without a replica could fetch as one")
	}
}
