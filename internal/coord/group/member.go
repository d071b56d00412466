package group

import (
	"bytes"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// protocol is one assignor that a member offers, with what it says to it.
type protocol struct {
	name     string
	metadata []byte
}

// protocolsOf takes over the protocols of a join request: of two with the same
// name the first counts.
func protocolsOf(in []kmsg.JoinGroupRequestProtocol) []protocol {
	out := make([]protocol, 0, len(in))
	seen := make(map[string]struct{}, len(in))
	for _, p := range in {
		if _, dup := seen[p.Name]; dup {
			continue
		}
		seen[p.Name] = struct{}{}
		out = append(out, protocol{p.Name, p.Metadata})
	}
	return out
}

// member is one member of a group. Owned by the Machine.
type member struct {
	id               string
	instance         *string // group.instance.id of a static member
	client           Client
	sessionTimeout   time.Duration
	rebalanceTimeout time.Duration
	protocolType     string
	protocols        []protocol // in the order the member prefers
	assignment       []byte

	// isNew is set until the first join is answered: till then the client knows
	// no id to heartbeat with, so waiting in a join doesn't keep it alive.
	isNew   bool
	join    func(error, *kmsg.JoinGroupResponse) // waits for the join's end, else nil
	sync    func(error, *kmsg.SyncGroupResponse) // waits for the assignment, else nil
	session timer
}

// metadata returns what the member says to the protocol of that name.
func (mb *member) metadata(name string) []byte {
	for _, p := range mb.protocols {
		if p.name == name {
			return p.metadata
		}
	}
	return nil
}

// matches reports whether the member's protocols are these, in this order.
func (mb *member) matches(ps []protocol) bool {
	if len(mb.protocols) != len(ps) {
		return false
	}
	for i, p := range mb.protocols {
		if p.name != ps[i].name || !bytes.Equal(p.metadata, ps[i].metadata) {
			return false
		}
	}
	return true
}

// vote returns the first of the member's protocols that every member supports.
func (mb *member) vote(supports map[string]int, members int) (string, bool) {
	for _, p := range mb.protocols {
		if supports[p.name] == members {
			return p.name, true
		}
	}
	return "", false
}

// alive reports whether the member needs no heartbeat right now: it waits for
// us, not we for it.
func (mb *member) alive() bool {
	return !mb.isNew && (mb.join != nil || mb.sync != nil)
}
