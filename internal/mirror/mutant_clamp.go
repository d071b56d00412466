//go:build mutant_clamp

package mirror

const mutant = "clamp"
