// Package node builds a process from its roles: it opens the disks, starts the controller and the broker, ties each part to
// the next, and stops them in order.
//
// Controller and broker never call each other: they talk over the API, in one process over an in-memory connection, so
// that combined and split roles behave alike. What a test has to replace (disk, listeners, dialer, random source, logger)
// is an option.
package node
