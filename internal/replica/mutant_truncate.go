//go:build mutant_truncate

package replica

const mutant = "truncate"
