// Package follow is the fetch loop of replication: it copies what other
// brokers lead into the local replicas.
//
// # Idea
//
// One loop for each (leader broker, shard) owns a connection, an incremental
// fetch session (KIP-227) and the partitions that this broker follows from
// there; a partition's shard is fixed by its id. A loop has one request in
// flight. What comes is appended from the response's buffer without a copy.
//
// The replica.Manager says when what a partition may follow has changed
// (OnFollow); this package then looks at Partition.Following and moves it
// between loops. It works on the state, not on the event: a loop takes the
// leader and its epoch from the partition for each request, and the partition
// refuses what was fetched under another.
//
// # Invariants
//
//   - Every fetch carries the leader epoch, the epoch of the last batch and the
//     broker epoch (KIP-595, KIP-903). A log is cut by the leader's diverging
//     epoch only, never to the high watermark.
//   - A fetch offset vouches for what is below it: Partition.Position flushes
//     before where only durable records count.
//   - A partition that failed is left out of the requests until its pause is
//     over or its leader epoch changes; others are not held up.
package follow
