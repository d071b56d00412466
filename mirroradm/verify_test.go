package mirroradm

import "testing"

// The same seed chooses the same chunks, about as many as asked for.
func TestSample(t *testing.T) {
	n := 0
	a, b := &Verifier{Sample: 0.25, Seed: 7}, &Verifier{Sample: 0.25, Seed: 7}
	for i := range int64(4000) {
		r := VerifyRange{Topic: "t", Partition: 3}
		if a.chosen(r, i) != b.chosen(r, i) {
			t.Fatal("not repeatable")
		}
		if a.chosen(r, i) {
			n++
		}
	}
	if n < 850 || n > 1150 {
		t.Errorf("%d of 4000", n)
	}
	if !(&Verifier{}).chosen(VerifyRange{}, 5) || !(&Verifier{Sample: 1}).chosen(VerifyRange{}, 5) {
		t.Error("without a sample all are chosen")
	}
}
