//go:build !mutant_lmeskip && !mutant_lmelate && !mutant_clamp && !mutant_lag

package mirror

// mutant names the deliberate fault that this build has; none. The simulation must catch each of them: see internal/sim.
const mutant = ""
