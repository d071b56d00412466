package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
)

// The scripts in testdata/scripts hold one rule each. A line is a command, or a partition
// followed by ':' and what it has to be:
//
//	up 1 2 3                 brokers register, with a directory each, and are let in
//	topic a KEY=V 1,2,3 …    creates a topic with configs and the replicas of its partitions
//	silence 1 2              their sessions end; the others' don't
//	clean 1 / unclean 1      registers the next incarnation, after a clean shutdown or not
//	dirs 1 x y               registers the next incarnation (clean) with these directories
//	beat 1                   a heartbeat that wants to be let in
//	shutdown 1 [done]        a heartbeat that wants to shut down; done: it may
//	isr a-0 1,2              the leader asks for the ISR
//	recovered a-0            the leader has recovered
//	isr a-0 1,2 10           the leader has cut its log to an offset; "same": no other ISR
//	mirrors 2                mirror.version gets a level
//	elect preferred a-0      (or unclean)
//	reassign a-0 2,3         (or cancel)
//	place 1 x a-0            the broker's replica lies in the directory ("lost" is a failed one)
//	fail 1 x y               the broker reports that the directories have failed
//	set a KEY=V              sets a topic's config; "set * KEY=V" the cluster's
//	unset a KEY
//	unregister 1
//	pass 10s                 time goes by, for the brokers as well
//	failover                 another controller becomes active
//	a-0: 2/1 isr 2,3         leader 2 with epoch 1; then elr, last, adding, removing, on (the
//	                         replicas), recovering, unaligned (any: replicas to come) where there is something to say
//
// A command that ends in "! CODE" is refused with that code.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			s := &script{bench: newBench(t, scriptOptions), t: t, incarnation: map[int32]byte{}}
			for n, line := range strings.Split(string(data), "\n") {
				if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) == "" {
					continue
				}
				if why := s.line(strings.TrimSpace(line)); why != "" {
					t.Fatalf("%s:%d: %s\n%s", f, n+1, strings.TrimSpace(line), why)
				}
				s.check()
			}
		})
	}
}

func scriptOptions(o *Options) {
	o.RebalanceInterval, o.UncleanInterval = 5*time.Minute, 5*time.Minute
	o.InternalTopics = func(*meta.Image) []InternalTopic { return []InternalTopic{{"internal", 3}} }
}

type script struct {
	*bench
	t           *testing.T
	incarnation map[int32]byte
}

// line runs a line and says what is wrong with it, if anything.
func (s *script) line(line string) string {
	if name, want, ok := strings.Cut(line, ":"); ok {
		tp := partitionNamed(name)
		p := s.s.Image().Partition(tp.Topic, tp.Partition)
		if p == nil {
			return "there is no such partition"
		}
		if got := describe(p, strings.Contains(want, " on ")); got != strings.TrimSpace(want) {
			return "it is " + got
		}
		return ""
	}
	line, want, _ := strings.Cut(line, "!")
	words := strings.Fields(line)
	run := s.commands()[words[0]]
	if run == nil {
		return "there is no such command"
	}
	got := ""
	if err := run(words[1:]); err != nil {
		c, msg := api.CodeOf(err)
		got = c.String()
		if got != strings.TrimSpace(want) {
			return "it is refused: " + got + ": " + msg
		}
	}
	if got != strings.TrimSpace(want) {
		return "it is not refused"
	}
	return ""
}

func describe(p *meta.Partition, replicas bool) string {
	out := fmt.Sprintf("%d/%d isr %s", p.Leader, p.LeaderEpoch, join(p.ISR))
	add := func(name string, list []int32) {
		if len(list) > 0 {
			out += " " + name + " " + join(list)
		}
	}
	add("elr", p.ELR)
	add("last", p.LastKnownELR)
	add("adding", p.Adding)
	add("removing", p.Removing)
	if replicas {
		add("on", p.Replicas)
	}
	if p.LeaderRecoveryState == meta.LeaderRecovering {
		out += " recovering"
	}
	for i, u := range p.Unaligned {
		if i == 0 {
			out += " unaligned"
		}
		who := strconv.Itoa(int(u.Replica))
		if u.Replica == meta.AnyReplica {
			who = "any"
		}
		out += fmt.Sprintf(" %s@%d", who, u.Offset)
	}
	return strings.TrimSpace(out)
}

func join(list []int32) string {
	var words []string
	for _, x := range list {
		words = append(words, strconv.Itoa(int(x)))
	}
	return strings.Join(words, ",")
}

func numbers(word string) []int32 {
	var out []int32
	for _, w := range strings.Split(word, ",") {
		n, _ := strconv.Atoi(w)
		out = append(out, int32(n))
	}
	return out
}

func partitionNamed(word string) TopicPartition {
	i := strings.LastIndexByte(word, '-')
	return TopicPartition{word[:i], numbers(word[i+1:])[0]}
}

func dirNamed(broker int32, name string) ids.UUID {
	if name == "lost" {
		return ids.LostDir
	}
	return ids.UUID{0: 7, 1: name[0], 15: byte(broker)}
}

// asError turns a command's reply into its error.
func asError(reply any) error {
	switch r := reply.(type) {
	case error:
		return r
	case []*api.Error:
		if r[0] != nil {
			return r[0]
		}
	case []TopicResult:
		if r[0].Err != nil {
			return r[0].Err
		}
	case []ElectionResult:
		if r[0].Err != nil {
			return r[0].Err
		}
	case []AlterISRResult:
		if r[0].Err != nil {
			return r[0].Err
		}
	}
	return nil
}

func (s *script) commands() map[string]func(args []string) error {
	each := func(f func(broker int32) error) func([]string) error {
		return func(args []string) error {
			for _, a := range args {
				if err := f(numbers(a)[0]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	beat := func(id int32) error { return asError(s.beat(id, nil)) }
	next := func(id int32, clean bool, dirs []ids.UUID) error {
		s.incarnation[id]++
		r := s.registration(id, s.incarnation[id])
		if dirs != nil {
			r.LogDirs = dirs
		}
		if old := s.s.Image().Broker(id); old != nil && clean {
			r.PreviousEpoch = old.Epoch
		}
		return asError(s.run(s.s.RegisterBroker(s.now, r)))
	}
	return map[string]func([]string) error{
		"up": each(func(id int32) error {
			if err := next(id, false, nil); err != nil {
				return err
			}
			return beat(id)
		}),
		"beat":    each(beat),
		"clean":   each(func(id int32) error { return next(id, true, nil) }),
		"unclean": each(func(id int32) error { return next(id, false, nil) }),
		"dirs": func(args []string) error {
			id := numbers(args[0])[0]
			dirs := []ids.UUID{}
			for _, d := range args[1:] {
				dirs = append(dirs, dirNamed(id, d))
			}
			return next(id, true, dirs)
		},
		"silence": func(args []string) error {
			s.silence(numbers(strings.Join(args, ","))...)
			return nil
		},
		"unregister": each(func(id int32) error { return asError(s.run(s.s.UnregisterBroker(s.now, id))) }),
		"failover":   func([]string) error { s.failover(); return nil },
		"mirrors":    s.mirrorsCommand,
		"topic":      s.topicCommand, "shutdown": s.shutdownCommand, "isr": s.isrCommand, "recovered": s.isrCommand,
		"elect": s.electCommand, "reassign": s.reassignCommand, "place": s.placeCommand, "fail": s.failCommand,
		"set": s.setCommand, "unset": s.setCommand, "pass": s.passCommand,
	}
}

func (s *script) topicCommand(args []string) error {
	t := NewTopic{Name: args[0], Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]int32{}}
	for _, a := range args[1:] {
		if k, v, ok := strings.Cut(a, "="); ok {
			t = t.with(k, v)
			continue
		}
		t.Assignments[int32(len(t.Assignments))] = numbers(a)
	}
	return asError(s.create(t))
}

func (s *script) shutdownCommand(args []string) error {
	r := s.beat(numbers(args[0])[0], func(h *Heartbeat) { h.WantShutdown = true })
	if got, _ := r.(HeartbeatReply); got.ShouldShutDown != (len(args) > 1) {
		return fmt.Errorf("the answer is %+v", r)
	}
	return asError(r)
}

func (s *script) mirrorsCommand(args []string) error {
	level, kind := int16(numbers(args[0])[0]), UpgradeFeature
	if level < s.s.Image().Feature(MirrorFeature) {
		kind = DowngradeFeature
	}
	var up []FeatureUpdate
	if s.s.Image().Feature(meta.MetadataVersionFeature) == 0 {
		up = append(up, FeatureUpdate{meta.MetadataVersionFeature, 33, UpgradeFeature})
	}
	for _, err := range s.run(s.s.UpdateFeatures(s.now, append(up, FeatureUpdate{MirrorFeature, level, kind}), false)).([]*api.Error) {
		if err != nil {
			return err
		}
	}
	return nil
}

// isrCommand is isr and recovered.
func (s *script) isrCommand(args []string) error {
	tp := partitionNamed(args[0])
	img := s.s.Image()
	t := img.TopicByName(tp.Topic)
	p := t.Partition(tp.Partition)
	list := p.ISR
	ch := AlterISR{Topic: t.ID, Partition: tp.Partition, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	if len(args) > 2 {
		to := int64(numbers(args[2])[0])
		ch.Cut = &to
	}
	if len(args) > 1 && args[1] != "same" {
		list = numbers(args[1])
	}
	for _, b := range list {
		m := ISRMember{Broker: b, Epoch: -1}
		if br := img.Broker(b); br != nil {
			m.Epoch = br.Epoch
		}
		ch.ISR = append(ch.ISR, m)
	}
	return asError(s.run(s.s.AlterPartition(s.now, p.Leader, img.Broker(p.Leader).Epoch, []AlterISR{ch})))
}

func (s *script) electCommand(args []string) error {
	kind := map[string]ElectionKind{"preferred": PreferredElection, "unclean": UncleanElection}[args[0]]
	return asError(s.run(s.s.ElectLeaders(s.now, kind, []TopicPartition{partitionNamed(args[1])})))
}

func (s *script) reassignCommand(args []string) error {
	r := Reassignment{TopicPartition: partitionNamed(args[0])}
	if args[1] != "cancel" {
		r.Replicas = numbers(args[1])
	}
	return asError(s.run(s.s.AlterReassignments(s.now, []Reassignment{r}, !slices.Contains(args, "same-factor"))))
}

func (s *script) placeCommand(args []string) error {
	id, tp := numbers(args[0])[0], partitionNamed(args[2])
	a := DirAssignment{Dir: dirNamed(id, args[1]), Topic: s.s.Image().TopicByName(tp.Topic).ID, Partition: tp.Partition}
	return asError(s.assign(id, s.s.Image().Broker(id).Epoch, a))
}

func (s *script) failCommand(args []string) error {
	id := numbers(args[0])[0]
	var failed []ids.UUID
	for _, d := range args[1:] {
		failed = append(failed, dirNamed(id, d))
	}
	return asError(s.beat(id, func(h *Heartbeat) { h.OfflineDirs = failed }))
}

func (s *script) setCommand(args []string) error {
	res := meta.Resource{Type: meta.ResourceTopic, Name: args[0]}
	if args[0] == "*" {
		res = meta.Resource{Type: meta.ResourceBroker}
	}
	key, value, set := strings.Cut(args[1], "=")
	ch := ConfigChange{Key: key, Value: &value}
	if !set {
		ch.Op = DeleteConfig
	}
	err := asError(s.run(s.s.AlterConfigs(s.now, []AlterResource{{Resource: res, Changes: []ConfigChange{ch}}}, false)))
	s.pass(0)
	return err
}

func (s *script) passCommand(args []string) error {
	d, err := time.ParseDuration(args[0])
	for end := s.now.Add(d); s.now.Before(end); {
		s.pass(min(2*time.Second, end.Sub(s.now)))
		for b := range s.s.Image().Brokers() {
			if !b.Fenced {
				s.beat(b.ID, nil)
			}
		}
	}
	return err
}
