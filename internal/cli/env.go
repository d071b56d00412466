package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"milena/internal/api"
)

// Env is what a command needs from outside. A test replaces every part of it.
type Env struct {
	// Program is the name that the process was started by; kafka-cluster-mirrors is a program of its own.
	Program string
	// Args are the arguments after the program's name.
	Args   []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Version is what `milena version` prints.
	Version string
	// StdoutTerminal says whether standard output is a terminal: progress is drawn there, and printed as plain
	// lines elsewhere.
	StdoutTerminal bool
	// StderrTerminal says whether standard error is a terminal: long commands count there.
	StderrTerminal bool
	// Hostname replaces an unspecified listener address where an address is advertised.
	Hostname func() (string, error)
}

// ExitCode is what the process ends with. The numbers are a contract.
type ExitCode int

// The exit codes; exitCodes words them.
const (
	ExitOK          ExitCode = 0
	ExitFailed      ExitCode = 1
	ExitUsage       ExitCode = 2
	ExitUnreachable ExitCode = 3
)

// exitMeaning is a row of the reference.
type exitMeaning struct {
	code    ExitCode
	meaning string
}

func exitCodes() []exitMeaning {
	return []exitMeaning{
		{ExitOK, "everything that was asked for was done"},
		{ExitFailed, "it was tried and failed: the cluster refused it, a record was not acknowledged, a file is damaged, a comparison found a difference"},
		{ExitUsage, "the command line, a file named by it, or a property is wrong; nothing was tried"},
		{ExitUnreachable, "the cluster could not be reached, refused the login, or gave no answer in time: what a change asks for may still be carried out then"},
	}
}

// usageError marks a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// exitError carries an exit code of its own; its message may be empty when the output already said it.
type exitError struct {
	code ExitCode
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// exitCode maps an error to the process's exit code.
func exitCode(err error) ExitCode {
	var usage *usageError
	var exit *exitError
	var op *net.OpError
	var ke *kerr.Error
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &ke):
		if errors.Is(err, kerr.SaslAuthenticationFailed) {
			return ExitUnreachable
		}
		return ExitFailed
	case errors.As(err, &op), errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), "unable to dial"):
		return ExitUnreachable
	}
	return ExitFailed
}

// message is the one line shown for an error.
func message(err error, bootstrap string) string {
	if exitCode(err) == ExitUnreachable {
		var exit *exitError
		if !errors.As(err, &exit) {
			return fmt.Sprintf("cannot reach the cluster at %s: %v: check --bootstrap-server and --command-config", bootstrap, rootCause(err))
		}
	}
	text := oneLine(describe(err).Error())
	if a := advice(err); a != "" && !strings.Contains(text, ": "+a) {
		text += ": " + a
	}
	return text
}

// advice is what usually helps against an error whose own words don't say; empty where they do.
func advice(err error) string {
	var missing *fs.PathError
	var mirror mirrorError
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return "check the name with milena topics list, or create it with milena topics create"
	case errors.Is(err, kerr.LeaderNotAvailable):
		return "a partition has no leader now: see milena topics describe --unavailable, and milena cluster describe for the brokers that are there"
	case errors.Is(err, kerr.NotEnoughReplicas), errors.Is(err, kerr.NotEnoughReplicasAfterAppend):
		return "see milena topics describe --under-min-isr, and start the brokers that are gone"
	case errors.Is(err, kerr.KafkaStorageError):
		return "a disk of the broker is full or failed: see its log"
	case isCode(err, api.UnknownClusterMirror.Name()):
		return "see milena mirrors list"
	case coordinatorError(err) && errors.As(err, &mirror):
		return "the coordinator of the mirror's states is starting or gone: try again, and see milena topics describe __mirror_state"
	case coordinatorError(err):
		return "the group's coordinator is starting or gone: try again, and see milena topics describe __consumer_offsets"
	case errors.Is(err, kerr.GroupIDNotFound):
		return "check the name with milena groups list"
	case errors.Is(err, kerr.MessageTooLarge):
		return "raise max.message.bytes of the topic with milena configs alter, and --max-batch-bytes, or write smaller records"
	case errors.Is(err, kerr.UnsupportedVersion):
		return "the cluster does not offer this"
	case errors.As(err, &missing) && errors.Is(err, fs.ErrNotExist):
		return "check the path"
	}
	return ""
}

// coordinatorError says that a coordinator can't answer now.
func coordinatorError(err error) bool {
	return errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.NotCoordinator)
}

// oneLine puts the lines of a message in one.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "; ")
}

func rootCause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op
	}
	return err
}

// answer builds an error from a per-item code and message as admin responses carry them: nil, or the broker's own
// words with the code's name.
func answer(what string, err error, msg string) error {
	if err == nil {
		return nil
	}
	var ke *kerr.Error
	if errors.As(err, &ke) {
		text := msg
		if text == "" {
			text = ke.Description
		}
		text = strings.TrimSuffix(text, ".")
		if !strings.HasPrefix(text, what+" ") { // the cluster's own words may name the thing already
			text = what + ": " + text
		}
		return fmt.Errorf("%s (%w)", text, &named{ke})
	}
	return fmt.Errorf("%s: %w", what, err)
}

// describe words a Kafka error in the cluster's terms, and leaves other errors alone.
func describe(err error) error {
	if shards, bare := err.(*kadm.ShardErrors); bare && len(shards.Errs) > 0 { //nolint:errorlint // as below
		return fmt.Errorf("%s: %w", shards.Name, describe(shards.Errs[0].Err)) // its own words count pieces of the request
	}
	if ke, bare := err.(*kerr.Error); bare { //nolint:errorlint // a wrapped one has its words already
		return fmt.Errorf("%s (%w)", strings.TrimSuffix(ke.Description, "."), &named{ke})
	}
	return err
}

// named prints only the name of a Kafka error, whose description is already part of the line.
type named struct{ err *kerr.Error }

func (n *named) Error() string { return n.err.Message }
func (n *named) Unwrap() error { return n.err }
