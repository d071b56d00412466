// Package machine is the one runtime for state machines that live in a log:
// the controller over the metadata quorum, and each coordinator shard over a
// partition of an internal topic.
//
// A state machine is a plain struct owned by one goroutine. A command reads it
// and returns records and a reply. The runtime applies the records at once (so
// the next command sees them), appends the records of all commands of one
// flush as one batch, and holds each reply until the log's commit point has
// passed what the reply depends on. So no client ever learns of a state that a
// lost leadership could take back, and no command ever waits for another's
// commit.
//
// Invariants:
//
//   - Apply is called for every record exactly once, in offset order, on the
//     goroutine that owns the machine: at load for what the log holds, then for
//     each record a command returns.
//   - A reply leaves no earlier than the commit of the records its command
//     returned and of the last write of every entity it names. The exceptions
//     are Result.NoWait and SubmitNow, which say so.
//   - A failed append or a lost leadership is final: every waiter gets ErrLost,
//     no command runs afterwards, and the owner throws machine and runtime away
//     and loads new ones.
//   - A caller whose context ends gets the context's error; its write stays
//     pending and is neither undone nor repeated.
//
// Core holds the logic without goroutine or clock, for simulations; Runtime
// drives a Core with one goroutine (run.go).
package machine
