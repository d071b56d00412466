package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/client"
	"milena/internal/config"
	"milena/mirroradm"
)

func (a *app) mirrorsCommand() *cobra.Command {
	return group("mirrors", "Mirror topics of other Kafka clusters",
		a.mirrorsCreate(), a.mirrorsStart(),
		a.mirrorsChange("pause", "Suspend the mirroring of topics; they stay read-only", "Paused", nil,
			func(ctx context.Context, m *mirroradm.Client, name string, topics []string) ([]mirroradm.TopicResult, error) {
				return m.Pause(ctx, name, topics)
			}),
		a.mirrorsChange("resume", "Take the mirroring of paused topics up again", "Resumed", nil,
			func(ctx context.Context, m *mirroradm.Client, name string, topics []string) ([]mirroradm.TopicResult, error) {
				return m.Resume(ctx, name, topics)
			}),
		a.mirrorsStop(),
		a.mirrorsChange("recover", "Try failed partitions of topics again", "Recovering", nil,
			recoverFailed),
		a.mirrorsList(), a.mirrorsDescribe(), a.mirrorsDelete(), a.mirrorsCut(), a.mirrorsVerify(), a.mirrorsFailover(), a.mirrorsConfigs(), a.mirrorsSkip(), a.mirrorsFence(), a.mirrorsUnfence(), a.mirrorsSwitchover(), a.mirrorsFailback())
}

// mirrorAdmin runs f with a mirror admin client within the command's time-out.
func (a *app) mirrorAdmin(cmd *cobra.Command, f func(ctx context.Context, m *mirroradm.Client) error) error {
	return a.admin(cmd, func(ctx context.Context, adm *admin) error {
		m := mirroradm.NewClient(adm.raw)
		m.SetTimeout(min(time.Duration(a.timeout)*time.Millisecond, 30*time.Second))
		return a.noMirroring(f(ctx, m))
	})
}

// noMirroring words an error of a cluster that has no mirroring, and leaves others alone.
func (a *app) noMirroring(err error) error {
	if errors.Is(err, mirroradm.ErrNoMirroring) {
		return fmt.Errorf("the cluster at %s has no Cluster Mirroring: point --bootstrap-server at the cluster that is to hold the mirror", a.bootstrap)
	}
	return err
}

// ofMirror puts a mirror's name before an error whose own words don't name it.
func ofMirror(name string, err error) error {
	words := strings.FieldsFunc(err.Error(), func(r rune) bool { return strings.ContainsRune(" :;,()\"'\n", r) })
	for i, w := range words[:max(len(words)-1, 0)] {
		if w == "mirror" && words[i+1] == name {
			return err
		}
	}
	return fmt.Errorf("mirror %s: %w", name, err)
}

// mirrorHint says what of mirroring keeps a topic from being written to, if a write was refused for that; else it is empty.
func (a *app) mirrorHint(ctx context.Context, cl *kgo.Client, topic string, err error) string {
	if isCode(err, "REBOOTSTRAP_REQUIRED") {
		return ": the cluster sends its clients to their bootstrap servers now (milena mirrors fence --redirect); milena mirrors unfence --redirect ends that"
	}
	if !isCode(err, "POLICY_VIOLATION") {
		return ""
	}
	if hint := fenceHint(ctx, cl, topic); hint != "" {
		return hint
	}
	ms, err := mirroradm.NewClient(cl).List(ctx)
	if err != nil {
		return ""
	}
	for _, m := range ms {
		if slices.Contains(m.Topics, topic) {
			return fmt.Sprintf(": mirror %s keeps topic %s read-only; milena mirrors stop %s --topics %s makes it writable", m.Name, topic, m.Name, topic)
		}
	}
	return ""
}

func (a *app) mirrorsCreate() *cobra.Command {
	var source, sourceConfig string
	var topics, exclude, configs []string
	var dryRun bool
	c := &cobra.Command{
		Use: "create NAME --source HOST:PORT", Short: "Create a mirror of another cluster", Args: exactly("NAME"),
		Long: "Creates a mirror and, with --topics, starts every topic of the source that matches, now and as they appear.\n" +
			"--source-config names a file of Kafka client properties for the source; they are stored with the mirror.\n\n" +
			"--dry-run creates nothing: it checks reach, login, rights and version of the source, and shows the topics, configs and group\n" +
			"offsets that would come over, what would not and why, and where the copy would be weaker than the source. It fails if\n" +
			"something that matches would not come over.",
		Example: "  milena mirrors create dr --source kafka:9092 --topics 'orders.*' --exclude 'orders-tmp.*'",
		RunE: func(cmd *cobra.Command, args []string) error {
			props := map[string]string{}
			if sourceConfig != "" {
				m, err := propertiesFile(sourceConfig)
				if err != nil {
					return usagef("--source-config: %w", err)
				}
				props = m
			}
			kv, err := keyValues("config", configs)
			if err != nil {
				return err
			}
			maps.Copy(props, kv)
			for _, x := range []struct{ flag, key, value string }{
				{"--source", "bootstrap.servers", source}, {"--topics", "mirror.topics.include", strings.Join(topics, ",")},
				{"--exclude", "mirror.topics.exclude", strings.Join(append([]string{"__.*"}, exclude...), ",")},
			} {
				if x.value == "" || x.flag == "--exclude" && len(exclude) == 0 {
					continue
				}
				if err := setByFlag(props, kv, x.flag, x.key, x.value); err != nil {
					return err
				}
			}
			if props["bootstrap.servers"] == "" {
				return usagef("mirrors create needs --source HOST:PORT")
			}
			if dryRun {
				return a.dryRun(cmd, args[0], props)
			}
			id := clusterIDOf(props)
			if id == "" {
				if id, err = a.sourceClusterID(cmd.Context(), props, "--source and --source-config"); err != nil {
					return err
				}
				props["mirror.source.cluster.id"] = id
			}
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
				if err := m.Create(ctx, args[0], props); err != nil {
					return ofMirror(args[0], err)
				}
				if a.json {
					return a.printJSON(map[string]any{"mirror": args[0], "source_cluster_id": id})
				}
				a.printf("Created mirror %s of cluster %s.\n", args[0], id)
				if len(topics) == 0 {
					a.notef("No topic is mirrored yet: milena mirrors start %s --topics REGEX\n", args[0])
				}
				return nil
			})
		},
	}
	fl := c.Flags()
	fl.StringVar(&source, "source", "", "the source cluster, `HOST:PORT[,…]`")
	fl.StringVar(&sourceConfig, "source-config", "", "Kafka client properties `FILE` for the source")
	fl.StringArrayVar(&topics, "topics", nil, "`REGEX` of topics to mirror; may be repeated")
	fl.StringArrayVar(&exclude, "exclude", nil, "`REGEX` of topics not to mirror; may be repeated")
	fl.StringArrayVar(&configs, "config", nil, "a config of the mirror, `KEY=VALUE`; may be repeated")
	fl.BoolVar(&dryRun, "dry-run", false, "create nothing, and show what would come over")
	return a.clientFlags(c)
}

// sourceClusterID connects to the source as the mirror will and asks who it is.
// check names the options to look at if it isn't reached.
func (a *app) sourceClusterID(ctx context.Context, props map[string]string, check string) (string, error) {
	own := clientProperties(props)
	if _, ok := own["sasl.mechanism"]; !ok {
		own["sasl.mechanism"] = "PLAIN"
	}
	conf, err := client.Parse(own)
	if err != nil {
		return "", usagef("source: %w", err)
	}
	cl, err := kgo.NewClient(conf.KgoOpts(nil)...)
	if err != nil {
		return "", err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op
		}
		return "", &exitError{ExitUnreachable, fmt.Errorf("cannot reach the source cluster at %s: %w: check %s", props["bootstrap.servers"], err, check)}
	}
	if resp.ClusterID == nil || *resp.ClusterID == "" {
		return "", fmt.Errorf("the source cluster at %s does not tell its cluster id", props["bootstrap.servers"])
	}
	return *resp.ClusterID, nil
}

// clientProperties are those of a mirror's configs by which it reaches its source.
func clientProperties(props map[string]string) map[string]string {
	own := map[string]string{}
	for k, v := range props {
		if !strings.HasPrefix(config.Canonical(config.ResourceClusterMirror, k), "mirror.") {
			own[k] = v
		}
	}
	return own
}

// setByFlag sets a config of a mirror that a flag stands for; the same one by its name as well would be lost.
func setByFlag(props, given map[string]string, flag, key, value string) error {
	for k := range given {
		if config.Canonical(config.ResourceClusterMirror, k) == key {
			return usagef("%s and --config %s are one and the same: give one of them", flag, k)
		}
	}
	for k := range props {
		if config.Canonical(config.ResourceClusterMirror, k) == key {
			delete(props, k) // of the file
		}
	}
	props[key] = value
	return nil
}

// clusterIDOf is the source's cluster id, if the configs have it.
func clusterIDOf(props map[string]string) string {
	for k, v := range props {
		if config.Canonical(config.ResourceClusterMirror, k) == "mirror.source.cluster.id" {
			return v
		}
	}
	return ""
}

func splitList(flags []string) []string {
	var out []string
	for _, f := range flags {
		for _, s := range strings.Split(f, ",") {
			if s = strings.TrimSpace(s); s != "" && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// topicResults prints what became of topics; the first failure is the command's.
func (a *app) topicResults(mirror string, rs []mirroradm.TopicResult, err error, done string) error {
	return a.topicResultsWith(mirror, rs, err, done, nil)
}

// topicResultsWith adds more to what is printed as JSON.
func (a *app) topicResultsWith(mirror string, rs []mirroradm.TopicResult, err error, done string, more map[string]any) error {
	var failed []error
	type row struct {
		Topic string `json:"topic"`
		Error string `json:"error,omitempty"`
		Note  string `json:"note,omitempty"`
	}
	rows := []row{}
	for _, r := range rs {
		x := row{Topic: r.Topic, Note: r.Note}
		if r.Err != nil {
			x.Error = r.Err.Error()
			failed = append(failed, fmt.Errorf("topic %s: %w", r.Topic, r.Err))
		}
		rows = append(rows, x)
	}
	if err != nil && len(failed) == 0 {
		return ofMirror(mirror, err)
	}
	if a.json {
		out := map[string]any{"mirror": mirror, "topics": rows}
		maps.Copy(out, more)
		if err := a.printJSON(out); err != nil {
			return err
		}
	} else {
		for _, r := range rows {
			if r.Error == "" {
				if r.Note != "" {
					a.printf("Topic %s of mirror %s: %s.\n", r.Topic, mirror, r.Note)
					continue
				}
				a.printf("%s topic %s of mirror %s.\n", done, r.Topic, mirror)
			}
		}
	}
	return errors.Join(failed...)
}

// mirrorsChange is a command on topics of a mirror that are named or matched here.
func (a *app) mirrorsChange(verb, short, done string, flags func(*cobra.Command),
	do func(ctx context.Context, m *mirroradm.Client, name string, topics []string) ([]mirroradm.TopicResult, error)) *cobra.Command {
	var topics []string
	c := &cobra.Command{
		Use: verb + " NAME --topics …", Short: short, Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			patterns := splitList(topics)
			if len(patterns) == 0 {
				return usagef("mirrors %s needs --topics", verb)
			}
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
				names, err := mirrorTopics(ctx, m, args[0], patterns)
				if err != nil {
					return err
				}
				rs, err := do(ctx, m, args[0], names)
				return a.topicResults(args[0], rs, err, done)
			})
		},
	}
	c.Flags().StringArrayVar(&topics, "topics", nil, "names and regular expressions of the mirror's topics, comma separated; may be repeated")
	if flags != nil {
		flags(c)
	}
	return a.clientFlags(c)
}

// recoverFailed recovers topics that have FAILED partitions, and says of others that they have none.
func recoverFailed(ctx context.Context, m *mirroradm.Client, name string, topics []string) ([]mirroradm.TopicResult, error) {
	ds, err := m.Describe(ctx, name)
	if err != nil {
		return nil, err
	}
	var failed []string
	for _, d := range ds {
		for _, p := range d.Partitions {
			if slices.Contains(topics, p.Topic) && (p.State == "FAILED" || p.State == "UNKNOWN") && !slices.Contains(failed, p.Topic) {
				failed = append(failed, p.Topic)
			}
		}
	}
	var rs mirroradm.TopicResults
	if len(failed) > 0 {
		rs, err = m.Recover(ctx, name, failed)
	}
	for _, t := range topics {
		if !slices.Contains(failed, t) {
			rs = append(rs, mirroradm.TopicResult{Topic: t, Note: "no partition of it is FAILED, so there is nothing to recover"})
		}
	}
	return rs, err
}

// mirrorTopics are the topics of a mirror that the names and patterns match; each must match one.
func mirrorTopics(ctx context.Context, m *mirroradm.Client, mirror string, patterns []string) ([]string, error) {
	out, without, err := matchingTopics(ctx, m, mirror, patterns)
	if err == nil && len(without) > 0 {
		err = fmt.Errorf("mirror %s has no topic that matches %s", mirror, without[0])
	}
	return out, err
}

// matchingTopics are the topics of a mirror that the names and patterns match, and the patterns that match none.
func matchingTopics(ctx context.Context, m *mirroradm.Client, mirror string, patterns []string) (out, without []string, err error) {
	ds, err := m.DescribeWith(ctx, mirroradm.DescribeOptions{Mirrors: []string{mirror}})
	if err == nil {
		err = ds.Error()
	}
	if err != nil {
		return nil, nil, err
	}
	var all []string
	for _, d := range ds {
		for _, p := range d.Partitions {
			if !slices.Contains(all, p.Topic) {
				all = append(all, p.Topic)
			}
		}
	}
	for _, p := range patterns {
		re, err := regexp.Compile("^(?:" + p + ")$")
		if err != nil {
			return nil, nil, usagef("--topics: %q is no regular expression: %w", p, err)
		}
		found := false
		for _, t := range all {
			if re.MatchString(t) {
				found = true
				if !slices.Contains(out, t) {
					out = append(out, t)
				}
			}
		}
		if !found {
			without = append(without, p)
		}
	}
	slices.Sort(out)
	return out, without, nil
}

func (a *app) mirrorsList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List mirrors", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
				ms, err := m.List(ctx)
				if err != nil {
					return err
				}
				type row struct {
					Mirror    string   `json:"mirror"`
					Source    string   `json:"source"`
					ClusterID string   `json:"source_cluster_id"`
					Topics    []string `json:"topics"`
				}
				rows, t := []row{}, table{header: []string{"MIRROR", "SOURCE", "SOURCE-CLUSTER-ID", "TOPICS"}}
				for _, x := range ms {
					rows = append(rows, row{x.Name, x.SourceBootstrap, x.SourceClusterID, append([]string{}, x.Topics...)})
					t.add(x.Name, x.SourceBootstrap, x.SourceClusterID, len(x.Topics))
				}
				if a.json {
					return a.printJSON(map[string]any{"mirrors": rows})
				}
				a.printf("%s", t.String())
				return nil
			})
		},
	}
	return a.clientFlags(c)
}

func (a *app) mirrorsConfigs() *cobra.Command {
	var set, remove []string
	var all bool
	c := &cobra.Command{
		Use: "configs NAME", Short: "Show the configs of a mirror, or change them", Args: exactly("NAME"),
		Long: "Without --set and --delete it shows the configs that are set; what is sensitive has no value. milena configs does the same with\n" +
			"--entity-type cluster-mirrors.",
		Example: "  milena mirrors configs dr --set mirror.groups.exclude=tmp-.* --delete mirror.max.cut.records",
		RunE: func(cmd *cobra.Command, args []string) error {
			kv, err := keyValues("set", set)
			if err != nil {
				return err
			}
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
				for _, k := range remove {
					if _, ok := config.Lookup(config.ResourceClusterMirror, config.Canonical(config.ResourceClusterMirror, k)); !ok {
						return fmt.Errorf("mirrors have no config %s: see milena mirrors configs %s --all", k, args[0])
					}
				}
				if len(kv)+len(remove) > 0 {
					if err := m.AlterConfigs(ctx, args[0], kv, remove...); err != nil {
						return ofMirror(args[0], err)
					}
					if a.json {
						return a.printJSON(map[string]any{"mirror": args[0], "set": len(kv), "deleted": len(remove)})
					}
					a.printf("Changed %d configs of mirror %s.\n", len(kv)+len(remove), args[0])
					return nil
				}
				return a.showMirrorConfigs(ctx, m, args[0], all)
			})
		},
	}
	f := c.Flags()
	f.StringArrayVar(&set, "set", nil, "set a config, `KEY=VALUE`; may be repeated")
	f.StringArrayVar(&remove, "delete", nil, "take a config back to its default, `KEY`; may be repeated")
	f.BoolVar(&all, "all", false, "show defaults too")
	return a.clientFlags(c)
}

func (a *app) showMirrorConfigs(ctx context.Context, m *mirroradm.Client, mirror string, all bool) error {
	cs, err := m.Configs(ctx, mirror)
	if err != nil {
		return ofMirror(mirror, err)
	}
	type row struct {
		Name      string  `json:"name"`
		Value     *string `json:"value"`
		Default   bool    `json:"default"`
		Sensitive bool    `json:"sensitive"`
	}
	rows := []row{}
	for _, x := range cs {
		if x.Default && !all {
			continue
		}
		rows = append(rows, row{x.Key, x.Value, x.Default, x.Sensitive})
		if a.json {
			continue
		}
		value := "(none)"
		switch {
		case x.Sensitive && !x.Default:
			value = "(hidden)"
		case x.Value != nil:
			value = *x.Value
		}
		a.printf("%s=%s\n", x.Key, value)
	}
	if a.json {
		return a.printJSON(map[string]any{"mirror": mirror, "configs": rows})
	}
	return nil
}

func (a *app) mirrorsDelete() *cobra.Command {
	c := &cobra.Command{
		Use: "delete NAME", Short: "Delete a mirror whose topics are all stopped; the topics stay", Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
				ds, err := m.Describe(ctx, args[0])
				had := err != nil || len(ds) == 0 || len(ds[0].Partitions) > 0 // if that isn't known it may have had some
				if err := m.Delete(ctx, args[0]); err != nil {
					return ofMirror(args[0], err)
				}
				if a.json {
					return a.printJSON(map[string]any{"deleted": args[0]})
				}
				a.printf("Deleted mirror %s.\n", args[0])
				if !had {
					return nil
				}
				fmt.Fprintln(a.env.Stderr, "Its last mirror epochs are gone with it: if its source is to mirror these topics back, it has to be allowed to cut what it has (mirrors start --truncate-unrelated).")
				return nil
			})
		},
	}
	return a.clientFlags(c)
}
