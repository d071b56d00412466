// Package mirror answers the Cluster Mirroring APIs (KIP-1279; spec 4): on a broker's listeners and, for what only the
// controller can do, on the controller's. A broker checks what is, the controller what is wished (spec 7.9).
package mirror

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/coord/mirrorstate"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/mirror"
	"milena/internal/server"
)

// States reads and writes the partition states that this broker coordinates.
type States interface {
	Read(ctx context.Context, k mirrorstate.Key, leaderEpoch int32) (mirrorstate.Status, error)
	Write(ctx context.Context, w mirrorstate.Write) (mirrorstate.Status, error)
}

// Forwarder passes a request on to the controller in the client's name.
type Forwarder interface {
	Forward(ctx context.Context, r *server.Request)
}

// Options configure Handlers. All are required.
type Options struct {
	Image func() *meta.Image
	// States answers other brokers; Cluster finds each state at its coordinator, and progress at the partition's leader.
	States     States
	Cluster    *mirror.Cluster
	Manager    *mirror.Manager
	Controller Forwarder
	// Clamp takes the committed offsets of a partition above end back to it, of the groups coordinated here, and returns those.
	Clamp func(ctx context.Context, topic string, id ids.UUID, partition int32, end int64, epoch int32) ([]string, error)
	// CodePoints are the numbers of mirror errors that clients use.
	CodePoints api.CodePoints
	Logger     *slog.Logger
}

// Handlers answer the mirror APIs of a broker's listeners.
type Handlers struct{ o Options }

// New returns the handlers.
func New(o Options) *Handlers { return &Handlers{o} }

// Register adds the handlers to t.
func (h *Handlers) Register(t server.Table) {
	t[api.CreateClusterMirror] = h.o.Controller.Forward
	t[api.StartMirrorTopics] = h.start
	t[api.StopMirrorTopics] = h.stop
	t[api.PauseMirrorTopics] = h.pause
	t[api.ResumeMirrorTopics] = h.resume
	t[api.DeleteClusterMirror] = h.delete
	t[api.ListClusterMirrors] = h.list
	t[api.DescribeClusterMirrors] = h.describe
	t[api.ReadMirrorStates] = h.readStates
	t[api.WriteMirrorStates] = h.writeStates
	t[api.ReadMirrorOffsets] = h.readOffsets
	t[api.RecoverMirrorTopics] = h.recover
	t[api.MirrorCuts] = h.cuts
	t[api.ClampGroupOffsets] = h.clamp
	t[api.CheckMirrorSource] = h.checkSource
}

// pass forwards a request whose fields the broker has changed.
func (h *Handlers) pass(ctx context.Context, r *server.Request, req kmsg.Request) {
	r.Body = req.AppendTo(nil)
	h.o.Controller.Forward(ctx, r)
}

// mirrorError is UNSUPPORTED_VERSION while mirroring is off, UNKNOWN_CLUSTER_MIRROR where there is no such mirror.
func (h *Handlers) mirrorError(img *meta.Image, name string) error {
	if err := h.featureError(img); err != nil {
		return err
	}
	if len(img.Config(meta.ResourceClusterMirror, name)) == 0 {
		return api.Errorf(api.UnknownClusterMirror, "there is no mirror %s", name)
	}
	return nil
}

func (h *Handlers) featureError(img *meta.Image) error {
	if img.Feature("mirror.version") < 1 {
		return api.Errorf(api.UnsupportedVersion, "mirroring is off: raise the feature mirror.version to level 1")
	}
	return nil
}

// within bounds a request by its own timeout.
func within(ctx context.Context, ms int32) (context.Context, context.CancelFunc) {
	d := time.Duration(ms) * time.Millisecond
	if d <= 0 || d > 5*time.Minute {
		d = 30 * time.Second
	}
	return context.WithTimeout(ctx, d)
}

func codeAndText(err error) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	code, msg := api.CodeOf(err)
	return int16(code), &msg
}

// codeAndText is an error in the numbers that clients use. Brokers talk among themselves by Milena's.
func (h *Handlers) codeAndText(err error) (int16, *string) {
	code, text := codeAndText(err)
	return h.o.CodePoints.WireCode(api.Code(code)), text
}

// reply answers a client, in its numbers.
func (h *Handlers) reply(r *server.Request, msg kmsg.Response, code int16) {
	reply(r, msg, int16(h.o.CodePoints.Code(code)))
}

// reply answers with msg; err is what it says at its top level, for the metrics.
func reply(r *server.Request, msg kmsg.Response, code int16) {
	r.Reply(server.Response{Msg: msg, Code: api.Code(code)})
}
