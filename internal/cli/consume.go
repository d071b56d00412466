package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/client"
)

type consumeFlags struct {
	group                    string
	fromBeginning, exitAtEnd bool
	format                   string
	partitions               []int32
	maxRecords               int64
}

func (a *app) consumeCommand() *cobra.Command {
	var f consumeFlags
	c := &cobra.Command{
		Use: "consume TOPIC", Short: "Print records, one a line", Args: exactly("TOPIC"),
		Long: "Prints the value of each record and nothing else on standard output. --format chooses other parts:\n" +
			"  %k key  %v value  %t topic  %p partition  %o offset  %e leader epoch  %T timestamp in milliseconds\n" +
			"  %h headers k=v,k=v  %M key and value of a record of __mirror_state, decoded  %% a percent sign  \\n \\t \\\\ as usual\n" +
			"--exit-at-end stops at the end offsets read at start, control records included.\n" +
			"--json prints a line of JSON for each record instead, with topic, partition, offset, leader_epoch, timestamp, timestamp_type,\n" +
			"key, value and headers. Null is null; bytes that are not UTF-8 are in key_base64 and value_base64, in place of key and value.\n" +
			"A group commits what was printed, and nothing else.",
		Example: "  milena consume orders --from-beginning --exit-at-end --format '%k=%v'",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.consume(cmd, args[0], &f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.group, "group", "", "consume as a member of this group, committing its offsets")
	fl.BoolVar(&f.fromBeginning, "from-beginning", false, "start at the log start where nothing is committed")
	fl.BoolVar(&f.exitAtEnd, "exit-at-end", false, "stop at the end offsets read at start")
	fl.StringVar(&f.format, "format", "%v", "what a line holds")
	fl.Int32SliceVar(&f.partitions, "partition", nil, "only these partitions (not with --group)")
	fl.Int64Var(&f.maxRecords, "max-records", -1, "stop after so many records")
	return a.clientFlags(c)
}

// consumer is one run of the consume command.
type consumer struct {
	a      *app
	f      *consumeFlags
	topic  string
	format []formatPart
	cl     *kgo.Client
	count  *counter
	seen   int64
	ends   *ends // nil without --exit-at-end
	// next is the offset after what was printed, by partition; what of it was committed is in committed.
	next, committed map[int32]kgo.EpochOffset
	// limit is how long a consumer that is to end waits for an answer, good when it had the last; 0: for ever.
	limit time.Duration
	good  time.Time
}

func (a *app) consume(cmd *cobra.Command, topic string, f *consumeFlags) error {
	format, err := parseFormat(f.format)
	switch {
	case err != nil:
		return &usageError{err}
	case a.json && cmd.Flags().Changed("format"):
		return usagef("--json does not go with --format: a line of JSON holds all parts of a record")
	case f.group != "" && len(f.partitions) > 0:
		return usagef("--partition does not go with --group: the group assigns partitions")
	case f.maxRecords == 0:
		return nil
	}
	conf, err := a.settings(cmd)
	if err != nil {
		return err
	}
	if f.fromBeginning || conf.Reset() == "earliest" {
		f.fromBeginning = true
	}
	opts, err := f.opts(conf, topic)
	if err != nil {
		return &usageError{err}
	}
	plain, err := a.open(cmd.Context(), conf)
	if err != nil {
		return err
	}
	defer plain.Close()
	c := &consumer{a: a, f: f, topic: topic, format: format, count: a.counter("records read"), next: map[int32]kgo.EpochOffset{}, committed: map[int32]kgo.EpochOffset{}}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(a.timeout)*time.Millisecond)
	defer cancel()
	if c.ends, err = f.ends(ctx, plain, topic, conf.Committed()); err != nil {
		return err
	}
	if f.exitAtEnd && len(c.ends.left) == 0 {
		return nil
	}
	limit := time.Duration(a.timeout) * time.Millisecond
	opts = append(opts, kgo.WithHooks(&unreachable{a: a, limit: limit}))
	if c.ends != nil {
		c.limit, c.good = limit, time.Now()
	}
	if c.cl, err = kgo.NewClient(append(conf.KgoOpts(nil), opts...)...); err != nil {
		return &usageError{err}
	}
	defer c.cl.Close()
	err = c.run(cmd.Context())
	c.count.end()
	if f.group != "" {
		end, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 10*time.Second)
		defer cancel()
		err = errors.Join(err, c.commit(end))
	}
	return err
}

func (f *consumeFlags) opts(conf *client.Config, topic string) ([]kgo.Opt, error) {
	opts, err := conf.ConsumerOpts(f.group)
	if err != nil {
		return nil, err
	}
	start := kgo.NewOffset().AtEnd()
	if f.fromBeginning {
		start = kgo.NewOffset().AtStart()
		opts = append(opts, kgo.ConsumeResetOffset(start))
	}
	if f.group != "" {
		opts = append(opts, kgo.DisableAutoCommit())
	}
	if len(f.partitions) > 0 {
		m := map[int32]kgo.Offset{}
		for _, p := range f.partitions {
			m[p] = start
		}
		opts = append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: m}))
	} else {
		opts = append(opts, kgo.ConsumeTopics(topic))
	}
	// Control records are kept so that the end is recognised behind the last transaction's marker.
	return append(opts, kgo.KeepControlRecords()), nil
}

// pollWait is how long a poll waits before partitions without new records are looked at for their end.
const pollWait = 100 * time.Millisecond

func (c *consumer) run(ctx context.Context) error {
	out := bufio.NewWriterSize(c.a.env.Stdout, 64<<10)
	for {
		limit := 10_000
		if c.f.maxRecords > 0 {
			limit = int(min(int64(limit), c.f.maxRecords-c.seen))
		}
		fetches := c.poll(ctx, limit)
		if ctx.Err() != nil {
			return nil
		}
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				return answer(fmt.Sprintf("%s-%d", e.Topic, e.Partition), e.Err, "")
			}
		}
		for it := fetches.RecordIter(); !it.Done(); {
			c.take(out, it.Next())
		}
		if err := out.Flush(); err != nil {
			c.next = c.committed // what was not printed is not committed
			return fmt.Errorf("standard output: %w", err)
		}
		if c.f.group != "" {
			if err := c.commit(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if fetches.NumRecords() > 0 {
			c.good = time.Now()
		} else if c.ends != nil {
			if err := c.look(ctx); err != nil {
				return err
			}
		}
		if c.seen == c.f.maxRecords || c.ends != nil && len(c.ends.left) == 0 {
			return nil
		}
	}
}

// look finds partitions that have nothing left before their end. While the cluster can't be reached it is tried again, until the
// command's time is up since the last answer.
func (c *consumer) look(ctx context.Context) error {
	left := c.limit - time.Since(c.good)
	looking, cancel := context.WithTimeout(ctx, max(left, 0))
	defer cancel()
	err := c.ends.look(looking, c.next)
	if err == nil {
		err = c.ends.unanswered
	}
	switch {
	case err == nil:
		c.good = time.Now()
		return nil
	case ctx.Err() != nil, looking.Err() == nil && c.ends.unanswered != nil:
		return nil
	case looking.Err() != nil:
		return &exitError{ExitUnreachable, fmt.Errorf("the cluster at %s gave no answer for %s: %w; %d records were read", c.a.bootstrap, c.limit, rootCause(err), c.seen)}
	}
	return err
}

func (c *consumer) poll(ctx context.Context, limit int) kgo.Fetches {
	if c.ends == nil {
		return c.cl.PollRecords(ctx, limit)
	}
	ctx, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	return c.cl.PollRecords(ctx, limit)
}

// take prints a record, unless it is a control record or behind the end.
func (c *consumer) take(out *bufio.Writer, r *kgo.Record) {
	if c.ends != nil && !c.ends.within(r.Partition, r.Offset) {
		return
	}
	c.next[r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	if !r.Attrs.IsControl() {
		if c.a.json {
			writeJSON(out, r)
		} else {
			writeRecord(out, c.format, r)
		}
		c.seen++
		c.count.add(1)
	}
	if c.ends != nil {
		c.ends.reached(r.Partition, r.Offset+1)
	}
}

// commit commits what was printed since the last commit.
func (c *consumer) commit(ctx context.Context) error {
	todo := map[int32]kgo.EpochOffset{}
	for p, o := range c.next {
		if c.committed[p] != o {
			todo[p] = o
		}
	}
	if len(todo) == 0 {
		return nil
	}
	var failed error
	c.cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{c.topic: todo}, commitResult(&failed))
	if failed != nil {
		return answer("group "+c.f.group, failed, "")
	}
	for p, o := range todo {
		c.committed[p] = o
	}
	return nil
}

// committedOffsets asks for a group's offsets. A coordinator that is just being made or moved is asked again.
func committedOffsets(ctx context.Context, adm *kadm.Client, group string) (kadm.OffsetResponses, error) {
	var last error
	for {
		os, err := adm.FetchOffsets(ctx, group)
		switch timedOut := ctx.Err() != nil; {
		case timedOut && last != nil: // what the coordinator said says more than that time is up
			return nil, &exitError{ExitFailed, answer("group "+group, last, "")}
		case timedOut && errors.Is(err, context.DeadlineExceeded):
			return nil, &exitError{ExitUnreachable, fmt.Errorf("group %s: no coordinator answered in time: see milena topics describe __consumer_offsets and the brokers' logs", group)}
		}
		if err == nil || !retriable(err) {
			return os, answer("group "+group, err, "")
		}
		last = err
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, &exitError{ExitFailed, answer("group "+group, last, "")}
		}
	}
}

// unreachable is a hook that says once on standard error that no broker can be reached: a consumer without an end waits for ever
// otherwise, without a word.
type unreachable struct {
	a     *app
	limit time.Duration

	mu    sync.Mutex
	since time.Time // no connection was opened since then; zero: the last one was
	said  bool
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (u *unreachable) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil:
		u.since, u.said = time.Time{}, false
	case u.since.IsZero():
		u.since = now
	case !u.said && now.Sub(u.since) >= u.limit:
		u.said = true
		fmt.Fprintf(u.a.env.Stderr, "milena: the cluster at %s cannot be reached for %s: %v; still trying\n", u.a.bootstrap, now.Sub(u.since).Round(time.Second), rootCause(err))
	}
}
