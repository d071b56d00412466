//go:build synctests

package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/mirrormsg"
	"milena/mirroradm"
)

// connect makes the operator's clients.
func (s *side) connect(ctx context.Context) bool {
	var err error
	if s.cl, err = s.m.client(s.m.name + "-operator"); err != nil {
		s.p.failf("%v", err)
		return false
	}
	s.adm, s.mir = kadm.NewClient(s.cl), mirroradm.NewClient(s.cl)
	s.adm.SetTimeoutMillis(2000)
	s.mir.SetTimeout(2 * time.Second)
	return ctx.Err() == nil
}

func (s *side) createTopic(ctx context.Context, name string, partitions int32) bool {
	conf := map[string]*string{}
	factor := int16(-1)
	if s.p.unclean {
		factor = min(2, int16(len(s.m.nodes)))
		conf["min.insync.replicas"], conf["unclean.leader.election.enable"] = kadm.StringPtr("1"), kadm.StringPtr("true")
	}
	return s.p.insist(ctx, "create topic "+name, func(ctx context.Context) error {
		_, err := s.adm.CreateTopic(ctx, partitions, factor, conf, name)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		return err
	})
}

// write writes to the topic on this side, all the time: a mirror has to refuse it.
func (s *side) write(ctx context.Context, id int) {
	cl, err := s.m.client(fmt.Sprintf("%s-writer-%d", s.m.name, id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(20), kgo.UnknownTopicRetries(2))
	if err != nil {
		s.p.failf("writer %d: %v", id, err)
		return
	}
	defer cl.Close()
	var count [mirrorPartitions]int
	for i := 0; ctx.Err() == nil; i++ {
		part := i % mirrorPartitions
		writer := fmt.Sprintf("%s%d/%d", s.m.name, id, part)
		w := &written{value: fmt.Sprintf("%s/%d", writer, count[part]), side: s.i, writer: writer, n: count[part], part: int32(part), at: time.Now(), offset: -1}
		count[part]++
		pause := time.Duration(1+i%7) * 8 * time.Millisecond
		if s.send(ctx, cl, w) {
			pause *= 10 // it isn't this side's turn
		}
		wait2(ctx, pause)
	}
}

// send sends a record, and waits for an answer if the one before was refused. refused says that this one was.
func (s *side) send(ctx context.Context, cl *kgo.Client, w *written) (refused bool) {
	p := s.p
	p.mu.Lock()
	if p.holding {
		p.mu.Unlock()
		return false
	}
	s.busy++
	p.check.records[w.value] = w
	p.mu.Unlock()
	// A refusal says that the record isn't there only if the topic was a mirror's before the first try: else a try whose answer was lost
	// may have written it, and it is the next one that is refused.
	mirror := s.wish() == mirrormsg.Mirroring || s.wish() == mirrormsg.Paused
	done := make(chan error, 1)
	cl.Produce(ctx, &kgo.Record{Topic: mirrorTopic, Partition: w.part, Value: []byte(w.value)}, func(r *kgo.Record, err error) {
		p.mu.Lock()
		s.busy--
		refusal := errors.Is(err, kerr.PolicyViolation)
		w.refused = refusal && mirror
		if err == nil {
			w.acked, w.offset = true, r.Offset
			s.acked[w.part]++
		}
		p.mu.Unlock()
		switch {
		case err == nil:
			s.m.logf("%s-%d: %s at offset %d", mirrorTopic, w.part, w.value, r.Offset)
		case !refusal && ctx.Err() == nil:
			s.m.logf("%s-%d: %s: %v", mirrorTopic, w.part, w.value, err)
		}
		done <- err
	})
	select {
	case err := <-done:
		return err != nil
	case <-time.After(20 * time.Millisecond):
		return false
	}
}

func (s *side) acknowledged() [mirrorPartitions]int {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.acked
}

// commit commits offsets of a group without members while this side is the one to write to: the source of the leg under way.
func (s *side) commit(ctx context.Context) {
	cl, err := s.m.client(s.m.name + "-group")
	if err != nil {
		s.p.failf("group: %v", err)
		return
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for n := 0; ctx.Err() == nil; n++ {
		wait2(ctx, 150*time.Millisecond)
		s.p.mu.Lock()
		idle := s.p.holding || len(s.p.legs) == 0 || s.p.legs[len(s.p.legs)-1].src != s
		s.p.mu.Unlock()
		if idle {
			continue
		}
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		ends, err := adm.ListEndOffsets(short, mirrorTopic)
		if err == nil {
			var os kadm.Offsets
			ends.Each(func(o kadm.ListedOffset) {
				if o.Err == nil && o.Offset > 0 && (n+int(o.Partition))%3 > 0 {
					os.Add(kadm.Offset{Topic: mirrorTopic, Partition: o.Partition, At: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: fmt.Sprint(n)})
				}
			})
			if len(os) > 0 {
				s.commits(short, adm, os)
			}
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			s.m.logf("commit: %v", err)
		}
	}
}

// commits commits offsets. A commit that has got no answer when this side becomes the mirror may come after the cut: nobody can tell it
// from one that a client makes then.
func (s *side) commits(ctx context.Context, adm *kadm.Client, os kadm.Offsets) {
	sent := map[groupOffset]bool{}
	os.Each(func(o kadm.Offset) { sent[groupOffset{o.Partition, o.At, o.LeaderEpoch}] = true })
	s.p.mu.Lock()
	legs := len(s.p.legs)
	maps.Copy(s.unanswered, sent)
	s.p.mu.Unlock()
	_, err := adm.CommitOffsets(ctx, mirrorGroup, os)
	if err != nil {
		s.m.logf("commit: %v", err)
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if err == nil && len(s.p.legs) == legs {
		maps.DeleteFunc(s.unanswered, func(o groupOffset, _ bool) bool { return sent[o] })
	}
}

// groupOffset is an offset that a group committed.
type groupOffset struct {
	partition int32
	at        int64
	epoch     int32
}

// begin has the side mirror the other one.
func (s *side) begin(ctx context.Context, src *side) bool {
	conf := map[string]string{
		"bootstrap.servers": strings.Join(src.m.seeds(), ","), "mirror.source.cluster.id": src.m.clusterID, "mirror.fetch.wait.max.ms": "100",
		"mirror.fetch.backoff.ms": "50", "mirror.groups.sync.interval.ms": "200", "request.timeout.ms": "2000", "mirror.socket.timeout.ms": "2000",
	}
	created := s.p.insist(ctx, "create mirror "+s.mirror, func(ctx context.Context) error {
		err := s.mir.Create(ctx, s.mirror, conf)
		if errors.Is(err, mirroradm.ClusterMirrorAlreadyExists) {
			return nil
		}
		return err
	})
	if len(s.p.legs) > 1 && s.p.check.related != [mirrorPartitions]bool{true, true} { // it is known that the records here go
		created = created && s.p.insist(ctx, "consent to a cut", func(ctx context.Context) error {
			return s.mir.AlterConfigs(ctx, s.mirror, map[string]string{"mirror.truncate.unrelated.topics": mirrorTopic})
		})
	}
	return created && s.p.insist(ctx, "start of "+s.mirror, func(ctx context.Context) error {
		rs, err := s.mir.Start(ctx, s.mirror, []mirroradm.StartTopic{{Name: mirrorTopic}}, nil, nil)
		if w := s.wish(); w == mirrormsg.Mirroring || w == mirrormsg.Paused {
			return nil // an answer before this one was lost, and a fault may have paused the topic since
		}
		if err = errors.Join(err, rs.Error()); err == nil {
			err = errors.New("the topic isn't started yet") // the source isn't reached: a stop would withdraw that, and this leg needs it
		}
		return err
	})
}

// resume ends a pause that is left.
func (s *side) resume(ctx context.Context) bool {
	return s.p.until("writable", "resume is refused", func() string {
		short, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		if s.wish() == mirrormsg.Mirroring {
			return ""
		}
		rs, err := s.mir.Resume(short, s.mirror, []string{mirrorTopic})
		err = errors.Join(err, rs.Error())
		s.m.logf("resume: %v", err)
		return fmt.Sprintf("wish %v, %v", s.wish(), err)
	})
}

// wish is what is wished for the topic, as some node knows it.
func (s *side) wish() mirrormsg.State {
	for _, n := range s.m.nodes {
		if nd := n.current(); nd != nil {
			if t := nd.Image().TopicByName(mirrorTopic); t != nil {
				return mirrormsg.State(t.MirrorDesired)
			}
		}
	}
	return mirrormsg.Unknown
}

// halt asks for the stop of the mirror until that is wished.
func (s *side) halt(ctx context.Context) bool {
	return s.p.until("writable", "stop is refused", func() string {
		short, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		rs, err := s.mir.Stop(short, s.mirror, []string{mirrorTopic}, nil)
		err = errors.Join(err, rs.Error())
		s.m.logf("stop: %v", err)
		if err == nil || s.wish() == mirrormsg.Stopped {
			return ""
		}
		return err.Error()
	})
}

// raiseEpochs has the side's leaders lead with epochs above those given.
func (s *side) raiseEpochs(ctx context.Context, least [mirrorPartitions]int32) error {
	req := &mirrormsg.BumpLeaderEpochsRequest{Topics: []mirrormsg.BumpLeaderEpochsTopic{{TopicName: mirrorTopic}}}
	for i, e := range least {
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, mirrormsg.BumpLeaderEpochsPartition{PartitionIndex: int32(i), MinLeaderEpoch: e})
	}
	err := errors.New("no controller is up")
	for _, n := range s.m.nodes {
		if nd := n.current(); nd != nil && nd.LeadsQuorum() {
			err = s.askController(ctx, n, req)
		}
	}
	return err
}

// askController sends a request to the controller on a node, as only brokers do.
func (s *side) askController(ctx context.Context, n *machineNode, req *mirrormsg.BumpLeaderEpochsRequest) error {
	cl, err := s.m.client(s.m.name+"-raiser", kgo.SeedBrokers(n.host()+":9093"))
	if err != nil {
		return err
	}
	defer cl.Close()
	resp, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return err
	}
	for _, t := range resp.(*mirrormsg.BumpLeaderEpochsResponse).Topics {
		for _, x := range t.Partitions {
			if x.ErrorCode != 0 {
				return fmt.Errorf("error %d", x.ErrorCode)
			}
		}
	}
	return nil
}

// sameEpochs gives the leaders of both sides the same epochs, after a stop: epochs alone don't tell then whose records are whose, not even
// of a replica that misses a cut and whose leader is another one when it is back (spec D5).
func (p *pair) sameEpochs(ctx context.Context, l *leg) {
	least := [mirrorPartitions]int32{}
	for i := range least {
		if r := l.dst.leader(int32(i)); r != nil {
			_, epoch, _ := r.Leader()
			least[i] = epoch - 1
		}
	}
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	p.logf("leader epochs above %v for %s: %v", least, l.src.m.name, l.src.raiseEpochs(short, least))
}
