//go:build mutant_ack

package replica

const mutant = "ack"
