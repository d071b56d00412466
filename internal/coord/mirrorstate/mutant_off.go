//go:build !mutant_stale

package mirrorstate

// mutant names the deliberate fault that this build has; none. The simulation must catch each of them: see internal/sim.
const mutant = ""
