// Package quorum keeps the metadata log: a raft group of controllers
// (go.etcd.io/raft, driven by one goroutine) over its own log and snapshot files.
//
// Each data entry of the raft log is one Kafka record batch. Its base offset is
// the metadata offset and its leader epoch the raft term, both stamped by the
// leader when it proposes, so brokers follow the committed log with Fetch and
// FetchSnapshot as Kafka's observers do (KIP-595, KIP-630). Entries without data
// (a new leader's first entry, membership changes) take no metadata offset.
//
// Invariants:
//
//   - Metadata offsets are consecutive: a batch's base offset is the last offset
//     of the batch before it plus one, since only the leader of a term proposes,
//     nothing is forwarded, and a follower's log is the leader's.
//   - A message or reply that vouches for an entry, vote or term leaves only
//     after they are on disk (append and fdatasync, one sync for all that is
//     waiting).
//   - The high watermark is the offset after the last committed batch. It never
//     moves back.
//   - A snapshot replaces a prefix of committed entries; entries are dropped only
//     after the snapshot file is durable.
//   - A storage error ends the node through Options.Fatal, once, and nothing is
//     sent afterwards.
//
// A voter is known by node id and directory id, so a wiped disk is a new member
// (KIP-853).
package quorum
