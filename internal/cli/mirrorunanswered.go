package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

// askControllers asks something of the controllers if ctx is still open after a while; what it returns says whether they were asked and
// have not answered.
func askControllers(ctx context.Context, cl *kgo.Client, after time.Duration) (silent func() bool) {
	var asked, answered atomic.Bool
	go func() {
		select {
		case <-time.After(after):
			asked.Store(true)
			answered.Store(mirroradm.ControllersAnswer(ctx, cl))
		case <-ctx.Done():
		}
	}()
	return func() bool { return asked.Load() && !answered.Load() }
}

// unanswered words the error of a request that a cluster which was reached has left without an answer; open says that it may have changed
// something.
func (a *app) unanswered(err error, timeout time.Duration, controllersSilent func() bool, open bool) error {
	var exit *exitError
	if exitCode(err) != ExitUnreachable || errors.As(err, &exit) || errors.Is(err, kerr.SaslAuthenticationFailed) {
		return err
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		text := fmt.Sprintf("the cluster at %s was reached, but not the broker that this needs: %v: see milena cluster describe", a.bootstrap, rootCause(err))
		if open {
			text += "; whether what was asked for is carried out is open"
		}
		return &exitError{ExitUnreachable, &unansweredError{text, err}}
	}
	text := fmt.Sprintf("the cluster at %s was reached, but has not answered within %s", a.bootstrap, timeout)
	if w := oneLine(err.Error()); !strings.HasSuffix(w, context.DeadlineExceeded.Error()) {
		text += " (" + w + ")"
	}
	if controllersSilent() {
		text += ": no controller answers, and nothing can be changed without a majority of them: start those that are gone (milena cluster describe)"
	}
	if open {
		text += "; whether what was asked for is carried out is open"
	}
	return &exitError{ExitUnreachable, &unansweredError{text, err}}
}

// unansweredError is another's words for an error.
type unansweredError struct {
	text string
	err  error
}

func (e *unansweredError) Error() string { return e.text }
func (e *unansweredError) Unwrap() error { return e.err }

// changes says whether a command may change something.
func changes(cmd *cobra.Command) bool {
	for _, name := range []string{"list", "describe", "dump", "verify", "info"} {
		if f := cmd.Flags().Lookup(name); cmd.Name() == name || f != nil && f.Changed { // kafka-cluster-mirrors has them as options
			return false
		}
	}
	return !(cmd.Name() == "configs" && !cmd.Flags().Changed("set") && !cmd.Flags().Changed("delete"))
}
