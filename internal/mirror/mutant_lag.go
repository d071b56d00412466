//go:build mutant_lag

package mirror

const mutant = "lag"
