package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// process is a server in a process of its own: this test binary, running the command line.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	done  chan struct{}
	ready chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

func startProcess(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], append([]string{"server", "start"}, args...)...), done: make(chan struct{}), ready: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), mainEnv+"=1")
	p.cmd.Dir = dir
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		said := false
		for s := bufio.NewScanner(out); s.Scan(); {
			p.mu.Lock()
			p.log.WriteString(s.Text() + "\n")
			p.mu.Unlock()
			if !said && (strings.Contains(s.Text(), "msg=ready ") || strings.Contains(s.Text(), `"msg":"ready"`)) {
				said = true
				close(p.ready)
			}
		}
	}()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			<-p.done
			_ = p.cmd.Wait()
		}
	})
	return p
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) awaitReady() *process {
	p.t.Helper()
	select {
	case <-p.ready:
	case <-p.done:
		p.t.Fatalf("the server ended before it was ready:\n%s", p.output())
	case <-time.After(20 * time.Second):
		p.t.Fatalf("the server is not ready:\n%s", p.output())
	}
	return p
}

// field reads a key of the line that says ready.
func (p *process) field(key string) string {
	p.t.Helper()
	m := regexp.MustCompile(`msg=ready .*?\b` + key + `=("[^"]*"|\S+)`).FindStringSubmatch(p.output())
	if m == nil {
		p.t.Fatalf("no %s in the ready line:\n%s", key, p.output())
	}
	return strings.Trim(m[1], `"`)
}

// end waits for the process, after a signal if sig is not nil, and returns its exit code.
func (p *process) end(sig os.Signal) int {
	p.t.Helper()
	if sig != nil {
		if err := p.cmd.Process.Signal(sig); err != nil {
			p.t.Fatal(err)
		}
	}
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.t.Fatalf("the server does not end:\n%s", p.output())
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// listening counts the sockets on which a process listens, over IPv4 and IPv6.
func (p *process) listening() int {
	p.t.Helper()
	own := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid))
	if err != nil || len(fds) == 0 {
		p.t.Fatalf("no file descriptors: %v", err)
	}
	for _, fd := range fds {
		if l, err := os.Readlink(fd); err == nil {
			own[l] = true
		}
	}
	n := 0
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.cmd.Process.Pid, table))
		if errors.Is(err, os.ErrNotExist) {
			continue // no IPv6 here
		}
		if err != nil {
			p.t.Fatal(err)
		}
		for _, line := range strings.Split(string(b), "\n")[1:] {
			f := strings.Fields(line)
			if len(f) > 9 && own["socket:["+f[9]+"]"] && (strings.HasPrefix(table, "udp") || f[3] == "0A") {
				n++
			}
		}
	}
	return n
}

// With no argument at all: ./milena-data, 127.0.0.1:9092 and 127.0.0.1:9644.
func TestDefaults(t *testing.T) {
	a := &app{env: &Env{Hostname: os.Hostname}}
	c, _, err := a.nodeConfig(&serverFlags{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.LogDirs) != 1 || c.LogDirs[0] != "milena-data" || len(c.Listeners) != 1 || c.Listeners[0].Host != "127.0.0.1" || c.Listeners[0].Port != 9092 || c.HTTPListen != "127.0.0.1:9644" {
		t.Errorf("directories %v, listeners %+v, HTTP %q", c.LogDirs, c.Listeners, c.HTTPListen)
	}
	if c.QuorumConfigured {
		t.Error("an empty directory would not be formatted")
	}
}

func TestServerOpensNoOtherPort(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0").awaitReady()
	if got, want := p.field("data"), filepath.Join(dir, "milena-data"); got != want {
		t.Errorf("the start said %s, want %s", got, want)
	}
	if n := p.listening(); n != 2 {
		t.Errorf("%d ports are open, want the listener's and the console's", n)
	}
	if code := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.output())
	}
}

func TestConsole(t *testing.T) {
	p := startProcess(t, t.TempDir(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0").awaitReady()
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/metrics": "milena_build_info", "/debug/pprof/cmdline": "start"} {
		resp, err := http.Get("http://" + p.field("http") + path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(b), want) {
			t.Errorf("%s: %s %v, without %q", path, resp.Status, err, want)
		}
	}
}

func TestHTTPOff(t *testing.T) {
	p := startProcess(t, t.TempDir(), "--listen", "127.0.0.1:0", "--http", "off").awaitReady()
	if n := p.listening(); n != 1 {
		t.Errorf("%d ports are open, want one", n)
	}
	if got := p.field("http"); got != "" {
		t.Errorf("the start names a console at %q", got)
	}
}

func TestSecondProcessOnTheSameDirectory(t *testing.T) {
	dir := t.TempDir()
	first := startProcess(t, dir, "--listen", "127.0.0.1:0", "--http", "off").awaitReady()
	second := startProcess(t, dir, "--listen", "127.0.0.1:0", "--http", "off")
	if code := second.end(nil); code != int(ExitFailed) {
		t.Errorf("exit code %d", code)
	}
	if want := fmt.Sprint(first.cmd.Process.Pid); !regexp.MustCompile(`(?m)^milena: .*\b` + want + `\b`).MatchString(second.output()) {
		t.Errorf("process %s is not named:\n%s", want, second.output())
	}
	if code := first.end(syscall.SIGTERM); code != 0 {
		t.Errorf("the first process was disturbed: exit code %d", code)
	}
}

// A clean shutdown leaves nothing to recover; a crash does, and loses nothing.
func TestShutdownAndRecovery(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--listen", "127.0.0.1:0", "--http", "off"}
	p := startProcess(t, dir, args...).awaitReady()
	run := func(stdin string, args ...string) string {
		t.Helper()
		code, out, errs := invoke(stdin, append(args, "--bootstrap-server", p.field("address"))...)
		if code != 0 {
			t.Fatalf("%v: %s", args, errs)
		}
		return out
	}
	run("", "topics", "create", "t")
	run("a\nb\n", "produce", "t")
	if code := p.end(syscall.SIGTERM); code != 0 || !strings.Contains(p.output(), "shut down cleanly") {
		t.Fatalf("exit code %d:\n%s", code, p.output())
	}
	p = startProcess(t, dir, args...).awaitReady()
	if !strings.Contains(p.output(), "logs=1 clean=true") || strings.Contains(p.output(), "recover") {
		t.Errorf("the start after a clean shutdown recovered:\n%s", p.output())
	}
	run("c\n", "produce", "t")
	p.end(syscall.SIGKILL)
	p = startProcess(t, dir, args...).awaitReady()
	if !strings.Contains(p.output(), "logs=1 clean=false") {
		t.Errorf("the start after a crash did not recover:\n%s", p.output())
	}
	if got := run("", "consume", "t", "--from-beginning", "--exit-at-end"); got != "a\nb\nc\n" {
		t.Errorf("read %q", got)
	}
	if code := p.end(os.Interrupt); code != 0 {
		t.Errorf("exit code %d after an interrupt", code)
	}
}

// An unspecified address is never advertised: the host's name is, or the start fails and names the key to set.
func TestAdvertisedAddress(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, t.TempDir(), "--listen", "0.0.0.0:0", "--http", "off").awaitReady()
	name, port, err := net.SplitHostPort(p.field("address"))
	if err != nil || !strings.EqualFold(name, host) {
		t.Fatalf("the start names %s, want host %s", p.field("address"), host)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:" + port))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	bs, err := kadm.NewClient(cl).ListBrokers(ctx)
	if err != nil || len(bs) != 1 || !strings.EqualFold(bs[0].Host, host) || fmt.Sprint(bs[0].Port) != port {
		t.Errorf("advertised %+v, want %s:%s (%v)", bs, host, port, err)
	}

	var errs bytes.Buffer
	code := Run(ctx, &Env{Args: []string{"server", "start", "--listen", "0.0.0.0:0", "--http", "off", "--data-dir", t.TempDir()}, Stdout: io.Discard, Stderr: &errs,
		Hostname: func() (string, error) { return "", errors.New("no name") }})
	if code != ExitUsage || !strings.Contains(errs.String(), "advertised.listeners") {
		t.Errorf("exit code %d without a host name: %s", code, errs.String())
	}
}

// What a properties file says beyond Milena's keys is told at start: one line for what has no meaning here, a warning for
// each unknown key.
func TestNoticesOfConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "server.properties")
	text := "num.io.threads=8\nnum.network.threads=3\nbackground.threads=10\nlog.retention.hourz=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs=" + filepath.Join(dir, "data") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, dir, "--config", file, "--http", "off", "--override", "queued.max.requests=100").awaitReady()
	out := p.output()
	if n := strings.Count(out, "num.io.threads"); n != 1 || !strings.Contains(out, "keys=background.threads,num.io.threads,num.network.threads,queued.max.requests\n") {
		t.Errorf("the keys without meaning are not in one line:\n%s", out)
	}
	if !regexp.MustCompile(`(?m)level=WARN .*log\.retention\.hourz`).MatchString(out) {
		t.Errorf("no warning about the unknown key:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "meta.properties")); err != nil {
		t.Errorf("log.dirs of the file was not used: %v", err)
	}
}

// A flag and an override that say two things are refused with both; beside --listen the addresses to advertise can be given.
func TestContradictions(t *testing.T) {
	a := &app{env: &Env{Hostname: func() (string, error) { return "host", nil }}}
	for _, tc := range []struct {
		f    serverFlags
		want []string
	}{
		{serverFlags{dataDir: "/d", overrides: []string{"log.dirs=/a,/b"}}, []string{"--data-dir /d", "--override log.dirs=/a,/b"}},
		{serverFlags{dataDir: "/d", overrides: []string{"log.dir=/a"}}, []string{"--data-dir /d", "--override log.dir=/a"}},
		{serverFlags{listen: "localhost:1", overrides: []string{"listeners=PLAINTEXT://localhost:2"}}, []string{"--listen localhost:1", "--override listeners="}},
		{serverFlags{http: "off", overrides: []string{"milena.http.listen=localhost:2"}}, []string{"--http off", "--override milena.http.listen="}},
	} {
		_, _, err := a.nodeConfig(&tc.f)
		var usage *usageError
		if !errors.As(err, &usage) {
			t.Errorf("%+v: %v is no usage error", tc.f, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: the error does not say %q: %v", tc.f, want, err)
			}
		}
	}
	n, _, err := a.nodeConfig(&serverFlags{listen: "0.0.0.0:9092", overrides: []string{"advertised.listeners=PLAINTEXT://public:9092"}})
	if err != nil || len(n.Advertised) != 1 || n.Advertised[0].Host != "public" {
		t.Errorf("advertised %+v: %v", n, err)
	}
	file := filepath.Join(t.TempDir(), "server.properties") // its addresses belong to its listeners, which --listen replaces
	text := "node.id=1\nprocess.roles=broker,controller\nlisteners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://file:9092\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n, _, err = a.nodeConfig(&serverFlags{config: file, listen: "0.0.0.0:19092"})
	if err != nil || len(n.Advertised) != 1 || n.Advertised[0].Host != "host" || n.Advertised[0].Port != 19092 {
		t.Errorf("advertised %+v: %v", n, err)
	}
}

func TestLogFormatJSON(t *testing.T) {
	p := startProcess(t, t.TempDir(), "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json").awaitReady()
	if code := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	lines := strings.Split(strings.TrimSpace(p.output()), "\n")
	for _, l := range lines {
		var v map[string]any
		if err := json.Unmarshal([]byte(l), &v); err != nil || v["msg"] == nil || v["level"] == nil {
			t.Errorf("not a JSON log line: %s", l)
		}
	}
	if len(lines) < 3 {
		t.Errorf("only %d lines", len(lines))
	}
}

// Automatic formatting needs an empty directory and no quorum key.
func TestNoAutomaticFormat(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "something"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"not empty": {[]string{"--data-dir", dir, "--listen", "127.0.0.1:0"}, "milena storage format"},
		"quorum": {[]string{"--data-dir", t.TempDir(), "--override", "controller.quorum.bootstrap.servers=localhost:9093", "--override", "controller.listener.names=CONTROLLER",
			"--override", "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"}, "milena storage format"},
	} {
		p := startProcess(t, dir, append(tc.args, "--http", "off")...)
		if code := p.end(nil); code == 0 || !strings.Contains(p.output(), tc.want) {
			t.Errorf("%s: exit code %d:\n%s", name, code, p.output())
		}
	}
}
