package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// acks follows records from their lines to their acknowledgements; its methods may be called from any goroutine.
type acks struct {
	mu    sync.Mutex
	count *counter
	acked int64
	line  int   // of the first record that failed
	err   error // why
	where partitionOf

	// waiting are the lines under way from first on; those that were answered leave when all before them have.
	waiting []waiting
	first   int
	// next is the line after the last that was sent; stopped says that none is sent any more.
	next    int
	stopped bool
}

type waiting struct {
	since    time.Time
	answered bool
}

type partitionOf struct {
	topic     string
	partition int32
}

// sent notes that a line is on its way. Lines come in order. After stop it reports false, and the line must not be sent.
func (k *acks) sent(line int, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return false
	}
	k.next = line + 1
	if len(k.waiting) == 0 {
		k.first = line
	}
	k.waiting = append(k.waiting, waiting{since: now})
	return true
}

// stop ends the sending before the input has ended: what is in it from the next line on was not written.
func (k *acks) stop() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	return &exitError{ExitFailed, fmt.Errorf("record %d of standard input was not acknowledged: interrupted before the end of the input", max(k.next, 1))}
}

// done notes what became of a line's record.
func (k *acks) done(line int, where partitionOf, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.acked++
		k.count.add(1)
	} else if k.err == nil || line < k.line {
		k.line, k.err, k.where = line, err, where
	}
	if i := line - k.first; i >= 0 && i < len(k.waiting) {
		k.waiting[i].answered = true
	}
	n := 0
	for n < len(k.waiting) && k.waiting[n].answered {
		n++
	}
	k.waiting, k.first = k.waiting[n:], k.first+n
}

func (k *acks) failed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err != nil
}

// oldest is how long the oldest record that wasn't answered is under way, 0 if there is none.
func (k *acks) oldest(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.waiting) == 0 {
		return 0
	}
	return now.Sub(k.waiting[0].since)
}

// result is how many records were acknowledged, and the first that was not, with the reason; err is nil if there is none. A client that
// gives up may never say what became of some: they count as not acknowledged.
func (k *acks) result() (acked int64, line int, where partitionOf, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count.end()
	switch {
	case len(k.waiting) == 0 || k.err != nil && k.line < k.first:
		return k.acked, k.line, k.where, k.err
	case k.err != nil:
		return k.acked, k.first, k.where, k.err
	}
	return k.acked, k.first, k.where, errUnanswered
}

// errUnanswered is why a record was not acknowledged of which nothing else is known.
var errUnanswered = errors.New("no answer came for it")

// overdue is why a producer gives up.
type overdue struct{ limit time.Duration }

func (o *overdue) Error() string { return fmt.Sprintf("no acknowledgement within %s", o.limit) }

// recordAdvice says what to do where time ran out, or the topic is none that clients may write; last is what a broker last said.
func recordAdvice(topic string, err error, last string) string {
	var late *overdue
	switch {
	case errors.Is(err, kerr.InvalidTopicException):
		return fmt.Sprintf(": %q is internal to the cluster, or no name for a topic: those have letters, digits, '.', '_' and '-' only", topic)
	case !errors.As(err, &late) && !errors.Is(err, kgo.ErrRecordTimeout):
		return ""
	case strings.Contains(last, kerr.KafkaStorageError.Message):
		return ": " + advice(kerr.KafkaStorageError)
	case strings.Contains(last, kerr.NotEnoughReplicas.Message):
		return ": " + advice(kerr.NotEnoughReplicas)
	}
	return fmt.Sprintf(": see milena topics describe %s for the partition's leader, or raise --timeout-ms", topic)
}

// graceOf is how much longer than its limit a record is waited for: the client times most of them out by itself, and says it
// better. What it has in flight to a broker that is gone it never does.
func graceOf(limit time.Duration) time.Duration { return min(limit/4, time.Second) }

// watch ends the work when a record is under way for too long, until ctx ends.
func (k *acks) watch(ctx context.Context, limit time.Duration, end context.CancelCauseFunc) {
	if limit <= 0 {
		return
	}
	tick := time.NewTicker(max(min(limit/10, time.Second), 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if k.oldest(now) > limit+graceOf(limit) {
				end(&overdue{limit})
				return
			}
		}
	}
}

// noPartition is how kgo words a partition that the topic doesn't have.
var noPartition = regexp.MustCompile(`invalid record partitioning choice of (\d+) from (\d+) available`)

// partitionHint says which partitions there are where a record was for none of them.
func partitionHint(topic string, err error) error {
	if err == nil {
		return nil
	}
	m := noPartition.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	n, _ := strconv.Atoi(m[2])
	return fmt.Errorf("topic %s has no partition %s: choose one of 0 to %d with --partition", topic, m[1], n-1)
}

// brokerAnswers is a kgo.Logger that keeps the last error that a broker gave for each partition, and the last with a
// connection: the client tries again and reports only that time ran out.
type brokerAnswers struct {
	mu         sync.Mutex
	partitions map[partitionOf]string
	connection error
}

// Level implements kgo.Logger: answers to single partitions are told at the debug level.
func (*brokerAnswers) Level() kgo.LogLevel { return kgo.LogLevelDebug }

// produced finds what kgo says of an answer, "topic[0{retrying@-1,3(ERROR)}, 1{7=>9}], …": topics, and partitions with an error
// or without.
var produced = regexp.MustCompile(`([a-zA-Z0-9._-]+)\[|(\d+)\{(?:retrying@-?\d+,\d+\(([^)]*)\))?`)

// Log implements kgo.Logger.
func (b *brokerAnswers) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	kv := map[string]any{}
	switch msg {
	case "produced", "batch in a produce request failed", "produce request failed, triggering metadata update",
		"produce request failed with a retryable error, retrying without a metadata update", "unable to open connection to broker":
		for i := 0; i+1 < len(keyvals); i += 2 {
			if k, ok := keyvals[i].(string); ok {
				kv[k] = keyvals[i+1]
			}
		}
	default:
		return
	}
	err, _ := kv["err"].(error)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch msg {
	case "produced":
		to, _ := kv["to"].(string)
		b.connection = nil
		topic := ""
		for _, m := range produced.FindAllStringSubmatch(to, -1) {
			if m[1] != "" {
				topic = m[1]
				continue
			}
			n, _ := strconv.ParseInt(m[2], 10, 32)
			b.note(partitionOf{topic, int32(n)}, m[3])
		}
	case "batch in a produce request failed":
		topic, _ := kv["topic"].(string)
		n, ok := kv["partition"].(int32)
		if ok && err != nil {
			b.note(partitionOf{topic, n}, err.Error())
		}
	default:
		if err != nil && !errors.Is(err, context.Canceled) {
			b.connection = rootCause(err)
		}
	}
}

func (b *brokerAnswers) note(p partitionOf, err string) {
	if b.partitions == nil {
		b.partitions = map[partitionOf]string{}
	}
	if b.partitions[p] = err; err == "" {
		delete(b.partitions, p)
	}
}

// last says what a broker last answered for the partition, or what became of the connection; empty if nothing went wrong.
func (b *brokerAnswers) last(p partitionOf) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.partitions[p]; e != "" {
		return fmt.Sprintf("; the last answer for %s-%d: %s", p.topic, p.partition, e)
	}
	if b.connection != nil {
		return fmt.Sprintf("; the last connection: %v", b.connection)
	}
	return ""
}
