package mirror_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/cli"
	"milena/internal/mirrormsg"
	"milena/internal/record"
	"milena/internal/server"
	"milena/mirroradm"
)

// command runs a command line of milena against the cluster.
func (c *cluster) command(args ...string) (code cli.ExitCode, stdout, stderr string) {
	c.t.Helper()
	var out, errs bytes.Buffer
	code = cli.Run(c.t.Context(), &cli.Env{Args: append(args, "--bootstrap-server", c.addr), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Hostname: os.Hostname})
	return code, out.String(), errs.String()
}

// shows waits until a command's output matches.
func (c *cluster) shows(pattern string, args ...string) {
	c.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	eventually(c.t, func() error {
		if code, out, errs := c.command(args...); code != cli.ExitOK || !re.MatchString(out) {
			return fmt.Errorf("%v ends with %d and does not show %s: %s%s", args, code, pattern, out, errs)
		}
		return nil
	})
}

// FieldCase 11: "Same names both ways: records circle": mirroring a mirror back to its origin is refused. A→B and B→A on one topic: the second
// start is rejected with a clear error.
func TestFieldCase11(t *testing.T) {
	a, b := pair(t)
	a.say("t", "1", "2")
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	a.mirror("back", b)
	a.begin("back", "t")
	p := a.await("back", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.LastError != "" })
	for _, want := range []string{"Detected mirror loop for mirror back", "the source's mirror m copies topic t from this cluster", "stop it there first"} {
		if !strings.Contains(p.LastError, want) {
			t.Errorf("%q does not say %q", p.LastError, want)
		}
	}
	a.stop("back", "t")
	a.awaitState("back", "t", "STOPPED")
	a.say("t", "3")
	b.awaitEnd("t", 0, a.end("t", 0))
	b.awaitTopic("m", "t")
	a.holds("t", "1", "2", "3") // nothing circled
	b.holds("t", "1", "2", "3")
}

// FieldCase 14: "Metrics exist but are not documented": every exported metric is in the docs. Compare scrape with docs page: of two clusters
// that have mirrored, failed, cut and switched over.
func TestFieldCase14(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	a, b := pair(t)
	a.produce("t", 0, 5)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	a.commit("g", "t", 2, "")
	b.awaitCommitted("g", "t", 2)
	b.stop("m", "t")
	b.awaitState("m", "t", "STOPPED")
	b.produce("t", 0, 3)
	b.begin("m", "t") // what was written here is set aside
	b.awaitTopic("m", "t")
	a.kill()
	b.awaitState("m", "t", "FAILED")
	fams, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	mirrors := 0
	for _, f := range fams {
		if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
			continue
		}
		if strings.Contains(f.GetName(), "_mirror_") {
			mirrors++
		}
		if !strings.Contains(string(doc), "| `"+f.GetName()+"` | "+strings.ToLower(f.GetType().String())+" |") {
			t.Errorf("%s is exposed and not documented", f.GetName())
		}
	}
	if mirrors < 9 {
		t.Errorf("only %d metrics of mirrors are exposed", mirrors)
	}
}

// FieldCase 21: "Replication factor, users and ACLs not carried": clear list of what is and is not carried; chosen factor honoured. Describe
// after sync.
func TestFieldCase21(t *testing.T) {
	a, b := newCluster(t, "source"), newTrio(t)
	a.topic("t", 1, "retention.ms", "7200000", "remote.storage.enable", "false", "min.insync.replicas", "3")
	a.say("t", "1")
	b.addr = b.nodes.Addrs()[0]
	code, out, errs := b.command("mirrors", "create", "m", "--source", a.addr, "--topics", "t", "--dry-run")
	for _, want := range []string{
		`(?m)^TOPIC +PARTITIONS +CONFIGS +NOT-CARRIED +COMES-OVER$`, `(?m)^t +1 +retention\.ms=7200000 +min\.insync\.replicas,remote\.storage\.enable +yes$`,
		`ACLs, quotas and share groups don't come over`,
	} {
		if code != cli.ExitOK || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the dry run (exit %d) does not show %s: %s%s", code, want, out, errs)
		}
	}
	if err := b.mir.CreateTopic(t.Context(), mirroradm.NewTopic{Name: "t", SourceID: a.topicID("t"), Partitions: 1, ReplicationFactor: 2}); err != nil {
		t.Fatal(err)
	}
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitLevel("m", "t")
	b.shows(`^Weaker than on the source: t: min\.insync\.replicas is 3 on the source and 2 here\.$`, "mirrors", "describe", "m")
	b.shows(`t: remote\.storage\.enable is not carried`, "mirrors", "describe", "m")
	if got := b.config("t", "retention.ms"); got != "7200000" {
		t.Errorf("retention.ms is %q", got)
	}
	if p := b.nodes.Node(1).Image().Partition("t", 0); len(p.Replicas) != 2 { // the default is 3
		t.Errorf("replicas: %v", p.Replicas)
	}
}

// FieldCase 27: "Checkpoint-latency metric absent": group sync age is exported per group. Scrape.
func TestFieldCase27(t *testing.T) {
	a, b := pair(t)
	a.produce("t", 0, 5)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	const age = "kafka_server_mirror_group_sync_age_seconds"
	for _, g := range []string{"g1", "g2"} {
		if _, ok := b.metric(age, "mirror", "m", "group", g); ok {
			t.Errorf("group %s has an age before it is there", g)
		}
		a.commit(g, "t", 2, "")
		b.awaitCommitted(g, "t", 2)
		eventually(t, func() error {
			if s, ok := b.metric(age, "mirror", "m", "group", g); !ok || s < 0 || s > 10 {
				return fmt.Errorf("group %s was synced %g seconds ago (%t)", g, s, ok)
			}
			return nil
		})
	}
	a.kill()
	was, _ := b.metric(age, "mirror", "m", "group", "g1")
	eventually(t, func() error { // nothing is synced any more, and it shows
		if s, ok := b.metric(age, "mirror", "m", "group", "g1"); !ok || s < was+0.1 {
			return fmt.Errorf("%g seconds (%t), were %g", s, ok, was)
		}
		return nil
	})
}

// FieldCase 30: "Groups stop being copied after an upgrade": rolling upgrade keeps syncing; state format versioned. Restart each broker in
// turn, under load.
func TestFieldCase30(t *testing.T) {
	a, b := newCluster(t, "source"), newTrio(t)
	a.topic("t", 1)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitLevel("m", "t")
	var at int64
	step := func() {
		t.Helper()
		a.produce("t", 0, 2)
		at += 2
		a.commit("g", "t", at, "")
		eventually(t, func() error { // of a client that knows no coordinator yet: its old one may be down
			cl, err := kgo.NewClient(kgo.SeedBrokers(b.nodes.Addrs()...))
			if err != nil {
				return err
			}
			defer cl.Close()
			got, err := kadm.NewClient(cl).FetchOffsets(t.Context(), "g")
			if o, ok := got.Lookup("t", 0); err != nil || !ok || o.At != at {
				return fmt.Errorf("the group is at %d, want %d (%w)", o.At, at, err)
			}
			return nil
		})
	}
	step()
	for _, id := range b.nodes.IDs() {
		b.nodes.Stop(id)
		step() // with one broker away, whoever owned the mirror or coordinated the group
		b.nodes.StartNodes(id)
	}
	step()
	b.awaitLevel("m", "t")
	stateVersions(t, b)
}

// stateVersions checks that every record of __mirror_state has a type in its key and a version in its value that this release knows.
func stateVersions(t *testing.T, b *trio) {
	t.Helper()
	records := 0
	for p := range b.nodes.Node(1).Image().TopicByName("__mirror_state").Partitions {
		rep, err := b.nodes.Node(1).Replicas().Get("__mirror_state", int32(p))
		if err != nil {
			t.Fatal(err)
		}
		text, err := content(rep)
		if err != nil {
			t.Fatal(err)
		}
		for batch, err := range record.Batches([]byte(text)) {
			if err != nil {
				t.Fatal(err)
			}
			for r, err := range batch.Records(1 << 20) {
				if err != nil {
					t.Fatal(err)
				}
				kind := int16(-1)
				if records++; len(r.Key) > 2 {
					kind = int16(binary.BigEndian.Uint16(r.Key))
				}
				if kind != mirrormsg.MirrorPartitionStateType && kind != mirrormsg.LastMirrorEpochsType || r.Value != nil && (len(r.Value) < 2 || binary.BigEndian.Uint16(r.Value) != 0) {
					t.Errorf("record with key %x and value %x", r.Key, r.Value)
				}
			}
		}
	}
	if records == 0 {
		t.Error("there are no states")
	}
}

// FieldCase 33: "Operator cannot see lag": lag on screen, by topic.
func TestFieldCase33(t *testing.T) {
	a, b := newCluster(t, "source"), newCluster(t, "destination", "log.dir.reserve.bytes", "4194304")
	a.topic("t", 1)
	a.topic("u", 1)
	b.mirror("m", a)
	b.begin("m", "t", "u")
	b.shows(`^m +t +0 +MIRRORING +0 +0 +0 +-$`, "mirrors", "describe", "m")
	b.shows(`^m +u +0 +MIRRORING +0 +0 +0 +-$`, "mirrors", "describe", "m")
	empty := b.fill()
	lag := regexp.MustCompile(`(?m)^MIRROR +TOPIC +PARTITION +STATE +SOURCE-OFFSET +DESTINATION-OFFSET +LAG +LAST-ERROR\nm +t +0 +MIRRORING +(\d+) +(\d+) +([1-9]\d*) .*\nm +u +0 +MIRRORING +0 +0 +0 `)
	inJSON := regexp.MustCompile(`"topic":"t","partition":0,"state":"MIRRORING","source_offset":\d+,"destination_offset":\d+,"lag":[1-9]`)
	eventually(t, func() error { // that the disk is full is noticed by and by
		a.produce("t", 0, 1)
		_, out, errs := b.command("mirrors", "describe", "m")
		if m := lag.FindStringSubmatch(out); m == nil || atoi(m[1])-atoi(m[2]) != atoi(m[3]) {
			return fmt.Errorf("no lag of t: %s%s", out, errs)
		}
		if _, out, errs = b.command("mirrors", "describe", "m", "--json"); !inJSON.MatchString(out) {
			return fmt.Errorf("no lag of t: %s%s", out, errs) // a line above that was only slow
		}
		return nil
	})
	n := a.end("t", 0)
	empty()
	b.shows(fmt.Sprintf(`^m +t +0 +MIRRORING +%d +%d +0 +-$`, n, n), "mirrors", "describe", "m")
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // of digits
	return n
}

// FieldCase 44: "Internal 'partition not found' shown to the user": error tells which cluster and what to do.
func TestFieldCase44(t *testing.T) {
	a, b := pair(t)
	a.topic("gone", 1)
	a.topic("taken", 1)
	b.topic("taken", 1)
	b.mirror("m", a)
	b.begin("m", "t", "gone")
	b.awaitTopic("m", "t")
	b.awaitTopic("m", "gone")
	if _, err := a.adm.DeleteTopics(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	p := b.await("m", "gone", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" && p.RetryAttempt == -1 })
	says(t, p.LastError, "deleted", "source", "milena mirrors ")
	_, _, errs := b.command("mirrors", "start", "m", "--topics", "taken")
	says(t, errs, "topic taken exists here with id ", "on the source it has ", "delete it here")
	_, _, errs = b.command("mirrors", "stop", "m", "--topics", "none")
	says(t, errs, "mirror m has no topic that matches none")
	_, _, errs = b.command("mirrors", "describe", "other")
	says(t, errs, "there is no mirror other")
	if err := b.trySay("t", "x"); err == nil {
		t.Error("a produce to a mirror topic is accepted")
	}
	rs, err := b.adm.DeleteTopics(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	says(t, rs["t"].ErrMessage, "mirror m", "milena mirrors stop m --topics t")
	a.kill()
	p = b.await("m", "t", 0, func(p mirroradm.Partition) bool { return p.State == "FAILED" })
	says(t, p.LastError, "source", a.addr)
}

// says checks that a message has these words, and none of what only its programmers know.
func says(t *testing.T, message string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(message, w) {
			t.Errorf("%q does not say %q", message, w)
		}
	}
	for _, w := range []string{"goroutine", "panic", "nil pointer", "partition not found"} {
		if strings.Contains(message, w) {
			t.Errorf("%q says %q", message, w)
		}
	}
}

// FieldCase 45: "Link created although S cannot be reached": create checks reach, login and rights first, with a dry run. Wrong port, wrong
// password, no rights.
func TestFieldCase45(t *testing.T) {
	b := newCluster(t, "destination")
	dir := t.TempDir()
	login := filepath.Join(dir, "login.properties")
	jaas := `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="wrong";`
	if err := os.WriteFile(login, []byte("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="+jaas+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	guarded := newFakeWith(t, 1, api.Milena, server.Table{
		api.SASLHandshake: func(_ context.Context, r *server.Request) {
			resp := kmsg.NewPtrSASLHandshakeResponse()
			resp.SupportedMechanisms = []string{"PLAIN"}
			r.Reply(server.Response{Msg: resp})
		},
		api.SASLAuthenticate: func(_ context.Context, r *server.Request) {
			resp := kmsg.NewPtrSASLAuthenticateResponse()
			resp.ErrorCode, resp.ErrorMessage = int16(api.SaslAuthenticationFailed), kmsg.StringPtr("Authentication failed: Invalid username or password")
			r.Reply(server.Response{Msg: resp})
		},
	})
	noRights := newFakeWith(t, 1, api.Milena, server.Table{api.DescribeConfigs: func(_ context.Context, r *server.Request) {
		req, resp := kmsg.NewPtrDescribeConfigsRequest(), kmsg.NewPtrDescribeConfigsResponse()
		if err := r.Decode(req); err != nil {
			t.Error(err)
		}
		for _, x := range req.Resources {
			res := kmsg.NewDescribeConfigsResponseResource()
			res.ResourceType, res.ResourceName, res.ErrorCode = x.ResourceType, x.ResourceName, int16(api.TopicAuthorizationFailed)
			resp.Resources = append(resp.Resources, res)
		}
		r.Reply(server.Response{Msg: resp})
	}})
	noRights.set(func() { noRights.told = 1 }) // it doesn't look at the asker's leader epoch
	for name, c := range map[string]struct {
		args []string
		dry  bool
		want []string
	}{
		"wrong port":               {[]string{"--source", "127.0.0.1:1"}, false, []string{"cannot reach the source cluster at 127.0.0.1:1"}},
		"wrong port, dry run":      {[]string{"--source", "127.0.0.1:1"}, true, []string{"cannot reach the source cluster at 127.0.0.1:1"}},
		"wrong password":           {[]string{"--source", guarded.addr, "--source-config", login}, false, []string{guarded.addr, "Invalid username or password"}},
		"wrong password, dry run":  {[]string{"--source", guarded.addr, "--source-config", login}, true, []string{guarded.addr, "Invalid username or password"}},
		"no right to read configs": {[]string{"--source", noRights.addr}, true, []string{"topic t would not come over", "DESCRIBE_CONFIGS on the topic is missing"}},
	} {
		args := append([]string{"mirrors", "create", "m", "--topics", "t"}, c.args...)
		if c.dry {
			args = append(args, "--dry-run")
		}
		code, _, errs := b.command(args...)
		if code == cli.ExitOK {
			t.Errorf("%s: exit 0", name)
		}
		says(t, errs, c.want...)
		if got := b.mirrors(); len(got) != 0 {
			t.Fatalf("%s: mirrors %v were made", name, got)
		}
	}
}

// sniffer dials, and keeps what each connection sent first.
type sniffer struct {
	mu    sync.Mutex
	first [][]byte
}

type sniffed struct {
	net.Conn
	on   *sniffer
	once sync.Once
}

func (c *sniffed) Write(b []byte) (int, error) {
	c.once.Do(func() {
		c.on.mu.Lock()
		defer c.on.mu.Unlock()
		c.on.first = append(c.on.first, slices.Clone(b))
	})
	return c.Conn.Write(b)
}

func (s *sniffer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &sniffed{Conn: c, on: s}, nil
}

// FieldCase 46: "Kafka rejects the mirror's client version string": ApiVersions name and version fit Kafka's pattern, on every connection of
// a broker that mirrors. Against a real Kafka: make interop, mirror-kafka.
func TestFieldCase46(t *testing.T) {
	var wire sniffer
	a, b := newCluster(t, "source"), newClusterOn(t, "destination", wire.dial)
	a.topic("t", 1)
	a.produce("t", 0, 3)
	b.mirror("m", a)
	b.begin("m", "t")
	b.awaitTopic("m", "t")
	a.commit("g", "t", 2, "")
	b.awaitCommitted("g", "t", 2)
	pattern := regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`) // KIP-511
	wire.mu.Lock()
	defer wire.mu.Unlock()
	told := 0
	for _, frame := range wire.first {
		// Length, key, version, correlation id, client id, tags; then the body.
		if len(frame) < 14 || frame[5] != byte(api.ApiVersions) || frame[7] < 3 {
			t.Errorf("a connection begins with %x, which does not say who calls", frame)
			continue
		}
		client := int(int16(frame[12])<<8 | int16(frame[13]))
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version = int16(frame[7])
		if err := req.ReadFrom(frame[14+max(client, 0)+1:]); err != nil {
			t.Fatal(err)
		}
		if told++; !pattern.MatchString(req.ClientSoftwareName) || !pattern.MatchString(req.ClientSoftwareVersion) {
			t.Errorf("name %q, version %q", req.ClientSoftwareName, req.ClientSoftwareVersion)
		}
	}
	if told < 2 { // one to look around, one to fetch
		t.Errorf("%d connections say who calls", told)
	}
}
