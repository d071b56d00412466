package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/quorum"
	"milena/internal/quorum/offline"
)

func (a *app) metadataCommand() *cobra.Command {
	return group("metadata", "Read the metadata log, back it up and restore it", a.metadataDump(), a.metadataBackup(), a.metadataRestore())
}

func (a *app) metadataDump() *cobra.Command {
	return &cobra.Command{
		Use: "dump DIR|FILE", Short: "Print the metadata log as JSON lines", Args: exactly("DIR or FILE"),
		Long: "Prints the records of a metadata directory (the newest snapshot, then the log), or of one of its files, as JSON lines\n" +
			"with Kafka's names of records and fields. The node may be running. Kafka's own metadata files are read too.",
		RunE: func(_ *cobra.Command, args []string) error {
			out := bufio.NewWriterSize(a.env.Stdout, 64<<10)
			bad, err := offline.Dump(out, disk.OS(), args[0])
			if err := errors.Join(err, out.Flush()); err != nil { // what was read before it helps
				return err
			}
			if bad > 0 {
				return &exitError{ExitFailed, fmt.Errorf("%d record(s) could not be read", bad)}
			}
			return nil
		},
	}
}

func (a *app) metadataBackup() *cobra.Command {
	var controllers, dataDir string
	var damaged bool
	c := &cobra.Command{
		Use: "backup FILE", Short: "Write a consistent copy of the cluster's metadata to a file", Args: exactly("FILE"),
		Long: "Writes the state of the metadata at one moment to FILE: from the leading controller of a running cluster, or, when no\n" +
			"majority of the controllers is left, from the data directory of one of them. FILE must not exist.",
		Example: "  milena metadata backup meta.backup --bootstrap-controller host1:9093\n  milena metadata backup meta.backup --data-dir /var/lib/milena",
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := a.takeBackup(cmd, controllers, dataDir, damaged)
			if err != nil {
				return err
			}
			if err := writeNew(args[0], b); err != nil {
				return err
			}
			return a.printBackup(args[0], b)
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", "", "the metadata log `DIR` of a controller that is stopped, instead of a running cluster")
	c.Flags().BoolVar(&damaged, "damaged", false, "with --data-dir: of a damaged log take what can be read; what was committed behind the damage is missing then")
	return a.controllerFlags(c, &controllers)
}

// controllerFlags adds the flags of commands that only controllers answer.
func (a *app) controllerFlags(c *cobra.Command, controllers *string) *cobra.Command {
	f := c.Flags()
	f.StringVar(controllers, "bootstrap-controller", "", "controllers, `HOST:PORT[,…]`")
	f.StringVar(&a.commandConfig, "command-config", "", "Kafka client properties `FILE`")
	f.BoolVar(&a.json, "json", false, "print JSON instead of text")
	f.Int64Var(&a.timeout, "timeout-ms", 60000, "give up after so many milliseconds")
	return c
}

func (a *app) takeBackup(cmd *cobra.Command, controllers, dataDir string, damaged bool) (*offline.Backup, error) {
	switch {
	case (controllers == "") == (dataDir == ""):
		return nil, usagef("metadata backup needs --bootstrap-controller HOST:PORT of a running cluster, or --data-dir DIR of a stopped controller")
	case dataDir != "":
		b, err := offline.BackupDir(disk.OS(), dataDir, time.Now(), damaged)
		if err != nil {
			return nil, &exitError{ExitFailed, err}
		}
		return b, nil
	}
	conf, err := a.settings(cmd)
	if err != nil {
		return nil, err
	}
	a.bootstrap = controllers
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(a.timeout)*time.Millisecond)
	defer cancel()
	c, err := a.leadingController(ctx, conf, strings.Split(controllers, ","))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // everything was answered
	return offline.BackupCluster(ctx, c, time.Now())
}

// writeNew writes a backup file durably; one that is there is not overwritten.
func writeNew(path string, b *offline.Backup) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usagef("%w", err)
	}
	err = b.Write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func (a *app) printBackup(path string, b *offline.Backup) error {
	if a.json {
		return a.printJSON(b.Info)
	}
	i := b.Info
	a.printf("%s: cluster %s up to offset %d (epoch %d): %d brokers, %d topics, %d partitions.\n", path, i.ClusterID, i.EndOffset, i.Epoch, i.Brokers, i.Topics, i.Partitions)
	if i.Damage != "" {
		a.printf("The log is damaged, what was committed behind that place is missing: %s\n", i.Damage)
	}
	if i.Uncommitted > 0 {
		a.printf("The last %d record(s) were not known to be committed here: they may or may not have been acknowledged.\n", i.Uncommitted)
	}
	return nil
}

func (a *app) metadataRestore() *cobra.Command {
	var f serverFlags
	var voters string
	var life int64
	var yes bool
	c := &cobra.Command{
		Use: "restore FILE", Short: "Begin a new quorum from a backup, after the majority was lost", Args: exactly("FILE"),
		Long: "Formats this node's metadata log directory with the backup's state, as the beginning of a new quorum: of this node alone,\n" +
			"or of --initial-controllers, on each of which the same must be run. Changes of the metadata since the backup are\n" +
			"lost, and with them topics created and configs set; records acknowledged since then may be lost where partitions\n" +
			"changed their leaders or in-sync replicas. docs/operations.md says what to do before and after.",
		Example: "  milena metadata restore meta.backup --config server.properties --yes",
		RunE: func(_ *cobra.Command, args []string) error {
			if !yes {
				return usagef("metadata restore gives up what happened since the backup: say --yes")
			}
			return a.restore(args[0], &f, voters, life)
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "Kafka's server.properties `FILE`")
	fl.StringVar(&f.dataDir, "data-dir", "", "data `DIR`; wins over log.dirs")
	fl.StringArrayVar(&f.overrides, "override", nil, "set a config, `KEY=VALUE`; wins over the file; may be repeated")
	fl.StringVarP(&voters, "initial-controllers", "I", "", "begin a quorum of these `VOTERS`, ID@HOST:PORT:DIRECTORY-ID[,…]; default: this node alone")
	fl.Int64Var(&life, "restore-id", 0, "with several --initial-controllers: the `ID` that the restore on the first of them printed")
	fl.BoolVar(&yes, "yes", false, "yes, give up what happened since the backup")
	fl.BoolVar(&a.json, "json", false, "print JSON instead of text")
	return c
}

func (a *app) restore(path string, f *serverFlags, initial string, life int64) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return usagef("%w", err)
	}
	b, err := offline.ReadBackup(data)
	if err != nil {
		return &exitError{ExitFailed, fmt.Errorf("%s: %w", path, err)}
	}
	n, _, err := a.nodeConfig(f)
	if err != nil {
		return err
	}
	if !n.Controller {
		return usagef("this node is no controller: restore on one, brokers follow by themselves")
	}
	if len(n.Voters) > 0 {
		return usagef("controller.quorum.voters is set: a restored quorum keeps its voters itself, set controller.quorum.bootstrap.servers instead")
	}
	format := offline.FormatOptions{
		FS: disk.OS(), LogDirs: n.LogDirs, MetadataLogDir: n.MetadataLogDir, NodeID: n.ID, ClusterID: b.Info.ClusterID, IgnoreFormatted: true,
		NewID: func() (ids.UUID, error) { return ids.New(rand.Reader) },
	}
	if initial != "" {
		name := ""
		if len(n.ControllerListeners) > 0 {
			name = n.ControllerListeners[0]
		}
		if format.Voters, err = offline.ParseVoters(initial, name); err != nil {
			return usagef("--initial-controllers: %w", err)
		}
	}
	if err := offline.FormatForRestore(format); err != nil {
		return &exitError{ExitFailed, err}
	}
	voters := format.Voters
	if len(voters) == 0 {
		m, err := logdir.ReadMeta(disk.OS(), n.MetadataLogDir)
		if err != nil {
			return &exitError{ExitFailed, err}
		}
		voters = []quorum.Voter{{Member: quorum.Member{ID: n.ID, Directory: m.Directory}, Endpoints: controllerEndpoints(n)}}
	}
	first := life == 0
	if first {
		drawn, err := rand.Int(rand.Reader, big.NewInt(offline.MaxLife))
		if err != nil {
			return err
		}
		life = drawn.Int64() + 1
	}
	err = b.Restore(offline.RestoreOptions{FS: disk.OS(), MetadataLogDir: n.MetadataLogDir, Voters: voters, Life: life})
	if err != nil {
		return &exitError{ExitFailed, err}
	}
	if a.json {
		return a.printJSON(struct {
			offline.BackupInfo

			RestoreID int64 `json:"restoreId"`
		}{b.Info, life})
	}
	a.printf("Restored the metadata of cluster %s as of %s into %s: %d topics, %d partitions.\n", b.Info.ClusterID,
		b.Info.Time.Format(time.RFC3339), n.MetadataLogDir, b.Info.Topics, b.Info.Partitions)
	if first && len(voters) > 1 {
		a.printf("On each of the other initial controllers restore the same file with the same --initial-controllers and --restore-id %d.\n", life)
	}
	return nil
}
