//go:build mutant_epoch

package replica

const mutant = "epoch"
