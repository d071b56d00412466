package replica

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
)

func part(n byte, partition int32, off int64) FetchPart {
	return FetchPart{
		Key: FetchKey{ID: topicID(n), Partition: partition}, Offset: off, MaxBytes: 1 << 20, CurrentEpoch: -1, LastFetched: -1,
	}
}

func begin(t *testing.T, c *Sessions, id, epoch int32, now time.Time, parts ...FetchPart) *Fetch {
	t.Helper()
	f, err := c.Begin(&FetchRequest{SessionID: id, Epoch: epoch, ByID: true, ReplicaID: -1, Parts: parts}, now)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// counter is a source of session ids 1, 2, 3...
func counter() func() uint32 {
	var n uint32
	return func() uint32 { n++; return n }
}

func TestSessionEpochs(t *testing.T) {
	c, now := NewSessions(10, counter()), time.Now()
	f := begin(t, c, 0, SessionInitial, now, part(1, 0, 0))
	if f.Session == nil || f.Session.ID != 1 || len(f.All) != 1 {
		t.Fatalf("first fetch: %+v", f)
	}
	if f = begin(t, c, 1, 1, now); f.All != nil {
		t.Fatal("an incremental fetch names all partitions")
	}
	begin(t, c, 1, 2, now)
	for _, bad := range []int32{2, 4, 1} {
		_, err := c.Begin(&FetchRequest{SessionID: 1, Epoch: bad, ByID: true, ReplicaID: -1}, now)
		wantCode(t, err, api.InvalidFetchSessionEpoch)
	}
	_, err := c.Begin(&FetchRequest{SessionID: 1, Epoch: 3, ByID: false, ReplicaID: -1}, now)
	wantCode(t, err, api.FetchSessionTopicIDError)
	_, err = c.Begin(&FetchRequest{SessionID: 77, Epoch: 3, ByID: true, ReplicaID: -1}, now)
	wantCode(t, err, api.FetchSessionIDNotFound)
	if f = begin(t, c, 1, SessionFinal, now, part(1, 0, 0)); f.Session != nil {
		t.Fatal("the final fetch has a session")
	}
	_, err = c.Begin(&FetchRequest{SessionID: 1, Epoch: 3, ByID: true, ReplicaID: -1}, now)
	wantCode(t, err, api.FetchSessionIDNotFound)
	if n, parts, _ := c.Stats(); n != 0 || parts != 0 {
		t.Fatalf("%d sessions, %d partitions left", n, parts)
	}
	if got := nextEpoch(math.MaxInt32); got != 1 {
		t.Fatalf("epoch after the last: %d", got)
	}
}

func TestSessionIsEmptied(t *testing.T) {
	c, now := NewSessions(10, counter()), time.Now()
	begin(t, c, 0, SessionInitial, now, part(1, 0, 0), part(1, 1, 0))
	f, err := c.Begin(&FetchRequest{
		SessionID: 1, Epoch: 1, ByID: true, ReplicaID: -1, Forgotten: []FetchKey{part(1, 0, 0).Key, part(1, 1, 0).Key, part(9, 9, 0).Key},
	}, now)
	if err != nil || f.Session != nil {
		t.Fatalf("%+v, %v; want a fetch without session", f, err)
	}
	if n, parts, _ := c.Stats(); n != 0 || parts != 0 {
		t.Fatalf("%d sessions, %d partitions left", n, parts)
	}
}

func TestSessionEviction(t *testing.T) {
	now := time.Now()
	make3 := func(follower bool) *Sessions {
		c := NewSessions(2, counter())
		for _, n := range []int{1, 3} {
			parts := make([]FetchPart, n)
			for i := range parts {
				parts[i] = part(1, int32(i), 0)
			}
			replica := int32(-1)
			if follower {
				replica = 5
			}
			if _, err := c.Begin(&FetchRequest{ByID: true, ReplicaID: replica, Parts: parts}, now); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	get := func(c *Sessions, replica int32, parts int, at time.Time) int32 {
		t.Helper()
		r := &FetchRequest{ByID: true, ReplicaID: replica}
		for i := range parts {
			r.Parts = append(r.Parts, part(2, int32(i), 0))
		}
		f, err := c.Begin(r, at)
		if err != nil {
			t.Fatal(err)
		}
		if f.Session == nil {
			return 0
		}
		return f.Session.ID
	}
	if id := get(make3(false), -1, 9, now.Add(time.Second)); id != 0 {
		t.Errorf("a young consumer session was evicted for %d", id)
	}
	if id := get(make3(false), 5, 1, now.Add(time.Second)); id != 3 {
		t.Errorf("a follower got session %d, want 3: it is worth more than a consumer", id)
	}
	if id := get(make3(true), -1, 9, now.Add(time.Second)); id != 0 {
		t.Errorf("a consumer evicted a follower's session for %d", id)
	}
	c := make3(false)
	if id := get(c, -1, 2, now.Add(3*time.Minute)); id != 3 {
		t.Errorf("an idle session was kept: got %d", id)
	}
	if _, _, evicted := c.Stats(); evicted != 1 {
		t.Errorf("%d evictions", evicted)
	}
	// Used just now, but old: the smaller one goes for a larger.
	c = make3(false)
	later := now.Add(3 * time.Minute)
	begin(t, c, 1, 1, later)
	begin(t, c, 2, 1, later)
	if id := get(c, -1, 1, later); id != 0 {
		t.Errorf("a session of the same size was evicted for %d", id)
	}
	if id := get(c, -1, 2, later); id != 3 {
		t.Errorf("the smaller old session was kept: got %d", id)
	}
	if _, err := c.Begin(&FetchRequest{SessionID: 1, Epoch: 2, ByID: true, ReplicaID: -1}, later); err == nil {
		t.Error("the evicted session is still there")
	}
}

func TestSessionsAreBounded(t *testing.T) {
	c, now := NewSessions(1, counter()), time.Now()
	many := func(n, from int) []FetchPart {
		parts := make([]FetchPart, n)
		for i := range parts {
			parts[i] = part(1, int32(from+i), 0)
		}
		return parts
	}
	if f := begin(t, c, 0, SessionInitial, now, many(partsPerSlot+1, 0)...); f.Session != nil {
		t.Fatal("a session of too many partitions")
	}
	id := begin(t, c, 0, SessionInitial, now, many(partsPerSlot, 0)...).Session.ID
	begin(t, c, id, 1, now)
	_, err := c.Begin(&FetchRequest{SessionID: id, Epoch: 2, ByID: true, ReplicaID: -1, Parts: many(1, partsPerSlot)}, now)
	wantCode(t, err, api.FetchSessionIDNotFound)
	if n, parts, _ := c.Stats(); n != 0 || parts != 0 {
		t.Fatalf("%d sessions, %d partitions left", n, parts)
	}
}

// look runs one look and returns the partitions found with data or error.
func look(r *rig, f *Fetch, maxBytes int) (named []string, bytes int, now bool) {
	var out []PartResult
	f.Run(func(bool) {
		out, bytes, now = r.m.Look(f.Set, Limits{MaxBytes: maxBytes, ReplicaID: -1, All: f.All}, nil)
		for i := range out {
			if out[i].Told() {
				k := out[i].Part.Key
				s := strconv.Itoa(int(k.ID[15])) + "-" + strconv.Itoa(int(k.Partition))
				if out[i].Bytes > 0 {
					s += " data"
				}
				if c, _ := api.CodeOf(out[i].Err); c != api.NoError {
					s += " " + c.Name()
				}
				named = append(named, s)
			}
		}
		Release(out)
	})
	return named, bytes, now
}

func TestIncrementalFetchLooksAtWhatChanged(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, 3)
	c, now := r.m.Sessions(), time.Now()
	step := func(f *Fetch, want ...string) {
		t.Helper()
		got, _, _ := look(r, f, 1<<20)
		if !slices.Equal(got, want) {
			t.Fatalf("named %q, want %q", got, want)
		}
	}
	first := begin(t, c, 0, SessionInitial, now, part(1, 0, 0), part(1, 1, 0), part(1, 2, 0), part(7, 0, 0))
	id := first.Session.ID
	step(first, "1-0", "1-1", "1-2", "7-0 UNKNOWN_TOPIC_ID")
	step(begin(t, c, id, 1, now), "7-0 UNKNOWN_TOPIC_ID") // an error is repeated
	r.append(r.get(name, 1), 2)
	step(begin(t, c, id, 2, now), "7-0 UNKNOWN_TOPIC_ID", "1-1 data")
	step(begin(t, c, id, 3, now), "7-0 UNKNOWN_TOPIC_ID", "1-1 data") // not taken yet
	step(begin(t, c, id, 4, now, part(1, 1, 2)), "7-0 UNKNOWN_TOPIC_ID")
	if _, err := deleteRecords(r.get(name, 1), 1); err != nil {
		t.Fatal(err)
	}
	step(begin(t, c, id, 5, now), "7-0 UNKNOWN_TOPIC_ID", "1-1") // its log start moved
	r.apply(&meta.TopicRecord{TopicName: "t7", TopicID: topicID(7)}, partitionRecord(7))
	step(begin(t, c, id, 6, now), "7-0")
	step(begin(t, c, id, 7, now))
	r.lead(1, 2, 3)
	step(begin(t, c, id, 8, now), "1-0 NOT_LEADER_OR_FOLLOWER")
	r.lead(1, self, 4)
	step(begin(t, c, id, 9, now), "1-0")
	r.apply(&meta.RemoveTopicRecord{TopicID: topicID(7)})
	step(begin(t, c, id, 10, now), "7-0 UNKNOWN_TOPIC_ID")
}

// A fetch that finds nothing to answer with and waits has told nothing: the next look names what it found.
func TestWhatAWaitingFetchFoundIsToldLater(t *testing.T) {
	r := newRig(t)
	r.topic(1, 2)
	c, now := r.m.Sessions(), time.Now()
	id := begin(t, c, 0, SessionInitial, now, part(1, 0, 0)).Session.ID
	f := begin(t, c, id, 1, now, part(1, 1, 0))
	if res, bytes, answer := r.m.Look(f.Set, Limits{MaxBytes: 1 << 20, ReplicaID: -1}, nil); len(res) != 2 || bytes != 0 || answer {
		t.Fatalf("found %d parts, %d bytes, to be answered at once: %t", len(res), bytes, answer)
	}
	if got, _, _ := look(r, f, 1<<20); !slices.Equal(got, []string{"1-0", "1-1"}) {
		t.Errorf("named %q, want both empty partitions", got)
	}
	if got, _, _ := look(r, f, 1<<20); len(got) != 0 {
		t.Errorf("named %q again", got)
	}
}

func partitionRecord(n byte) meta.Record {
	return &meta.PartitionRecord{TopicID: topicID(n), Replicas: []int32{self}, ISR: []int32{self}, Leader: self, Directories: make([]ids.UUID, 1)}
}

func TestLimits(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, 3)
	var size int
	for i := range int32(3) {
		size = int(r.append(r.get(name, i), 10).Bytes)
	}
	f := begin(t, r.m.Sessions(), 0, SessionFinal, time.Now(), part(1, 0, 0), part(1, 1, 0), part(1, 2, 0))
	check := func(maxBytes, want int) {
		t.Helper()
		if _, bytes, _ := look(r, f, maxBytes); bytes != want {
			t.Errorf("%d bytes within %d, want %d", bytes, maxBytes, want)
		}
	}
	check(0, size) // the first batch comes whole
	check(size, size)
	check(2*size, 2*size)
	check(1<<20, 3*size)
	f.End()
	f = begin(t, r.m.Sessions(), 0, SessionInitial, time.Now(), part(1, 0, 0), part(1, 1, 0), part(1, 2, 0))
	id := f.Session.ID
	look(r, f, 1)
	// Those that the limit cut off come first the next time.
	for i, want := range []string{"1-0 data", "1-1 data", "1-2 data", "1-0 data"} {
		got, _, _ := look(r, begin(t, r.m.Sessions(), id, int32(i+1), time.Now()), size)
		if !slices.Equal(got, []string{want}) {
			t.Errorf("fetch %d: %q, want %q", i+1, got, want)
		}
	}
}

func TestFetchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		name := r.topic(1, 2)
		f := begin(t, r.m.Sessions(), 0, SessionFinal, time.Now(), part(1, 0, 0), part(1, 1, 0))
		defer f.End()
		fired := 0
		w := &FetchWait{Fire: func() { fired++ }}
		arm := func(need int64) {
			look(r, f, 1<<20)
			w.Need = need
			f.Set.Wait(w)
			synctest.Wait()
		}
		arm(1)
		if fired != 0 {
			t.Fatal("fired with nothing there")
		}
		size := r.append(r.get(name, 1), 1).Bytes
		synctest.Wait()
		if fired != 1 || f.Set.StopWaiting(w) {
			t.Fatalf("fired %d times after an append", fired)
		}
		arm(2 * size)
		r.append(r.get(name, 0), 1)
		synctest.Wait()
		if fired != 1 {
			t.Fatal("fired before the bytes were there")
		}
		r.append(r.get(name, 0), 1)
		synctest.Wait()
		if fired != 2 {
			t.Fatal("not fired by the second append")
		}
		arm(1 << 30)
		r.lead(1, 2, 9)
		synctest.Wait()
		if fired != 3 {
			t.Fatal("not fired by the change of leader")
		}
		arm(1 << 30)
		if !f.Set.StopWaiting(w) || f.Set.StopWaiting(w) {
			t.Fatal("a wait can be stopped once")
		}
		f.Set.Wait(w)
		f.Set.Kick()
		synctest.Wait()
		if fired != 4 {
			t.Fatal("not fired by Kick")
		}
	})
}

func TestWatchesGoWithTheFetch(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topic(1, 1), 0)
	for range 3 {
		f := begin(t, r.m.Sessions(), 0, SessionFinal, time.Now(), part(1, 0, 0), part(1, 0, 0))
		look(r, f, 100)
		if n := len(p.watches); n != 2 {
			t.Fatalf("%d watches during a fetch", n)
		}
		f.End()
	}
	f := begin(t, r.m.Sessions(), 0, SessionInitial, time.Now(), part(1, 0, 0))
	look(r, f, 100)
	begin(t, r.m.Sessions(), f.Session.ID, SessionFinal, time.Now())
	if n := len(p.watches); n != 0 {
		t.Fatalf("%d watches left", n)
	}
}

func TestASessionsNextFetchEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.topic(1, 1)
		c := r.m.Sessions()
		f := begin(t, c, 0, SessionInitial, time.Now(), part(1, 0, 0))
		look(r, f, 100)
		fired := false
		f.Set.Wait(&FetchWait{Need: 1, Fire: func() { fired = true }})
		begin(t, c, f.Session.ID, 1, time.Now())
		synctest.Wait()
		if !fired {
			t.Fatal("the wait goes on")
		}
		f.Run(func(last bool) {
			if !last {
				t.Error("the older fetch may go on waiting")
			}
		})
	})
}
