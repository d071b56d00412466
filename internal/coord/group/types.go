package group

import (
	"slices"
	"strings"
	"time"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/machine"
)

// Client says who sent a request.
type Client struct {
	ID   string // client id
	Host string // "/" and the address, as Kafka shows it
}

// Effects are what a command of a Machine wants done.
type Effects struct {
	Records []machine.Record
	// Replies are the callers to answer once the records, and what the groups
	// had written before, are committed (nil), or could not be (the error).
	Replies []func(error)
	// Groups are the ids of the groups that were read or written.
	Groups []string
	// All says that every group was read.
	All bool
	// More, if not nil, is the rest of a command that doesn't fit one batch. It
	// runs after the records are committed; Replies wait for its replies.
	More  func(now time.Time, m *Machine) Effects
	bytes int
}

func (e *Effects) add(r machine.Record) {
	e.Records = append(e.Records, r)
	e.bytes += len(r.Key) + len(r.Value)
}

func (e *Effects) touch(group string) {
	if n := len(e.Groups); n == 0 || e.Groups[n-1] != group {
		e.Groups = append(e.Groups, group)
	}
}

// TopicRef names a topic: by name, and by id if it is known.
type TopicRef struct {
	Name string
	ID   ids.UUID
}

// CommitRequest is an OffsetCommit. Generation -1 with an empty member is the
// administrative form, which a group with members refuses.
type CommitRequest struct {
	Version     int16 // of OffsetCommit
	Group       string
	Generation  int32
	MemberID    string
	InstanceID  *string
	RetentionMs int64 // -1: the broker's
	Topics      []CommitTopic
}

// CommitTopic is the part of a CommitRequest for one topic.
type CommitTopic struct {
	TopicRef
	Partitions []CommitPartition
}

// CommitPartition is one offset to commit.
type CommitPartition struct {
	Partition   int32
	Offset      int64
	LeaderEpoch int32 // -1: none
	Metadata    *string
	// Code is the answer, set by the coordinator.
	Code api.Code
}

// fail answers every partition with code.
func (r *CommitRequest) fail(code api.Code) {
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			r.Topics[i].Partitions[j].Code = code
		}
	}
}

// FetchRequest asks for a group's committed offsets.
type FetchRequest struct {
	Group string
	// Topics to answer; nil means all.
	Topics []FetchTopic
}

// FetchTopic is the part of a FetchRequest for one topic.
type FetchTopic struct {
	TopicRef
	Partitions []int32
}

// FetchResult is the answer to a FetchRequest.
type FetchResult struct {
	Code   api.Code // of the group as a whole
	Topics []FetchedTopic
}

// FetchedTopic holds a topic's committed offsets.
type FetchedTopic struct {
	TopicRef
	Partitions []FetchedPartition
}

// FetchedPartition is one committed offset.
type FetchedPartition struct {
	Partition   int32
	Offset      int64 // -1: none
	LeaderEpoch int32 // -1: none
	Metadata    string
	TopicID     ids.UUID // of the topic it was committed for; zero: not stored
	Code        api.Code
}

// DeleteOffsetsRequest is an OffsetDelete.
type DeleteOffsetsRequest struct {
	Group  string
	Topics []DeleteOffsetsTopic
}

// DeleteOffsetsTopic is the part of a DeleteOffsetsRequest for one topic.
type DeleteOffsetsTopic struct {
	Name       string
	Partitions []DeleteOffsetsPartition
}

// DeleteOffsetsPartition is one offset to delete.
type DeleteOffsetsPartition struct {
	Partition int32
	Code      api.Code // the answer, set by the coordinator
}

// Type is the type of all groups here, as ListGroups names it.
const Type = "classic"

// State is a group's state.
type State int8

// The states of a group. A group that is gone is Dead.
const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
	Dead
	numStates
)

// String returns Kafka's name of the state.
func (s State) String() string {
	switch s {
	case Empty:
		return "Empty"
	case PreparingRebalance:
		return "PreparingRebalance"
	case CompletingRebalance:
		return "CompletingRebalance"
	case Stable:
		return "Stable"
	case Dead:
		return "Dead"
	default:
		return "Unknown"
	}
}

// View is a group at one moment, for metrics and for whoever follows committed
// offsets. It shares nothing with the coordinator.
type View struct {
	Group        string
	State        State
	ProtocolType string
	Members      int
	Generation   int32
	Offsets      []OffsetView // by topic and partition
}

// OffsetView is one committed offset of a View.
type OffsetView struct {
	TopicRef
	Partition   int32
	Offset      int64
	LeaderEpoch int32 // -1: none
	CommitMs    int64 // when it was committed, in milliseconds since 1970
}

// Clamped is a committed offset that ClampOffsets moved.
type Clamped struct {
	Group    string
	From, To int64
}

// listFilter decides which groups a ListGroups shows.
type listFilter struct{ states, types []string }

// newListFilter prepares the filters of a request; empty means all.
func newListFilter(states, types []string) listFilter {
	lower := func(in []string) []string {
		out := make([]string, len(in))
		for i, s := range in {
			out[i] = strings.ToLower(strings.TrimSpace(s))
		}
		return out
	}
	return listFilter{states: lower(states), types: lower(types)}
}

func (f listFilter) admits(s State) bool {
	if len(f.states) > 0 && !slices.Contains(f.states, strings.ToLower(s.String())) {
		return false
	}
	return len(f.types) == 0 || slices.Contains(f.types, Type)
}
