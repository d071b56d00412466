//go:build !mutant_reply

package machine

// mutant names the deliberate fault that this build has; none. The simulation must catch each of them: see internal/sim.
const mutant = ""
