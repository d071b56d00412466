package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"milena/internal/peertest"
	"milena/internal/record"
)

// kcat drives Debian's kcat, whose librdkafka is old and speaks older versions of the APIs. It can't create or delete
// topics, so topics come into being by auto-creation.
type kcat struct {
	*part
	b   *peertest.Broker
	adm *kadm.Client
	// half is a time between the first and the second half of what is produced to the zstd topic.
	half time.Time
}

func runKcat(ctx context.Context, p *part) error {
	k := &kcat{part: p}
	return p.steps(ctx,
		step{"start", func(ctx context.Context) (err error) {
			if k.b, err = p.target(ctx, map[string]string{"num.partitions": itoa(partitions)}); err != nil {
				return err
			}
			k.adm, err = p.admin(k.b.Addr)
			return err
		}},
		step{"produce", k.produce},
		step{"list", k.list},
		step{"consume", k.consume},
		step{"group", k.group},
		step{"seek by time", k.byTime},
	)
}

func (k *kcat) run(ctx context.Context, stdin string, args ...string) (string, error) {
	out, err := peertest.Run(ctx, peertest.Command{Path: "kcat", Args: append([]string{"-b", k.b.Addr}, args...), Stdin: strings.NewReader(stdin), Timeout: 30 * time.Second})
	return out.Stdout, err
}

func kcatTopic(c record.Codec) string { return "kcat-" + c.String() }

func (k *kcat) produce(ctx context.Context) error {
	for _, c := range codecs() {
		for half := range 2 {
			if half == 1 && c == record.Zstd {
				if err := peertest.Pause(ctx, 50*time.Millisecond); err != nil {
					return err
				}
				k.half = time.Now()
				if err := peertest.Pause(ctx, 50*time.Millisecond); err != nil {
					return err
				}
			}
			var in strings.Builder
			for i := half * perCodec / 2; i < (half+1)*perCodec/2; i++ {
				fmt.Fprintf(&in, "k%d:%s\n", i, compressible(c.String(), i))
			}
			if _, err := k.run(ctx, in.String(), "-P", "-t", kcatTopic(c), "-K:", "-z", c.String(), "-H", "h=v",
				"-X", "enable.idempotence=true", "-X", "linger.ms=50"); err != nil {
				return err
			}
		}
		if err := checkStored(k.b, kcatTopic(c), partitions, c, perCodec); err != nil {
			return err
		}
	}
	return nil
}

func (k *kcat) list(ctx context.Context) error {
	out, err := k.run(ctx, "", "-L", "-J")
	if err != nil {
		return err
	}
	var seen struct {
		Brokers []struct{ Name string }
		Topics  []struct {
			Topic      string
			Partitions []struct{ Leader int }
		}
	}
	if err := json.Unmarshal([]byte(out), &seen); err != nil {
		return err
	}
	if len(seen.Brokers) != 1 || seen.Brokers[0].Name != k.b.Addr {
		return fmt.Errorf("brokers listed: %+v, want %s", seen.Brokers, k.b.Addr)
	}
	n := 0
	for _, t := range seen.Topics {
		if strings.HasPrefix(t.Topic, "kcat-") && len(t.Partitions) == partitions {
			n++
		}
	}
	if n != len(codecs()) {
		return fmt.Errorf("topics listed: %+v", seen.Topics)
	}
	return nil
}

func (k *kcat) consume(ctx context.Context) error {
	for _, c := range codecs() {
		out, err := k.run(ctx, "", "-C", "-t", kcatTopic(c), "-e", "-q", "-f", `%k|%s|%h\n`)
		if err != nil {
			return err
		}
		lines := map[string]bool{}
		for line := range strings.Lines(out) {
			lines[strings.TrimSpace(line)] = true
		}
		for i := range perCodec {
			if want := fmt.Sprintf("k%d|%s|h=v", i, compressible(c.String(), i)); !lines[want] {
				return fmt.Errorf("%q was not consumed; %d lines", want, len(lines))
			}
		}
	}
	return nil
}

// kcatMember is a kcat in a group; its standard error says how it is assigned.
type kcatMember struct {
	proc *peertest.Process
	log  string
}

var kcatAssigned = regexp.MustCompile(`assigned: (.*)`)

// owns is the number of partitions of the last assignment.
func (m kcatMember) owns() int {
	n := 0
	for line := range strings.Lines(peertest.TailFile(m.log, 1000)) {
		if !strings.Contains(line, " rebalanced ") {
			continue
		}
		n = 0
		if found := kcatAssigned.FindStringSubmatch(line); found != nil {
			n = strings.Count(found[1], "[")
		}
	}
	return n
}

func (k *kcat) join(name, group string, line func(string)) (kcatMember, error) {
	proc, err := k.start(name, peertest.Command{Path: "kcat", Args: []string{"-b", k.b.Addr, "-G", group, "-u", "-f", `%p/%o\n`,
		"-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=200", "-X", "session.timeout.ms=10000", kcatTopic(record.Zstd)}, Lines: line})
	return kcatMember{proc, k.dir + "/" + name + ".log"}, err
}

func (k *kcat) group(ctx context.Context) error {
	var mu sync.Mutex
	seen := map[string]int{}
	line := func(s string) { mu.Lock(); defer mu.Unlock(); seen[s]++ }
	a, err := k.join("kcat-a", "kcat-group", line)
	if err != nil {
		return err
	}
	if err := owns(ctx, "one member has all", func() bool { return a.owns() == partitions }); err != nil {
		return err
	}
	b, err := k.join("kcat-b", "kcat-group", line)
	if err != nil {
		return err
	}
	if err := owns(ctx, "two share", func() bool { return a.owns() > 0 && b.owns() > 0 && a.owns()+b.owns() == partitions }); err != nil {
		return err
	}
	if err := b.proc.Stop(10 * time.Second); err != nil {
		return err
	}
	if err := owns(ctx, "one member has all again", func() bool { return a.owns() == partitions }); err != nil {
		return err
	}
	if err := owns(ctx, "all records seen", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == perCodec }); err != nil {
		return err
	}
	if err := a.proc.Stop(10 * time.Second); err != nil {
		return err
	}
	return checkCommitted(ctx, k.adm, "kcat-group", kcatTopic(record.Zstd))
}

func (k *kcat) byTime(ctx context.Context) error {
	topic := kcatTopic(record.Zstd)
	at := itoa(k.half.UnixMilli())
	n := 0
	for p := range partitions {
		out, err := k.run(ctx, "", "-Q", "-t", fmt.Sprintf("%s:%d:%s", topic, p, at))
		if err != nil {
			return err
		}
		var offset int64
		if _, err := fmt.Sscanf(out, topic+" ["+itoa(p)+"] offset %d", &offset); err != nil {
			return fmt.Errorf("%q: %w", out, err)
		}
		read, err := k.run(ctx, "", "-C", "-t", topic, "-p", itoa(p), "-o", "s@"+at, "-e", "-q", "-f", `%o %s\n`)
		if err != nil {
			return err
		}
		for line := range strings.Lines(read) {
			var o int64
			var i int
			if _, err := fmt.Sscanf(line, "%d zstd-%d", &o, &i); err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
			if o < offset || i < perCodec/2 {
				return fmt.Errorf("partition %d, sought %s (offset %d), but read %q", p, at, offset, line)
			}
			n++
		}
	}
	if n != perCodec/2 {
		return errors.New("read " + itoa(n) + " records from the time on")
	}
	return nil
}
