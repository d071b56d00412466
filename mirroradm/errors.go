package mirroradm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"milena/internal/api"
)

// Code is an error code of mirroring, in Milena's own numbers whatever the cluster uses. It is an error, for errors.Is.
type Code int16

// The error codes of mirroring.
const (
	ReadOnlyTopic                    = Code(api.ReadOnlyTopic)
	ClusterMirrorAlreadyExists       = Code(api.ClusterMirrorAlreadyExists)
	UnknownClusterMirror             = Code(api.UnknownClusterMirror)
	TopicAlreadyInClusterMirror      = Code(api.TopicAlreadyInClusterMirror)
	TopicNotInClusterMirror          = Code(api.TopicNotInClusterMirror)
	ClusterMirrorAuthorizationFailed = Code(api.ClusterMirrorAuthorizationFailed)
	// InvalidClusterMirrorStates: a topic or partition is in no state that allows the request. The message says which.
	InvalidClusterMirrorStates = Code(api.InvalidClusterMirrorStates)
)

// Error implements error.
func (c Code) Error() string { return api.Code(c).Name() }

// Error is what a cluster answered: Kafka's code with its name, and the cluster's own words.
type Error struct {
	Code    int16
	Name    string
	Message string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Name
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Name)
}

// CodeName is the code's name.
func (e *Error) CodeName() string { return e.Name }

// Is reports whether target is the Code, or the kerr error, of e.
func (e *Error) Is(target error) bool {
	switch t := target.(type) {
	case Code:
		return int16(t) == e.Code
	case *kerr.Error:
		return t.Code == e.Code
	}
	return false
}

func failure(code int16, msg *string) error {
	if code == 0 {
		return nil
	}
	e := &Error{Code: code, Name: api.Code(code).Name()}
	if msg != nil {
		e.Message = *msg
	}
	return e
}

// Unanswered says that an error is of a request that the cluster did not answer, or not in time: whether what it asks for is carried out
// is open then.
func Unanswered(err error) bool {
	var e *Error
	if errors.As(err, &e) {
		return e.Code == int16(api.RequestTimedOut)
	}
	var k *kerr.Error
	return err != nil && !errors.As(err, &k) && !errors.Is(err, ErrNoMirroring)
}

// openOutcome is what to add to an error of a request that changes something.
func openOutcome(err error) string {
	if Unanswered(err) {
		return "; whether it is carried out is open"
	}
	return ""
}

// ErrNoMirroring is wrapped by the errors of calls to a cluster that has no Cluster Mirroring.
var ErrNoMirroring = errors.New("the cluster has no Cluster Mirroring")

// noMirroring tells a cluster that does not offer an API from other failures to ask it.
func noMirroring(err error) error {
	if strings.Contains(err.Error(), "broker is too old") { // kgo's error for it is not exported
		return fmt.Errorf("%w: %w", ErrNoMirroring, err)
	}
	return err
}
