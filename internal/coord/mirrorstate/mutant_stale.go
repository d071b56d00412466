//go:build mutant_stale

package mirrorstate

const mutant = "stale"
