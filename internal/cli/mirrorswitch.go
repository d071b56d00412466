package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

// lookTime bounds looking at the state of things after a command has failed; so does its own time-out.
const lookTime = 5 * time.Second

// planned are the flags that switchover and failback share.
type planned struct {
	a                          *app
	reverseConfig, reverseName string
	source, sourceConfig       string
	yes                        bool
	timeout                    time.Duration
}

func (p *planned) flags(c *cobra.Command) *cobra.Command {
	f := c.Flags()
	f.StringVar(&p.reverseConfig, "reverse-config", "", "properties `FILE` of the mirror back: how the source reaches this cluster")
	f.StringVar(&p.reverseName, "reverse-name", "", "the mirror back's `NAME`; by default that of the mirror")
	f.StringVar(&p.source, "source", "", "the source cluster as it is reached from here, `HOST:PORT[,…]`; by default as the mirror reaches it")
	f.StringVar(&p.sourceConfig, "source-config", "", "Kafka client properties `FILE` for the source; by default the mirror's own")
	f.BoolVar(&p.yes, "yes", false, "don't ask")
	f.DurationVar(&p.timeout, "timeout", 10*time.Minute, "give up after this time, and say what state things are in")
	return p.a.clientFlags(c)
}

// asks refuses a question whose subject JSON would not show.
func (p *planned) asks() error {
	if p.a.json && !p.yes {
		return usagef("--json needs --yes: nothing is asked then")
	}
	return nil
}

// reverse reads the configs of the mirror back; nil without a file.
func (p *planned) reverse() (map[string]string, error) {
	if p.reverseConfig == "" {
		return nil, nil
	}
	m, err := propertiesFile(p.reverseConfig)
	if err != nil {
		return nil, usagef("--reverse-config: %w", err)
	}
	if m["bootstrap.servers"] == "" {
		return nil, usagef("--reverse-config %s has no bootstrap.servers: the addresses of this cluster as the source reaches it", p.reverseConfig)
	}
	return m, nil
}

// both runs f with clients on the mirror's source and on this cluster, within the command's time-out.
func (p *planned) both(cmd *cobra.Command, mirror string, f func(ctx context.Context, source, here *kgo.Client) error) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), p.timeout)
	defer cancel()
	cmd.SetContext(ctx)
	source, here, err := p.clusters(cmd, mirror)
	if err != nil {
		return err
	}
	defer here.Close()
	defer source.Close()
	return f(ctx, source, here)
}

// clusters connects to this cluster and to the mirror's source.
func (p *planned) clusters(cmd *cobra.Command, mirror string) (source, here *kgo.Client, err error) {
	if here, err = p.a.connect(cmd, mirroradm.Software()); err != nil {
		return nil, nil, err
	}
	v := &mirrorVerify{a: p.a, source: p.source, sourceConfig: p.sourceConfig}
	source, err = v.connectSource(cmd.Context(), mirroradm.NewClient(here), mirror)
	if err = p.a.noMirroring(err); err != nil {
		here.Close()
		return nil, nil, err
	}
	return source, here, nil
}

// failedf is the error of a command that reached its cluster: whatever it wraps is of something else.
func failedf(format string, args ...any) error {
	return &exitError{ExitFailed, fmt.Errorf(format, args...)}
}

// confirm asks on the terminal; without an answer it is no.
func (a *app) confirm(question string) error {
	a.notef("%s [y/N] ", question)
	line, err := bufio.NewReader(a.env.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("not confirmed; nothing was changed")
}

func (a *app) mirrorsSwitchover() *cobra.Command {
	p := &planned{a: a}
	o := mirroradm.SwitchoverOptions{}
	c := &cobra.Command{
		Use: "switchover NAME", Short: "Move production from a mirror's source to this cluster, without loss", Args: exactly("NAME"),
		Long: "Fences the topics on the source, so that nothing more is written there; waits until all of it is here; takes the groups' offsets over\n" +
			"once more; stops the mirror, which makes the topics writable here; and with --reverse-config creates and starts a mirror at the\n" +
			"source that copies this cluster back. Then the fence is lifted: as copies the topics are read-only there. Before anything is\n" +
			"changed every broker of the source tries whether it reaches this cluster by the file.\n\n" +
			"Without --reverse-config the fence stays. A source without fences (Apache Kafka) is watched for --quiet: if something is produced\n" +
			"meanwhile, the switchover ends there. --deny-acl creates ACLs on it that deny everybody to write to the topics, and leaves them.\n\n" +
			"What is interrupted says what state things are in; the same command goes on from there.",
		Example: "  milena mirrors switchover dr --reverse-config back.properties",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.asks(); err != nil {
				return err
			}
			if p.timeout <= 0 || o.Quiet <= 0 || o.MaxLag < 0 {
				return usagef("--timeout and --quiet must be above 0, --max-lag not below")
			}
			return p.switchover(cmd, args[0], o)
		},
	}
	f := c.Flags()
	f.Int64Var(&o.MaxLag, "max-lag", 10000, "refuse to begin with a partition that is more offsets behind: no writes are taken until it has caught up")
	f.DurationVar(&o.Quiet, "quiet", 5*time.Second, "how long a source without fences is watched for writes")
	f.BoolVar(&o.DenyACL, "deny-acl", false, "on a source without fences, create ACLs that deny everybody to write to the topics")
	return p.flags(c)
}

func (p *planned) switchover(cmd *cobra.Command, mirror string, o mirroradm.SwitchoverOptions) error {
	var err error
	if o.Reverse, err = p.reverse(); err != nil {
		return err
	}
	o.ReverseName = p.reverseName
	o.Waiting = func(what string) {
		p.a.notef("Waiting, %s at most in all: %s. An interruption says what state things are in, and how to go back.\n", p.timeout, oneLine(what))
	}
	return p.both(cmd, mirror, func(ctx context.Context, source, here *kgo.Client) error {
		s, err := mirroradm.PlanSwitchover(ctx, source, here, mirror, o)
		if err != nil {
			return failedf("mirror %s can't be switched over, and nothing was changed: %w", mirror, err)
		}
		p.showSwitchover(s)
		if !p.yes {
			if err := p.a.confirm(fmt.Sprintf("Switch %d topics over?", len(s.Topics))); err != nil {
				return err
			}
		}
		return p.reportSwitchover(ctx, s, s.Run(ctx, p.stepped))
	})
}

// stepped shows a step that is over.
func (p *planned) stepped(s mirroradm.SwitchoverStep) {
	if !p.a.json {
		p.a.printf("%-8s %8s  %s.\n", s.Name, s.Took.Round(time.Millisecond), s.Note)
	}
}

// showSwitchover says what is going to happen.
func (p *planned) showSwitchover(s *mirroradm.Switchover) {
	if p.a.json {
		return
	}
	lag := int64(0)
	for _, x := range s.Partitions {
		lag += max(x.Lag, 0)
	}
	p.a.printf("Mirror %s of cluster %s: %d topics, %d partitions, %d offsets behind.\n", s.Mirror, s.Source, len(s.Topics), len(s.Partitions), lag)
	for _, t := range slices.Sorted(maps.Keys(s.LeftOut)) {
		p.a.printf("Left out: topic %s: %s.\n", t, s.LeftOut[t])
	}
	for _, t := range s.FencedHere {
		p.a.printf("Topic %s is fenced here: the fence is lifted.\n", t)
	}
	switch {
	case !s.Fence:
		p.a.printf("The source has no write fence: stop its producers first. What they write later is not here.\n")
	case s.ReverseName() == "":
		p.a.printf("No mirror back is made: the topics stay fenced at the source.\n")
	}
	if n := s.ReverseName(); n != "" {
		p.a.printf("Mirror %s at the source will copy this cluster; the source's brokers reach it.\n", n)
	}
}

func (p *planned) reportSwitchover(ctx context.Context, s *mirroradm.Switchover, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(lookTime, p.timeout))
	defer cancel()
	w := s.Where(ctx)
	if failed != nil {
		failed = failedf("the switchover of mirror %s is not complete: %w", s.Mirror, failed)
	}
	if p.a.json {
		return errors.Join(p.a.printJSON(switchoverReport(s, &w)), failed)
	}
	if failed == nil {
		p.switched(s)
		return nil
	}
	p.now(s, &w)
	return failed
}

// switched is the report of a switchover that is complete.
func (p *planned) switched(s *mirroradm.Switchover) {
	var took time.Duration
	for _, x := range s.Steps {
		took += x.Took
	}
	lost, known := s.Lost()
	if known {
		p.a.printf("Switched %d topics over in %s. Records lost: %d.\n", len(s.Topics), took.Round(time.Millisecond), lost)
	} else {
		p.a.printf("Switched %d topics over in %s. How far some of them had come on the source isn't known: an earlier run stopped them.\n", len(s.Topics), took.Round(time.Millisecond))
	}
	if g := s.Groups; g != nil {
		for _, n := range g.ActiveAtSource {
			p.a.printf("Group %s has members on the source still: what they commit from now on doesn't come over.\n", n)
		}
		for _, n := range g.Active {
			p.a.printf("Group %s has members here already: its offsets were left alone.\n", n)
		}
	}
	if len(s.Denied) > 0 {
		p.a.printf("The source denies everybody to write to %s, by ACLs: remove them with kafka-acls there to go back.\n", strings.Join(s.Denied, ", "))
	}
	if s.Include != "" {
		p.a.printf("The mirror finds no more topics: mirror.topics.include was %s.\n", s.Include)
	}
	switch back := s.ReverseName(); {
	case back != "":
		p.a.printf("To go back: milena mirrors switchover %s --bootstrap-server (the source) --reverse-config FILE\n", back)
	case s.SourceMirroring:
		p.a.printf("The source's topics stay fenced. To mirror back: milena mirrors failback %s --reverse-config FILE. To undo: milena mirrors start %s --topics %s; then milena mirrors unfence at the source\n",
			s.Mirror, s.Mirror, topicArguments(s.Topics))
	default:
		p.a.printf("To go back: milena mirrors start %s --topics %s copies the source again, and sets aside what was written here; Apache Kafka can't mirror this cluster\n",
			s.Mirror, topicArguments(s.Topics))
	}
}

func topicArguments(topics []string) string {
	out := make([]string, len(topics))
	for i, t := range topics {
		out[i] = topicArgument(t)
	}
	return strings.Join(out, ",")
}

// say names the topics in some state.
func (p *planned) say(topics []string, what string) {
	if len(topics) > 0 {
		p.a.notef("  %s: %s\n", what, strings.Join(topics, ", "))
	}
}

// now says what state an incomplete switchover has left things in, as both clusters tell it, and how to go on or back.
func (p *planned) now(s *mirroradm.Switchover, w *mirroradm.SwitchoverState) {
	say := p.say
	p.a.notef("State of things now:\n")
	say(w.Fenced, "fenced against writes at the source")
	say(w.Open, "taking writes at the source")
	say(w.Back, "copied back by mirror "+s.ReverseName()+" at the source")
	if w.SourceErr != nil {
		p.a.notef("  the source could not be asked, so what is fenced there isn't known: %v\n", rootCause(w.SourceErr))
	}
	if len(s.Denied) > 0 {
		p.a.notef("  ACLs that deny everybody to write were asked for at the source, see kafka-acls there: %s\n", strings.Join(s.Denied, ", "))
	}
	if !s.Fence {
		p.a.notef("  the source has no fence: whether its clients write isn't known\n")
	}
	say(w.Mirrored, "still mirrored, read-only here")
	say(w.Waiting, "still to be mirrored, read-only here, not MIRRORING now (milena mirrors describe "+s.Mirror+")")
	say(w.Between, "neither mirrored nor stopped here (milena mirrors describe "+s.Mirror+")")
	say(w.Stopped, "stopped, taking writes here")
	if w.HereErr != nil {
		p.a.notef("  this cluster could not be asked: %v\n", rootCause(w.HereErr))
	}
	if w.Include != "" {
		p.a.notef("  mirror.topics.include of mirror %s is empty now, it was %s\n", s.Mirror, w.Include)
	}
	p.a.notef("To go on: the same command again.\n")
	switch {
	case len(w.Back) > 0:
		p.a.notef("To go back: milena mirrors switchover %s at the source, once that mirror has caught up.\n", s.ReverseName())
	case len(w.Stopped)+len(w.Between) > 0:
		p.a.notef("To go back: milena mirrors start %s --topics %s, which sets aside what is written here; then milena mirrors unfence at the source.\n", s.Mirror, topicArguments(append(w.Stopped, w.Between...)))
	case len(w.Fenced) > 0 || s.Fence && w.SourceErr != nil:
		p.a.notef("To go back: milena mirrors unfence --topics %s --bootstrap-server (the source).\n", topicArguments(s.Topics))
	}
}

func switchoverReport(s *mirroradm.Switchover, w *mirroradm.SwitchoverState) map[string]any {
	type part struct {
		Topic     string `json:"topic"`
		Partition int32  `json:"partition"`
		SourceEnd *int64 `json:"source_end"`
		Mirrored  *int64 `json:"mirrored"`
		Lost      *int64 `json:"lost"`
	}
	parts := []part{}
	for _, x := range s.Partitions {
		p := part{Topic: x.Topic, Partition: x.Partition, SourceEnd: known(x.SourceEnd), Mirrored: known(x.Mirrored)}
		if n, ok := x.Lost(); ok {
			p.Lost = &n
		}
		parts = append(parts, p)
	}
	out := map[string]any{
		"mirror": s.Mirror, "source_cluster_id": s.Source, "complete": s.Done, "steps": stepsJSON(s.Steps), "partitions": parts, "left_out": s.LeftOut,
		"source_fenced": list(w.Fenced), "source_open": list(w.Open), "copied_back": list(w.Back), "stopped": list(w.Stopped), "mirrored": list(w.Mirrored), "between": list(w.Between), "waiting": list(w.Waiting),
		"topics_include_was": s.Include, "acls_asked_for": list(s.Denied), "reverse_mirror": s.ReverseName(),
	}
	for key, err := range map[string]error{"source_error": w.SourceErr, "error_here": w.HereErr} {
		if err != nil {
			out[key] = err.Error()
		}
	}
	if lost, ok := s.Lost(); ok {
		out["lost"] = lost
	}
	if g := s.Groups; g != nil {
		out["groups"] = map[string]any{"with_offsets": g.Groups, "written": g.Written, "active_at_source": list(g.ActiveAtSource), "active_here": list(g.Active)}
	}
	return out
}

type stepJSON struct {
	Step   string `json:"step"`
	TookMs int64  `json:"took_ms"`
	Note   string `json:"note"`
}

func stepsJSON(steps []mirroradm.SwitchoverStep) []stepJSON {
	out := []stepJSON{}
	for _, x := range steps {
		out = append(out, stepJSON{x.Name, x.Took.Milliseconds(), x.Note})
	}
	return out
}

// list is never null in JSON.
func list(s []string) []string { return append([]string{}, s...) }

// known is nil for an offset that isn't.
func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
