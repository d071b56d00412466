//go:build mutant_ahead

package replica

const mutant = "ahead"
