package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/client"
	"milena/mirroradm"
)

// Exit codes of mirrors verify.
const (
	verifyDifferent ExitCode = 1
	verifyUndecided ExitCode = 2
)

// mirrorVerify are the flags of mirrors verify.
type mirrorVerify struct {
	a                            *app
	topics                       []string
	from                         int64
	sample                       string
	seed                         uint64
	source, sourceConfig, resume string
}

func (a *app) mirrorsVerify() *cobra.Command {
	v := &mirrorVerify{a: a}
	c := &cobra.Command{
		Use: "verify NAME", Short: "Compare what a mirror holds with its source", Args: exactly("NAME"),
		Long: "Reads both sides and compares each partition from where both logs begin to where the shorter one ends, and of a stopped\n" +
			"topic no further than what was mirrored: batch by batch, every byte. Where either side may have compacted the log\n" +
			"(cleanup.policy), record by record: each record that both hold has to be the same, and one that only one side holds has to\n" +
			"be one that compaction may remove on the other.\n\n" +
			"The source is reached by the mirror's configs. What the cluster hides of them, such as a password, is given with\n" +
			"--source-config.\n\n" +
			"A partition of which nothing was read, because of --from, --sample, or since no offset is on both sides, is unread: it is neither\n" +
			"equal nor different, and said to be so.\n\n" +
			"Exit code 0: equal in what was compared. 1: different; the first difference is shown. 2: it could not be decided, nothing at all\n" +
			"was compared, or the command line is wrong.",
		Example: "  milena mirrors verify dr --topics 'orders.*' --progress verify.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := v.run(cmd, args[0])
			var exit *exitError
			if err == nil || errors.As(err, &exit) && exit.code == verifyDifferent {
				return err
			}
			return &exitError{verifyUndecided, errors.New(message(err, a.bootstrap))}
		},
	}
	f := c.Flags()
	f.StringArrayVar(&v.topics, "topics", nil, "names and regular expressions of the mirror's topics, comma separated; may be repeated")
	f.Int64Var(&v.from, "from", 0, "compare from this `OFFSET` of each partition on")
	f.StringVar(&v.sample, "sample", "", "read only this share of the chunks of 10000 offsets, as `P`: 0.05 or 5%")
	f.Uint64Var(&v.seed, "seed", 0, "chooses the sample; 0 takes a new one")
	f.StringVar(&v.source, "source", "", "the source cluster, `HOST:PORT[,…]`, instead of the mirror's bootstrap.servers")
	f.StringVar(&v.sourceConfig, "source-config", "", "Kafka client properties `FILE` for the source, instead of the mirror's")
	f.StringVar(&v.resume, "progress", "", "keep in this `FILE` what is proven, and go on from there if it exists")
	return a.clientFlags(c)
}

// share reads a share as a fraction or a percentage.
func share(s string) (float64, error) {
	if s == "" {
		return 1, nil
	}
	text, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	f, err := strconv.ParseFloat(text, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f > 0 && f <= 1) {
		return 0, usagef("--sample %q is not a share above 0 and up to 1, or 100%%", s)
	}
	return f, nil
}

func (v *mirrorVerify) run(cmd *cobra.Command, mirror string) error {
	sample, err := share(v.sample)
	if err != nil {
		return err
	}
	if v.from < 0 {
		return usagef("--from %d is below 0", v.from)
	}
	match, err := topicMatch(splitList(v.topics))
	if err != nil {
		return err
	}
	dst, err := v.a.connect(cmd, mirroradm.Software())
	if err != nil {
		return err
	}
	defer dst.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(v.a.timeout)*time.Millisecond)
	defer cancel()
	src, err := v.connectSource(ctx, mirroradm.NewClient(dst), mirror)
	if err = v.a.noMirroring(err); err != nil {
		return err
	}
	defer src.Close()
	ranges, decided, err := mirroradm.PlanVerify(ctx, mirror, src, dst, mirroradm.VerifyOptions{Topics: match, From: v.from})
	if err != nil {
		return &exitError{verifyUndecided, err} // it says which side it is of
	}
	switch {
	case len(ranges)+len(decided) > 0:
	case len(v.topics) > 0:
		return fmt.Errorf("mirror %s has no topic that matches %s", mirror, strings.Join(v.topics, ","))
	default:
		return fmt.Errorf("mirror %s has no topics: there is nothing to compare", mirror)
	}
	state, err := v.load(cmd, mirror, sample)
	if err != nil {
		return err
	}
	show := v.a.counter("offsets compared")
	verifier := &mirroradm.Verifier{Source: src, Destination: dst, Sample: state.Sample, Seed: state.Seed, Progress: func(r mirroradm.VerifyResult) {
		show.add(state.note(&r))
		state.saveSometimes()
	}}
	for i := range ranges {
		state.begin(&ranges[i], func(b mirroradm.VerifyBatch) bool { return verifier.Holds(cmd.Context(), ranges[i], b) })
	}
	compared := verifier.Verify(cmd.Context(), ranges)
	for i := range compared {
		show.add(state.note(&compared[i])) // also what an interruption ended
	}
	results := slices.Concat(decided, compared)
	show.end()
	if err := state.save(); err != nil {
		return err
	}
	return v.print(mirror, state, results)
}

// topicMatch matches topics against names and patterns; nil without any.
func topicMatch(patterns []string) (func(string) bool, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	var res []*regexp.Regexp
	for _, p := range patterns {
		re, err := regexp.Compile("^(?:" + p + ")$")
		if err != nil {
			return nil, usagef("--topics: %q is no regular expression: %w", p, err)
		}
		res = append(res, re)
	}
	return func(topic string) bool {
		return slices.ContainsFunc(res, func(re *regexp.Regexp) bool { return re.MatchString(topic) })
	}, nil
}

// connectSource opens a client on the source of a mirror.
func (v *mirrorVerify) connectSource(ctx context.Context, m *mirroradm.Client, mirror string) (*kgo.Client, error) {
	props, hidden, err := m.SourceProperties(ctx, mirror)
	if err != nil {
		return nil, ofMirror(mirror, err)
	}
	if v.sourceConfig != "" {
		bootstrap := props["bootstrap.servers"]
		if props, err = propertiesFile(v.sourceConfig); err != nil {
			return nil, usagef("--source-config: %w", err)
		}
		if props["bootstrap.servers"] == "" {
			props["bootstrap.servers"] = bootstrap
		}
	} else if len(hidden) > 0 {
		return nil, usagef("the cluster does not tell %s of mirror %s: give --source-config FILE with the properties for the source", strings.Join(hidden, ", "), mirror)
	}
	if v.source != "" {
		props["bootstrap.servers"] = v.source
	}
	return openSource(ctx, props)
}

// openSource opens a client by the properties that a mirror has for its source.
func openSource(ctx context.Context, props map[string]string) (*kgo.Client, error) {
	own := clientProperties(props)
	if _, ok := own["sasl.mechanism"]; !ok {
		own["sasl.mechanism"] = "PLAIN" // where Kafka's clients have GSSAPI
	}
	conf, err := client.Parse(own)
	if err != nil {
		return nil, usagef("source: %w", err)
	}
	cl, err := kgo.NewClient(append(conf.KgoOpts(nil), mirroradm.Software())...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		return nil, &exitError{ExitUnreachable, fmt.Errorf("cannot reach the source cluster at %s: %w: check --source and --source-config", props["bootstrap.servers"], rootCause(err))}
	}
	return cl, nil
}
