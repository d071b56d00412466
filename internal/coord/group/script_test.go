package group

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
)

// TestScripts plays the scripts of testdata/scripts on one machine each. Member ids are
// shown as m1, m2, ... in the order they appear. After each step the log so far
// is replayed and compared with what the live machine has stored.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		h := newHarness(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			h.t = t
			h.command(d)
			h.replay()
			return h.take()
		})
	})
}

// args gives access to a step's arguments.
type args struct {
	h *harness
	d *datadriven.TestData
}

func (a args) list(key string) []string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

func (a args) str(key, def string) string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return strings.Join(arg.Vals, ",")
		}
	}
	return def
}

func (a args) opt(key string) *string {
	if v := a.str(key, "\x00"); v != "\x00" {
		return &v
	}
	return nil
}

func (a args) int(key string, def int64) int64 {
	v := a.str(key, "")
	if v == "" {
		return def
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		a.d.Fatalf(a.h.t, "%s: %v", key, err)
	}
	return n
}

func (a args) dur(key string, def time.Duration) time.Duration {
	v := a.str(key, "")
	if v == "" {
		return def
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		a.d.Fatalf(a.h.t, "%s: %v", key, err)
	}
	return d
}

func (a args) group() string { return a.str("group", "g") }

func (h *harness) command(d *datadriven.TestData) {
	a := args{h, d}
	switch d.Cmd {
	case "config":
		h.cfg.InitialRebalanceDelay = a.dur("initial-delay", h.cfg.InitialRebalanceDelay)
		h.cfg.MaxSize = int(a.int("max-size", int64(h.cfg.MaxSize)))
		h.cfg.MetadataMaxBytes = int(a.int("metadata-max", int64(h.cfg.MetadataMaxBytes)))
		h.cfg.Retention = a.dur("retention", h.cfg.Retention)
		h.cfg.RetentionCheck = a.dur("check", h.cfg.RetentionCheck)
		h.cfg.MaxBatchBytes = int(a.int("max-batch", int64(h.cfg.MaxBatchBytes)))
	case "join":
		h.joinCommand(a)
	case "sync":
		req := &kmsg.SyncGroupRequest{
			Group: a.group(), MemberID: h.id(a.str("member", "")), Generation: int32(a.int("generation", 1)),
			InstanceID: a.opt("instance"), ProtocolType: a.opt("type"), Protocol: a.opt("protocol"),
		}
		for _, as := range a.list("assign") {
			who, what, _ := strings.Cut(as, ":")
			req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: h.id(who), MemberAssignment: []byte(what)})
		}
		h.sync(a.str("member", ""), req)
	case "heartbeat":
		code := h.m.Heartbeat(h.now, &kmsg.HeartbeatRequest{
			Group: a.group(), MemberID: h.id(a.str("member", "")), Generation: int32(a.int("generation", 1)), InstanceID: a.opt("instance"),
		})
		h.say("  %s", codeName(int16(code)))
	case "leave":
		h.leaveCommand(a)
	case "commit":
		h.commitCommand(a)
	case "fetch":
		h.fetchCommand(a)
	case "delete-offsets":
		req := &DeleteOffsetsRequest{Group: a.group()}
		for _, tp := range a.list("partitions") {
			topic, p := partition(tp)
			req.Topics = append(req.Topics, DeleteOffsetsTopic{Name: topic, Partitions: []DeleteOffsetsPartition{{Partition: p}}})
		}
		h.run(h.m.DeleteOffsets(h.now, req, func(err error, code api.Code) {
			h.say("  delete: %s", codeName(int16(code)))
			for _, t := range req.Topics {
				h.say("    %s-%d: %s", t.Name, t.Partitions[0].Partition, codeName(int16(t.Partitions[0].Code)))
			}
		}))
	case "delete-group":
		h.run(h.m.DeleteGroup(h.now, a.group(), func(_ error, code api.Code) { h.say("  delete: %s", codeName(int16(code))) }))
	case "delete-topic":
		h.run(h.m.TopicsDeleted(h.now, []TopicRef{{a.str("topic", ""), topicID(a)}}, func(error) {}))
	case "clamp":
		h.run(h.m.ClampOffsets(h.now, TopicRef{Name: a.str("topic", "")}, 0, a.int("to", 0), int32(a.int("epoch", -1)), func(_ error, c []Clamped) {
			h.say("  clamped %v", c)
		}))
	case "advance":
		h.advance(a.dur("by", 0))
	case "describe":
		h.describeCommand(a)
	case "list":
		for _, l := range h.m.list(newListFilter(a.list("states"), a.list("types"))) {
			h.say("  %s type=%q %s", l.Group, l.ProtocolType, l.State)
		}
	case "reload":
		// The coordinator moves: requests that wait fail, the next one loads.
		for _, reply := range h.m.Drain() {
			reply(machine.ErrLost)
		}
		h.m = h.replay()
	default:
		d.Fatalf(h.t, "unknown command %s", d.Cmd)
	}
}

func (h *harness) joinCommand(a args) {
	req := &kmsg.JoinGroupRequest{
		Version:                int16(a.int("v", 9)),
		Group:                  a.group(),
		MemberID:               h.id(a.str("member", "")),
		InstanceID:             a.opt("instance"),
		SessionTimeoutMillis:   int32(a.dur("session", 10*time.Second).Milliseconds()),
		RebalanceTimeoutMillis: int32(a.dur("rebalance", 30*time.Second).Milliseconds()),
		ProtocolType:           a.str("type", "consumer"),
	}
	protocols := a.list("protocols")
	if protocols == nil {
		protocols = []string{"range:t"}
	}
	for _, p := range protocols {
		name, topics, _ := strings.Cut(p, ":")
		if name == "" {
			continue
		}
		meta := []byte(topics)
		if req.ProtocolType == consumerType && !strings.HasPrefix(topics, "!") {
			meta = consumerMetadata(strings.Split(topics, "+")...)
		}
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: meta})
	}
	client := a.str("client", "c")
	tag := a.str("member", client)
	if req.InstanceID != nil && req.MemberID == "" {
		tag = *req.InstanceID
	}
	h.join(tag, Client{client, "/10.0.0.1"}, req)
}

// consumerMetadata is a subscription as consumers send it, here in version 1.
func consumerMetadata(topics ...string) []byte {
	m := kmsg.ConsumerMemberMetadata{Version: 1, Topics: topics}
	return m.AppendTo(nil)
}

func (h *harness) leaveCommand(a args) {
	var who []kmsg.LeaveGroupRequestMember
	for _, m := range a.list("members") {
		who = append(who, kmsg.LeaveGroupRequestMember{MemberID: h.id(m)})
	}
	for _, i := range a.list("instances") {
		who = append(who, kmsg.LeaveGroupRequestMember{InstanceID: &i})
	}
	h.run(h.m.Leave(h.now, a.group(), who, func(_ error, codes []api.Code) {
		s := "  leave:"
		for _, c := range codes {
			s += " " + codeName(int16(c))
		}
		h.say("%s", s)
	}))
}

func partition(s string) (string, int32) {
	i := strings.LastIndexByte(s, '-')
	n, _ := strconv.Atoi(s[i+1:])
	return s[:i], int32(n)
}

func topicID(a args) ids.UUID {
	id := ids.UUID{}
	copy(id[:], a.str("id", ""))
	return id
}

func (h *harness) commitCommand(a args) {
	req := &CommitRequest{
		Version: int16(a.int("v", 9)), Group: a.group(), Generation: int32(a.int("generation", -1)),
		MemberID: h.id(a.str("member", "")), InstanceID: a.opt("instance"), RetentionMs: -1,
	}
	if d := a.dur("retention", 0); d > 0 {
		req.RetentionMs = d.Milliseconds()
	}
	for _, o := range a.list("offsets") { // topic-partition:offset:epoch
		tp, rest, _ := strings.Cut(o, ":")
		off, epoch, _ := strings.Cut(rest, ":")
		topic, p := partition(tp)
		n, _ := strconv.ParseInt(off, 10, 64)
		cp := CommitPartition{Partition: p, Offset: n, LeaderEpoch: -1, Metadata: a.opt("metadata")}
		if e, err := strconv.Atoi(epoch); err == nil {
			cp.LeaderEpoch = int32(e)
		}
		req.Topics = append(req.Topics, CommitTopic{TopicRef{topic, topicID(a)}, []CommitPartition{cp}})
	}
	h.run(h.m.Commit(h.now, req, func(error) {
		for _, t := range req.Topics {
			h.say("  commit %s-%d: %s", t.Name, t.Partitions[0].Partition, codeName(int16(t.Partitions[0].Code)))
		}
	}))
}

func (h *harness) fetchCommand(a args) {
	req := &FetchRequest{Group: a.group()}
	for _, tp := range a.list("partitions") {
		topic, p := partition(tp)
		req.Topics = append(req.Topics, FetchTopic{TopicRef{topic, topicID(a)}, []int32{p}})
	}
	for _, t := range h.m.Fetch(req).Topics {
		for _, p := range t.Partitions {
			h.say("  %s-%d: offset=%d epoch=%d metadata=%q", t.Name, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata)
		}
	}
}

func (h *harness) describeCommand(a args) {
	d := h.m.Describe(a.group())
	h.say("  %s %s type=%q protocol=%q", codeName(int16(d.Code)), d.State, d.ProtocolType, d.Protocol)
	for _, m := range d.Members {
		h.say("  %s", fmt.Sprintf("%s %s %s%s assignment=%q metadata=%d bytes", h.name(m.ID), opt(m.InstanceID), m.Client.ID, m.Host, m.Assignment, len(m.Metadata)))
	}
}
