// Package config is the one table of configuration keys and the typed settings derived from it.
//
// The idea: every key of Apache Kafka 4.4 (broker, topic, group), every key of a cluster mirror and Milena's own keys stand
// in one table (walked with [Keys]) with type, default, bounds, how it may change, documentation and a [Support]:
//
//   - [Honoured]: Milena does what the key says.
//   - [WithoutMeaning]: the key sizes or tunes something Milena doesn't have (threads, pools, a feature that can't be used
//     unnoticed). It is accepted and listed once at start.
//   - [Refused]: ignoring the key would change durability, security or semantics. A value other than the ones that ask for
//     nothing is an error that says why and what to do.
//
// No other package reads the table. They get small typed structs: [Node] (settings of a process; [Live] is how they change
// while it runs) and [Topic] (what one topic's log needs), check values with [Validate] and [ValidateAll] before they are
// stored, and show them with the Describe functions. docs/configuration.md is generated from the table.
//
// Invariants:
//
//   - A value in a [Node] or [Topic] has passed the bounds of its key: a file that doesn't pass stops the start; a stored
//     value that doesn't pass is left out and the next source counts.
//   - Precedence, strongest first: dynamic config of this broker, dynamic cluster default, server.properties, default
//     (KIP-226); a topic's own configs stand above those, broker keys are their synonyms.
//   - An unspecified address is never advertised.
//   - Passwords never leave the package in an error or a description.
//
// Names, types, defaults, bounds and messages are held against a dump of Kafka 4.4.0's own definitions in testdata.
//
// Follows KIP-226 (dynamic broker configs), KIP-339 (incremental alter), KIP-569 (documentation in DescribeConfigs), KIP-848
// (group configs) and KIP-1279 (mirror configs; spec 9 with decisions D3, D4, D8, D11, D12).
package config
