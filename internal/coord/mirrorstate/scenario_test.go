package mirrorstate

import (
	"testing"

	"milena/internal/api"
	"milena/internal/machine"
	"milena/internal/mirrormsg"
)

// known is a shard whose partition 0 is in LOG_TRUNCATION with these epochs.
func known(t *testing.T, leader, state int32) *logged {
	t.Helper()
	l := newLogged()
	st := NoStatus()
	st.State, st.LeaderEpoch, st.StateEpoch = mirrormsg.LogTruncation, leader, state
	r := stateRecord(key(0), st)
	l.Apply(0, r)
	l.records = append(l.records, r)
	return l
}

func (l *logged) read() Status { return l.run(l.Read([]Key{key(0)}, nil)).Reply.([]Status)[0] }

// accepted checks what a write makes of the epochs, and refused that it makes nothing of them.
func (l *logged) accepted(t *testing.T, leader, state, wantLeader, wantState int32) {
	t.Helper()
	n := len(l.records)
	st, err := l.writeOne(to(mirrormsg.LogTruncation, leader, state))
	if err != nil || st.LeaderEpoch != wantLeader || st.StateEpoch != wantState || len(l.records) != n+1 {
		t.Errorf("write: %+v, %v, %d records; want epochs %d and %d by one record", st, err, len(l.records)-n, wantLeader, wantState)
	}
}

func (l *logged) refused(t *testing.T, leader, state int32, want api.Code) {
	t.Helper()
	n, before := len(l.records), l.read()
	if _, err := l.writeOne(to(mirrormsg.Mirroring, leader, state)); codeOf(err) != want {
		t.Errorf("write: %v, want %s", err, want.Name())
	}
	if len(l.records) != n || l.read() != before {
		t.Errorf("a fenced write left %d records and %+v, before it was %+v", len(l.records)-n, l.read(), before)
	}
}

// 72. First state write without epochs: one record, state epoch 1.
func TestScenario72(t *testing.T) { newLogged().accepted(t, -1, -1, -1, 1) }

// 73. Second write after replaying the first: state epoch 2.
func TestScenario73(t *testing.T) {
	l := newLogged()
	l.accepted(t, -1, -1, -1, 1)
	l.replayed().accepted(t, -1, 1, -1, 2)
}

// 74. Known leader epoch 5, write with 3: FENCED_LEADER_EPOCH.
func TestScenario74(t *testing.T) { known(t, 5, 1).refused(t, 3, -1, api.FencedLeaderEpoch) }

// 75. Known leader epoch 10, write with -1: accepted.
func TestScenario75(t *testing.T) { known(t, 10, 1).accepted(t, -1, 1, 10, 2) }

// 76. Both stale (leader epoch 3 < 5, state epoch 3 < 5): the leader epoch check is reported first.
func TestScenario76(t *testing.T) { known(t, 5, 5).refused(t, 3, 3, api.FencedLeaderEpoch) }

// 78. Known state epoch 5, write expecting 3: FENCED_STATE_EPOCH.
func TestScenario78(t *testing.T) { known(t, 1, 5).refused(t, 1, 3, api.FencedStateEpoch) }

// 79. Fenced write leaves state and epoch unchanged and produces no record.
func TestScenario79(t *testing.T) {
	l := known(t, 5, 5)
	l.refused(t, 4, 5, api.FencedLeaderEpoch)
	l.refused(t, 5, 6, api.FencedStateEpoch)
	l.accepted(t, 5, 5, 5, 6)
}

// 80. Known state epoch 10, write with -1: accepted, new epoch 11.
func TestScenario80(t *testing.T) { known(t, 1, 10).accepted(t, 1, -1, 1, 11) }

// 83. Replay restores the leader epoch: read returns it.
func TestScenario83(t *testing.T) { readsBack(t) }

// 84. Replay restores state and state epoch.
func TestScenario84(t *testing.T) { readsBack(t) }

// 85. Read answers leader epoch and state epoch.
func TestScenario85(t *testing.T) { readsBack(t) }

// 86. Read answers state epoch and numeric state.
func TestScenario86(t *testing.T) { readsBack(t) }

func readsBack(t *testing.T) {
	st := known(t, 7, 4).replayed().read()
	if st.LeaderEpoch != 7 || st.StateEpoch != 4 || st.State != mirrormsg.LogTruncation || int8(st.State) != 0 {
		t.Errorf("read: %+v", st)
	}
}

// 87. Tombstone clears the leader epoch (read: -1).
func TestScenario87(t *testing.T) { tombstoned(t) }

// 88. Tombstone clears the state epoch (0) or the whole entry.
func TestScenario88(t *testing.T) { tombstoned(t) }

func tombstoned(t *testing.T) {
	l := known(t, 7, 4)
	l.Apply(1, machine.Record{Key: stateRecord(key(0), NoStatus()).Key})
	if st := l.read(); st != NoStatus() {
		t.Errorf("after the tombstone: %+v", st)
	}
	if keys := l.Keys(""); len(keys) != 0 {
		t.Errorf("entries are left: %v", keys)
	}
}
