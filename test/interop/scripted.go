package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"milena/internal/peertest"
	"milena/internal/record"
)

// scripted is a client library driven by a program of its own, called once a stage:
//
//	PROGRAM STAGE BOOTSTRAP PREFIX T0
//
// T0 is a time in ms. A stage that finds something wrong says so on standard error and exits with another code than 0.
// After each stage the test looks for itself at what it left.
//
//	produce  creates topics PREFIX-CODEC of 3 partitions for each codec and produces 300 records to each: keys k0 to k9,
//	         values that begin "CODEC-i ", timestamps T0 + i seconds, a header h=v
//	group    consumes PREFIX-zstd in group PREFIX-group: one member, a second that joins and leaves; every record is
//	         seen, and all is committed at the end
//	time     seeks each partition of PREFIX-snappy to T0 + 150 s and reads exactly the 150 records from there
//	delete   deletes the records of PREFIX-lz4-0 before offset 5, the group and all topics but PREFIX-lz4
type scripted struct {
	*part
	prefix  string
	command func(args ...string) peertest.Command
	t0      time.Time
	b       *peertest.Broker
	adm     *kadm.Client
}

func runScripted(ctx context.Context, p *part, prefix string, command func(args ...string) peertest.Command) error {
	s := &scripted{part: p, prefix: prefix, command: command, t0: firstTimestamp()}
	return p.steps(ctx,
		step{"start", func(ctx context.Context) (err error) {
			if s.b, err = p.target(ctx, nil); err != nil {
				return err
			}
			s.adm, err = p.admin(s.b.Addr)
			return err
		}},
		step{"create and produce", s.produce},
		step{"group", s.group},
		step{"seek by time", func(ctx context.Context) error { return s.stage(ctx, "time") }},
		step{"delete", s.delete},
	)
}

func (s *scripted) stage(ctx context.Context, name string) error {
	c := s.command(name, s.b.Addr, s.prefix, itoa(s.t0.UnixMilli()))
	c.Timeout = time.Minute
	_, err := peertest.Run(ctx, c)
	return err
}

func (s *scripted) topic(c record.Codec) string { return s.prefix + "-" + c.String() }

func (s *scripted) produce(ctx context.Context) error {
	if err := s.stage(ctx, "produce"); err != nil {
		return err
	}
	for _, c := range codecs() {
		if err := checkStored(s.b, s.topic(c), partitions, c, perCodec); err != nil {
			return err
		}
		latest, err := s.adm.ListMaxTimestampOffsets(ctx, s.topic(c))
		if err != nil {
			return err
		}
		var newest int64
		latest.Each(func(o kadm.ListedOffset) { newest = max(newest, o.Timestamp) })
		if want := s.t0.Add((perCodec - 1) * time.Second).UnixMilli(); newest != want {
			return fmt.Errorf("the newest record of %s is at %d, want %d", s.topic(c), newest, want)
		}
	}
	return nil
}

func (s *scripted) group(ctx context.Context) error {
	if err := s.stage(ctx, "group"); err != nil {
		return err
	}
	return checkCommitted(ctx, s.adm, s.prefix+"-group", s.topic(record.Zstd))
}

func (s *scripted) delete(ctx context.Context) error {
	if err := s.stage(ctx, "delete"); err != nil {
		return err
	}
	starts, err := s.adm.ListStartOffsets(ctx, s.topic(record.LZ4))
	if err != nil {
		return err
	}
	if o, _ := starts.Lookup(s.topic(record.LZ4), 0); o.Offset != 5 {
		return fmt.Errorf("%s-0 starts at %+v, want 5", s.topic(record.LZ4), o)
	}
	var gone []string
	for _, c := range codecs() {
		if c != record.LZ4 {
			gone = append(gone, s.topic(c))
		}
	}
	return checkGone(ctx, s.adm, gone, []string{s.prefix + "-group"})
}

func (p *part) python(script string) func(args ...string) peertest.Command {
	return func(args ...string) peertest.Command {
		return peertest.Command{
			Path: filepath.Join(peertest.CacheDir(p.root), "venv", "bin", "python"),
			Args: append([]string{filepath.Join(p.root, "test", "interop", "python", script)}, args...),
		}
	}
}

func runLibrdkafka(ctx context.Context, p *part) error {
	return runScripted(ctx, p, "rd", p.python("librdkafka_client.py"))
}

func runKafkaPython(ctx context.Context, p *part) error {
	return runScripted(ctx, p, "kp", p.python("kafka_python_client.py"))
}

func runSarama(ctx context.Context, p *part) error {
	binary := filepath.Join(p.dir, "sarama-client")
	build := peertest.Command{Path: "go", Args: []string{"build", "-o", binary, "."}, Dir: filepath.Join(p.root, "test", "interop", "sarama"), Timeout: 4 * time.Minute}
	if _, err := peertest.Run(ctx, build); err != nil {
		return err
	}
	return runScripted(ctx, p, "sarama", func(args ...string) peertest.Command { return peertest.Command{Path: binary, Args: args} })
}
