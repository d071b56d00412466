// Package logdir owns the log directories of a node: the lock that keeps a
// second process out, the directory's identity (meta.properties), its
// checkpoints, the clean shutdown file, the partitions' logs in it, and the
// loops that flush, expire and compact them.
//
// A directory that fails (an I/O error) goes offline: its logs are closed and
// Options.OnOffline is called; the process and other directories go on.
package logdir
