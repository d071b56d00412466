// Package fetchwire encodes and decodes the messages that carry record
// batches, without copying the batches.
//
// A Fetch response is a list of [Piece]: header bytes with spans of files or
// memory in between, which the connection's writer sends as they are. As a
// client of another cluster the same types are decoded from a response, whose
// record bytes then alias the input.
//
// Versions 4 to 18 of Fetch are served. What each added: 5 the log start
// offset, 7 sessions (KIP-227), 9 the leader epoch (KIP-320), 11 the rack
// (KIP-392), 12 tagged fields, LastFetchedEpoch and DivergingEpoch (KIP-595),
// 13 topic ids (KIP-516), 15 the replica state (KIP-903), 16 node endpoints
// (KIP-951), 17 the directory id (KIP-853), 18 the replica's high watermark
// (KIP-1166).
package fetchwire
