// Package partlog is the log of one partition, in Kafka's files: segments
// (.log, .index, .timeindex, .txnindex), producer snapshots (.snapshot), the
// leader-epoch-checkpoint and partition.metadata.
//
// Invariants:
//   - One writer at a time (Log.mu); readers take an immutable list of
//     segments and the published tail and never wait for a writer.
//   - Offsets and leader epochs never decrease along the log. The epoch cache
//     holds exactly the epochs of batches that were appended and not
//     truncated; nothing is registered at elections (spec D1).
//   - Bytes below the recovery point are on disk. Everything else that Open
//     finds (indexes, producer snapshots, checkpoints) can be rebuilt from
//     the .log files, so only the tail from the recovery point is scanned
//     after an unclean end.
//   - The last five batches of a producer are known as duplicates whatever was
//     restarted or cut: producer snapshots hold one of them, the others are read
//     from the log at the first retry (see Log.recall).
//   - The log knows nothing of replication: the high watermark is told to it
//     with UpdateHighWatermark and bounds retention and compaction.
//
// Followed: KIP-98 (idempotence, transactions), KIP-101 and KIP-279 (leader
// epochs), KIP-534 (delete horizon), KIP-360 (producer state after loss).
package partlog
