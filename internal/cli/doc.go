// Package cli is the command line of the one binary: the server, the demo, and client commands that work against
// Milena and Apache Kafka alike.
//
// Output meant for programs goes to standard output (tables, or JSON with --json); everything else to standard
// error. An error is one plain line there that says what to do. Exit codes are stable: see [ExitCode] and docs/cli.md.
package cli
