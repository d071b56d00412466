package mirroradm

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// What lies in a log that is being aligned with its source is not compared: the source may have none of it, and it is about to be cut.
func TestPlanDuringTheAlignment(t *testing.T) {
	at := func(n int64) kadm.ListedOffsets {
		return kadm.ListedOffsets{"t": {0: kadm.ListedOffset{Topic: "t", Offset: n}}}
	}
	p := planner{srcStart: at(0), srcEnd: at(300), dstStart: at(0), dstEnd: at(302)}
	for state, want := range map[string]string{"LOG_TRUNCATION": "being aligned", "UNKNOWN": "unknown", "STOPPED": ""} {
		r, d, err := p.plan(t.Context(), Partition{Topic: "t", State: state, LastMirrorOffset: 300})
		switch {
		case d != nil:
			t.Errorf("%s: a difference: %+v", state, d)
		case want == "" && (err != nil || r.To != 300):
			t.Errorf("%s: %+v %v", state, r, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", state, err)
		}
	}
}
