package peertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Command is a program to run. Its environment is the parent's plus Env.
type Command struct {
	Path  string
	Args  []string
	Env   []string // KEY=VALUE
	Dir   string
	Stdin io.Reader
	// Timeout ends a Run; 0 means two minutes.
	Timeout time.Duration
	// Lines, if set, is given each line of standard output as it comes, by a goroutine of its own (Start only).
	Lines func(string)
}

func (c Command) String() string {
	return strings.Join(append([]string{c.Path}, c.Args...), " ")
}

func (c Command) exec(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdin = c.Stdin
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// killGroup signals the process group that pid leads. A group that is gone is no error.
func killGroup(pid int, sig syscall.Signal) error {
	err := syscall.Kill(-pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Output is what a finished command said.
type Output struct {
	Stdout, Stderr string
	// Code is the exit code, -1 if a signal ended it.
	Code int
	Took time.Duration
}

// ExitError is a command that ended with a code other than 0, with the end of what it said.
type ExitError struct {
	Command Command
	Output  Output
	Err     error
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: %v after %.1f s\n%s", e.Command, e.Err, e.Output.Took.Seconds(),
		Tail(e.Output.Stdout+e.Output.Stderr, 25))
}

func (e *ExitError) Unwrap() error { return e.Err }

// Run runs a command to its end. The output is there with an error too, which is an *ExitError if the command ran.
func Run(ctx context.Context, c Command) (Output, error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no end after %s", timeout))
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := c.exec(ctx)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	from := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	out := Output{Stdout: stdout.String(), Stderr: stderr.String(), Code: -1, Took: time.Since(from)}
	if cmd.ProcessState == nil {
		return out, fmt.Errorf("%s: %w", c.Path, err)
	}
	out.Code = cmd.ProcessState.ExitCode()
	if err != nil {
		return out, &ExitError{Command: c, Output: out, Err: err}
	}
	return out, nil
}

// Process is a program that runs beside the test, its output appended to a log file.
type Process struct {
	command Command
	cmd     *exec.Cmd
	log     string
	done    chan struct{}
	err     error // after done
}

// Start starts a program; standard output and error are appended to the file log.
func Start(c Command, log string) (*Process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := c.exec(context.Background())
	cmd.Stdout, cmd.Stderr = f, f
	if c.Lines != nil {
		cmd.Stdout = &lineWriter{each: c.Lines}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	p := &Process{command: c, cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Running is nil as long as the process runs, else an error that says how it ended, with the end of its log.
func (p *Process) Running() error {
	select {
	case <-p.done:
		how := "exit code 0"
		if p.err != nil {
			how = p.err.Error()
		}
		return fmt.Errorf("%s has ended: %s\n%s", p.command.Path, how, TailFile(p.log, 25))
	default:
		return nil
	}
}

// ExitCode is the code of an ended process, -1 while it runs or if a signal ended it.
func (p *Process) ExitCode() int {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Kill kills the whole group at once (SIGKILL) and waits for the process to be gone.
func (p *Process) Kill() error {
	if err := killGroup(p.Pid(), syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Stop asks the process to end (SIGTERM) and kills it if it has not within the time, which is an error.
func (p *Process) Stop(within time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-p.done:
		return killGroup(p.Pid(), syscall.SIGKILL)
	case <-t.C:
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return fmt.Errorf("%s did not end within %s of SIGTERM\n%s", p.command.Path, within, TailFile(p.log, 25))
}

// lineWriter hands on whole lines.
type lineWriter struct {
	rest []byte
	each func(string)
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		w.each(string(w.rest[:i]))
		w.rest = w.rest[i+1:]
	}
}

// Tail is the last n lines of a text.
func Tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

// TailFile is the last n lines of a file, of its last 64 KiB at most.
func TailFile(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > 64<<10 {
		if _, err := f.Seek(-64<<10, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return Tail(string(b), n)
}
