package cli

import (
	"crypto/rand"
	"fmt"

	"github.com/spf13/cobra"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
)

func (a *app) storageCommand() *cobra.Command {
	return group("storage", "Format log directories and make cluster ids", a.storageFormat(), a.storageUUID(), a.storageInfo())
}

func (a *app) storageUUID() *cobra.Command {
	return &cobra.Command{Use: "random-uuid", Short: "Print a new cluster id", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		id, err := ids.New(rand.Reader)
		if err != nil {
			return err
		}
		a.printf("%s\n", id)
		return nil
	}}
}

func (a *app) storageFormat() *cobra.Command {
	var f serverFlags
	var clusterID string
	var ignore, standalone bool
	c := &cobra.Command{
		Use: "format --cluster-id ID", Short: "Format the log directories of a node", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if clusterID == "" {
				return usagef("storage format needs --cluster-id ID: milena storage random-uuid makes one")
			}
			n, _, err := a.nodeConfig(&f)
			if err != nil {
				return err
			}
			err = logdir.Format(logdir.FormatOptions{FS: disk.OS(), Dirs: n.LogDirs, NodeID: n.ID, ClusterID: clusterID, IgnoreFormatted: ignore,
				NewID: func() (ids.UUID, error) { return ids.New(rand.Reader) }})
			if err != nil {
				return &exitError{ExitFailed, err}
			}
			for _, d := range n.LogDirs {
				a.printf("Formatted %s for cluster %s, node %d.\n", d, clusterID, n.ID)
			}
			return nil
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "Kafka's server.properties `FILE`")
	fl.StringVar(&f.dataDir, "data-dir", "", "data `DIR`; wins over log.dirs")
	fl.StringVarP(&clusterID, "cluster-id", "t", "", "the cluster's `ID`")
	fl.BoolVarP(&ignore, "ignore-formatted", "g", false, "leave directories alone that are formatted for this cluster and node")
	fl.BoolVarP(&standalone, "standalone", "s", false, "a quorum of this node alone, which is what this release runs")
	return c
}

func (a *app) storageInfo() *cobra.Command {
	var f serverFlags
	c := &cobra.Command{
		Use: "info", Short: "Show what the log directories are formatted for", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			n, _, err := a.nodeConfig(&f)
			if err != nil {
				return err
			}
			for _, d := range n.LogDirs {
				m, err := logdir.ReadMeta(disk.OS(), d)
				if err != nil {
					return &exitError{ExitFailed, fmt.Errorf("%s: %w", d, err)}
				}
				a.printf("%s\tcluster.id=%s\tnode.id=%d\tdirectory.id=%s\n", d, m.ClusterID, m.NodeID, m.Directory)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&f.config, "config", "c", "", "Kafka's server.properties `FILE`")
	c.Flags().StringVar(&f.dataDir, "data-dir", "", "data `DIR`; wins over log.dirs")
	return c
}
