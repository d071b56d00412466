// Package peertest runs real programs for tests and benchmarks: the milena binary, Apache Kafka from its jars,
// and client tools, each as a process with its own folder, ports and log, and compares what brokers left on disk.
//
// Every process leads a process group that is killed as a whole, and dies with its parent, so that a failed run
// leaves nothing behind. Nothing waits without a deadline. The caller owns the folders.
package peertest
