package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"milena/internal/ids"
	"milena/internal/logdir"
)

// format formats the log directories of a fresh single node: no controller.quorum.* key is set and all of them are empty. In
// every other case an operator does it with `milena storage format`.
func (n *Node) format() error {
	c := n.o.Config
	fresh := 0
	for _, dir := range c.LogDirs {
		_, err := n.o.FS.Stat(filepath.Join(dir, "meta.properties"))
		switch {
		case err == nil:
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("log directory %s: %w", dir, err)
		}
		names, err := n.o.FS.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("log directory %s: %w", dir, err)
		}
		if len(names) > 0 {
			return fmt.Errorf("log directory %s holds files but no meta.properties: it is not formatted; empty it, or run milena storage format", dir)
		}
		fresh++
	}
	if fresh == 0 || fresh < len(c.LogDirs) {
		return nil // all are formatted, or one was added, which the directories' opening deals with
	}
	if c.QuorumConfigured {
		return errors.New("the log directories are not formatted and controller.quorum.* is set: run milena storage format --cluster-id ID --config FILE on this node first")
	}
	id, err := ids.New(n.o.Random)
	if err != nil {
		return err
	}
	n.log.Info("formatting the log directories of a new cluster", "cluster", id.String(), "directories", c.LogDirs)
	return logdir.Format(logdir.FormatOptions{FS: n.o.FS, Dirs: c.LogDirs, NodeID: c.ID, ClusterID: id.String(), NewID: func() (ids.UUID, error) { return ids.New(n.o.Random) }})
}
