package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"milena/internal/api"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/quorum"
)

// ServiceOptions of a Service.
type ServiceOptions struct {
	// Node is the quorum member of this process. Required.
	Node *quorum.Node
	// State configures the state of each leadership.
	State Options
	// MaxBatchBytes is the size from which the records of a flush are cut into several
	// batches. Default 1 MiB.
	MaxBatchBytes int
	Logger        *slog.Logger // default: discards
}

// Service runs a State while this node leads the quorum. It is safe for concurrent use.
type Service struct {
	o       ServiceOptions
	current atomic.Pointer[leadership]

	snapshots sync.Mutex // guards saved; held by one goroutine at a time, the quorum's
	saved     *meta.Image
}

// leadership is one term of this node as the active controller.
type leadership struct {
	epoch int32
	state *State
	rt    *machine.Runtime
	log   *quorum.MachineLog
}

// NewService returns a service; Run starts it.
func NewService(o ServiceOptions) *Service {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.State.Logger == nil {
		o.State.Logger = o.Logger
	}
	return &Service{o: o, saved: meta.Empty(o.State.ClusterID)}
}

// Run leads whenever the quorum says so, until the context ends.
func (s *Service) Run(ctx context.Context) error {
	var l *leadership
	defer func() { s.end(l) }()
	for {
		status, changed := s.o.Node.Changed()
		switch {
		case l != nil && (!status.IsLeader || status.Epoch != l.epoch):
			s.end(l)
			l = nil
			continue
		case l == nil && status.IsLeader:
			l = s.begin(ctx, status.Epoch)
		}
		var done <-chan struct{}
		if l != nil {
			done = l.rt.Done()
		}
		select {
		case <-changed:
		case <-done:
			s.o.Logger.Warn("the controller's state was lost", "epoch", l.epoch, "error", l.rt.Err())
			s.end(l)
			l = nil
			select {
			case <-time.After(reloadPause): // it may be lost again as soon as it is loaded
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reloadPause is the pause before the state is loaded again in the same epoch.
const reloadPause = 100 * time.Millisecond

func (s *Service) begin(ctx context.Context, epoch int32) *leadership {
	l := &leadership{epoch: epoch, state: New(s.o.State)}
	l.log = s.o.Node.MachineLog(epoch, quorum.MachineLogOptions{MaxBatchBytes: s.o.MaxBatchBytes})
	l.rt = machine.New(machine.Options{
		Machine: l.state, Log: l.log, Name: "controller", Logger: s.o.Logger,
		MaxBatchBytes: s.o.MaxBatchBytes, Bookends: bookends, Confirm: l.log.Confirm,
	})
	l.log.Watch(l.rt.Committed, l.rt.Lost)
	l.rt.Start()
	go s.activate(ctx, l)
	return l
}

// activate lets commands in after the state has loaded and its first command is committed.
func (s *Service) activate(ctx context.Context, l *leadership) {
	select {
	case <-l.rt.Ready():
	case <-ctx.Done():
		return
	}
	if _, err := l.rt.Do(ctx, l.state.Activate); err != nil {
		return // the runtime has ended, Run sees that too
	}
	s.current.Store(l)
	select {
	case <-l.rt.Done(): // ended meanwhile: end may have come before the store
		s.current.CompareAndSwap(l, nil)
	default:
		s.o.Logger.Info("this node is the active controller", "epoch", l.epoch, "offset", s.CommittedOffset())
	}
}

func (s *Service) end(l *leadership) {
	if l == nil {
		return
	}
	s.current.CompareAndSwap(l, nil)
	l.log.Close() // first: an append that hangs with the disk is given up
	l.rt.Close()
	s.current.CompareAndSwap(l, nil) // activate may have come between
}

func bookends() (begin, end machine.Record) {
	return mustEncode(&meta.BeginTransactionRecord{}), mustEncode(&meta.EndTransactionRecord{})
}

// mustEncode encodes a record without strings, which can't fail.
func mustEncode(r meta.Record) machine.Record {
	b, _ := meta.Encode(r)
	return machine.Record{Value: b}
}

// Command is a command on the controller's state. It runs on the goroutine that owns it.
type Command func(st *State, now time.Time) machine.Result

// Do runs the command and returns its reply when what it wrote or read is committed. The
// error is NOT_CONTROLLER if this node doesn't lead, or stopped to before the commit: the
// outcome is unknown then.
func (s *Service) Do(ctx context.Context, cmd Command) (any, error) {
	return s.do(ctx, cmd, (*machine.Runtime).Do)
}

// DoNow is Do for commands such as heartbeats: it overtakes others, and its reply waits
// for no commit.
func (s *Service) DoNow(ctx context.Context, cmd Command) (any, error) {
	return s.do(ctx, cmd, (*machine.Runtime).DoNow)
}

func (s *Service) do(ctx context.Context, cmd Command, do func(*machine.Runtime, context.Context, machine.Command) (any, error)) (any, error) {
	l := s.current.Load()
	if l == nil {
		return nil, api.Errorf(api.NotController, "this node is not the active controller")
	}
	reply, err := do(l.rt, ctx, func(now time.Time) machine.Result { return cmd(l.state, now) })
	if errors.Is(err, machine.ErrLost) || errors.Is(err, machine.ErrLoading) || errors.Is(err, machine.ErrClosed) {
		return nil, &api.Error{Code: api.NotController, Message: "this node is no longer the active controller", Err: err}
	}
	return reply, err
}

// Active reports whether this node is the active controller.
func (s *Service) Active() bool { return s.current.Load() != nil }

// CommittedOffset is the offset of the last committed metadata record, -1 if there is none.
func (s *Service) CommittedOffset() int64 { return s.o.Node.Status().HighWatermark - 1 }

// Snapshot is the quorum.Options.Snapshot of the node: it writes the image of all that is
// committed.
func (s *Service) Snapshot(w io.Writer) (endOffset int64, err error) {
	s.snapshots.Lock()
	defer s.snapshots.Unlock()
	img, err := s.committed()
	if err != nil {
		return 0, err
	}
	s.saved = img
	var failed error
	err = quorum.EncodeRecords(w, img.Epoch, encoded(img.Records(), &failed))
	return img.Offset + 1, errors.Join(err, failed)
}

// committed brings the last snapshot's image up to date with the committed log.
func (s *Service) committed() (*meta.Image, error) {
	const chunk = 1 << 20
	draft := s.saved.Draft()
	for hw := s.o.Node.Status().HighWatermark; ; {
		next := draft.Speculative().Offset + 1
		if next >= hw {
			return draft.Image(), nil
		}
		batches, err := s.o.Node.ReadCommitted(next, chunk)
		var behind *quorum.SnapshotNeededError
		switch {
		case errors.As(err, &behind):
			img, err := s.load(behind.Snapshot)
			if err != nil {
				return nil, err
			}
			draft = img.Draft()
			continue
		case err != nil:
			return nil, fmt.Errorf("metadata log at offset %d: %w", next, err)
		case len(batches) == 0:
			return draft.Image(), nil
		}
		if err := draft.ApplyBatches(batches); err != nil {
			return nil, err
		}
	}
}

// load reads a snapshot of the quorum.
func (s *Service) load(id quorum.SnapshotID) (*meta.Image, error) {
	const chunk = 1 << 20
	var data []byte
	for {
		part, size, err := s.o.Node.ReadSnapshot(id, int64(len(data)), chunk)
		if err != nil {
			return nil, fmt.Errorf("metadata snapshot at offset %d: %w", id.EndOffset, err)
		}
		data = append(data, part...)
		if int64(len(data)) >= size || len(part) == 0 {
			return meta.ReadSnapshot(s.o.State.ClusterID, data, id.EndOffset, id.Epoch)
		}
	}
}

// encoded encodes records, ending at the first that fails.
func encoded(recs iter.Seq[meta.Record], failed *error) iter.Seq[machine.Record] {
	return func(yield func(machine.Record) bool) {
		for r := range recs {
			b, err := meta.Encode(r)
			if err != nil {
				*failed = err
				return
			}
			if !yield(machine.Record{Value: b}) {
				return
			}
		}
	}
}
