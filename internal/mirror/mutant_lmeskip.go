//go:build mutant_lmeskip

package mirror

const mutant = "lmeskip"
