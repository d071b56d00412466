package transport_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/quorum"
)

func TestFiveVotersSurviveTwoKills(t *testing.T) {
	r := newRig(t, quick)
	all := r.begin(5)
	r.write(0, 10, all...)
	r.same(10, all...)
	left := all
	for round := range 2 {
		m := r.leader(left...)
		r.kill(m)
		left = without(left, m)
		r.write(10+10*round, 10, left...)
		r.same(20+10*round, left...)
	}
	for _, m := range all {
		if m.node == nil {
			r.start(m, nil)
		}
	}
	r.same(30, all...)
	if vs := all[0].node.VoterSet(); len(vs) != 5 || !vs[4].Equal(all[4].voter) {
		t.Errorf("voters %v", vs)
	}
	lead := r.leader(all...)
	v, epoch, ok := without(all, lead)[0].node.Leader()
	if !ok || !v.Equal(lead.voter) || epoch != lead.node.Status().Epoch {
		t.Errorf("leader %v in epoch %d, %v", v, epoch, ok)
	}
}

// A voter that lacks what the leader has compacted gets the snapshot over the network.
func TestLaggingVoterTakesASnapshot(t *testing.T) {
	r := newRig(t, compacting)
	all := r.begin(3)
	lead := r.write(0, 1, all...)
	late := without(all, lead)[0]
	r.kill(late)
	rest := without(all, late)
	end := 1
	for ; end < 301; end += 5 {
		r.write(end, 5, rest...)
	}
	r.await(r.leader(rest...), "snapshot", func(s *quorum.Status) bool { return s.LogStart > 100 })
	r.start(late, nil)
	r.same(end, all...)
	if s := late.node.Status(); !s.HasSnapshot || s.LogStart < 100 {
		t.Errorf("no snapshot was taken: %+v", *s)
	}
	r.kill(late) // also after a restart, from snapshot and log
	r.start(late, nil)
	r.write(end, 3, all...)
	r.same(end+3, all...)
}

// A leader that reaches no majority steps down, and what it had not committed goes.
func TestCutOffLeaderStepsDown(t *testing.T) {
	r := newRig(t, quick)
	all := r.begin(3)
	old := r.write(0, 5, all...)
	epoch := old.node.Status().Epoch
	r.isolate(old, true)
	r.await(old, "step down", func(s *quorum.Status) bool { return !s.IsLeader })
	rest := without(all, old)
	r.write(5, 5, rest...)
	r.isolate(old, false)
	r.same(10, all...)
	if s := old.node.Status(); s.Epoch <= epoch {
		t.Errorf("epoch %d after %d", s.Epoch, epoch)
	}
}

func TestVotersComeAndGo(t *testing.T) {
	r := newRig(t, compacting)
	all := r.begin(1)
	for i := range 40 {
		r.write(5*i, 5, all...)
	}
	for _, id := range []int32{2, 3} { // each gets the snapshot, then the log, then a vote
		m := r.add(id, 0)
		r.start(m, nil)
		if err := r.leader(all...).node.AddVoter(t.Context(), m.voter); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	r.same(200, all...)
	first := all[0]
	if err := first.node.RemoveVoter(t.Context(), first.voter.Member); err != nil {
		t.Fatal(err)
	}
	r.await(first, "step down", func(s *quorum.Status) bool { return !s.IsLeader && !s.IsVoter })
	rest := all[1:]
	r.write(200, 5, rest...)
	r.same(205, rest...)
	// What was removed can come back.
	if err := r.leader(rest...).node.AddVoter(t.Context(), first.voter); err != nil {
		t.Fatal(err)
	}
	r.same(205, all...)
	// A node that isn't there is refused at once, and leaves no trace.
	ghost := r.add(9, 0)
	if err := r.leader(all...).node.AddVoter(t.Context(), ghost.voter); !errors.Is(err, quorum.ErrNotReady) {
		t.Errorf("a node that is away was added: %v", err)
	}
	d := r.described(all, func(d quorum.Description) bool {
		return len(d.Voters) == 3 && len(d.Observers) == 0 && !slices.ContainsFunc(d.Voters, func(v quorum.Replica) bool {
			return v.EndOffset != 205 || v.LastFetch.IsZero() || v.LastCaughtUp.IsZero()
		})
	})
	if len(d.Voters) != 3 || len(d.Observers) != 0 {
		t.Errorf("voters %+v observers %+v", d.Voters, d.Observers)
	}
}

// described waits until the leader of the moment, whoever that is, describes the quorum as wanted, and returns the last
// description seen.
func (r *rig) described(of []*member, ok func(quorum.Description) bool) quorum.Description {
	r.t.Helper()
	var last quorum.Description
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		lead := r.leader(of...)
		if d, err := lead.node.Describe(); err == nil {
			if last = d; ok(d) {
				return d
			}
		}
	}
	r.t.Errorf("never described as wanted: voters %+v observers %+v", last.Voters, last.Observers)
	return last
}

// A controller with a wiped disk is another member: with its old id it is refused, and
// with auto join it takes the place of the lost one.
func TestWipedDiskIsAnotherMember(t *testing.T) {
	r := newRig(t, quick)
	all := r.begin(3)
	lead := r.write(0, 5, all...)
	lost := without(all, lead)[0]
	r.kill(lost)
	wiped := r.add(lost.id, 1)
	wiped.join = true
	r.start(wiped, nil)
	now := append(without(all, lost), wiped)
	r.await(wiped, "vote", func(s *quorum.Status) bool { return s.IsVoter })
	r.write(5, 5, now...)
	r.same(10, now...)
	want := []quorum.Member{}
	for _, m := range now {
		want = append(want, m.voter.Member)
	}
	slices.SortFunc(want, func(a, b quorum.Member) int { return int(a.ID - b.ID) })
	if got := lead.node.Voters(); !slices.Equal(got, want) {
		t.Errorf("voters %v, want %v", got, want)
	}
}

// A voter that comes back at another address is reached there, and the voter set says so.
func TestVoterMoves(t *testing.T) {
	r := newRig(t, quick)
	all := r.begin(3)
	lead := r.write(0, 5, all...)
	mover := without(all, lead)[0]
	r.kill(mover)
	fresh := r.add(mover.id, 0)
	fresh.mem = mover.mem
	r.start(fresh, nil)
	now := append(without(all, mover), fresh)
	r.write(5, 5, now...)
	r.same(10, now...)
	for _, m := range now {
		r.await(m, "new endpoint", func(*quorum.Status) bool {
			return slices.ContainsFunc(m.node.VoterSet(), fresh.voter.Equal)
		})
	}
}

func TestResignMovesTheLeadership(t *testing.T) {
	r := newRig(t, nil) // an election by time-out takes longer than this test
	all := r.begin(3)
	lead := r.write(0, 5, all...)
	epoch := lead.node.Status().Epoch
	if err := lead.node.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := r.leader(without(all, lead)...)
	if s := next.node.Status(); s.Epoch != epoch+1 {
		t.Errorf("handed over in epoch %d, the one before was %d: more than one election", s.Epoch, epoch)
	}
	if err := lead.node.Resign(t.Context()); err != nil || next == lead {
		t.Errorf("resigning again: %v", err)
	}
}

// Static voters have no directory ids, are given at each start, and stay.
func TestStaticVoters(t *testing.T) {
	r := newRig(t, quick)
	var all []*member
	var first []quorum.Voter
	for id := range int32(3) {
		m := r.add(id+1, 0)
		all = append(all, m)
		first = append(first, quorum.Voter{Member: quorum.Member{ID: id + 1}, Endpoints: m.voter.Endpoints})
	}
	for _, m := range all {
		r.start(m, first)
	}
	lead := r.write(0, 5, all...)
	if !lead.node.Static() || lead.node.Self().Directory != (ids.UUID{}) {
		t.Errorf("static %v, self %v", lead.node.Static(), lead.node.Self())
	}
	if err := lead.node.AddVoter(t.Context(), quorum.Voter{Member: quorum.Member{ID: 7}}); !errors.Is(err, quorum.ErrStatic) {
		t.Errorf("a static voter was added: %v", err)
	}
	mover := without(all, lead)[0]
	r.kill(mover)
	if _, err := quorum.Open(quorum.Options{FS: mover.mem, Dir: "/meta/quorum", Self: mover.voter.Member, Voters: first[:2], Fatal: func(error) {}}); err == nil {
		t.Error("another list of voters was accepted")
	}
	r.start(mover, first)
	r.write(5, 5, all...)
	r.same(10, all...)
}

// The leader knows who reads the log at a follower.
func TestObserversAreToldToTheLeader(t *testing.T) {
	r := newRig(t, quick)
	all := r.begin(3)
	lead := r.write(0, 5, all...)
	reader := quorum.Member{ID: 42}
	for found := false; !found; {
		without(all, lead)[0].node.Observed(reader, 3)
		d, err := lead.node.Describe()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(d.Observers, func(o quorum.Replica) bool { return o.Member == reader })
		if found = i >= 0; found && (d.Observers[i].EndOffset != 3 || time.Since(d.Observers[i].LastFetch) > 10*time.Second) {
			t.Errorf("observer %+v", d.Observers[i])
		}
		if t.Context().Err() != nil {
			t.Fatal("the leader never heard of the reader")
		}
	}
}

// Who isn't what AddVoter says, or belongs elsewhere, is refused before anything changes, with a word on why.
func TestAddVoterLooksFirst(t *testing.T) {
	r := newRig(t, quick)
	all := r.begin(1)
	lead := r.write(0, 3, all...)
	own := r.add(2, 0) // formatted as a quorum of its own
	r.start(own, []quorum.Voter{own.voter})
	r.await(own, "lead", func(s *quorum.Status) bool { return s.IsLeader })
	waiting := r.add(3, 0)
	r.start(waiting, nil)
	otherDisk := waiting.voter
	otherDisk.Directory[1] = 9
	foreign := r.add(4, 0)
	foreign.cluster = "AAAAAAAAAAAAAAAAAAAACg"
	r.start(foreign, nil)
	for name, c := range map[string]struct {
		v    quorum.Voter
		want error
		says string
	}{
		"a quorum of its own": {own.voter, &api.Error{Code: api.InconsistentVoterSet}, "--no-initial-controllers"},
		"another disk":        {otherDisk, &api.Error{Code: api.InvalidVoterKey}, waiting.voter.Directory.String()},
		"another cluster":     {foreign.voter, &api.Error{Code: api.InconsistentClusterID}, testCluster},
		"nobody there":        {r.add(5, 0).voter, quorum.ErrNotReady, "start it"},
	} {
		if err := lead.node.AddVoter(t.Context(), c.v); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d, err := lead.node.Describe(); err != nil || len(d.Voters) != 1 || len(d.Observers) != 0 {
		t.Errorf("voters %+v observers %+v, %v", d.Voters, d.Observers, err)
	}
	if err := lead.node.AddVoter(t.Context(), waiting.voter); err != nil {
		t.Error(err)
	}
	r.write(3, 3, lead, waiting)
}

// A restored quorum takes new voters, and nothing from one of the old quorum.
func TestRestoredQuorumGrows(t *testing.T) {
	r := newRig(t, quick)
	var content bytes.Buffer
	err := quorum.EncodeRecords(&content, 7, func(yield func(machine.Record) bool) {
		for i := range 5 {
			if !yield(machine.Record{Value: fmt.Appendf(nil, "record %d", i)}) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	first := r.add(1, 0)
	if err := quorum.Restore(first.mem, "/meta/quorum", quorum.Restored{
		ID: quorum.SnapshotID{EndOffset: 5, Epoch: 7}, Voters: []quorum.Voter{first.voter}, Generation: 99, Content: &content,
	}); err != nil {
		t.Fatal(err)
	}
	r.start(first, nil)
	all := []*member{first}
	r.write(5, 5, all...)
	for _, id := range []int32{2, 3} {
		m := r.add(id, 0)
		r.start(m, nil)
		if err := r.leader(all...).node.AddVoter(t.Context(), m.voter); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	r.write(10, 5, all...)
	r.same(15, all...)
	if s := all[2].node.Status(); s.Generation != 99 || s.Epoch <= 7 {
		t.Errorf("the added voter has %+v", *s)
	}
	// One that holds the old quorum's log isn't heard.
	old := r.add(4, 0)
	if err := quorum.Format(old.mem, "/meta/quorum", []quorum.Voter{old.voter, first.voter}); err != nil {
		t.Fatal(err)
	}
	r.start(old, nil)
	if err := r.leader(all...).node.AddVoter(t.Context(), old.voter); !errors.Is(err, &api.Error{Code: api.InconsistentVoterSet}) {
		t.Errorf("a voter of another quorum was added: %v", err)
	}
	if s := old.node.Status(); s.HasLeader || s.Generation != 0 {
		t.Errorf("the old quorum's voter follows: %+v", *s)
	}
	r.write(15, 5, all...)
}
