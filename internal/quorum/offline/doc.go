// Package offline works on a node's metadata directory while no node runs on it: formatting
// with the first voters and feature levels as Kafka's storage tool does (KIP-853), reading
// the log as JSON lines, backup, and restore.
//
// A restore begins a new quorum. So that nothing of the lost one can pass for newer than
// it, the new log goes on far above the backup's end offset and epoch, and partitions'
// leader epochs and the producer ids are moved on as well: the jumps are far more than what can
// have happened since the backup was made. Voters of the old quorum are told from those of
// the new one by the generation.
package offline
