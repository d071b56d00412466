// Package disk is the broker's file system as a value: the real one, an
// in-memory one that can crash, and a decorator that injects faults.
//
// Durability is explicit. Bytes written to a file survive a crash only after
// [File.Sync]; a file's or directory's name (its creation, rename or removal)
// survives only after [FS.SyncDir] on the directory that holds it. [Mem] drops
// whatever was not made durable this way, so a test finds a missing sync.
//
// Writes append: Write and Writev put bytes at the end of the file, wherever
// that is after Truncate or WriteAt. A file has one writer at a time (the owner
// of the handle); ReadAt and Size may run concurrently with it.
package disk
