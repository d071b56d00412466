package cli

import (
	"crypto/rand"
	"fmt"
	"strings"

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
	var k kafkaFormat
	c := &cobra.Command{
		Use: "format --cluster-id ID", Short: "Format the log directories of a node", Args: noArgs,
		Long: "Formats the log directories. Kafka's options are taken; those that this release can't honour are refused.",
		RunE: func(*cobra.Command, []string) error {
			if clusterID == "" {
				return usagef("storage format needs --cluster-id ID: milena storage random-uuid makes one")
			}
			if err := k.refuse(); err != nil {
				return err
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
	fl.StringVarP(&k.release, "release-version", "r", "", "feature levels of this Kafka `RELEASE`; this release formats at "+releaseVersion)
	fl.StringArrayVarP(&k.features, "feature", "f", nil, "a feature level, `NAME=LEVEL`; refused: this release formats at its newest levels")
	fl.StringVarP(&k.voters, "initial-controllers", "I", "", "the voters of the quorum; refused: this release runs a quorum of one node")
	fl.BoolVarP(&k.noVoters, "no-initial-controllers", "N", false, "join a quorum later; refused: this release runs a quorum of one node")
	fl.StringArrayVarP(&k.scram, "add-scram", "S", nil, "a first SCRAM credential; refused: this release has no server side security")
	return c
}

// releaseVersion is the Kafka release whose feature levels a cluster is formatted at.
const releaseVersion = "4.4"

// kafkaFormat are options of Kafka's format command that this release accepts only where they change nothing.
type kafkaFormat struct {
	release, voters string
	features, scram []string
	noVoters        bool
}

func (k *kafkaFormat) refuse() error {
	switch {
	case k.release != "" && k.release != releaseVersion && !strings.HasPrefix(k.release, releaseVersion+"."):
		return usagef("--release-version %s is not supported: this release formats at the levels of %s; leave it out", k.release, releaseVersion)
	case len(k.features) > 0:
		return usagef("--feature is not supported: this release formats at its newest feature levels; leave it out")
	case k.voters != "":
		return usagef("--initial-controllers is not supported: this release runs a quorum of one node; use --standalone")
	case k.noVoters:
		return usagef("--no-initial-controllers is not supported: this release runs a quorum of one node; use --standalone")
	case len(k.scram) > 0:
		return usagef("--add-scram is not supported: this release has no server side security; leave it out")
	}
	return nil
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
