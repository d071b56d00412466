// Package formats holds the tests of what is on disk: testdata/formats has a data directory of every released format, and
// each is opened by a node of this release, which must find in it what its release put there. The formats are described in
// docs/formats.md.
//
//	testdata/formats/v1/data            what a node of version 0.1 left, stopped cleanly
//	testdata/formats/v1/expected.json   what is in it
//
// A released format is never written again. `go test ./internal/formats -update` writes the newest one, while it is not
// released.
package formats
