//go:build mutant_shrink

package replica

const mutant = "shrink"
