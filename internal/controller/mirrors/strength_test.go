package mirrors_test

import (
	"strings"
	"testing"

	"milena/internal/controller/mirrors"
)

// D16: "topics that are weaker than on the source, in these or in replication factor"; what isn't known is not said.
func TestWeaker(t *testing.T) {
	for _, c := range []struct {
		source, here mirrors.Strength
		want         string
	}{
		{mirrors.Strength{"3", "2", "false"}, mirrors.Strength{"3", "2", "false"}, ""},
		{mirrors.Strength{"3", "2", "false"}, mirrors.Strength{"2", "1", "true"},
			"min.insync.replicas is 2 on the source and 1 here; replication factor is 3 on the source and 2 here; unclean.leader.election.enable is false on the source and true here"},
		{mirrors.Strength{"1", "1", "true"}, mirrors.Strength{"3", "2", "false"}, ""},
		{mirrors.Strength{"3", "", ""}, mirrors.Strength{"", "1", "true"}, ""},
	} {
		if got := strings.Join(mirrors.Weaker(c.source, c.here), "; "); got != c.want {
			t.Errorf("%v %v: %q", c.source, c.here, got)
		}
	}
}
