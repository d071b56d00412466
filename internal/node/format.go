package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"milena/internal/ids"
	"milena/internal/logdir"
)

// lostFound is in the root of a fresh ext4 file system.
const lostFound = "lost+found"

// format formats the log directories of a fresh single node: no controller.quorum.* key is set and all of them are empty. In
// every other case an operator does it with `milena storage format`.
func (n *Node) format() error {
	c := n.o.Config
	fresh := 0
	dirs := n.formattedDirs()
	for _, dir := range dirs {
		_, err := n.o.FS.Stat(filepath.Join(dir, "meta.properties"))
		switch {
		case err == nil, !errors.Is(err, fs.ErrNotExist):
			continue // one that can't be read is offline, which the directories' opening deals with
		}
		names, err := n.o.FS.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		names = slices.DeleteFunc(names, func(e fs.DirEntry) bool { return e.Name() == lostFound })
		if slices.ContainsFunc(names, func(e fs.DirEntry) bool { return e.Name() == quorumDir }) && !slices.Contains(c.LogDirs, dir) {
			return nil // a separate metadata.log.dir of an earlier release has no meta.properties
		}
		if len(names) > 0 {
			return fmt.Errorf("log directory %s holds files but no meta.properties: it is not formatted; empty it, or run milena storage format", dir)
		}
		fresh++
	}
	if fresh == 0 || fresh < len(dirs) {
		return nil // all are formatted, or one was added, which the directories' opening deals with
	}
	if c.QuorumConfigured {
		return errors.New("the log directories are not formatted and controller.quorum.* is set: run milena storage format --cluster-id ID --config FILE on this node first")
	}
	id, err := ids.New(n.o.Random)
	if err != nil {
		return err
	}
	n.log.Info("formatting the log directories of a new cluster", "cluster", id.String(), "directories", dirs)
	return logdir.Format(logdir.FormatOptions{FS: n.o.FS, Dirs: dirs, NodeID: c.ID, ClusterID: id.String(), NewID: func() (ids.UUID, error) { return ids.New(n.o.Random) }})
}
