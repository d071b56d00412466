//go:build mutant_lmelate

package mirror

const mutant = "lmelate"
