package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Name returns the protocol's name of the error, such as
// UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_CODE_n for a number that is unknown.
func (c Code) Name() string {
	if f, ok := c.facts(); ok {
		return f.name
	}
	return "UNKNOWN_CODE_" + itoa(int(c))
}

// Message returns a sentence that says what the error means.
func (c Code) Message() string {
	if f, ok := c.facts(); ok {
		return f.message
	}
	return "The error code is not known here."
}

// Retriable reports whether the same request may succeed later. An unknown
// code is not retriable.
func (c Code) Retriable() bool {
	f, _ := c.facts()
	return f.retriable
}

// String is [Code.Name].
func (c Code) String() string { return c.Name() }

// Error is an error that carries a protocol error code.
type Error struct {
	Code    Code
	Message string // for people: what thing is concerned and what to do; may be empty
	Err     error  // the cause, may be nil
}

// Error returns the code's name and the message, or the code's own message if
// there is none. The cause is part of it only through [Errorf].
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Code.Name() + ": " + e.Message
	case e.Err != nil:
		return e.Code.Name() + ": " + e.Err.Error()
	}
	return e.Code.Name() + ": " + e.Code.Message()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error with the same code and neither
// message nor cause, so that errors.Is(err, &api.Error{Code: c}) asks for c.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == "" && t.Err == nil
}

// Errorf returns an error with the code and a formatted message. A cause given
// with %w becomes its Err.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: code, Message: err.Error()}
	if errors.Unwrap(err) != nil {
		e.Err = errors.Unwrap(err)
	} else if _, many := err.(interface{ Unwrap() []error }); many {
		e.Err = err
	}
	return e
}

// CodeOf maps an error to what a response carries: the code, and a message for
// people (empty for no error). It is the only such mapping: an [*Error]
// anywhere in the chain says its own code, an expired deadline is
// REQUEST_TIMED_OUT, and everything else UNKNOWN_SERVER_ERROR with no more than
// that code's own message, since an internal error's text is not for clients.
func CodeOf(err error) (Code, string) {
	if err == nil {
		return NoError, ""
	}
	var e *Error
	if errors.As(err, &e) {
		switch {
		case e.Message != "":
			return e.Code, e.Message
		case e.Code == NoError:
			return NoError, ""
		}
		return e.Code, e.Code.Message()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return RequestTimedOut, RequestTimedOut.Message()
	}
	return UnknownServerError, UnknownServerError.Message()
}

func itoa(n int) string { return strconv.Itoa(n) }
