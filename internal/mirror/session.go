package mirror

import (
	"slices"

	"milena/internal/fetchwire"
)

// session is the client side of an incremental fetch session (KIP-227): the source remembers the partitions, a request
// carries only what changed.
type session struct {
	id    int32
	epoch int32 // 0: the next request is a full one
	// known are the partitions the source's session holds.
	known map[tp]*target
}

func (s *session) reset() {
	for _, t := range s.known {
		t.sent = nil
	}
	*s = session{known: map[tp]*target{}}
}

// ask is what to fetch of a target now.
type ask struct {
	t    *target
	part fetchwire.RequestPartition
}

// request fills in what the session sends to fetch asks: all of them in a full request, those that changed in an incremental
// one, and the partitions to forget.
func (s *session) request(req *fetchwire.Request, asks []ask) {
	// A new target of a partition that the session holds must be told of the partition, which the source would leave out as
	// long as there is nothing new: it has to begin afresh.
	if s.known == nil || slices.ContainsFunc(asks, func(a ask) bool { old := s.known[a.t.key]; return old != nil && old != a.t }) {
		s.reset()
	}
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	wanted := make(map[tp]bool, len(asks))
	topics := map[string]int{}
	for _, a := range asks {
		t := a.t
		wanted[t.key] = true
		if old := s.known[t.key]; old == t && t.sent != nil && *t.sent == a.part && s.epoch > 0 {
			continue
		}
		t.sent = &a.part
		s.known[t.key] = t
		i, ok := topics[t.key.topic]
		if !ok {
			i = len(req.Topics)
			topics[t.key.topic] = i
			req.Topics = append(req.Topics, fetchwire.RequestTopic{Topic: t.key.topic, TopicID: t.topicID})
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, a.part)
	}
	s.forget(req, wanted)
}

func (s *session) forget(req *fetchwire.Request, wanted map[tp]bool) {
	for k, t := range s.known {
		if wanted[k] {
			continue
		}
		delete(s.known, k)
		t.sent = nil
		if s.epoch == 0 {
			continue // a full request replaces what the source remembers
		}
		i := slices.IndexFunc(req.Forgotten, func(f fetchwire.ForgottenTopic) bool { return f.Topic == k.topic })
		if i < 0 {
			i = len(req.Forgotten)
			req.Forgotten = append(req.Forgotten, fetchwire.ForgottenTopic{Topic: k.topic, TopicID: t.topicID})
		}
		req.Forgotten[i].Partitions = append(req.Forgotten[i].Partitions, k.partition)
	}
}

// answered takes over the session of a good answer.
func (s *session) answered(id int32) {
	switch {
	case id == 0: // the source has no room for a session, or doesn't know them
		s.reset()
	case s.epoch == 1<<31-1:
		s.id, s.epoch = id, 1
	default:
		s.id, s.epoch = id, s.epoch+1
	}
}
