// Package replica holds the partitions this broker has a replica of: who
// leads them, what may be appended, how far they are committed, and who waits
// for that.
//
// # Idea
//
// A Manager applies metadata deltas in order and keeps one Partition for each
// local replica, on a partlog.Log opened through logdir. A Partition adds to
// the log what replication needs: the leader epoch, the in-sync replicas, the
// high watermark, an append gate by origin, and the list of those who wait.
//
// # Invariants
//
//   - The high watermark of a partition never moves backwards, except by a
//     truncation, and never lies outside [log start, log end].
//   - The high watermark is the smallest log end of the in-sync replicas
//     (committed); a leader alone in its ISR commits at append. Where
//     flush.messages is 1 the leader's own log end counts up to the recovery
//     point only, so what is acknowledged is on disk.
//   - Appends run side by side, but none beside a change of leadership, of
//     the gate, or a truncation (Partition.mu): when SetGate or an Apply
//     returns, no append that the new state refuses is still under way.
//   - A waiter is called exactly once, without any lock of this package held:
//     by the offset it waits for, or by the change of leader, the deletion or
//     the failed directory that makes waiting pointless. Deadlines belong to
//     whoever waits, who cancels.
//   - Nothing here polls; a fetch registers a Watch with its partitions and is
//     marked dirty by them.
//
// Fetch sessions are KIP-227, topic ids KIP-516, divergence KIP-595.
package replica
