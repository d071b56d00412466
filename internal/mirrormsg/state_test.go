package mirrormsg

import (
	"encoding/json"
	"os"
	"testing"
)

// Names and numbers are the specification's.
func TestStatesFollowTheSpecification(t *testing.T) {
	b, err := os.ReadFile("testdata/enums.json")
	if err != nil {
		t.Fatal(err)
	}
	var enums struct {
		PartitionStates []struct {
			Value int8
			Name  string
		} `json:"partitionStates"`
	}
	if err := json.Unmarshal(b, &enums); err != nil {
		t.Fatal(err)
	}
	if len(enums.PartitionStates) != len(stateNames) {
		t.Fatalf("%d states in the table, %d here", len(enums.PartitionStates), len(stateNames))
	}
	for _, e := range enums.PartitionStates {
		if got := State(e.Value).String(); got != e.Name {
			t.Errorf("state %d is called %s, want %s", e.Value, got, e.Name)
		}
		if got, err := ParseState(e.Name); err != nil || got != State(e.Value) {
			t.Errorf("ParseState(%s) = %d, %v", e.Name, got, err)
		}
	}
	if _, err := ParseState("RUNNING"); err == nil {
		t.Error("an unknown name was read")
	}
}

// The table of spec 7.3, target by target.
func TestLegalTransitions(t *testing.T) {
	all := []State{Unknown, LogTruncation, EpochFencing, ULELogTruncation, Mirroring, Pausing, Paused, Stopping, Stopped, Failed}
	legal := map[State][]State{
		LogTruncation:    {Unknown, Stopped, Failed},
		EpochFencing:     {Mirroring, Failed},
		ULELogTruncation: {Mirroring, Failed},
		Mirroring:        {LogTruncation, EpochFencing, ULELogTruncation, Paused, Failed},
		Pausing:          {Mirroring, Failed},
		Paused:           {Pausing},
		Stopping:         {EpochFencing, ULELogTruncation, Mirroring, Pausing, Paused, Failed},
		Stopped:          {Stopping},
		Failed:           all,
	}
	for _, to := range all {
		for _, from := range all {
			want := to == from
			for _, f := range legal[to] {
				want = want || f == from
			}
			if got := to.CanFollow(from); got != want {
				t.Errorf("%s -> %s: %t, want %t", from, to, got, want)
			}
		}
	}
}

// Values computed with java.lang.String.hashCode.
func TestJavaHash(t *testing.T) {
	for s, want := range map[string]int32{
		"": 0, "a": 97, "dr": 3214, "polygenelubricants": -1 << 31, "mirror:AAAAAAAAAAAAAAAAAAAAAA:0": -1182090255, "grüße": 98768023, "😀": 1772899,
	} {
		if got := JavaHash(s); got != want {
			t.Errorf("JavaHash(%q) = %d, want %d", s, got, want)
		}
	}
	if got := Slot("polygenelubricants", 50); got != 0 {
		t.Errorf("Slot of the smallest integer = %d, want 0", got)
	}
}
