// Package group is the group coordinator: consumer groups of the classic
// protocol, and the offsets that groups commit.
//
// # Idea
//
// Each partition of __consumer_offsets is a shard: a Machine on the machine
// runtime, which owns the groups whose id hashes to the partition. Machine is a
// plain struct; it takes the time as an argument and answers with Effects:
// records to append, and the waiting callers to answer once those records are
// committed. What a group remembers over a change of coordinator is in the
// records (generation, protocol, members and their assignments of a stable
// generation, committed offsets), in Kafka's own formats; what it doesn't
// (waiting joins and syncs, members that were only given an id, session
// deadlines) lives in the struct and starts afresh after a load. Service
// follows the metadata, loads and unloads shards with the leadership of the
// partitions, and finds the shard of a group.
//
// # Invariants
//
//   - A group's generation never goes back while a coordinator lives, and a new
//     coordinator continues from the last generation that was stored.
//   - All members of a generation are told the same leader and protocol, and the
//     protocol is one that every member supports.
//   - An assignment or a committed offset is shown to a client only after its
//     record is committed.
//   - A committed offset changes only by a commit, an administrative change, or
//     by its removal (delete, expiry, deleted topic).
//   - Every join and sync that waits is answered exactly once: by the group, by
//     its timers, or with NOT_COORDINATOR when the shard is unloaded.
//   - Replaying a shard's records gives the groups and offsets that were last
//     stored; no map order decides anything.
//
// It follows KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-211
// (expiry), KIP-320 (leader epochs), KIP-345 (static members), KIP-394 (member
// id required), KIP-496 (offset delete), KIP-518 and KIP-1043 (list, describe),
// KIP-559 (protocol checks at sync), KIP-814 (skip assignment) and the topic ids
// of KIP-848. Groups of the KIP-848 protocol are not served; their records in a
// log written by Apache Kafka are ignored.
package group
