//go:build !mutant_elect

package replica

// elected does nothing: epoch caches are fed by batches only (spec D1). A mutant has it otherwise.
func (p *Partition) elected(int32) {}
