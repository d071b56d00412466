// Package sim runs clusters in virtual time, with seeded faults, and checks what must always hold. It has tests only.
//
// There are two levels, and one more of the second.
//
// Cores (core_*_test.go): the pure parts (raft, the controller's state, partitions with their ISR arithmetic and logs,
// the group coordinator) run in one goroutine under one event loop. Messages between them are events, time is that of
// a synctest bubble, and nothing but the seed decides: the same seed gives the same trace, bit for bit. A bug found
// there is reproduced by its seed alone.
//
// Cores of mirrors (mcore_*_test.go): two such clusters, and a line between them, under one event loop. Each broker has the product's
// mirror.Manager, with all its goroutines (the partitions' drivers, the fetchers, refresh and group sync) as coroutines of the loop: mirror.Tasks
// and mirror.Links are what they start, wait and reach the source by. One seed is one trace there as well.
//
// Nodes (node_*_test.go, build tag synctests, which franz-go needs): whole nodes and real clients in a bubble, on a network in memory
// whose every delivery has a seeded delay. The seed decides topology, workload and faults; the scheduler stays free, so a
// seed that fails is rerun to say how often it does.
//
// Mirrors (mirror_*_test.go, the same tag): two clusters of such nodes, with clients, faults and a line between them, which mirror
// each other in turn: start, stop, failback, restart. mirrorCheck lists what must hold. Pairs are the same with one node a side, which cost
// a quarter.
//
// The first two write a history that the checker holds against the invariants of docs/architecture.md: what was acknowledged is
// there once and in order, replicas agree below their high watermarks, epoch caches are those of the batches, committed
// offsets don't go back, consumers see nothing that isn't committed, and after healing the cluster can be written to again.
// history_rules_test.go proves with bad histories that each rule is caught; `make sim-mutants` proves it with deliberate faults in
// the code (mutant_*.go in the packages concerned, by build tag).
//
//	make sim SEEDS=1000 [FROM=1]     # all of them
//	go test ./internal/sim -run 'TestCores/seed-17$' -sim.v     # one seed, with its event log
//	go test ./internal/sim -run TestMirrorCores -sim.mcfrom=17 -sim.mcseeds=1 -sim.v
package sim
