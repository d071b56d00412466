package mirroradm

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// SwitchoverState is what a switchover's clusters say of its topics. What could not be found out is in the errors.
type SwitchoverState struct {
	// Fenced and Open are the topics that the source refuses to let clients write, and those that it does not; both are empty on a source
	// without fences. Back are those that the mirror back copies: they are read-only there all the same.
	Fenced, Open, Back []string
	SourceErr          error
	// Stopped take writes here, Mirrored don't; neither do Waiting, which are wished to be mirrored still and aren't all MIRRORING. Between are
	// on their way.
	Stopped, Mirrored, Waiting, Between []string
	HereErr                             error
	// Include is mirror.topics.include if the switchover has emptied it.
	Include string
}

// Where asks both clusters what state the topics are in, whatever Run has come to.
func (s *Switchover) Where(ctx context.Context) SwitchoverState {
	out := SwitchoverState{Include: s.Include}
	var wg sync.WaitGroup
	wg.Go(func() { out.here(ctx, s) })
	if s.Fence {
		fenced, err := s.src.Fences(ctx, s.Topics...)
		out.SourceErr = err
		for _, t := range s.Topics {
			switch on, ok := fenced[t]; {
			case on:
				out.Fenced = append(out.Fenced, t)
			case ok:
				out.Open = append(out.Open, t)
			}
		}
	}
	if s.reverse != nil && out.SourceErr == nil {
		_, back, err := s.reverse.actives(ctx)
		out.SourceErr = err
		for _, t := range s.Topics {
			if back[t] {
				out.Back = append(out.Back, t)
			}
		}
		out.Open = slices.DeleteFunc(out.Open, func(t string) bool { return back[t] })
	}
	wg.Wait()
	return out
}

func (w *SwitchoverState) here(ctx context.Context, s *Switchover) {
	d, err := s.c.describeAll(ctx, s.Mirror)
	if err != nil {
		w.HereErr = err
		return
	}
	_, parts := d.byTopic()
	active := map[string]bool{}
	if ms, err := s.c.List(ctx, s.Mirror); err == nil && len(ms) == 1 {
		for _, t := range ms[0].Topics {
			active[t] = true
		}
	}
	for _, t := range s.Topics {
		switch ps := parts[t]; {
		case len(ps) == 0:
			w.HereErr = errors.Join(w.HereErr, errors.New("topic "+t+" is not in the mirror any more"))
		case allAre(ps, stopped):
			w.Stopped = append(w.Stopped, t)
		case allAre(ps, mirroring):
			w.Mirrored = append(w.Mirrored, t)
		case active[t]:
			w.Waiting = append(w.Waiting, t)
		default:
			w.Between = append(w.Between, t)
		}
	}
}

// FailbackState is what an old source says of a failback's topics.
type FailbackState struct {
	// Fenced and Open are as in SwitchoverState; Back are the topics that the mirror there copies, or is wished to.
	Fenced, Open, Back []string
	Err                error
}

// Where asks the old source what state the topics are in, whatever Run has come to.
func (f *Failback) Where(ctx context.Context) FailbackState {
	var out FailbackState
	_, back, err := f.reverse.actives(ctx)
	if err != nil {
		out.Err = err
		return out
	}
	fenced := map[string]bool{}
	if f.Fence {
		fenced, out.Err = f.src.Fences(ctx, f.old()...)
	}
	for _, t := range f.Topics {
		on, ok := fenced[t]
		switch {
		case on:
			out.Fenced = append(out.Fenced, t)
		case ok && !back[t]:
			out.Open = append(out.Open, t)
		}
		if back[t] {
			out.Back = append(out.Back, t)
		}
	}
	return out
}
