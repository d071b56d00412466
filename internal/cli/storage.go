package cli

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"milena/internal/config"
	"milena/internal/controller"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/quorum"
	"milena/internal/quorum/offline"
)

func (a *app) storageCommand() *cobra.Command {
	return group("storage", "Format log directories and make cluster ids", a.storageFormat(), a.storageUUID(), a.storageInfo())
}

func (a *app) storageUUID() *cobra.Command {
	return &cobra.Command{Use: "random-uuid", Short: "Print a new cluster id or directory id", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		id, err := ids.New(rand.Reader)
		if err != nil {
			return err
		}
		a.printf("%s\n", id)
		return nil
	}}
}

// formatFlags are the options of storage format, which are Kafka's.
type formatFlags struct {
	server            serverFlags
	clusterID         string
	ignore            bool
	standalone, later bool
	voters            string
	release           string
	features, scram   []string
}

func (a *app) storageFormat() *cobra.Command {
	var f formatFlags
	c := &cobra.Command{
		Use: "format --cluster-id ID", Short: "Format the log directories of a node", Args: noArgs,
		Long: "Formats the log directories, and says who the first voters of the metadata quorum are. Kafka's options are taken.\n" +
			"A node without any controller.quorum.* key needs none of them: it is a cluster of its own.",
		Example: "  milena storage format -t $ID -c node1.properties --initial-controllers 1@host1:9093:$D1,2@host2:9093:$D2,3@host3:9093:$D3",
		RunE:    func(*cobra.Command, []string) error { return a.format(&f) },
	}
	fl := c.Flags()
	fl.StringVarP(&f.server.config, "config", "c", "", "Kafka's server.properties `FILE`")
	fl.StringVar(&f.server.dataDir, "data-dir", "", "data `DIR`; wins over log.dirs")
	fl.StringArrayVar(&f.server.overrides, "override", nil, "set a config, `KEY=VALUE`; wins over the file; may be repeated")
	fl.StringVarP(&f.clusterID, "cluster-id", "t", "", "the cluster's `ID`")
	fl.BoolVarP(&f.ignore, "ignore-formatted", "g", false, "leave directories alone that are formatted for this cluster and node")
	fl.BoolVarP(&f.standalone, "standalone", "s", false, "begin a quorum of this node alone")
	fl.StringVarP(&f.voters, "initial-controllers", "I", "", "begin a quorum of these `VOTERS`, ID@HOST:PORT:DIRECTORY-ID[,…]; the same on all of them")
	fl.BoolVarP(&f.later, "no-initial-controllers", "N", false, "begin no quorum: this node is added to one, or is a broker")
	fl.StringVarP(&f.release, "release-version", "r", "", "feature levels of this Kafka `RELEASE`, such as 4.2 or 4.2-IV1")
	fl.StringArrayVarP(&f.features, "feature", "f", nil, "a feature level, `NAME=LEVEL`; may be repeated")
	fl.StringArrayVarP(&f.scram, "add-scram", "S", nil, "a first SCRAM credential; refused: this release has no server side security")
	return c
}

func (a *app) format(f *formatFlags) error {
	if f.clusterID == "" {
		return usagef("storage format needs --cluster-id ID: milena storage random-uuid makes one")
	}
	n, _, err := a.nodeConfig(&f.server)
	if err != nil {
		return err
	}
	o := offline.FormatOptions{
		FS: disk.OS(), LogDirs: n.LogDirs, MetadataLogDir: n.MetadataLogDir, NodeID: n.ID, ClusterID: f.clusterID, IgnoreFormatted: f.ignore,
		NewID: func() (ids.UUID, error) { return ids.New(rand.Reader) },
	}
	if err := f.quorum(n, &o); err != nil {
		return &usageError{err}
	}
	if o.Bootstrap, err = f.bootstrap(len(n.Voters) > 0); err != nil {
		return &usageError{err}
	}
	if err := offline.Format(o); err != nil {
		return &exitError{ExitFailed, err}
	}
	for _, d := range n.LogDirs {
		a.printf("Formatted %s for cluster %s, node %d.\n", d, f.clusterID, n.ID)
	}
	return nil
}

// quorum applies Kafka's rules for the first voters.
func (f *formatFlags) quorum(n *config.Node, o *offline.FormatOptions) error {
	given := 0
	for _, set := range []bool{f.standalone, f.later, f.voters != ""} {
		if set {
			given++
		}
	}
	switch {
	case len(f.scram) > 0:
		return fmt.Errorf("--add-scram is not supported: this release has no server side security; leave it out")
	case given > 1:
		return fmt.Errorf("--standalone, --initial-controllers and --no-initial-controllers exclude each other")
	case given > 0 && len(n.Voters) > 0:
		return fmt.Errorf("controller.quorum.voters is set: its quorum is static, so leave out --standalone, --initial-controllers and --no-initial-controllers, or set controller.quorum.bootstrap.servers instead of it")
	case (f.standalone || f.voters != "") && !n.Controller:
		return fmt.Errorf("this node is no controller: format it with --no-initial-controllers, or add controller to process.roles")
	case given == 0 && n.Controller && n.QuorumConfigured && len(n.Voters) == 0:
		return fmt.Errorf("controller.quorum.voters is not set on this controller: say --standalone, --initial-controllers or --no-initial-controllers")
	}
	if f.standalone {
		o.Standalone = controllerEndpoints(n)
	}
	if f.voters == "" {
		return nil
	}
	name := ""
	if len(n.ControllerListeners) > 0 {
		name = n.ControllerListeners[0]
	}
	var err error
	if o.Voters, err = offline.ParseVoters(f.voters, name); err != nil {
		return fmt.Errorf("--initial-controllers: %w", err)
	}
	return nil
}

// controllerEndpoints are the node's controller listeners as others reach them; not nil.
func controllerEndpoints(n *config.Node) []quorum.Endpoint {
	out := []quorum.Endpoint{}
	for _, l := range n.ControllerAdvertised {
		out = append(out, quorum.Endpoint{Name: l.Name, Host: l.Host, Port: uint16(l.Port)})
	}
	return out
}

// kraftVersion is the feature that says whether the voters can be changed. It follows from
// how the quorum is formatted.
const kraftVersion = "kraft.version"

// bootstrap are the feature levels that are asked for, nil if none are.
func (f *formatFlags) bootstrap(static bool) ([]meta.Record, error) {
	if f.release == "" && len(f.features) == 0 {
		return nil, nil
	}
	levels := map[string]int16{}
	for _, r := range controller.Bootstrap() {
		if l, ok := r.(*meta.FeatureLevelRecord); ok {
			levels[l.Feature] = l.Level
		}
	}
	if f.release != "" {
		level, ok := metadataLevel(f.release)
		if !ok {
			return nil, fmt.Errorf("--release-version %s is not known: this release knows 3.3 to 4.4", f.release)
		}
		levels[meta.MetadataVersionFeature] = level
		if level < mirrorMetadataLevel {
			delete(levels, mirrorFeature)
		}
	}
	for _, text := range f.features {
		name, level, err := parseFeature(text, static)
		switch {
		case err != nil:
			return nil, err
		case name == kraftVersion:
			continue
		case name == meta.MetadataVersionFeature && f.release != "":
			return nil, fmt.Errorf("--feature %s and --release-version exclude each other", meta.MetadataVersionFeature)
		}
		levels[name] = level
	}
	if levels[mirrorFeature] > 0 && levels[meta.MetadataVersionFeature] < mirrorMetadataLevel {
		return nil, fmt.Errorf("%s=%d needs %s=%d or more", mirrorFeature, levels[mirrorFeature], meta.MetadataVersionFeature, mirrorMetadataLevel)
	}
	recs := []meta.Record{&meta.FeatureLevelRecord{Feature: meta.MetadataVersionFeature, Level: levels[meta.MetadataVersionFeature]}}
	for _, r := range controller.Features() {
		if level := levels[r.Name]; level > 0 && r.Name != meta.MetadataVersionFeature {
			recs = append(recs, &meta.FeatureLevelRecord{Feature: r.Name, Level: level})
		}
	}
	return recs, nil
}

const (
	mirrorFeature = "mirror.version"
	// mirrorMetadataLevel is the first metadata.version that mirrors can be used with.
	mirrorMetadataLevel = 32
)

func parseFeature(text string, static bool) (name string, level int16, err error) {
	name, value, ok := strings.Cut(text, "=")
	n, err := strconv.ParseInt(value, 10, 16)
	name = strings.TrimSpace(name)
	if !ok || err != nil {
		return "", 0, fmt.Errorf("--feature %q is not NAME=LEVEL", text)
	}
	if name == kraftVersion {
		switch {
		case n == 0 && !static:
			return "", 0, fmt.Errorf("%s=0 is a static quorum: set controller.quorum.voters, or leave it out", kraftVersion)
		case n != 0 && static:
			return "", 0, fmt.Errorf("%s=%d is a quorum whose voters can change: set controller.quorum.bootstrap.servers instead of controller.quorum.voters", kraftVersion, n)
		case n < 0 || n > 1:
			return "", 0, fmt.Errorf("%s is 0 or 1", kraftVersion)
		}
		return name, int16(n), nil
	}
	ranges := controller.Features()
	i := slices.IndexFunc(ranges, func(r meta.FeatureRange) bool { return r.Name == name })
	switch {
	case i < 0:
		return "", 0, fmt.Errorf("--feature %s is not known to this release", name)
	case int16(n) < ranges[i].Min || int16(n) > ranges[i].Max:
		return "", 0, fmt.Errorf("--feature %s: this release knows levels %d to %d", text, ranges[i].Min, ranges[i].Max)
	}
	return name, int16(n), nil
}

// release is one of Kafka's, with its metadata versions.
type release struct {
	name        string
	first, last int16
}

// releases are those whose levels this release knows, in order.
func releases() []release {
	return []release{
		{"3.3", 7, 7}, {"3.4", 8, 8}, {"3.5", 9, 11}, {"3.6", 12, 14}, {"3.7", 15, 19}, {"3.8", 20, 20}, {"3.9", 21, 21},
		{"4.0", 22, 25}, {"4.1", 26, 27}, {"4.2", 28, 29}, {"4.3", 30, 30}, {"4.4", 31, 33},
	}
}

// metadataLevel is the level of a release (4.2, 4.2.1) or of one of its versions (4.2-IV0).
func metadataLevel(release string) (int16, bool) {
	name, iv, inner := strings.Cut(release, "-IV")
	for _, r := range releases() {
		if name != r.name && (inner || !strings.HasPrefix(name, r.name+".")) {
			continue
		}
		if !inner {
			return r.last, true
		}
		if r.name == "3.3" { // its first versions are too old
			return r.last, iv == "3"
		}
		n, err := strconv.ParseInt(iv, 10, 16)
		level := r.first + int16(n)
		return level, err == nil && n >= 0 && level <= r.last
	}
	return 0, false
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
