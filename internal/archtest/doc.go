// Package archtest holds the rules of the source tree as tests: which package may import which
// (imports point down the tiers of docs/architecture.md), what no package may do, and what each must have.
// A test prints the rule it enforces, so that whoever breaks one learns why it is there.
package archtest
