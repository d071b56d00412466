package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// examples are values other than the default for keys whose type alone doesn't give one, and what must be set beside them.
var examples = map[string]map[string]string{
	"advertised.listeners":                    {"advertised.listeners": "PLAINTEXT://elsewhere:1", "listeners": "PLAINTEXT://:9092"},
	"cleanup.policy":                          {"cleanup.policy": "compact"},
	"compression.type":                        {"compression.type": "zstd"},
	"controller.quorum.auto.join.enable":      withQuorum("controller.quorum.auto.join.enable", "true"),
	"controller.quorum.bootstrap.servers":     withQuorum("controller.quorum.bootstrap.servers", "b:9093"),
	"controller.quorum.election.timeout.ms":   withQuorum("controller.quorum.election.timeout.ms", "600"),
	"controller.quorum.fetch.timeout.ms":      withQuorum("controller.quorum.fetch.timeout.ms", "600"),
	"controller.quorum.request.timeout.ms":    withQuorum("controller.quorum.request.timeout.ms", "600"),
	"controller.quorum.retry.backoff.ms":      withQuorum("controller.quorum.retry.backoff.ms", "600"),
	"controller.quorum.voters":                {"controller.quorum.voters": "1@a:9093,2@b:9093", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names": "CONTROLLER", "node.id": "1"},
	"follower.replication.throttled.replicas": {"follower.replication.throttled.replicas": "*"},
	"inter.broker.listener.name":              {"inter.broker.listener.name": "B", "listeners": "A://:1,B://:2", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"},
	"leader.replication.throttled.replicas":   {"leader.replication.throttled.replicas": "*"},
	"listener.security.protocol.map":          {"listener.security.protocol.map": "MINE:PLAINTEXT", "listeners": "MINE://:1"},
	"listeners":                               {"listeners": "PLAINTEXT://:1"},
	"log.cleanup.policy":                      {"log.cleanup.policy": "compact"},
	"log.dir":                                 {"log.dir": "elsewhere"},
	"log.message.timestamp.type":              {"log.message.timestamp.type": "LogAppendTime"},
	"max.connections.per.ip.overrides":        {"max.connections.per.ip.overrides": "127.0.0.1:5"},
	"message.timestamp.type":                  {"message.timestamp.type": "LogAppendTime"},
	"milena.http.listen":                      {"milena.http.listen": "127.0.0.1:1"},
	"mirror.code.points":                      {"mirror.code.points": "prototype"},
	"mirror.replication.throttled.replicas":   {"mirror.replication.throttled.replicas": "*"},
	"process.roles":                           {"process.roles": "broker", "listeners": "PLAINTEXT://:9092", "controller.listener.names": "CONTROLLER", "controller.quorum.bootstrap.servers": "b:9093"},
	"queued.max.request.bytes":                {"queued.max.request.bytes": "1000000"},
	"replica.selector.class":                  {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"},
}

// withQuorum is a key that goes with others of the quorum only.
func withQuorum(key, value string) map[string]string {
	m := map[string]string{"controller.quorum.bootstrap.servers": "a:9093", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}
	m[key] = value
	return m
}

// otherValues are values of a key that are not its default.
func otherValues(d *Def) []string {
	if d.Type == Boolean {
		return []string{strconv.FormatBool(d.Default != "true")}
	}
	if n, err := strconv.ParseInt(d.Default, 10, 64); err == nil || d.Null {
		return []string{fmt.Sprint(n + 1), fmt.Sprint(n - 1), fmt.Sprint(2 * n), "1", "7"}
	}
	if x, err := strconv.ParseFloat(d.Default, 64); err == nil {
		return []string{fmt.Sprint(x / 2), "1000000"}
	}
	return nil
}

// read is what of a node's settings the rest of the program sees.
func (n *Node) read() Node {
	out := *n
	out.static, out.cluster, out.broker = nil, nil, nil
	return out
}

// TestHonouredKeysChangeSettings: a key that is called honoured changes the settings that are read from it.
func TestHonouredKeysChangeSettings(t *testing.T) {
	for d := range Keys(ResourceBroker) {
		if d.Support != Honoured {
			continue
		}
		with := examples[d.Name]
		tries := otherValues(d)
		if v, ok := with[d.Name]; ok {
			tries = []string{v}
		}
		base := map[string]string{}
		for k, v := range with {
			if k != d.Name {
				base[k] = v
			}
		}
		before, _, failed := Load(base, testEnv) // where it fails the key is what makes the difference
		changed := false
		var errs []error
		for _, v := range tries {
			if d.Name == "mirror.replication.throttled.rate" { // dynamic only
				after, notes := before.WithDynamic(map[string]string{d.Name: v}, nil)
				changed = changed || len(notes) == 0 && after.Mirror != before.Mirror
				continue
			}
			base[d.Name] = v
			after, _, err := Load(base, testEnv)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			changed = changed || failed != nil || !reflect.DeepEqual(before.read(), after.read())
		}
		if !changed {
			t.Errorf("%s (%s, default %q): %q change nothing: %v", d.Name, d.Type, d.Default, tries, errs)
		}
	}
}

// TestHonouredTopicKeysChangeSettings is the same for the configs of topics.
func TestHonouredTopicKeysChangeSettings(t *testing.T) {
	n, _ := load(t, "")
	for d := range Keys(ResourceTopic) {
		if d.Support != Honoured {
			continue
		}
		tries := otherValues(d)
		if v, ok := examples[d.Name]; ok {
			tries = []string{v[d.Name]}
		}
		changed := false
		for _, v := range tries {
			if d.Value(v) == nil {
				changed = changed || !reflect.DeepEqual(n.Topic(nil), n.Topic(map[string]string{d.Name: v}))
			}
		}
		if !changed {
			t.Errorf("%s (%s, default %q): %q change nothing", d.Name, d.Type, d.Default, tries)
		}
	}
}

// program is what the packages that import this one say, tests left out.
type program struct {
	fields   map[string]bool // names after a dot
	literals map[string]bool // strings
}

func readProgram(t *testing.T) program {
	t.Helper()
	importing := map[string]bool{filepath.Join("..", "client"): true} // directories; client's keys stand in those of mirrors
	files := map[string][]string{}
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "config" || e.Name() == "testdata"):
			return filepath.SkipDir
		case e.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		files[dir] = append(files[dir], path)
		for _, i := range f.Imports {
			importing[dir] = importing[dir] || i.Path.Value == `"milena/internal/config"`
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p := program{map[string]bool{}, map[string]bool{}}
	for dir, yes := range importing {
		for _, path := range files[dir] {
			if yes {
				p.add(t, path)
			}
		}
	}
	return p
}

func (p program) add(t *testing.T, path string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			p.fields[n.Sel.Name] = true
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				p.literals[s] = true
			}
		}
		return true
	})
}

// unread are settings that nobody has to read, with their keys, which must not be called honoured unless somebody reads them by name.
var unread = map[string][]string{
	"Preallocate":            {"log.preallocate", "preallocate"},
	"MirrorUncleanSupported": {"mirror.support.unclean.leader.election"},
	"AdminListener":          {"mirror.admin.listener.name"},
}

// TestSettingsAreRead: what keys become is read by somebody. Together with the tests above no key is honoured in name only.
func TestSettingsAreRead(t *testing.T) {
	p := readProgram(t)
	var check func(path string, s reflect.Type)
	check = func(path string, s reflect.Type) {
		for i := range s.NumField() {
			f := s.Field(i)
			if !f.IsExported() {
				continue
			}
			if keys := unread[f.Name]; len(keys) == 0 && !p.fields[f.Name] {
				t.Errorf("%s.%s is read by nobody", path, f.Name)
			}
			if f.Type.Kind() == reflect.Struct && strings.HasSuffix(f.Type.PkgPath(), "/config") {
				check(path+"."+f.Name, f.Type)
			}
		}
	}
	check("Node", reflect.TypeFor[Node]())
	for field, keys := range unread {
		for _, k := range keys {
			for _, resource := range []int8{ResourceBroker, ResourceTopic} {
				if d, ok := Lookup(resource, k); ok && d.Support == Honoured && !p.fields[field] && !p.literals[k] {
					t.Errorf("%s is honoured, and read by nobody", k)
				}
			}
		}
	}
	for d := range Keys(ResourceClusterMirror) {
		if d.Support == Honoured && !p.literals[d.Name] {
			t.Errorf("%s of mirrors is read by nobody", d.Name)
		}
	}
}
