package controller

import (
	"fmt"
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
)

// session is what the controller knows of a broker beyond the metadata. It isn't in the
// log: a new controller starts it afresh.
type session struct {
	heard    time.Time // last registration or heartbeat, or the load of this state and Options.Grace
	contact  bool      // this controller has heard from the broker itself
	deadline time.Time // when the timer that looks after the session is due
	offset   int64     // metadata offset of the last heartbeat
	// shutdownOffset is the metadata offset from which the broker's controlled shutdown
	// is complete, -1 if none is under way.
	shutdownOffset int64
}

// Registration asks to register a broker.
type Registration struct {
	BrokerID    int32
	ClusterID   string
	Incarnation ids.UUID
	Endpoints   []meta.Endpoint
	Features    []meta.FeatureRange
	Rack        *string
	LogDirs     []ids.UUID
	// PreviousEpoch is the broker epoch of the last clean shutdown, -1 if the last stop was
	// not clean.
	PreviousEpoch int64
}

// RegisterBroker registers a broker's incarnation, fenced. The reply is its broker epoch,
// an int64. Leaderships of an earlier incarnation end, and so do its memberships in ISRs;
// unless PreviousEpoch proves that it stopped cleanly, those in ELRs as well.
func (s *State) RegisterBroker(now time.Time, r Registration) machine.Result {
	img := s.Image()
	if err := s.checkRegistration(img, now, r); err != nil {
		return machine.Result{Err: err}
	}
	epoch := img.Offset + 1
	rec := &meta.RegisterBrokerRecord{
		BrokerID: r.BrokerID, IncarnationID: r.Incarnation, BrokerEpoch: epoch,
		EndPoints: r.Endpoints, Features: r.Features, Rack: r.Rack, LogDirs: r.LogDirs, Fenced: true,
	}
	recs := []meta.Record{rec}
	if old := img.Broker(r.BrokerID); old != nil && old.IncarnationID == r.Incarnation {
		rec.Fenced, rec.InControlledShutdown = old.Fenced, old.ShuttingDown
		next := &meta.Broker{LogDirs: r.LogDirs}
		recs = s.spread(img, event{leaves: r.BrokerID, distrusted: true, joins: -1, chosen: inDir(r.BrokerID, func(d ids.UUID) bool {
			return !next.HasDir(d)
		})}, recs)
	} else {
		// KIP-966: only who names the epoch it stopped with has lost nothing.
		clean := old != nil && old.Epoch == r.PreviousEpoch
		if mutant != "unclean" {
			recs = s.spread(img, event{leaves: r.BrokerID, distrusted: !clean, joins: -1}, recs)
		}
	}
	se := s.touch(r.BrokerID, now)
	se.shutdownOffset, se.offset = -1, -1
	s.o.Logger.Info("broker registers", "broker", r.BrokerID, "epoch", epoch)
	return s.result(epoch, recs...)
}

// maxClaims bounds the lists of a registration, which becomes one record.
const maxClaims = 1000

func (s *State) checkRegistration(img *meta.Image, now time.Time, r Registration) error {
	switch {
	case r.ClusterID != s.o.ClusterID:
		return api.Errorf(api.InconsistentClusterID, "broker %d belongs to cluster %s, this is cluster %s",
			r.BrokerID, r.ClusterID, s.o.ClusterID)
	case r.BrokerID < 0:
		return api.Errorf(api.InvalidRegistration, "broker id %d is negative", r.BrokerID)
	case r.Incarnation.IsZero():
		return api.Errorf(api.InvalidRegistration, "broker %d has no incarnation id", r.BrokerID)
	case len(r.Endpoints) == 0:
		return api.Errorf(api.InvalidRegistration, "broker %d has no listener", r.BrokerID)
	case len(r.Endpoints) > maxClaims || len(r.LogDirs) > maxClaims || len(r.Features) > maxClaims:
		return api.Errorf(api.InvalidRegistration, "broker %d has %d listeners, %d log directories and %d features: at most %d of each are possible",
			r.BrokerID, len(r.Endpoints), len(r.LogDirs), len(r.Features), maxClaims)
	}
	seen := map[ids.UUID]bool{}
	for _, d := range r.LogDirs {
		if seen[d] || d.IsReserved() {
			return api.Errorf(api.InvalidRegistration, "directory id %s of broker %d is reserved or given twice", d, r.BrokerID)
		}
		seen[d] = true
	}
	if err := checkFeatures(img, fmt.Sprintf("broker %d", r.BrokerID), r.Features); err != nil {
		return err
	}
	old, se := img.Broker(r.BrokerID), s.sessions[r.BrokerID]
	if old != nil && old.IncarnationID != r.Incarnation && !old.Fenced && !old.ShuttingDown && se != nil && se.contact &&
		now.Sub(se.heard) < s.o.SessionTimeout {
		return api.Errorf(api.DuplicateBrokerRegistration, "another broker with id %d is running", r.BrokerID)
	}
	return nil
}

// Heartbeat tells the controller of a broker's state and wishes.
type Heartbeat struct {
	BrokerID       int32
	BrokerEpoch    int64
	MetadataOffset int64
	WantFence      bool
	WantShutdown   bool
	// OfflineDirs are log directories of the broker that have failed.
	OfflineDirs []ids.UUID
}

// HeartbeatReply is what a broker is told.
type HeartbeatReply struct{ CaughtUp, Fenced, ShouldShutDown bool }

// Heartbeat keeps a broker's session, and fences, unfences or shuts it down. The reply is
// a HeartbeatReply.
func (s *State) Heartbeat(now time.Time, h Heartbeat) machine.Result {
	img := s.Image()
	b, err := checkBroker(img, h.BrokerID, h.BrokerEpoch)
	if err != nil {
		return machine.Result{Err: err}
	}
	se := s.touch(h.BrokerID, now)
	se.offset = max(se.offset, h.MetadataOffset)
	reply := HeartbeatReply{CaughtUp: h.MetadataOffset >= b.Epoch, Fenced: b.Fenced}
	switch {
	case b.Fenced && h.WantShutdown:
		reply.ShouldShutDown = true
	case allOffline(b, h.OfflineDirs):
		if !b.Fenced {
			reply.Fenced = true
			return s.result(reply, s.disksLost(img, b)...)
		}
	case b.Fenced && !h.WantFence && reply.CaughtUp:
		reply.Fenced = false
		return s.result(reply, s.unfence(img, b)...)
	case b.Fenced:
	case h.WantFence && h.WantShutdown:
		reply.ShouldShutDown = true
	case h.WantFence:
		reply.Fenced = true
		return s.result(reply, s.fence(img, b)...)
	case b.ShuttingDown:
		reply.ShouldShutDown = s.shutdownDone(img, se)
	case !h.WantShutdown && anyOnline(b, h.OfflineDirs):
		return s.result(reply, s.dirsOffline(img, b, h.OfflineDirs)...)
	case h.WantShutdown:
		recs := s.shutDown(img, b)
		se.shutdownOffset = img.Offset + int64(len(recs))
		return s.result(reply, recs...)
	}
	return machine.Result{Reply: reply}
}

// checkBroker finds a registered broker by id and epoch.
func checkBroker(img *meta.Image, id int32, epoch int64) (*meta.Broker, error) {
	b := img.Broker(id)
	switch {
	case b == nil:
		return nil, api.Errorf(api.BrokerIDNotRegistered, "broker %d is not registered", id)
	case b.Epoch != epoch:
		return nil, api.Errorf(api.StaleBrokerEpoch, "broker %d has epoch %d, not %d", id, b.Epoch, epoch)
	}
	return b, nil
}

// shutDown begins a controlled shutdown: the broker leads nothing from then on.
func (s *State) shutDown(img *meta.Image, b *meta.Broker) []meta.Record {
	s.o.Logger.Info("broker shuts down", "broker", b.ID, "epoch", b.Epoch)
	recs := []meta.Record{&meta.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, InControlledShutdown: 1}}
	return s.spread(img, event{leaves: b.ID, joins: -1}, recs)
}

// shutdownDone reports whether every live broker knows that the leaderships have moved.
func (s *State) shutdownDone(img *meta.Image, leaving *session) bool {
	for b := range img.Brokers() {
		if b.Fenced || b.ShuttingDown {
			continue
		}
		if se := s.sessions[b.ID]; se == nil || se.offset < leaving.shutdownOffset {
			return false
		}
	}
	return true
}

// anyOnline reports whether one of the directories still counts as online.
func anyOnline(b *meta.Broker, dirs []ids.UUID) bool {
	return slices.ContainsFunc(dirs, func(d ids.UUID) bool { return slices.Contains(b.LogDirs, d) })
}

// allOffline reports whether the broker has no directory left.
func allOffline(b *meta.Broker, failed []ids.UUID) bool {
	return len(b.LogDirs) > 0 && !slices.ContainsFunc(b.LogDirs, func(d ids.UUID) bool { return !slices.Contains(failed, d) })
}

// disksLost fences a broker whose last directory has failed: nothing that it had counts any more. It stays fenced until it is
// started again.
func (s *State) disksLost(img *meta.Image, b *meta.Broker) []meta.Record {
	s.o.Logger.Warn("all log directories of a broker are offline: it is fenced", "broker", b.ID, "epoch", b.Epoch)
	recs := []meta.Record{&meta.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: meta.FenceBroker}}
	return s.spread(img, event{leaves: b.ID, distrusted: true, joins: -1}, recs)
}

// dirsOffline takes failed directories out of the broker's registration, and the broker
// out of the ISRs, ELRs and leaderships of what lies there (KIP-858). Another one is left.
func (s *State) dirsOffline(img *meta.Image, b *meta.Broker, failed []ids.UUID) []meta.Record {
	online := slices.DeleteFunc(slices.Clone(b.LogDirs), func(d ids.UUID) bool { return slices.Contains(failed, d) })
	s.o.Logger.Warn("log directories of a broker are offline", "broker", b.ID, "directories", failed)
	recs := []meta.Record{&meta.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, LogDirs: online}}
	return s.spread(img, event{leaves: b.ID, distrusted: true, joins: -1, chosen: inDir(b.ID, func(d ids.UUID) bool {
		return slices.Contains(failed, d)
	})}, recs)
}

// inDir chooses the partitions whose replica on the broker lies in one of some directories.
func inDir(broker int32, dir func(ids.UUID) bool) func(p *meta.Partition) bool {
	return func(p *meta.Partition) bool {
		i := slices.Index(p.Replicas, broker)
		return i >= 0 && i < len(p.Dirs) && dir(p.Dirs[i])
	}
}

// fence ends a broker's leaderships and memberships in ISRs.
func (s *State) fence(img *meta.Image, b *meta.Broker) []meta.Record {
	s.o.Logger.Info("broker is fenced", "broker", b.ID, "epoch", b.Epoch)
	recs := []meta.Record{&meta.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: meta.FenceBroker}}
	return s.spread(img, event{leaves: b.ID, joins: -1}, recs)
}

// unfence lets a broker lead: partitions without a leader that may have it get it.
func (s *State) unfence(img *meta.Image, b *meta.Broker) []meta.Record {
	s.o.Logger.Info("broker is unfenced", "broker", b.ID, "epoch", b.Epoch)
	s.soon(raiseTimer, raiseDelay, s.raise)
	recs := []meta.Record{&meta.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: meta.UnfenceBroker}}
	return s.spread(img, event{leaves: -1, joins: b.ID}, recs)
}

// active reports whether a broker may lead.
func active(img *meta.Image, broker int32) bool {
	b := img.Broker(broker)
	return b != nil && !b.Fenced && !b.ShuttingDown
}

func without(list []int32, x int32) []int32 {
	return slices.DeleteFunc(slices.Clone(list), func(e int32) bool { return e == x })
}

// touch notes that the broker was heard of and keeps its timer going.
func (s *State) touch(broker int32, now time.Time) *session {
	se := s.sessions[broker]
	if se == nil {
		se = &session{shutdownOffset: -1, offset: -1}
		s.sessions[broker] = se
	}
	first := !se.contact
	se.heard, se.contact = now, true
	if first {
		s.arm(broker, se, now, s.o.SessionTimeout)
	}
	return se
}

// watch starts a session for a broker that was not heard of yet: the grace comes on top.
func (s *State) watch(broker int32, now time.Time) {
	se := &session{heard: now.Add(s.o.Grace), shutdownOffset: -1, offset: -1}
	s.sessions[broker] = se
	s.arm(broker, se, now, s.o.Grace+s.o.SessionTimeout)
	if img := s.Image(); img.Broker(broker).ShuttingDown {
		se.shutdownOffset = img.Offset // at most that much was written when it moved away
	}
}

func sessionTimer(broker int32) string { return fmt.Sprintf("session-%d", broker) }

func (s *State) arm(broker int32, se *session, now time.Time, d time.Duration) {
	se.deadline = now.Add(d)
	if s.timers != nil {
		s.timers.After(sessionTimer(broker), d, func(now time.Time) machine.Result {
			return s.Expire(now, broker)
		})
	}
}

// Expire fences a broker that was silent for the session timeout, and otherwise looks
// again when it would have been. Its timer runs it.
func (s *State) Expire(now time.Time, broker int32) machine.Result {
	se, b := s.sessions[broker], s.Image().Broker(broker)
	if se == nil {
		return machine.Result{}
	}
	late := now.Sub(se.deadline)
	left := s.o.SessionTimeout - now.Sub(se.heard)
	switch {
	case left > 0:
		s.arm(broker, se, now, left)
		return machine.Result{}
	case late > s.o.SessionTimeout/4:
		// This process stood still. Heartbeats may have waited as long as this timer.
		s.arm(broker, se, now, s.o.SessionTimeout/2)
		return machine.Result{}
	}
	delete(s.sessions, broker)
	if b == nil || b.Fenced {
		return machine.Result{}
	}
	s.o.Logger.Warn("broker was silent for the session timeout", "broker", broker, "epoch", b.Epoch)
	return s.result(nil, s.fence(s.Image(), b)...)
}
