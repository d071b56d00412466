package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"milena/mirroradm"
)

// mirrorToolName is the program that KIP-1279 names, and milena's command of that name.
const mirrorToolName = "kafka-cluster-mirrors"

// mirrorTool are the options of kafka-cluster-mirrors (spec 10.1). It is one flat command whose exit code is 0 or 1.
type mirrorTool struct {
	a       *app
	actions map[string]*bool
	version bool

	bootstrap, mirror, config, topics, exclude, state, source string
	json, failed                                              bool
}

// mirrorToolActions are the options of which exactly one is given.
func mirrorToolActions() []struct{ name, usage string } {
	return []struct{ name, usage string }{
		{"create", "create the mirror --mirror with the properties in --mirror-config"},
		{"start", "start the mirroring of topics"},
		{"stop", "end the mirroring of topics and make them writable"},
		{"pause", "suspend the mirroring of topics"},
		{"resume", "take the mirroring of paused topics up again"},
		{"delete", "delete a mirror whose topics are all stopped"},
		{"list", "list the mirrors"},
		{"describe", "show state and offsets of every mirror partition"},
		{"recover", "try failed partitions of topics again"},
	}
}

func (a *app) mirrorToolCommand() *cobra.Command {
	t := &mirrorTool{a: a, actions: map[string]*bool{}}
	c := &cobra.Command{
		Use: mirrorToolName, Short: "Manage mirrors, as the tool of KIP-1279 does",
		Long: "The options and the output are those of KIP-1279. Exactly one action is given: --create, --start, --stop, --pause,\n" +
			"--resume, --delete, --list, --describe or --recover. It exits with 0, or with 1 after any failure. A milena that is called\n" +
			"by the name " + mirrorToolName + " is this command.",
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.toolFailure(t.run(cmd, args)) },
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return a.toolFailure(err) })
	f := c.Flags()
	for _, x := range mirrorToolActions() {
		t.actions[x.name] = f.Bool(x.name, false, x.usage)
	}
	f.StringVar(&t.bootstrap, "bootstrap-server", "", "the destination cluster, `HOST:PORT[,…]`; required")
	f.StringVar(&a.commandConfig, "command-config", "", "Kafka client properties `FILE`")
	f.StringVar(&t.config, "mirror-config", "", "properties `FILE` of the mirror; required with --create")
	f.StringVar(&t.mirror, "mirror", "", "the mirror's `NAME`; optional with --list and --describe")
	f.StringVar(&t.topics, "topics", "", "names and regular expressions of topics, comma separated; required with --start, --stop, --pause, --resume and --recover")
	f.StringVar(&t.exclude, "exclude", "", "regular expressions of topics not to mirror, comma separated; with --start")
	f.BoolVar(&t.json, "json", false, "print JSON; with --describe")
	f.BoolVar(&t.failed, "failed", false, "only partitions that have failed; with --describe")
	f.StringVar(&t.state, "state", "", "count the topics in these desired states, comma separated; with --list")
	f.StringVar(&t.source, "sourceClusterId", "", "only mirrors of these source clusters, comma separated; with --list")
	f.BoolVar(&t.version, "version", false, "print the version")
	return c
}

// toolFailure gives an error the exit code of Kafka's tools.
func (a *app) toolFailure(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{ExitFailed, errors.New(message(err, a.bootstrap))}
}

// run checks the options and does what they ask for.
func (t *mirrorTool) run(cmd *cobra.Command, args []string) error {
	t.a.bootstrap, t.a.timeout = t.bootstrap, 60000
	if t.version {
		t.a.printf("%s\n", t.a.env.Version)
		return nil
	}
	var chosen []string
	for _, x := range mirrorToolActions() {
		if *t.actions[x.name] {
			chosen = append(chosen, x.name)
		}
	}
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	if len(chosen) != 1 {
		fmt.Fprint(t.a.env.Stderr, cmd.UsageString())
		return errors.New("give exactly one action: --create, --start, --stop, --pause, --resume, --delete, --list, --describe or --recover")
	}
	action := chosen[0]
	if err := t.check(cmd, action); err != nil {
		return err
	}
	return t.a.mirrorAdmin(cmd, func(ctx context.Context, m *mirroradm.Client) error {
		switch action {
		case "create":
			return t.create(ctx, m)
		case "start":
			return t.start(ctx, m)
		case "stop":
			return t.stop(ctx, m)
		case "pause":
			return t.change(ctx, m, "Paused", m.Pause)
		case "resume":
			return t.change(ctx, m, "Resumed", m.Resume)
		case "recover":
			return t.change(ctx, m, "Recovered", func(ctx context.Context, name string, topics []string) (mirroradm.TopicResults, error) {
				return recoverFailed(ctx, m, name, topics)
			})
		case "delete":
			if err := m.Delete(ctx, t.mirror); err != nil {
				return ofMirror(t.mirror, err)
			}
			t.a.printf("Deleted mirror %s\n", t.mirror)
			return nil
		case "list":
			return t.list(ctx, m)
		default:
			return t.describe(cmd, ctx, m)
		}
	})
}

// check holds the options against the action.
func (t *mirrorTool) check(cmd *cobra.Command, action string) error {
	onTopics := []string{"start", "stop", "pause", "resume", "recover"}
	if t.bootstrap == "" {
		return errors.New("missing required option --bootstrap-server")
	}
	if t.mirror == "" && action != "list" && action != "describe" {
		return fmt.Errorf("missing option --mirror, which --%s needs", action)
	}
	if t.config == "" && action == "create" {
		return errors.New("missing option --mirror-config, which --create needs")
	}
	if len(splitList([]string{t.topics})) == 0 && slices.Contains(onTopics, action) {
		return fmt.Errorf("missing option --topics, which --%s needs", action)
	}
	for _, o := range []struct {
		name  string
		goods []string
	}{
		{"mirror-config", []string{"create"}}, {"topics", onTopics}, {"exclude", []string{"start"}}, {"json", []string{"describe"}},
		{"failed", []string{"describe"}}, {"state", []string{"list"}}, {"sourceClusterId", []string{"list"}},
	} {
		if cmd.Flags().Changed(o.name) && !slices.Contains(o.goods, action) {
			return fmt.Errorf("option --%s can only be used with --%s", o.name, strings.Join(o.goods, ", --"))
		}
	}
	return nil
}

func bracketed(list []string) string { return "[" + strings.Join(list, ", ") + "]" }

func (t *mirrorTool) create(ctx context.Context, m *mirroradm.Client) error {
	props, err := propertiesFile(t.config)
	if err != nil {
		return fmt.Errorf("--mirror-config: %w", err)
	}
	if clusterIDOf(props) == "" && props["bootstrap.servers"] != "" {
		if props["mirror.source.cluster.id"], err = t.a.sourceClusterID(ctx, props, "the properties in --mirror-config"); err != nil {
			return err
		}
	}
	if err := m.Create(ctx, t.mirror, props); err != nil {
		return ofMirror(t.mirror, err)
	}
	t.a.printf("Created mirror %s\n", t.mirror)
	return nil
}

func (t *mirrorTool) start(ctx context.Context, m *mirroradm.Client) error {
	names := splitList([]string{t.topics})
	plain, patterns := startTopics(names)
	rs, err := m.Start(ctx, t.mirror, plain, patterns, splitList([]string{t.exclude}))
	var started, saved []string
	for _, r := range rs {
		switch {
		case r.Err != nil:
		case r.Note == "":
			started = append(started, r.Topic)
		default:
			saved = append(saved, r.Topic)
		}
	}
	slices.Sort(started)
	if len(started) > 0 {
		t.a.printf("Started %d topic(s) in mirror %s: %s\n", len(started), t.mirror, bracketed(started))
	}
	if failed := rs.Error(); failed != nil {
		return failed
	}
	switch {
	case err != nil:
		return ofMirror(t.mirror, err)
	case len(started) == 0:
		t.a.printf("No topic of the source that is not mirrored already matches yet; the patterns %s were saved to mirror %s for auto-discovery\n", bracketed(names), t.mirror)
	case len(saved) > 0:
		t.a.printf("The source has no topic of these names yet; they were saved to mirror %s for auto-discovery: %s\n", t.mirror, bracketed(saved))
	}
	return nil
}

func (t *mirrorTool) stop(ctx context.Context, m *mirroradm.Client) error {
	patterns := splitList([]string{t.topics})
	names, _, err := matchingTopics(ctx, m, t.mirror, patterns)
	if err != nil {
		return err
	}
	rs, err := m.Stop(ctx, t.mirror, names, patterns)
	if failed := rs.Error(); failed != nil {
		return failed
	}
	if err != nil {
		return ofMirror(t.mirror, err)
	}
	if len(names) == 0 {
		t.a.printf("No topic of mirror %s matches; the patterns %s were taken out of auto-discovery\n", t.mirror, bracketed(patterns))
		return nil
	}
	t.a.printf("Stopped mirroring of %d topic(s) %s in mirror %s\n", len(names), bracketed(names), t.mirror)
	return nil
}

// change does what is done to topics of the destination that names and patterns match.
func (t *mirrorTool) change(ctx context.Context, m *mirroradm.Client, done string, do func(context.Context, string, []string) (mirroradm.TopicResults, error)) error {
	patterns := splitList([]string{t.topics})
	names, _, err := matchingTopics(ctx, m, t.mirror, patterns)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("no topic of mirror %s matches %s", t.mirror, bracketed(patterns))
	}
	rs, err := do(ctx, t.mirror, names)
	if failed := rs.Error(); failed != nil {
		return failed
	}
	if err != nil {
		return ofMirror(t.mirror, err)
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		r, ok := rs.On(n)
		return ok && r.Note != "" // there was nothing to do
	})
	if len(names) == 0 {
		t.a.printf("No failed partitions found\n")
		return nil
	}
	t.a.printf("%s mirroring of %d topic(s) in mirror %s: %s\n", done, len(names), t.mirror, bracketed(names))
	return nil
}

// cutLeft shortens s to a width, keeping its end.
func cutLeft(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return "..." + string(r[len(r)-width+3:])
}

// cutRight shortens s to a width, keeping its beginning.
func cutRight(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return string(r[:width-3]) + "..."
}

func (t *mirrorTool) list(ctx context.Context, m *mirroradm.Client) error {
	f := mirroradm.ListFilter{Mirrors: splitList([]string{t.mirror}), SourceClusterIDs: splitList([]string{t.source})}
	for _, s := range splitList([]string{t.state}) {
		f.States = append(f.States, strings.ToUpper(s))
	}
	ms, err := m.ListWith(ctx, f)
	if err != nil {
		return err
	}
	if len(ms) == 0 {
		t.a.printf("No mirrors found\n")
		return nil
	}
	slices.SortFunc(ms, func(a, b mirroradm.Listed) int { return strings.Compare(a.Name, b.Name) })
	const row = "%-30s %-10s %-26s %-50s\n"
	t.a.printf(row, "MIRROR", "TOPICS", "SOURCE-CLUSTER-ID", "SOURCE-BOOTSTRAP-SERVER")
	for _, x := range ms {
		n := int(x.ActiveTopics)
		if len(f.States) > 0 {
			n = len(x.Topics) // what was asked for
		}
		t.a.printf(row, cutLeft(x.Name, 30), strconv.Itoa(n), dash(x.SourceClusterID), cutLeft(dash(x.SourceBootstrap), 50))
	}
	return nil
}

// mirrorToolPartition is a row of --describe --json; the keys come in this order.
type mirrorToolPartition struct {
	Mirror            string  `json:"mirror"`
	Topic             string  `json:"topic"`
	Partition         int32   `json:"partition"`
	SourceOffset      int64   `json:"sourceOffset"`
	DestinationOffset int64   `json:"destinationOffset"`
	Lag               int64   `json:"lag"`
	State             string  `json:"state"`
	RetryAttempt      int16   `json:"retryAttempt"`
	ErrorMessage      *string `json:"errorMessage"`
}

// rows are the partitions to show, sorted by mirror, topic and partition. A source offset that is too old to compare with is
// unknown here: a lag made of it could be zero falsely.
func (t *mirrorTool) rows(ds mirroradm.DescribedMirrors) []mirrorToolPartition {
	rows := []mirrorToolPartition{}
	for _, d := range ds {
		for _, p := range d.Partitions {
			if t.failed && p.State != "FAILED" {
				continue
			}
			x := mirrorToolPartition{Mirror: d.Name, Topic: p.Topic, Partition: p.Partition, SourceOffset: -1, DestinationOffset: p.DestinationOffset, Lag: -1,
				State: p.State, RetryAttempt: p.RetryAttempt}
			if lag, ok := p.Lag(); ok {
				x.SourceOffset, x.Lag = p.SourceOffset, lag
			}
			if p.LastError != "" {
				x.ErrorMessage = &p.LastError
			}
			rows = append(rows, x)
		}
	}
	slices.SortFunc(rows, func(a, b mirrorToolPartition) int {
		if c := strings.Compare(a.Mirror, b.Mirror); c != 0 {
			return c
		}
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	return rows
}

func (t *mirrorTool) describe(cmd *cobra.Command, ctx context.Context, m *mirroradm.Client) error {
	var names []string
	if t.mirror != "" {
		names = []string{t.mirror}
	}
	ds, err := m.Describe(ctx, names...)
	if err != nil {
		return err
	}
	if err := ds.Error(); err != nil {
		return err
	}
	rows := t.rows(ds)
	switch {
	case t.json:
		b, err := json.Marshal(rows)
		if err != nil {
			return err
		}
		t.a.printf("%s", b)
	case t.failed:
		return t.describeFailed(cmd, ctx, rows)
	case len(rows) == 0:
		t.a.printf("No mirror partitions found\n")
	default:
		const row = "%-30s %-40s %-10s %-15s %-18s %-10s %-12s\n"
		t.a.printf(row, "MIRROR", "TOPIC", "PARTITION", "SOURCE-OFFSET", "DESTINATION-OFFSET", "LAG", "STATE")
		for _, x := range rows {
			t.a.printf(row, cutLeft(x.Mirror, 30), x.Topic, strconv.Itoa(int(x.Partition)), unlessNone(x.SourceOffset), unlessNone(x.DestinationOffset), unlessNone(x.Lag), x.State)
		}
	}
	return nil
}

// unlessNone is n, or a dash for -1.
func unlessNone(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func (t *mirrorTool) describeFailed(cmd *cobra.Command, ctx context.Context, rows []mirrorToolPartition) error {
	if len(rows) == 0 {
		t.a.printf("No failed partitions found\n")
		return nil
	}
	most := t.mostAttempts(cmd, ctx)
	const row = "%-30s %-40s %-10s %-7s %s\n"
	t.a.printf(row, "MIRROR", "TOPIC", "PARTITION", "RETRY", "ERROR")
	for _, x := range rows {
		retry := fmt.Sprintf("%d/%d", x.RetryAttempt, most)
		if x.RetryAttempt < 0 {
			retry = "NonRetryable"
		}
		text := "-"
		if x.ErrorMessage != nil {
			text = cutRight(oneLine(*x.ErrorMessage), 80)
		}
		t.a.printf(row, cutLeft(x.Mirror, 30), x.Topic, strconv.Itoa(int(x.Partition)), retry, text)
	}
	return nil
}

// mostAttempts is mirror.failed.retry.max.attempts of a broker, 10 if it can't be read (spec 10.1).
func (t *mirrorTool) mostAttempts(cmd *cobra.Command, ctx context.Context) int {
	most := 10
	_ = t.a.admin(cmd, func(_ context.Context, adm *admin) error { // then it is 10
		bs, err := adm.ListBrokers(ctx)
		if err != nil || len(bs) == 0 {
			return err
		}
		cs, err := adm.DescribeBrokerConfigs(ctx, bs[0].NodeID)
		if err != nil {
			return err
		}
		for _, r := range cs {
			for _, c := range r.Configs {
				if n, err := strconv.Atoi(c.MaybeValue()); c.Key == "mirror.failed.retry.max.attempts" && err == nil {
					most = n
				}
			}
		}
		return nil
	})
	return most
}
