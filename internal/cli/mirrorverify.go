package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
			"Exit code 0: equal. 1: different; the first difference is shown. 2: it could not be decided, or the command line is wrong.",
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
		return err
	}
	if len(ranges)+len(decided) == 0 && len(v.topics) > 0 {
		return fmt.Errorf("mirror %s has no topic that matches %s", mirror, strings.Join(v.topics, ","))
	}
	state, err := v.load(cmd, mirror, sample)
	if err != nil {
		return err
	}
	for i := range ranges {
		state.begin(&ranges[i])
	}
	show := v.a.counter("offsets compared")
	verifier := &mirroradm.Verifier{Source: src, Destination: dst, Sample: state.Sample, Seed: state.Seed, Progress: func(r mirroradm.VerifyResult) {
		show.add(state.note(&r))
		state.saveSometimes()
	}}
	results := slices.Concat(decided, verifier.Verify(cmd.Context(), ranges))
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
		return nil, fmt.Errorf("mirror %s: %w", mirror, err)
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
	own := map[string]string{"sasl.mechanism": "PLAIN"} // where Kafka's clients have GSSAPI
	for k, val := range props {
		if !strings.HasPrefix(k, "mirror.") {
			own[k] = val
		}
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

// verifyState is what a run of verify has proven, as its file keeps it.
type verifyState struct {
	Mirror string  `json:"mirror"`
	Sample float64 `json:"sample"`
	Seed   uint64  `json:"seed"`
	// Proven are offsets by topic id (by name where there are none) and partition.
	Proven map[string]int64 `json:"proven"`

	path  string
	saved time.Time
	at    map[string]int64
	err   error
}

// load reads the file of an earlier run, if there is one, whose sample goes on.
func (v *mirrorVerify) load(cmd *cobra.Command, mirror string, sample float64) (*verifyState, error) {
	s := &verifyState{Mirror: mirror, Sample: sample, Seed: v.seed, Proven: map[string]int64{}, path: v.resume, saved: time.Now(), at: map[string]int64{}}
	if s.Seed == 0 {
		s.Seed = uint64(time.Now().UnixNano())
	}
	if v.resume == "" {
		return s, nil
	}
	b, err := os.ReadFile(v.resume)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	old := &verifyState{}
	if err == nil {
		err = json.Unmarshal(b, old)
	}
	switch {
	case err != nil:
		return nil, usagef("--progress %s: %w", v.resume, err)
	case old.Mirror != mirror:
		return nil, usagef("--progress %s is of mirror %s", v.resume, old.Mirror)
	case cmd.Flags().Changed("sample") && old.Sample != sample, v.seed != 0 && v.seed != old.Seed:
		return nil, usagef("--progress %s is of a run with --sample %g --seed %d", v.resume, old.Sample, old.Seed)
	}
	s.Sample, s.Seed = old.Sample, old.Seed
	for k, n := range old.Proven {
		s.Proven[k] = n
	}
	return s, nil
}

func rangeKey(r *mirroradm.VerifyRange) string {
	if r.DestinationID == [16]byte{} {
		return fmt.Sprintf("%s-%d", r.Topic, r.Partition)
	}
	return fmt.Sprintf("%s:%s-%d", kafkaID(r.DestinationID), r.Topic, r.Partition)
}

// begin leaves out of a range what is proven already.
func (s *verifyState) begin(r *mirroradm.VerifyRange) {
	k := rangeKey(r)
	if n := s.Proven[k]; n > r.From {
		r.From = min(n, r.To)
	}
	s.at[k] = r.From
}

// note keeps how far a range has come and returns by how much that is more. In the midst of a compacted range nothing is
// proven yet: whether compaction may have removed a record is told by later ones.
func (s *verifyState) note(r *mirroradm.VerifyResult) int64 {
	k := rangeKey(&r.Range)
	more := r.Proven - s.at[k]
	s.at[k] = r.Proven
	if r.Equal() && (!r.Compacted || r.Proven == r.To) {
		s.Proven[k] = max(s.Proven[k], r.Proven)
	}
	return max(more, 0)
}

func (s *verifyState) saveSometimes() {
	if time.Since(s.saved) >= time.Second && s.err == nil {
		s.err = s.save()
	}
}

// save replaces the file.
func (s *verifyState) save() error {
	if s.path == "" || s.err != nil {
		return s.err
	}
	s.saved = time.Now()
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+".*")
	if err != nil {
		return fmt.Errorf("--progress: %w", err)
	}
	_, err = tmp.Write(b)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("--progress: %w", err)
	}
	return os.Rename(tmp.Name(), s.path)
}

type verifyDifferenceJSON struct {
	Offset      int64  `json:"offset"`
	Source      string `json:"source_hash"`
	Destination string `json:"destination_hash"`
	What        string `json:"what"`
}

type verifyPartitionJSON struct {
	Topic      string                `json:"topic"`
	Partition  int32                 `json:"partition"`
	From       int64                 `json:"from"`
	To         int64                 `json:"to"`
	Proven     int64                 `json:"proven"`
	By         string                `json:"by"` // batch or record
	Batches    int64                 `json:"batches"`
	Records    int64                 `json:"records"`
	Bytes      int64                 `json:"bytes"`
	Result     string                `json:"result"`
	Difference *verifyDifferenceJSON `json:"difference,omitempty"`
	Error      string                `json:"error,omitempty"`
}

func verifyRow(r *mirroradm.VerifyResult) verifyPartitionJSON {
	x := verifyPartitionJSON{Topic: r.Topic, Partition: r.Partition, From: r.From, To: r.To, Proven: r.Proven, By: "batch", Batches: r.Batches, Records: r.Records,
		Bytes: r.Bytes, Result: "equal"}
	if r.Compacted {
		x.By = "record"
	}
	switch {
	case r.Difference != nil:
		x.Result = "different"
		x.Difference = &verifyDifferenceJSON{r.Difference.Offset, r.Difference.Source, r.Difference.Destination, r.Difference.What}
	case r.Err != nil:
		x.Result, x.Error = "undecided", oneLine(r.Err.Error())
	}
	return x
}

// print shows the results; its error carries the exit code.
func (v *mirrorVerify) print(mirror string, s *verifyState, results []mirroradm.VerifyResult) error {
	slices.SortFunc(results, func(a, b mirroradm.VerifyResult) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	rows, t := []verifyPartitionJSON{}, table{header: []string{"TOPIC", "PARTITION", "FROM", "TO", "BY", "RESULT"}}
	overall, byRecord := "equal", false
	var first error
	for i := range results {
		x := verifyRow(&results[i])
		rows = append(rows, x)
		t.add(x.Topic, x.Partition, x.From, x.To, x.By, x.Result)
		byRecord = byRecord || x.By == "record"
		switch {
		case x.Result == "different" && overall != "different":
			overall = x.Result
			first = &exitError{verifyDifferent, fmt.Errorf("topic %s partition %d differs at offset %d: %s: source %s, destination %s", x.Topic, x.Partition,
				x.Difference.Offset, x.Difference.What, x.Difference.Source, x.Difference.Destination)}
		case x.Result == "undecided" && overall == "equal":
			overall = x.Result
			first = fmt.Errorf("topic %s partition %d could not be compared: %s%s", x.Topic, x.Partition, x.Error, v.goOn())
		}
	}
	if v.a.json {
		out := map[string]any{"mirror": mirror, "result": overall, "partitions": rows, "sample": s.Sample}
		if s.Sample < 1 {
			out["seed"] = s.Seed
		}
		return errors.Join(v.a.printJSON(out), first)
	}
	v.a.printf("%s", t.String())
	if byRecord {
		v.a.printf("Compacted topics were compared record by record: what both hold is the same, and what one lacks compaction may remove.\n")
	}
	if s.Sample < 1 {
		v.a.printf("Only a sample of %g of the chunks was read, --seed %d.\n", s.Sample, s.Seed)
	}
	v.a.printf("Mirror %s and its source are %s.\n", mirror, map[string]string{"equal": "equal", "different": "different", "undecided": "not fully compared"}[overall])
	return first
}

func (v *mirrorVerify) goOn() string {
	if v.resume == "" {
		return ""
	}
	return ": run it again with --progress " + v.resume + " to go on"
}
