package cli

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Each logger has a level of its own, and follows the root's until it is set.
func TestLogLevelsByPackage(t *testing.T) {
	var out bytes.Buffer
	levels := newLogLevels(slog.LevelInfo)
	log := slog.New(leveled{slog.NewTextHandler(&out, nil), levels}).With("broker", 1).WithGroup("g")
	said := func(want bool, what string) {
		t.Helper()
		out.Reset()
		log.Debug("hello", "a", 1)
		if got := strings.Contains(out.String(), "level=DEBUG msg=hello broker=1 g.a=1"); got != want {
			t.Errorf("%s: said %v, want %v: %s", what, got, want, out.String())
		}
	}
	set := func(name string, level *slog.Level) {
		t.Helper()
		if err := levels.SetLevel(name, level); err != nil {
			t.Fatal(err)
		}
	}
	debug, info := slog.LevelDebug, slog.LevelInfo
	said(false, "at start")
	set("replica", &debug)
	said(false, "with another package at DEBUG")
	set("cli", &debug)
	said(true, "with this package at DEBUG")
	set("cli", nil)
	said(false, "following the root again")
	set("root", &debug)
	said(true, "with the root at DEBUG")
	set("cli", &info)
	said(false, "with this package at INFO")
	if err := levels.SetLevel("no.such", &debug); err == nil {
		t.Error("a logger that isn't there was set")
	}
}

// Every package that logs has its logger, and no other.
func TestLoggerNames(t *testing.T) {
	logs := regexp.MustCompile(`\*slog\.Logger`)
	var want []string
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		rel, _ := filepath.Rel("..", filepath.Dir(path))
		name := strings.ReplaceAll(rel, "/", ".")
		if rel != "node/nodetest" && logs.Match(src) && !slices.Contains(want, name) {
			want = append(want, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range want {
		if !slices.Contains(loggerNames(), name) {
			t.Errorf("package %s logs and has no logger", name)
		}
	}
	for _, name := range loggerNames() {
		if !slices.Contains(want, name) {
			t.Errorf("logger %s is of no package that logs", name)
		}
	}
}

// The levels can be set as kafka-configs --entity-type broker-loggers does.
func TestLogLevelsOfARunningServer(t *testing.T) {
	p := startProcess(t, t.TempDir(), "--listen", "127.0.0.1:0", "--http", "off").awaitReady()
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.field("address")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	alter := func(key, value string) int16 {
		t.Helper()
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBrokerLogger, "1"
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = key, &value
		r.Configs = append(r.Configs, c)
		req.Resources = append(req.Resources, r)
		resp, err := req.RequestWith(t.Context(), cl)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Resources[0].ErrorCode
	}
	if code := alter("server", "DEBUG"); code != 0 {
		t.Fatalf("setting a level: code %d", code)
	}
	if code := alter("no.such", "DEBUG"); code == 0 {
		t.Error("setting the level of a logger that isn't there succeeded")
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBrokerLogger, "1"
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range resp.Resources[0].Configs {
		got[c.Name] = *c.Value
	}
	if got["root"] != "INFO" || got["server"] != "DEBUG" || got["replica"] != "INFO" || len(got) != len(loggerNames())+1 {
		t.Errorf("levels %v", got)
	}
}
