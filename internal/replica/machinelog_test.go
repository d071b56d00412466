package replica

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"milena/internal/api"
	"milena/internal/machine"
	"milena/internal/partlog"
	"milena/internal/record"
)

func TestMachineLog(t *testing.T) {
	r := newRig(t)
	p := r.get(r.topic(1, 1), 0)
	r.lead(1, self, 3)
	var marks []int64
	var lost []error
	l := p.MachineLog(3, func(hw int64) { marks = append(marks, hw) }, func(err error) { lost = append(lost, err) })
	defer l.Close()
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	recs := []machine.Record{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("b"), Value: nil}}
	if last, err := l.Append(recs); err != nil || last != 1 {
		t.Fatalf("first append: %d, %v", last, err)
	}
	marker := record.EndTxnMarker(false, 0, 7, 0, 1000)
	if _, err := p.Append(marker, AppendOptions{Origin: partlog.OriginCoordinator, Epoch: AnyEpoch}); err != nil {
		t.Fatal(err)
	}
	if last, err := l.Append([]machine.Record{{Key: []byte("c"), Value: []byte{}}}); err != nil || last != 3 {
		t.Fatalf("second append: %d, %v", last, err)
	}
	if !slices.Equal(marks, []int64{2, 3, 4}) {
		t.Fatalf("told high watermarks %v", marks)
	}
	if end, hw := l.EndOffset(), l.HighWatermark(); end != 4 || hw != 4 {
		t.Fatalf("end %d, high watermark %d", end, hw)
	}
	replay := func(l *MachineLog) (got []string, err error) {
		err = l.Replay(func(off int64, rec machine.Record) error {
			got = append(got, fmt.Sprintf("%d %s=%s %v", off, rec.Key, rec.Value, rec.Value == nil))
			return nil
		})
		return got, err
	}
	want := []string{"0 a=1 false", "1 b= true", "3 c= false"}
	if got, err := replay(l); err != nil || !slices.Equal(got, want) {
		t.Fatalf("replay: %q, %v; want %q", got, err, want)
	}
	stop := errors.New("stop")
	if err := l.Replay(func(int64, machine.Record) error { return stop }); !errors.Is(err, stop) {
		t.Fatalf("replay that is stopped: %v", err)
	}

	r.lead(1, self, 4)
	if len(lost) != 1 {
		t.Fatalf("lost %v times after a new epoch", lost)
	}
	_, err := l.Append(recs)
	wantCode(t, err, api.FencedLeaderEpoch)
	wantCode(t, l.Check(), api.FencedLeaderEpoch)
	_, err = replay(l)
	wantCode(t, err, api.FencedLeaderEpoch)

	next := p.MachineLog(4, func(int64) {}, func(err error) { lost = append(lost, err) })
	if got, err := replay(next); err != nil || !slices.Equal(got, want) {
		t.Fatalf("replay in the next epoch: %q, %v", got, err)
	}
	next.Close()
	r.lead(1, 2, 5)
	if len(lost) != 1 {
		t.Fatal("a closed log was told of the loss")
	}
	p.MachineLog(4, func(int64) {}, func(err error) { lost = append(lost, err) })
	if len(lost) != 2 {
		t.Fatal("a log of an old epoch wasn't told that it is lost")
	}
	wantCode(t, lost[1], api.FencedLeaderEpoch)
}

func TestMachineLogReplaysManySegments(t *testing.T) {
	r := newRigOn(t, newMem(), func(s *Settings) { s.Log.SegmentBytes = 4 << 10 })
	p := r.get(r.topic(1, 1), 0)
	l := p.MachineLog(0, func(int64) {}, func(error) {})
	defer l.Close()
	const n = 300
	for i := range n {
		if _, err := l.Append([]machine.Record{{Key: fmt.Append(nil, i), Value: make([]byte, 100)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.AdvanceLogStart(10); err != nil {
		t.Fatal(err)
	}
	next := int64(10)
	if err := l.Replay(func(off int64, rec machine.Record) error {
		if off != next || string(rec.Key) != fmt.Sprint(next) {
			return fmt.Errorf("record %s at %d, want %d", rec.Key, off, next)
		}
		next++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if next != n {
		t.Fatalf("replayed up to %d", next)
	}
}
