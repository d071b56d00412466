// Package transport carries the messages of the metadata quorum's voters over the controller
// listeners.
//
// Messages travel in RaftMessages requests, an API of Milena's own that only controller
// listeners serve, over internal/peer, so TLS and SASL work as for any client. For each
// voter there is one goroutine with one connection, on which a few requests are under
// way at a time, and a bounded queue; what doesn't fit is dropped, since raft sends again.
// A connection that can't be made is tried again after a growing pause, and what is queued
// meanwhile is dropped: it would be out of date.
//
// Invariants:
//
//   - A request names cluster, generation, sender and receiver (node and directory id). A
//     receiver that is somebody else, or has another quorum, takes nothing of it.
//   - [Transport.Send] never blocks.
//   - The pieces of a snapshot go over a connection of their own, so that they hold up no
//     message.
package transport
