// Package admin answers the administrative APIs: one file for each, named by its number.
//
// A broker answers questions itself, from its settings and its metadata image. Changes it checks as far as it can alone, then
// forwards to the controller (KIP-590), which checks again and decides.
package admin

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/meta"
	"milena/internal/server"
)

// ConfigsOptions are what the config handlers need. All are required.
type ConfigsOptions struct {
	// Node returns the broker's current settings.
	Node func() *config.Node
	// Image returns the broker's current metadata.
	Image func() *meta.Image
	// Forward sends msg at r's version to the controller in the name of r's client (KIP-590) and waits for the answer.
	Forward func(ctx context.Context, r *server.Request, msg kmsg.Request) (kmsg.Response, error)
	Loggers Loggers
	Logger  *slog.Logger
}

// Loggers are the broker loggers whose levels can be changed (KIP-412).
type Loggers interface {
	// Levels returns each logger's level by name, in force or inherited.
	Levels() map[string]slog.Level
	// SetLevel changes the level of a logger; nil goes back to the inherited one.
	SetLevel(name string, level *slog.Level) error
}

// Configs answers the config APIs. A broker describes configs itself, from its settings and its metadata; changes it checks
// and forwards to the controller, which has the last word. Levels of loggers live in the broker only and end with it.
type Configs struct{ o ConfigsOptions }

// NewConfigs returns the handlers.
func NewConfigs(o ConfigsOptions) *Configs { return &Configs{o} }

// Register adds the handlers to t.
func (h *Configs) Register(t server.Table) {
	t[api.DescribeConfigs] = h.DescribeConfigs
	t[api.AlterConfigs] = h.AlterConfigs
	t[api.IncrementalAlterConfigs] = h.IncrementalAlterConfigs
	t[api.ListConfigResources] = h.ListConfigResources
}

// decode reads the body into m. If it can't, the connection is closed, as client and broker don't speak the same language.
func (h *Configs) decode(r *server.Request, m kmsg.Request) bool {
	if err := r.Decode(m); err != nil {
		h.o.Logger.Warn("malformed request", "api", r.Row.Name, "version", r.Version, "client", r.ClientID, "error", err)
		r.Reply(server.Response{NoReply: true, CloseConn: true, Code: api.InvalidRequest})
		return false
	}
	return true
}

// resource is a resource in a request.
type resource struct {
	kind int8
	name string
}

// codes gives a response's error fields: the code, and the message if there is one.
func codes(err error) (int16, *string) {
	code, message := api.CodeOf(err)
	if message == "" {
		return int16(code), nil
	}
	return int16(code), &message
}

// firstCode is the first error of parts, for metrics.
func firstCode(parts []int16) api.Code {
	for _, c := range parts {
		if c != 0 {
			return api.Code(c)
		}
	}
	return api.NoError
}
