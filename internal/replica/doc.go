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
// Replication is Kafka's (subpackage follow has the fetch loop): a follower's
// fetch says how far it has the log, the leader moves the high watermark by
// that and tells it with the next answer. Who is in sync is the controller's
// decision: a leader proposes (propose.go), alter.go asks with AlterPartition.
//
// # Invariants
//
//   - The high watermark of a partition never moves backwards, except by a
//     truncation, and never lies outside [log start, log end].
//   - The high watermark is the smallest log end of the in-sync replicas
//     (committed); a leader alone in its ISR commits at append. While a change of
//     the ISR is under way the replicas of both count, and nothing commits while
//     there are fewer than min.insync.replicas (KIP-966). Where flush.messages is
//     1 the leader's own log end counts up to the recovery point only, and a
//     follower fetches from there only, so what is acknowledged is on disk.
//   - A proposal builds on a partition epoch. It is forgotten when the metadata
//     has a newer one or the controller says that it was not carried out; until
//     then it binds the high watermark.
//   - A follower joins the ISR by a fetch of its own, of the incarnation that is
//     registered (KIP-841, KIP-903).
//   - A produce is acknowledged only in the leadership it was appended in.
//   - Appends run side by side, but none beside a change of leadership, of
//     the gate, or a truncation (Partition.mu): when SetGate or an Apply
//     returns, no append that the new state refuses is still under way.
//   - What was fetched under one leader epoch is neither appended nor cut under
//     another, and a log is cut by the leader's epochs only.
//   - A leader that has cut its log (a mirror's) knows nothing of its followers'
//     logs until they fetch at or below the cut, and cuts those that go beyond,
//     whatever their epochs say. Until the mirror says that the cut is over,
//     followers serve no consumer: they are told by a high watermark of -1.
//   - A waiter is called exactly once, without any lock of this package held:
//     by the offset it waits for, or by the change of leader, the deletion or
//     the failed directory that makes waiting pointless. Deadlines belong to
//     whoever waits, who cancels.
//   - Nothing here polls for records; a fetch registers a Watch with its
//     partitions and is marked dirty by them. ISRs are looked at every second.
//
// Fetch sessions are KIP-227, topic ids KIP-516, divergence KIP-595, reads from
// followers KIP-392, throttles KIP-73, moves between directories KIP-113 and
// KIP-858.
package replica
