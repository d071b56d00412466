package group

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/machine"
)

// Join handles a JoinGroup. The service keeps req and its byte slices; done may
// be called much later, when the join phase ends.
func (s *Service) Join(c Client, req *kmsg.JoinGroupRequest, done func(*kmsg.JoinGroupResponse)) {
	if code := checkJoin(s.o.Config(), req); code != api.NoError {
		done(joinError(code, req.MemberID))
		return
	}
	answer := func(err error, r *kmsg.JoinGroupResponse) {
		if err != nil {
			r = joinError(CodeOf(err), req.MemberID)
		}
		done(r)
	}
	s.onGroup(req.Group, func(now time.Time, m *Machine) Effects {
		return m.Join(now, c, req, answer)
	}, func(err error) { answer(err, nil) })
}

// Sync handles a SyncGroup. The service keeps req and its byte slices; done may
// be called much later, when the leader has assigned.
func (s *Service) Sync(req *kmsg.SyncGroupRequest, done func(*kmsg.SyncGroupResponse)) {
	answer := func(err error, r *kmsg.SyncGroupResponse) {
		if err != nil {
			r = &kmsg.SyncGroupResponse{ErrorCode: int16(CodeOf(err))}
		}
		done(r)
	}
	if req.Group == "" {
		answer(&api.Error{Code: api.InvalidGroupID}, nil)
		return
	}
	s.onGroup(req.Group, func(now time.Time, m *Machine) Effects {
		return m.Sync(now, req, answer)
	}, func(err error) { answer(err, nil) })
}

// Heartbeat handles a Heartbeat. While the coordinator loads, a heartbeat is
// fine: the member must not think that it was thrown out.
func (s *Service) Heartbeat(req *kmsg.HeartbeatRequest, done func(api.Code)) {
	if req.Group == "" {
		done(api.InvalidGroupID)
		return
	}
	sh, err := s.shard(req.Group)
	if err != nil {
		done(CodeOf(err))
		return
	}
	var code api.Code
	submitNow(sh, func(now time.Time, m *Machine) { code = m.Heartbeat(now, req) }, func(err error) {
		switch {
		case err == nil:
		case errors.Is(err, machine.ErrLoading):
			code = api.NoError
		default:
			code = CodeOf(err)
		}
		done(code)
	})
}

// Leave handles a LeaveGroup. done gets the code of the request as a whole and,
// if that is NoError, of each member.
func (s *Service) Leave(group string, members []kmsg.LeaveGroupRequestMember, done func(api.Code, []api.Code)) {
	if group == "" {
		done(api.InvalidGroupID, nil)
		return
	}
	s.onGroup(group, func(now time.Time, m *Machine) Effects {
		return m.Leave(now, group, members, func(err error, codes []api.Code) { done(CodeOf(err), codes) })
	}, func(err error) { done(CodeOf(err), nil) })
}

// Commit handles an OffsetCommit; the answers are in req when done is called.
// Generation -1 without a member is the administrative form: a group that has
// members answers it with UNKNOWN_MEMBER_ID.
func (s *Service) Commit(req *CommitRequest, done func()) {
	answer := func(err error) {
		if err != nil {
			req.fail(CodeOf(err))
		}
		done()
	}
	s.onGroup(req.Group, func(now time.Time, m *Machine) Effects {
		// The answers are filled in before the commit; they leave after it. A
		// timeout in between must not write into what the client was given.
		return m.Commit(now, req, answer)
	}, answer)
}

// Fetch handles an OffsetFetch of one group. Only committed offsets are shown.
func (s *Service) Fetch(req *FetchRequest, done func(FetchResult)) {
	s.onGroup(req.Group, func(_ time.Time, m *Machine) Effects {
		r := m.Fetch(req)
		return Effects{Groups: []string{req.Group}, Replies: []func(error){func(err error) {
			if err != nil {
				r = FetchResult{Code: CodeOf(err)}
			}
			done(r)
		}}}
	}, func(err error) { done(FetchResult{Code: CodeOf(err)}) })
}

// DeleteOffsets handles an OffsetDelete; the answers of the partitions are in
// req. Partitions whose Code is set already are left alone.
func (s *Service) DeleteOffsets(req *DeleteOffsetsRequest, done func(api.Code)) {
	if req.Group == "" {
		done(api.InvalidGroupID)
		return
	}
	s.onGroup(req.Group, func(now time.Time, m *Machine) Effects {
		return m.DeleteOffsets(now, req, func(err error, code api.Code) {
			if err != nil {
				code = CodeOf(err)
			}
			done(code)
		})
	}, func(err error) { done(CodeOf(err)) })
}

// DeleteGroup removes an empty group.
func (s *Service) DeleteGroup(group string, done func(api.Code)) {
	s.onGroup(group, func(now time.Time, m *Machine) Effects {
		return m.DeleteGroup(now, group, func(err error, code api.Code) {
			if err != nil {
				code = CodeOf(err)
			}
			done(code)
		})
	}, func(err error) { done(CodeOf(err)) })
}

// Describe describes a group.
func (s *Service) Describe(group string, done func(Description)) {
	fail := func(err error) { done(Description{Group: group, Code: CodeOf(err), State: Dead}) }
	s.onGroup(group, func(_ time.Time, m *Machine) Effects {
		d := m.Describe(group)
		return Effects{Groups: []string{group}, Replies: []func(error){func(err error) {
			if err != nil {
				fail(err)
				return
			}
			done(d)
		}}}
	}, fail)
}

// List lists the groups of all shards here, by id. Empty filters admit all. If
// a shard is loading, the answer is its error and no groups.
func (s *Service) List(states, types []string, done func(api.Code, []Listed)) {
	f := newListFilter(states, types)
	gather(s, func(_ time.Time, m *Machine, reply func(error, []Listed)) Effects {
		l := m.list(f)
		return Effects{All: true, Replies: []func(error){func(err error) { reply(err, l) }}}
	}, func(err error, lists []Listed) {
		slices.SortFunc(lists, func(a, b Listed) int { return strings.Compare(a.Group, b.Group) })
		done(CodeOf(err), lists)
	})
}

// ClampOffsets moves every committed offset of the partition above end, of the
// groups coordinated here, down to end and the leader epoch given (-1: none),
// whether or not the group has members. done gets what was moved, by group. If a
// shard is loading or fails, it gets the error: ask again.
func (s *Service) ClampOffsets(t TopicRef, partition int32, end int64, epoch int32, done func(error, []Clamped)) {
	gather(s, func(now time.Time, m *Machine, reply func(error, []Clamped)) Effects {
		return m.ClampOffsets(now, t, partition, end, epoch, reply)
	}, func(err error, moved []Clamped) {
		slices.SortFunc(moved, func(a, b Clamped) int { return strings.Compare(a.Group, b.Group) })
		done(err, moved)
	})
}

// Views returns the groups of all shards that serve here, with their committed
// offsets, by id. It is a snapshot for metrics and for whoever compares offsets:
// an offset may be in it a moment before its commit is replicated.
func (s *Service) Views(ctx context.Context) ([]View, error) {
	var out []View
	for _, sh := range s.hosts.All() {
		v, err := sh.DoNow(ctx, func(sv *serving) machine.Command {
			return func(time.Time) machine.Result { return machine.Result{Reply: sv.m.Views()} }
		})
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil:
			out = append(out, v.([]View)...)
		}
	}
	slices.SortFunc(out, func(a, b View) int { return strings.Compare(a.Group, b.Group) })
	return out, nil
}

// onGroup runs a command on the shard of the group.
func (s *Service) onGroup(group string, run func(time.Time, *Machine) Effects, fail func(error)) {
	sh, err := s.shard(group)
	if err != nil {
		fail(err)
		return
	}
	s.submit(sh, run, fail)
}

// gather runs a command on every shard and joins what they reply. A shard whose
// leadership is lost meanwhile has nothing to say; any other error is the answer.
func gather[T any](s *Service, run func(time.Time, *Machine, func(error, []T)) Effects, done func(error, []T)) {
	shards := s.hosts.All()
	if len(shards) == 0 {
		done(nil, nil)
		return
	}
	var (
		mu    sync.Mutex
		out   []T
		first error
		left  = len(shards)
	)
	reply := func(err error, part []T) {
		mu.Lock()
		if err == nil {
			out = append(out, part...)
		} else if first == nil && CodeOf(err) != api.NotCoordinator {
			first = err
		}
		left--
		last := left == 0
		mu.Unlock()
		switch {
		case !last:
		case first != nil:
			done(first, nil)
		default:
			done(nil, out)
		}
	}
	for _, sh := range shards {
		s.submit(sh, func(now time.Time, m *Machine) Effects {
			return run(now, m, reply)
		}, func(err error) { reply(err, nil) })
	}
}
