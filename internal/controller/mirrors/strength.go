package mirrors

import (
	"fmt"
	"strconv"
	"strings"
)

// Strength is what keeps a topic's records safe, as configs have it; empty is unknown.
type Strength struct{ ReplicationFactor, MinISR, Unclean string }

// Weaker is in what a copy is weaker than its source (spec D16). What isn't known is not compared.
func Weaker(source, copied Strength) []string {
	var out []string
	less := func(what, a, b string) {
		x, errA := strconv.Atoi(a)
		y, errB := strconv.Atoi(b)
		if errA == nil && errB == nil && y < x {
			out = append(out, fmt.Sprintf("%s is %d on the source and %d here", what, x, y))
		}
	}
	less("min.insync.replicas", source.MinISR, copied.MinISR)
	less("replication factor", source.ReplicationFactor, copied.ReplicationFactor)
	if strings.EqualFold(source.Unclean, "false") && strings.EqualFold(copied.Unclean, "true") {
		out = append(out, "unclean.leader.election.enable is false on the source and true here")
	}
	return out
}
