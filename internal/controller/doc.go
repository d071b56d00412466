// Package controller decides on the cluster's metadata: which brokers belong to it, which
// topics there are and where their partitions lie, who leads them, and all configs.
//
// [State] is the pure machine: commands read the speculative image (what is committed plus
// what this leadership has appended since) and return metadata records; applying the
// records is the only way the state changes. It has no goroutine and no clock and reads
// randomness from its options only, so a simulation runs it with a seed. [Service] runs a
// State while this node leads the quorum.
//
// Requests about several topics or resources are atomic for each of them: one that is
// refused doesn't hold up the others. What else may refuse a change (a mirror that owns
// the topic) is asked through [Guard]; further commands, such as those on mirrors, are
// functions over a State handed to [Service.Do].
//
// What follows from a change of a partition's ISR, replicas or brokers is decided in one
// place, [plan]: the eligible leader replicas (ELR, KIP-966), the leader, and whether a
// reassignment is complete. While the ISR is smaller than min.insync.replicas the leaders'
// high watermark stands, so whoever leaves the ISR has all of it and stays eligible, until
// its broker stops without a clean shutdown, or its directory fails.
//
// Invariants:
//   - a partition's leader is in its ISR, and ISR, ELR and last known leaders are replicas,
//     never all three empty;
//   - the ELR is empty when the ISR has min.insync.replicas members;
//   - leader epochs and partition epochs only grow;
//   - a fenced broker leads nothing;
//   - a broker epoch is never given twice.
package controller
