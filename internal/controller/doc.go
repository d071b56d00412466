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
// Invariants:
//   - a partition's leader is in its ISR, its ISR is within its replicas and never empty;
//   - leader epochs and partition epochs only grow;
//   - a fenced broker leads nothing;
//   - a broker epoch is never given twice.
package controller
