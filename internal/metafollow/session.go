package metafollow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/meta"
)

// SessionOptions of a Session.
type SessionOptions struct {
	NodeID    int32
	ClusterID string
	// Incarnation is new for every start of the process.
	Incarnation ids.UUID
	// Endpoints are the advertised ones.
	Endpoints []meta.Endpoint
	Features  []meta.FeatureRange
	Rack      *string
	LogDirs   []ids.UUID
	// OfflineDirs returns those of LogDirs that have failed; nil if none ever does.
	OfflineDirs func() []ids.UUID
	// PreviousEpoch is the broker epoch that the last clean shutdown left behind, -1 if
	// there is none (KIP-966).
	PreviousEpoch int64

	// Controller is used by the session alone: a heartbeat must not wait behind others.
	Controller Caller
	Follower   *Follower
	// Heartbeat is the pause between heartbeats (broker.heartbeat.interval.ms). Default 2 s.
	Heartbeat time.Duration
	// Timeout is broker.session.timeout.ms: how long after the last answered heartbeat was
	// sent the broker must count itself as fenced. Default 9 s.
	Timeout time.Duration
	// Suspend and Resume stop and start the broker's leading: it begins suspended, is
	// resumed when it is ready, and suspended while no heartbeat is answered. They are
	// called by one goroutine, in turn. Nil: nothing is called.
	Suspend func(reason string)
	Resume  func()
	// Retry is the pause after a failed request. Default 50 ms.
	Retry  time.Duration
	Logger *slog.Logger // default: discards
}

// Session registers the broker with the controller and keeps it alive there.
type Session struct {
	o     SessionOptions
	epoch atomic.Int64

	registered chan struct{} // closed when the epoch is known
	ready      chan struct{} // closed when the broker was unfenced and sees it itself
	stopped    chan struct{} // closed when the controller let the broker stop
	wake       chan struct{} // a heartbeat is due now

	wantShutdown           atomic.Bool
	onceRegistered         sync.Once
	onceReady, onceStopped sync.Once

	answer   atomic.Pointer[answer] // the last one
	answered chan struct{}          // there is a newer answer
	failures int                    // heartbeats that failed since; owned by Run, as are eager and dropped
	eager    int                    // heartbeats in a row that wait for something to change
	dropped  int                    // registrations in a row that were dropped before a heartbeat was answered
}

// answer is what an answered heartbeat said.
type answer struct {
	sent   time.Time // the heartbeat
	offset int64     // what the metadata had reached at the controller
	fenced bool
}

// NewSession returns a session; Run starts it.
func NewSession(o SessionOptions) *Session {
	if o.Heartbeat <= 0 {
		o.Heartbeat = 2 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 9 * time.Second
	}
	if o.Suspend == nil {
		o.Suspend = func(string) {}
	}
	if o.Resume == nil {
		o.Resume = func() {}
	}
	if o.Retry <= 0 {
		o.Retry = 50 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Session{
		o: o, registered: make(chan struct{}), ready: make(chan struct{}),
		stopped: make(chan struct{}), wake: make(chan struct{}, 1), answered: make(chan struct{}, 1),
	}
	s.epoch.Store(-1)
	return s
}

// Epoch is the broker epoch the controller gave, -1 before it did.
func (s *Session) Epoch() int64 { return s.epoch.Load() }

// Registered is closed when the controller has registered this incarnation.
func (s *Session) Registered() <-chan struct{} { return s.registered }

// Ready is closed when the broker was unfenced for the first time and its own metadata
// says so: clients may come.
func (s *Session) Ready() <-chan struct{} { return s.ready }

// LastContact is when the last heartbeat that the controller answered was sent, zero if
// it never answered one.
func (s *Session) LastContact() time.Time {
	if a := s.answer.Load(); a != nil {
		return a.sent
	}
	return time.Time{}
}

// Run registers the broker and sends heartbeats until the context ends or the controller
// refuses the broker for good (another cluster id, a duplicate id), which is returned.
func (s *Session) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watch(ctx)
	}()
	defer func() {
		cancel()
		<-watched
	}()
	if err := s.register(ctx); err != nil {
		return err
	}
	for {
		again, err := s.beat(ctx)
		if err != nil {
			return err
		}
		select {
		case <-time.After(again):
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Shutdown asks the controller to move this broker's leaderships away, and returns when
// it agrees that the broker stops, or with the context's error. Run must be running.
func (s *Session) Shutdown(ctx context.Context) error {
	s.wantShutdown.Store(true)
	s.beatNow()
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Session) beatNow() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Session) register(ctx context.Context) error {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID = s.o.NodeID
	req.ClusterID = s.o.ClusterID
	req.IncarnationID = s.o.Incarnation
	req.Rack = s.o.Rack
	req.PreviousBrokerEpoch = s.o.PreviousEpoch
	if epoch := s.Epoch(); epoch >= 0 {
		req.PreviousBrokerEpoch = epoch // this process has lost nothing since
	}
	var offline []ids.UUID
	if s.o.OfflineDirs != nil {
		offline = s.o.OfflineDirs()
	}
	for _, d := range s.o.LogDirs {
		if !slices.Contains(offline, d) {
			req.LogDirs = append(req.LogDirs, d)
		}
	}
	for _, e := range s.o.Endpoints {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Name, e.Host, e.Port, e.SecurityProtocol
		req.Listeners = append(req.Listeners, l)
	}
	for _, f := range s.o.Features {
		kf := kmsg.NewBrokerRegistrationRequestFeature()
		kf.Name, kf.MinSupportedVersion, kf.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, kf)
	}
	begun, warned := time.Now(), time.Time{}
	for failures := 0; ; failures++ {
		epoch, err := s.tryRegister(ctx, req)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			s.epoch.Store(epoch)
			s.onceRegistered.Do(func() { close(s.registered) })
			s.o.Logger.Info("registered with the controller", "broker", s.o.NodeID, "epoch", epoch)
			return nil
		case final(err):
			return fmt.Errorf("broker %d can't register: %w", s.o.NodeID, err)
		case time.Since(begun) > quietTime && time.Since(warned) > 5*quietTime:
			warned = time.Now()
			s.o.Logger.Warn("registering with the controller failed, retrying", "broker", s.o.NodeID, "error", err)
		}
		select {
		case <-time.After(s.o.Retry * time.Duration(min(failures+1, 20))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// quietTime is how long attempts to register may fail before it is worth a line: the
// controllers of nodes that start take a moment.
const quietTime = 2 * time.Second

// final reports whether a registration that failed so will never succeed. A duplicate id
// is not: the session of this broker's last incarnation may not have ended yet.
func final(err error) bool {
	var e *api.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case api.InconsistentClusterID, api.UnsupportedVersion, api.InvalidRegistration, api.BrokerIDNotRegistered:
		return true
	default:
		return false
	}
}

// patience bounds each request to the controller: a heartbeat that comes to nothing must
// leave time for others within the session.
func (s *Session) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.o.Timeout/3)
}

// giveUp drops the connection to a controller that lets requests hang.
func (s *Session) giveUp() {
	if l, ok := s.o.Controller.(interface{ Reset() }); ok {
		l.Reset()
	}
}

func (s *Session) tryRegister(ctx context.Context, req *kmsg.BrokerRegistrationRequest) (epoch int64, err error) {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	r, err := s.o.Controller.Call(ctx, req)
	if err != nil {
		if ctx.Err() != nil {
			s.giveUp()
		}
		return 0, err
	}
	resp, ok := r.(*kmsg.BrokerRegistrationResponse)
	if !ok {
		return 0, fmt.Errorf("the controller answered BrokerRegistration with %T", r)
	}
	return resp.BrokerEpoch, codeError(resp.ErrorCode)
}

// beat sends one heartbeat and says when the next is due.
func (s *Session) beat(ctx context.Context) (again time.Duration, err error) {
	epoch := s.Epoch()
	img := s.o.Follower.Image()
	self := img.Broker(s.o.NodeID)
	caughtUp := self != nil && self.Epoch == epoch
	if !caughtUp {
		// Not worth a heartbeat before the registration has come back by the log.
		if img, err = s.waitImage(ctx, epoch); img == nil {
			return s.o.Retry, err
		}
	}
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch = s.o.NodeID, epoch
	req.CurrentMetadataOffset = img.Offset
	req.WantShutdown = s.wantShutdown.Load()
	if s.o.OfflineDirs != nil {
		for _, d := range s.o.OfflineDirs() {
			req.OfflineLogDirs = append(req.OfflineLogDirs, d)
		}
	}
	sent := time.Now()
	wait, cancel := s.patience(ctx)
	defer cancel()
	r, err := s.o.Controller.Call(wait, req)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil && wait.Err() != nil {
		s.giveUp()
	}
	var resp *kmsg.BrokerHeartbeatResponse
	if err == nil {
		var ok bool
		if resp, ok = r.(*kmsg.BrokerHeartbeatResponse); !ok {
			err = fmt.Errorf("the controller answered BrokerHeartbeat with %T", r)
		} else {
			err = codeError(resp.ErrorCode)
		}
	}
	switch {
	case errors.Is(err, &api.Error{Code: api.StaleBrokerEpoch}), errors.Is(err, &api.Error{Code: api.BrokerIDNotRegistered}):
		s.o.Logger.Warn("the controller has dropped this broker's registration, registering again", "broker", s.o.NodeID)
		s.dropped++
		return min(s.o.Retry*time.Duration(min(s.dropped-1, 50)), s.o.Heartbeat), s.register(ctx)
	case err != nil:
		if s.failures%50 == 0 {
			s.o.Logger.Warn("heartbeat failed, retrying", "broker", s.o.NodeID, "error", err)
		}
		s.failures++
		return min(s.o.Retry*time.Duration(min(s.failures, 50)), s.o.Heartbeat), nil
	}
	s.failures, s.dropped = 0, 0
	s.answer.Store(&answer{sent: sent, offset: MetadataOffset(&resp.UnknownTags), fenced: resp.IsFenced})
	s.o.Follower.Expect(MetadataOffset(&resp.UnknownTags))
	select {
	case s.answered <- struct{}{}:
	default:
	}
	return s.next(resp), nil
}

// Current reports whether the metadata here goes as far as the controller's did
// at most a heartbeat ago.
func (s *Session) Current() bool {
	a := s.answer.Load()
	return a != nil && time.Since(a.sent) <= s.o.Heartbeat+s.o.Heartbeat/4 && s.o.Follower.Image().Offset >= a.offset
}

// waitImage waits a while for the image that holds the registration; nil if it has not
// come yet.
func (s *Session) waitImage(ctx context.Context, epoch int64) (*meta.Image, error) {
	wait, cancel := context.WithTimeout(ctx, s.o.Heartbeat)
	defer cancel()
	img, err := s.o.Follower.Wait(wait, func(img *meta.Image) bool {
		b := img.Broker(s.o.NodeID)
		return b != nil && b.Epoch >= epoch
	})
	if err != nil && ctx.Err() == nil {
		// Late, but the session must be kept: tell the controller where we are.
		return s.o.Follower.Image(), nil
	}
	return img, err
}

// next is when the next heartbeat is due.
func (s *Session) next(resp *kmsg.BrokerHeartbeatResponse) time.Duration {
	switch {
	case resp.ShouldShutdown:
		s.onceStopped.Do(func() { close(s.stopped) })
	case s.wantShutdown.Load(), resp.IsFenced:
		s.eager++
		return min(s.o.Retry*time.Duration(min(s.eager, 20)), s.o.Heartbeat)
	}
	s.eager = 0
	return s.o.Heartbeat
}

// watch suspends and resumes the broker, until ctx ends.
func (s *Session) watch(ctx context.Context) {
	suspended := true
	for {
		img, changed := s.o.Follower.Changed()
		a := s.answer.Load()
		left := time.Duration(-1)
		if a != nil {
			left = s.o.Timeout - time.Since(a.sent)
		}
		var expired <-chan time.Time
		switch {
		case suspended && left > 0 && s.mayLead(img, a):
			s.o.Logger.Info("unfenced", "broker", s.o.NodeID, "epoch", s.Epoch(), "offset", img.Offset)
			s.o.Resume()
			suspended = false
			s.onceReady.Do(func() { close(s.ready) })
			continue
		case !suspended && left <= 0:
			s.o.Logger.Warn("no heartbeat was answered for the session timeout; this broker leads nothing until one is", "broker", s.o.NodeID, "epoch", s.Epoch())
			s.o.Suspend("no heartbeat was answered by the controller for " + s.o.Timeout.String())
			suspended = true
			continue
		case !suspended:
			changed, expired = nil, time.After(left)
		}
		select {
		case <-expired:
		case <-changed:
		case <-s.answered:
		case <-ctx.Done():
			return
		}
	}
}

// mayLead reports whether the broker isn't fenced, as the controller says and as far as
// its own metadata goes, which must reach to what the controller's had.
func (s *Session) mayLead(img *meta.Image, a *answer) bool {
	b := img.Broker(s.o.NodeID)
	// An older registration says nothing: what is read then may be far behind.
	return !a.fenced && img.Offset >= a.offset && b != nil && b.Epoch == s.Epoch() && !b.Fenced
}
