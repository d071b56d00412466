package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"milena/internal/config"
	"milena/internal/node"
)

// mainEnv makes the test binary run the command line instead of the tests.
const mainEnv = "MILENA_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		os.Exit(Main("v1.2.3"))
	}
	os.Exit(m.Run())
}

// The scripts in testdata/script run commands against nodes in this process. Beside testscript's own commands:
//
//	node NAME [KEY=VALUE…]          starts a node; $NAME is its address, $NAME_DIR its data directory, $NAME_ID its cluster
//	crash NAME                      ends it as a crash would
//	restart NAME                    stops it cleanly and starts it on its directory again, at another port
//	milena [-in FILE] [-code N] [-partly] ARGS…
//	                                runs a command line that must end with the exit code. With a code that is not 0 it must
//	                                leave one line on standard error and, unless -partly, nothing on standard output
//	kafka-cluster-mirrors [-code N] ARGS…
//	                                runs the program of that name, which says why on standard error if it ends with 1
//	compacted NODE TOPIC OFFSET     writes records with the key "roll" until the first record of partition 0 stands at the offset or above
//	expand FILE                     replaces $NAME in a file
//	rewrite FILE PATTERN TEXT       replaces what matches in a file; something must
//	until PATTERN ARGS…             repeats a command line until its output matches
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"node": cmdNode, "crash": cmdCrash, "restart": cmdRestart, "milena": cmdMilena, "until": cmdUntil, "expand": cmdExpand,
			mirrorToolName: cmdMirrorTool, "compacted": cmdCompacted, "rewrite": cmdRewrite,
		},
		Setup: func(e *testscript.Env) error {
			e.Values["nodes"] = map[string]*testNode{}
			return nil
		},
	})
}

// testNode is a node of a script.
type testNode struct {
	*node.Node
	props map[string]string
}

func startNode(props map[string]string) (*testNode, error) {
	conf, _, err := config.Load(props, config.Env{Hostname: os.Hostname})
	if err != nil {
		return nil, err
	}
	n, err := node.Start(context.Background(), node.Options{Config: conf, Version: "test"})
	if err != nil {
		return nil, err
	}
	return &testNode{n, props}, nil
}

func (n *testNode) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.Shutdown(ctx)
}

// nodeProps are the settings of a small, quick node.
func nodeProps(dir string) map[string]string {
	return map[string]string{
		"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": dir, "milena.http.listen": "off", "offsets.topic.num.partitions": "3",
		"mirror.state.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0", "mirror.metadata.refresh.interval.ms": "200",
	}
}

func nodes(ts *testscript.TestScript) map[string]*testNode {
	return ts.Value("nodes").(map[string]*testNode)
}

func (n *testNode) export(ts *testscript.TestScript, name string) {
	nodes(ts)[name] = n
	ts.Setenv(name, n.Addr())
	ts.Setenv(name+"_DIR", n.props["log.dirs"])
	ts.Setenv(name+"_ID", n.ClusterID())
}

func cmdNode(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: node NAME [KEY=VALUE...]")
	}
	name := args[0]
	props := nodeProps(ts.MkAbs("data-" + name))
	for _, kv := range args[1:] {
		k, v, _ := strings.Cut(kv, "=")
		props[k] = v
	}
	n, err := startNode(props)
	ts.Check(err)
	n.export(ts, name)
	ts.Defer(func() {
		if n := nodes(ts)[name]; n != nil {
			n.Kill()
		}
	})
}

func cmdCrash(ts *testscript.TestScript, _ bool, args []string) {
	nodes(ts)[args[0]].Kill()
	nodes(ts)[args[0]] = nil
}

func cmdRestart(ts *testscript.TestScript, _ bool, args []string) {
	old := nodes(ts)[args[0]]
	ts.Check(old.shutdown())
	nodes(ts)[args[0]] = nil
	n, err := startNode(old.props)
	ts.Check(err)
	n.export(ts, args[0])
}

// invoke runs one command line in this process.
func invoke(stdin string, args ...string) (code ExitCode, stdout, stderr string) {
	return invokeAs("milena", stdin, args...)
}

func invokeAs(program, stdin string, args ...string) (code ExitCode, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Run(context.Background(), &Env{
		Program: program, Args: args, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Version: "v1.2.3",
		Hostname: func() (string, error) { return "broker.example", nil },
	})
	return code, out.String(), errs.String()
}

func cmdMilena(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("milena takes -code N instead of !")
	}
	stdin, want, partly := "", 0, false
flags:
	for len(args) > 0 {
		switch args[0] {
		case "-in":
			stdin, args = ts.ReadFile(args[1]), args[2:]
		case "-code":
			n, err := strconv.Atoi(args[1])
			ts.Check(err)
			want, args = n, args[2:]
		case "-partly":
			partly, args = true, args[1:]
		default:
			break flags
		}
	}
	code, stdout, stderr := invoke(stdin, args...)
	fmt.Fprint(ts.Stdout(), stdout)
	fmt.Fprint(ts.Stderr(), stderr)
	if code != ExitCode(want) {
		ts.Fatalf("exit code %d, want %d; standard error: %s", code, want, stderr)
	}
	if want == 0 {
		return
	}
	if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "milena: ") || len(stderr) < 20 {
		ts.Fatalf("standard error is not one plain line: %q", stderr)
	}
	if stdout != "" && !partly {
		ts.Fatalf("standard output of a command that failed: %q", stdout)
	}
}

func cmdMirrorTool(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("%s takes -code N instead of !", mirrorToolName)
	}
	want := ExitOK
	if len(args) > 1 && args[0] == "-code" {
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		want, args = ExitCode(n), args[2:]
	}
	code, stdout, stderr := invokeAs(mirrorToolName, "", args...)
	fmt.Fprint(ts.Stdout(), stdout)
	fmt.Fprint(ts.Stderr(), stderr)
	if code != want {
		ts.Fatalf("exit code %d, want %d; standard error: %s", code, want, stderr)
	}
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	if last := lines[len(lines)-1]; want != ExitOK && (!strings.HasPrefix(last, mirrorToolName+": ") || strings.Contains(stderr, "goroutine ")) {
		ts.Fatalf("standard error does not end with a plain line that says why: %q", stderr)
	}
}

func cmdCompacted(ts *testscript.TestScript, _ bool, args []string) {
	addr := nodes(ts)[args[0]].Addr()
	least, err := strconv.ParseInt(args[2], 10, 64)
	ts.Check(err)
	deadline := time.Now().Add(15 * time.Second)
	for {
		_, _, errs := invoke("roll:x\n", "produce", args[1], "--key-separator", ":", "--bootstrap-server", addr)
		_, out, more := invoke("", "consume", args[1], "--from-beginning", "--exit-at-end", "--max-records", "1", "--format", "%o", "--bootstrap-server", addr)
		if first, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64); err == nil && first >= least {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("not compacted in time: %s%s%s", out, errs, more)
		}
	}
}

func cmdExpand(ts *testscript.TestScript, _ bool, args []string) {
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

func cmdRewrite(ts *testscript.TestScript, _ bool, args []string) {
	old, re := ts.ReadFile(args[0]), regexp.MustCompile(args[1])
	if !re.MatchString(old) {
		ts.Fatalf("nothing in %s matches %s: %s", args[0], args[1], old)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(re.ReplaceAllString(old, args[2])), 0o600))
}

func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	re := regexp.MustCompile("(?m)" + args[0])
	deadline := time.Now().Add(15 * time.Second)
	program, args := "milena", args[1:]
	if args[0] == mirrorToolName {
		program, args = args[0], args[1:]
	}
	for {
		_, stdout, stderr := invokeAs(program, "", args...)
		if re.MatchString(stdout) {
			fmt.Fprint(ts.Stdout(), stdout)
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s did not come; the last output was:\n%s%s", re, stdout, stderr)
		}
	}
}

// segment returns the only segment file of a partition.
func segment(t *testing.T, dir, topicPartition string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, topicPartition, "*.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("segments of %s: %v %v", topicPartition, files, err)
	}
	return files[0]
}
