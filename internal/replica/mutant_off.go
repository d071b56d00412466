//go:build !mutant_ack && !mutant_truncate && !mutant_epoch && !mutant_shrink && !mutant_elect && !mutant_ahead

package replica

// mutant names the deliberate fault that this build has; none. The simulation must catch each of them: see internal/sim.
const mutant = ""
