package quorum

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"milena/internal/disk"
)

func entry(index, term uint64, data string) *pb.Entry {
	e := &pb.Entry{Index: new(index), Term: new(term), Type: pb.EntryNormal.Enum()}
	if data != "" {
		e.Data = []byte(data)
	}
	return e
}

func hard(term, commit uint64) *pb.HardState {
	return &pb.HardState{Term: new(term), Vote: new(uint64(9)), Commit: new(commit)}
}

func show(es []*pb.Entry) []string {
	var out []string
	for _, e := range es {
		out = append(out, fmt.Sprintf("%d/%d %s", e.GetIndex(), e.GetTerm(), e.GetData()))
	}
	return out
}

func reopen(t interface{ Fatal(...any) }, fsys disk.FS, segment int64) (*raftLog, *recovered) {
	l, rec, err := openRaftLog(fsys, "/", segment, position{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	return l, rec
}

// TestRaftLogAgainstModel compares a log with a slice, through appends that
// replace, resets, compaction, new files and crashes.
func TestRaftLogAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := disk.NewMem(rapid.Uint64().Draw(t, "seed"))
		segment := rapid.Int64Range(100, 1000).Draw(t, "segment")
		l, _ := reopen(t, mem, segment)
		var model []*pb.Entry // all since the last reset
		start := uint64(1)
		state, term, dropped := hard(1, 1), uint64(1), uint64(0)
		check := func(rec *recovered) {
			got := rec.entries
			for len(got) > 0 && got[0].GetIndex() <= dropped {
				got = got[1:]
			}
			want := model
			for len(want) > 0 && want[0].GetIndex() <= dropped {
				want = want[1:]
			}
			if !slices.Equal(show(got), show(want)) {
				t.Fatalf("entries %v, want %v", show(got), show(want))
			}
			if rec.hard.GetTerm() != state.GetTerm() || rec.hard.GetCommit() != state.GetCommit() {
				t.Fatalf("hard state %v, want %v", rec.hard, state)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				last := start + uint64(len(model))
				from := last + 1
				if low := max(start, dropped); rapid.IntRange(0, 3).Draw(t, "replace") == 0 && last > low {
					from = rapid.Uint64Range(low+1, last).Draw(t, "from")
					term++
				}
				var es []*pb.Entry
				for i := range rapid.Uint64Range(1, 5).Draw(t, "n") {
					es = append(es, entry(from+i, term, strings.Repeat("x", rapid.IntRange(0, 60).Draw(t, "size"))))
				}
				var h *pb.HardState
				if rapid.Bool().Draw(t, "hard") {
					h = hard(term, from-1)
					state = h
				}
				if err := l.append(es, h, true); err != nil {
					t.Fatal(err)
				}
				model = append(model[:from-start-1:from-start-1], es...)
			},
			"reset": func(t *rapid.T) {
				start += uint64(len(model)) + rapid.Uint64Range(0, 5).Draw(t, "by")
				if err := l.reset(position{start, term}); err != nil {
					t.Fatal(err)
				}
				model = nil
			},
			"compact": func(t *rapid.T) {
				if len(model) == 0 {
					return
				}
				dropped = max(dropped, rapid.Uint64Range(start, start+uint64(len(model))).Draw(t, "to"))
				if err := l.compact(dropped); err != nil {
					t.Fatal(err)
				}
			},
			"crash": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "unsynced") {
					// Not durable: may be lost, whole or in part.
					last := start + uint64(len(model))
					if err := l.append([]*pb.Entry{entry(last+1, term, "unsynced")}, nil, false); err != nil {
						t.Fatal(err)
					}
				}
				mem.CrashTorn()
				var rec *recovered
				l, rec = reopen(t, mem, segment)
				last := start + uint64(len(model))
				if n := len(rec.entries); n > 0 && rec.entries[n-1].GetIndex() == last+1 {
					model = append(model, rec.entries[n-1]) // it was kept
				}
				check(rec)
			},
		})
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		_, rec := reopen(t, mem, segment)
		check(rec)
	})
}

// goodLog writes a log of several synced groups and returns its only segment and
// where each group ends.
func goodLog(t testing.TB) (name string, content []byte, ends []int) {
	mem := disk.NewMem(1)
	l, _ := reopen(t, mem, 1<<20)
	for i := range uint64(6) {
		es := []*pb.Entry{entry(2+2*i, 2, "some data"), entry(3+2*i, 2, "")}
		if err := l.append(es, hard(2, 1), true); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, int(l.size))
	}
	name = l.segs[0].name
	b, err := disk.ReadFile(mem, name)
	if err != nil {
		t.Fatal(err)
	}
	return name, b, ends
}

// TestDamageIsFoundOrHarmless flips each bit of a log: damage in what was durable
// before the last sync must be an error that names file and position, damage after
// it may look like a torn write.
func TestDamageIsFoundOrHarmless(t *testing.T) {
	name, content, ends := goodLog(t)
	lastGroup := ends[len(ends)-2]
	for pos := range content {
		bad := bytes.Clone(content)
		bad[pos] ^= 1 << (pos % 8)
		mem := disk.NewMem(1)
		if err := disk.WriteFileAtomic(mem, name, bad); err != nil {
			t.Fatal(err)
		}
		_, rec, err := openRaftLog(mem, "/", 1<<20, position{1, 1})
		if pos < lastGroup {
			if err == nil {
				t.Fatalf("damage at %d of %d was not found: %v", pos, len(content), show(rec.entries))
			}
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) {
				t.Fatalf("damage at %d: %v", pos, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("a torn last write at %d: %v", pos, err)
		}
		if len(rec.entries) < 10 {
			t.Fatalf("damage at %d lost what was durable: %v", pos, show(rec.entries))
		}
	}
	// Cut short anywhere in what was written last, the log opens too.
	for end := lastGroup; end <= len(content); end++ {
		mem := disk.NewMem(1)
		if err := disk.WriteFileAtomic(mem, name, content[:end]); err != nil {
			t.Fatal(err)
		}
		if _, rec := reopen(t, mem, 1<<20); len(rec.entries) < 10 {
			t.Fatalf("cut at %d: %v", end, show(rec.entries))
		}
	}
}

func TestMissingSegmentIsFound(t *testing.T) {
	mem := disk.NewMem(1)
	l, _ := reopen(t, mem, 100)
	for i := range uint64(10) {
		if err := l.append([]*pb.Entry{entry(2+i, 2, "data")}, nil, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := mem.Remove(l.segs[2].name); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openRaftLog(mem, "/", 100, position{1, 1}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

func TestStoreRefusesALogThatLostCommittedEntries(t *testing.T) {
	snap := &snapshot{at: position{1, 1}, conf: &pb.ConfState{}}
	for _, c := range []struct {
		name string
		rec  recovered
		ok   bool
	}{
		{"whole", recovered{before: position{1, 1}, entries: []*pb.Entry{entry(2, 1, "")}, hard: hard(1, 2)}, true},
		{"empty", recovered{before: position{1, 1}, hard: hard(1, 1)}, true},
		{"lost the end", recovered{before: position{1, 1}, entries: []*pb.Entry{entry(2, 1, "")}, hard: hard(1, 3)}, false},
		{"lost the beginning", recovered{before: position{2, 1}, entries: []*pb.Entry{entry(3, 1, "")}, hard: hard(1, 3)}, false},
		{"replaced by a snapshot", recovered{entries: []*pb.Entry{entry(1, 0, ""), entry(2, 0, "")}, hard: hard(0, 0)}, true},
		{"rubbish", recovered{before: position{1, 1}, entries: []*pb.Entry{entry(2, 1, "rubbish")}, hard: hard(1, 2)}, false},
	} {
		s, err := newStore(&c.rec, snap)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.name == "replaced by a snapshot" && err == nil && s.lastIndex() != 1 {
			t.Errorf("%s: last index %d", c.name, s.lastIndex())
		}
	}
}

func FuzzRecover(f *testing.F) {
	_, content, _ := goodLog(f)
	f.Add(content, []byte{}, uint16(0))
	f.Add(content[:len(content)-5], content, uint16(3))
	f.Add([]byte{}, content[:50], uint16(70))
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		bad := bytes.Clone(content)
		bad[rnd.IntN(len(bad))] ^= byte(1 + rnd.IntN(255))
		f.Add(bad, content[segmentHeaderSize:], uint16(rnd.IntN(len(bad))))
	}
	f.Fuzz(func(t *testing.T, a, b []byte, cut uint16) {
		mem := disk.NewMem(1)
		if err := disk.WriteFileAtomic(mem, segmentName("/", 1), append(bytes.Clone(a), b...)); err != nil {
			t.Fatal(err)
		}
		if int(cut) < len(b) {
			if err := disk.WriteFileAtomic(mem, segmentName("/", 2), b[:cut]); err != nil {
				t.Fatal(err)
			}
		}
		l, rec, err := openRaftLog(mem, "/", 1<<20, position{1, 1})
		if err != nil {
			return
		}
		// What opens once opens again, the same, and takes appends.
		if err := l.append([]*pb.Entry{entry(l.last.index+1, l.last.term+1, "more")}, nil, true); err != nil {
			t.Fatal(err)
		}
		mem.Crash()
		_, again := reopen(t, mem, 1<<20)
		want := append(show(rec.entries), fmt.Sprintf("%d/%d more", l.last.index, l.last.term))
		if !slices.Equal(show(again.entries), want) {
			t.Fatalf("reopened as %v, want %v", show(again.entries), want)
		}
		_, _ = newStore(again, &snapshot{at: position{1, 1}, conf: &pb.ConfState{}})
	})
}

func FuzzParseSnapshot(f *testing.F) {
	s := &snapshot{id: SnapshotID{7, 3}, at: position{5, 3}, size: 9, crc: 1, members: voterList(1),
		conf: &pb.ConfState{Voters: []uint64{raftID(testMember(1))}}}
	b, err := s.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:60])
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSnapshot(b)
		if err != nil {
			return
		}
		if again, err := s.encode(); err != nil || len(again) > len(b)+1<<16 {
			t.Fatalf("%d bytes from %d, %v", len(again), len(b), err)
		}
	})
}

func TestSnapshotRoundTrip(t *testing.T) {
	s := &snapshot{id: SnapshotID{7, 3}, at: position{5, 3}, size: 9, crc: 1, generation: 77, members: voterList(1, 2),
		conf: &pb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}}}
	b, err := s.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseSnapshot(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.id != s.id || got.at != s.at || got.size != 9 || got.crc != 1 || got.generation != 77 || !slices.EqualFunc(got.members, s.members, Voter.Equal) ||
		!slices.Equal(got.conf.GetVoters(), s.conf.GetVoters()) || !slices.Equal(got.conf.GetLearners(), []uint64{3}) {
		t.Errorf("got %+v", got)
	}
	for pos := range b {
		bad := bytes.Clone(b)
		bad[pos] ^= 4
		if _, err := parseSnapshot(bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("damage at %d: %v", pos, err)
		}
		if _, err := parseSnapshot(b[:pos]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut at %d: %v", pos, err)
		}
	}
}

// A leader's snapshot was published, and the crash came before the log said that it was replaced: what is appended after
// the restart is there after another one, whatever the old log held.
func TestCrashBetweenSnapshotAndReset(t *testing.T) {
	for name, last := range map[string]uint64{"nothing": 1, "a shorter log": 5, "as long": 20, "a longer log": 30} {
		t.Run(name, func(t *testing.T) {
			fsys := disk.NewMem(1)
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			check(makeDir(fsys, "/meta"))
			files, first := snapshotDir{fs: fsys, dir: "/meta"}, firstSnapshot(voterList(1, 2, 3))
			check(files.publish(first, ""))
			life := func(snap *snapshot) (*raftLog, *store) {
				l, rec, err := openRaftLog(fsys, "/meta", 1<<20, snap.at)
				check(err)
				s, err := joinLog(l, rec, snap)
				check(err)
				return l, s
			}
			l, _ := life(first)
			for i := uint64(2); i <= last; i++ {
				check(l.append([]*pb.Entry{entry(i, 1, "")}, hard(1, 1), true))
			}
			tmp := "/meta/fetched.tmp"
			size, crc, err := files.writeContent(tmp, func(io.Writer) error { return nil })
			check(err)
			snap := &snapshot{id: SnapshotID{EndOffset: 7, Epoch: 2}, at: position{index: 20, term: 2}, size: size, crc: crc, members: first.members, conf: first.conf}
			check(files.publish(snap, tmp))
			fsys.Crash()
			l, _ = life(snap)
			check(l.append([]*pb.Entry{entry(21, 2, "")}, hard(2, 20), true))
			fsys.Crash()
			l, s := life(snap)
			if got := s.lastIndex(); got != 21 || l.last != (position{index: 21, term: 2}) {
				t.Errorf("the log ends at %d, %+v: entry 21 was synced and vouched for", got, l.last)
			}
			check(l.close())
		})
	}
}
