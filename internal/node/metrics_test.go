package node_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/config"
	"milena/internal/disk"
	"milena/internal/node"
	"milena/internal/peertest"
	"milena/mirroradm"
)

// settle bounds how long a test waits for what happens in the background.
const settle = 20 * time.Second

var update = flag.Bool("update", false, "write docs/metrics.md from what a node exposes")

const (
	metricsDoc = "../../docs/metrics.md"
	tableBegin = "<!-- the table is written by `go test ./internal/node -run TestMetricsDocumented -update` -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// rig is a node with clients.
type rig struct {
	n   *node.Node
	cl  *kgo.Client
	adm *kadm.Client
}

func startRig(t *testing.T) *rig {
	t.Helper()
	conf, _, err := config.Load(map[string]string{
		"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/data", "milena.http.listen": "127.0.0.1:0",
		"offsets.topic.num.partitions": "2", "mirror.state.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0",
	}, config.Env{Hostname: os.Hostname})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(t.Context(), node.Options{Config: conf, FS: disk.NewMem(1), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr()), kgo.MaxVersions(nil), kgo.MetadataMinAge(10*time.Millisecond), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &rig{n, cl, kadm.NewClient(cl)}
}

func (r *rig) topic(t *testing.T, name string, records int) {
	t.Helper()
	if _, err := r.adm.CreateTopic(t.Context(), 1, 1, nil, name); err != nil {
		t.Fatal(err)
	}
	r.produce(t, name, records)
}

// families are what a scrape has, by name.
type families map[string]*dto.MetricFamily

func (r *rig) scrape(t *testing.T) families {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + r.n.HTTPAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	p := expfmt.NewTextParser(model.UTF8Validation)
	f, err := p.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// value is that of the metric with the labels' values, given in the order of the labels' names.
func (f families) value(name string, labels ...string) (float64, bool) {
	for _, m := range f[name].GetMetric() {
		values := []string{}
		for _, l := range m.Label {
			values = append(values, l.GetValue())
		}
		if slices.Equal(values, labels) {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
		}
	}
	return 0, false
}

func (r *rig) produce(t *testing.T, topic string, n int) {
	t.Helper()
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "value %d", i)})
	}
	if err := r.cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) commit(t *testing.T, group, topic string, offset int64) {
	t.Helper()
	o := kadm.Offsets{}
	o.AddOffset(topic, 0, offset, -1)
	peertest.Eventually(t, settle, func() error { return r.adm.CommitAllOffsets(t.Context(), group, o) })
}

// garbage sends a request that makes no sense, and waits for the connection's end.
func (r *rig) garbage(t *testing.T) {
	t.Helper()
	c, err := net.Dial("tcp", r.n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte{0, 0, 0, 12, 0x7f, 0x7f, 0, 0, 0, 0, 0, 1, 0, 1, 'x', 0}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("an unknown api key was answered")
	}
}

// eventful is a scrape of a node on which something of everything happened: a client's work, a mirror at work, and a mirror
// whose source is lost.
func eventful(t *testing.T) families {
	t.Helper()
	ctx := t.Context()
	src, dst := startRig(t), startRig(t)
	src.topic(t, "orders", 10)
	src.commit(t, "synced", "orders", 4)
	dst.topic(t, "own", 10)
	dst.commit(t, "billing", "own", 4)
	dst.garbage(t)
	dst.cl.AddConsumeTopics("own")
	if fs := dst.cl.PollFetches(ctx); fs.Err() != nil {
		t.Fatal(fs.Err())
	}
	m := mirroradm.NewClient(dst.cl)
	if err := m.Create(ctx, "dr", map[string]string{"bootstrap.servers": src.n.Addr(), "mirror.source.cluster.id": src.n.ClusterID()}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Start(ctx, "dr", []mirroradm.StartTopic{{Name: "orders"}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	peertest.Eventually(t, settle, func() error { return dst.wantEnd(ctx, "orders", 10) })
	const lag, synced, lost = "kafka_server_mirror_lag_offsets", "kafka_server_mirror_group_sync_age_seconds", "kafka_server_mirror_fetch_errors_total"
	all := families{}
	for _, stage := range []string{lag, synced, lost} {
		if stage == lost {
			src.n.Kill()
		}
		peertest.Eventually(t, settle, func() error {
			f := dst.scrape(t)
			maps.Copy(all, f)
			if _, ok := f[stage]; !ok {
				return fmt.Errorf("no %s", stage)
			}
			return nil
		})
	}
	return all
}

func (r *rig) wantEnd(ctx context.Context, topic string, want int64) error {
	ends, err := r.adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	if o, ok := ends.Lookup(topic, 0); !ok || o.Err != nil || o.Offset != want {
		return fmt.Errorf("end offset of %s is %+v, want %d", topic, o, want)
	}
	return nil
}

var errNoTable = errors.New("no table")

// documented splits the document into what is before, in and after its table.
func documented(doc string) (before, table, after string, err error) {
	before, rest, ok := strings.Cut(doc, tableBegin)
	table, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return "", "", "", errNoTable
	}
	return before, table, after, nil
}

// metricsTable has a line for each family, but for the Go runtime's and the process's own.
func metricsTable(all families) string {
	var b strings.Builder
	b.WriteString("\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	var names []string
	for n := range all {
		if !strings.HasPrefix(n, "go_") && !strings.HasPrefix(n, "process_") {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		f := all[n]
		var labels []string
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if !slices.Contains(labels, l.GetName()) {
					labels = append(labels, l.GetName())
				}
			}
		}
		slices.Sort(labels)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", n, strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	b.WriteString("\n")
	return b.String()
}

// Rule: docs/metrics.md has exactly the metrics that a node exposes, with their types, labels and help.
func TestMetricsDocumented(t *testing.T) {
	got := metricsTable(eventful(t))
	data, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, table, after, err := documented(string(data))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(metricsDoc, []byte(before+tableBegin+got+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, want := strings.Split(got, "\n"), strings.Split(table, "\n")
	for _, l := range have {
		if !slices.Contains(want, l) {
			t.Errorf("exposed and not documented: %s", l)
		}
	}
	for _, l := range want {
		if !slices.Contains(have, l) {
			t.Errorf("documented and not exposed: %s", l)
		}
	}
}

// Rule: a group's lag is that of the partitions it has committed, and absent where it is not known.
func TestGroupLag(t *testing.T) {
	r := startRig(t)
	r.topic(t, "orders", 10)
	r.topic(t, "gone", 10)
	r.commit(t, "billing", "orders", 4)
	r.commit(t, "billing", "gone", 1)
	r.commit(t, "done", "orders", 10)
	check := func(f families, group, topic string, want float64) {
		t.Helper()
		lag, ok := f.value("milena_group_lag_offsets", group, topic)
		age, ok2 := f.value("milena_group_lag_seconds", group, topic)
		if !ok || !ok2 || lag != want || age < 0 || age > 60 || want == 0 && age != 0 || want > 0 && age == 0 {
			t.Errorf("lag of %s on %s is %v offsets (%v) and %v s (%v), want %v offsets", group, topic, lag, ok, age, ok2, want)
		}
	}
	for range 2 { // the second scrape has the times from the first
		f := r.scrape(t)
		check(f, "billing", "orders", 6)
		check(f, "billing", "gone", 9)
		check(f, "done", "orders", 0)
	}
	r.produce(t, "orders", 5)
	if _, err := r.adm.DeleteTopic(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	var f families
	peertest.Eventually(t, settle, func() error {
		f = r.scrape(t)
		if v, ok := f.value("milena_group_lag_offsets", "billing", "gone"); ok {
			return fmt.Errorf("lag on a deleted topic is %v, want none", v)
		}
		return nil
	})
	check(f, "billing", "orders", 11)
	check(f, "done", "orders", 5)
}

// Rule: what is refused is counted as what it is.
func TestRefusedProducesAreCounted(t *testing.T) {
	r := startRig(t)
	compact := "compact"
	if _, err := r.adm.CreateTopic(t.Context(), 1, 1, map[string]*string{"cleanup.policy": &compact}, "state"); err != nil {
		t.Fatal(err)
	}
	if err := r.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "state", Value: []byte("v")}).FirstErr(); err == nil {
		t.Fatal("a record without key was taken by a compacted topic")
	}
	f := r.scrape(t)
	for _, name := range []string{"nokeycompactedtopicrecords", "failedproducerequests"} {
		if v, _ := f.value("kafka_server_brokertopicmetrics_"+name+"_total", "state"); v != 1 {
			t.Errorf("%s is %v, want 1", name, v)
		}
	}
}
