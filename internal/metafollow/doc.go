// Package metafollow is a broker's side of the metadata quorum: it follows the committed
// metadata log by Fetch and FetchSnapshot from a controller, as Kafka's observers do
// (KIP-595, KIP-630), registers the broker and keeps its session (KIP-631), and takes
// blocks of producer ids.
//
// A broker never looks into a controller's memory, not even in its own process: all of
// this goes through connections ([Link]).
//
// Invariants:
//   - subscribers see every change of the metadata exactly once and in order, all on one
//     goroutine;
//   - [Follower.Image] moves on after all subscribers have taken the delta that leads to
//     it, so whoever sees a topic there finds its partitions opened;
//   - only committed records are applied.
package metafollow
