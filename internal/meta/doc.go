// Package meta holds the cluster's metadata: the records of the metadata log, the
// immutable [Image] they add up to, and the [Delta] between two images.
//
// Records carry Kafka's names, record ids, fields and binary layout (KIP-631 and its
// successors), so Kafka's own tools read them. An Image never changes after it was
// made: readers share it without locks. A [Draft] is the one way to a new Image; it
// copies only the tree nodes on the path to what changed, so a change costs what
// changed and not what the cluster holds.
//
// Invariants:
//   - replaying a log from its start and applying it piecewise give equal images;
//   - [Image.Records] of an image, applied to an empty image, gives an equal image;
//   - the topics by name and by id are always the same set.
//
// The package is pure: no clock, no goroutine, no I/O. What a mirror means is not
// known here; a topic carries its mirror's name and the wished state as plain data.
package meta
