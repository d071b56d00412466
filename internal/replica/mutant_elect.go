//go:build mutant_elect

package replica

const mutant = "elect"

// elected has the epoch cache hold an epoch of which there is no batch.
func (p *Partition) elected(epoch int32) { p.l().AssignEpoch(epoch) }
