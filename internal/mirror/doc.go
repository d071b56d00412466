// Package mirror moves the bytes of source clusters into partitions that this broker leads, and keeps what belongs to
// them in step: topics, partitions, configs and committed group offsets (KIP-1279; spec 3.4 to 3.7, 7 and 8).
//
// The idea: metadata says what is wished for each topic, the coordinator says where each partition is. For every
// mirror partition led here a Partition compares the two and takes one step after another until they agree, all
// steps of one partition in order on one goroutine. It is level-triggered: whatever wakes it (metadata, the fetcher,
// a loaded coordinator, a timer), it looks at the present state, so no wake-up can be lost and none is needed twice.
//
// A fetcher per source broker reads as a consumer does and appends batches unchanged. What it can't deal with (an
// epoch above our own, an error) it reports to the Partition and lets go of it.
//
// Invariants: no batch with an epoch above the partition's own leader epoch is appended; a write of state carries the
// leader epoch it was decided under; a stopped partition is never touched by its source; lag that isn't known is
// never reported as zero (spec D6).
package mirror
