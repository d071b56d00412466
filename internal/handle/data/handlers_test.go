package data

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"milena/internal/api"
)

// Only a fault of this broker is worth a line: what has gone well is none, and what a client is told is its own business.
func TestOnlyFaultsAreLogged(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"a client's", api.Errorf(api.UnknownTopicOrPartition, "there is no topic t"), false},
		{"one without a code", errors.New("input/output error"), true},
		{"one with the code for that", api.Errorf(api.UnknownServerError, "input/output error"), true},
	} {
		var said bytes.Buffer
		h := &Handlers{o: Options{Logger: slog.New(slog.NewTextHandler(&said, nil))}}
		h.log("AlterReplicaLogDirs", "t", 0, tc.err)
		if got := said.Len() > 0; got != tc.want {
			t.Errorf("%s: logged %q", tc.name, said.String())
		}
	}
}
