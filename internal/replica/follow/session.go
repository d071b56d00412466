package follow

import (
	"math"

	"milena/internal/fetchwire"
	"milena/internal/ids"
)

// part names a partition in a session.
type part struct {
	topic     ids.UUID
	partition int32
}

// session is the client side of an incremental fetch session (KIP-227): the
// leader remembers the partitions, a request carries only what changed.
type session struct {
	id    int32
	epoch int32 // 0: the next request is a full one
	// known is what the leader's session holds.
	known map[part]fetchwire.RequestPartition
}

func (s *session) reset() { *s = session{known: map[part]fetchwire.RequestPartition{}} }

// request fills in what the session sends to fetch asks: all of them in a full
// request, those that changed in an incremental one, and the partitions to
// forget. Asks of one topic come together.
func (s *session) request(req *fetchwire.Request, asks []ask) {
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	wanted := make(map[part]bool, len(asks))
	topics := map[ids.UUID]int{}
	for i := range asks {
		a := &asks[i]
		k := part{a.t.p.TopicID(), a.part.Partition}
		wanted[k] = true
		if old, ok := s.known[k]; ok && s.epoch > 0 && same(old, a.part) {
			continue
		}
		s.known[k] = a.part
		at, ok := topics[k.topic]
		if !ok {
			at = len(req.Topics)
			topics[k.topic] = at
			req.Topics = append(req.Topics, fetchwire.RequestTopic{Topic: a.t.p.Topic(), TopicID: k.topic})
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, a.part)
	}
	var gone []part
	for k := range s.known {
		if !wanted[k] {
			gone = append(gone, k)
			delete(s.known, k)
		}
	}
	if s.epoch == 0 {
		return // a full request replaces what the leader remembers
	}
	sortForgotten(gone)
	for _, k := range gone {
		if n := len(req.Forgotten); n == 0 || req.Forgotten[n-1].TopicID != k.topic {
			req.Forgotten = append(req.Forgotten, fetchwire.ForgottenTopic{TopicID: k.topic})
		}
		f := &req.Forgotten[len(req.Forgotten)-1]
		f.Partitions = append(f.Partitions, k.partition)
	}
}

// same reports whether the leader need not be told: it knows what high
// watermark it has given itself.
func same(a, b fetchwire.RequestPartition) bool {
	a.HighWatermark = b.HighWatermark
	return a == b
}

// answered takes over the session of a good answer.
func (s *session) answered(id int32) {
	switch {
	case id == 0: // the leader has no room for a session
		s.reset()
	case s.epoch == math.MaxInt32:
		s.id, s.epoch = id, 1
	default:
		s.id, s.epoch = id, s.epoch+1
	}
}
