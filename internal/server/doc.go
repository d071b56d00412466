// Package server takes Kafka connections: it accepts them, reads request
// frames, hands each to the handler of its API and writes the replies. It knows
// no API's meaning.
//
// # Order
//
// A connection's requests are handed to handlers one after the other, in the
// order they came, on the connection's reader goroutine. A handler that has to
// wait returns and replies later, from any goroutine; the reader goes on with
// the next frame meanwhile, up to [Options.MaxInFlightPerConn] requests without
// a reply. Replies leave in request order, whatever order they were made in.
//
// # Memory
//
// A frame is read into a pooled buffer after its length has been checked
// against [Options.MaxFrame] and taken from the budget
// [Options.QueuedMaxBytes]; when the budget is used up the reader stops reading
// its socket. The buffer goes back at [Request.Reply]. Record bytes of a reply
// are spans: they are read through a buffer of about 1 MiB while they are sent.
// An idle connection has one goroutine and a small read buffer; a writer
// goroutine exists only while replies that were made elsewhere are written.
//
// # Faults
//
// A malformed frame, a panic in a handler, or an error on the socket closes
// that connection and no other.
package server
