//go:build mutant_elect

package partlog

// AssignEpoch notes that an epoch begins at the log's end, though no batch of it is there.
func (l *Log) AssignEpoch(epoch int32) { l.epochs.assign(epoch, l.EndOffset()) }
