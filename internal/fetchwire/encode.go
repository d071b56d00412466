package fetchwire

import (
	"fmt"
	"math"

	"milena/internal/ids"
	"milena/internal/wire"
)

// MinVersion and MaxVersion bound the versions of Fetch that can be encoded and
// decoded.
const (
	MinVersion = 4
	MaxVersion = 18

	flexibleVersion = 12
	topicIDVersion  = 13
)

func checkVersion(version int16) error {
	if version < MinVersion || version > MaxVersion {
		return fmt.Errorf("fetch version %d is outside of %d to %d", version, MinVersion, MaxVersion)
	}
	return nil
}

// Pieces encodes the response's body. All header bytes are in one allocation;
// the spans are those of the partitions and belong to the result afterwards.
func (r *Response) Pieces(version int16) ([]Piece, error) {
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	e := responseEncoder{version: version, flexible: version >= flexibleVersion}
	var spans int
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			spans += len(r.Topics[i].Partitions[j].Records)
		}
	}
	e.cuts = make([]int, 0, spans)
	e.b = make([]byte, 0, r.sizeHint())
	e.response(r)
	if e.err != nil {
		return nil, e.err
	}
	return e.pieces(r, spans), nil
}

// sizeHint guesses the size of the header bytes, a little too high.
func (r *Response) sizeHint() int {
	n := 64 + 48*len(r.Brokers)
	for i := range r.Topics {
		t := &r.Topics[i]
		n += 32 + len(t.Topic) + 64*len(t.Partitions)
		for j := range t.Partitions {
			n += 17 * len(t.Partitions[j].AbortedTransactions)
		}
	}
	return n
}

// responseEncoder appends header bytes to b and notes in cuts where a span goes
// between them; a buffer that grows moves, so slices are taken at the end.
type responseEncoder struct {
	b        []byte
	cuts     []int
	version  int16
	flexible bool
	err      error
}

func (e *responseEncoder) pieces(r *Response, spans int) []Piece {
	out := make([]Piece, 0, 2*spans+1)
	start, next := 0, 0
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			for _, s := range r.Topics[i].Partitions[j].Records {
				cut := e.cuts[next]
				next++
				if cut > start {
					out = append(out, Piece{Bytes: e.b[start:cut:cut]})
				}
				out = append(out, Piece{Span: s})
				start = cut
			}
		}
	}
	if len(e.b) > start {
		out = append(out, Piece{Bytes: e.b[start:]})
	}
	return out
}

func (e *responseEncoder) response(r *Response) {
	e.b = wire.AppendInt32(e.b, r.ThrottleMillis)
	if e.version >= 7 {
		e.b = wire.AppendInt16(e.b, int16(r.ErrorCode))
		e.b = wire.AppendInt32(e.b, r.SessionID)
	}
	e.b = wire.AppendArrayLen(e.b, len(r.Topics), e.flexible)
	for i := range r.Topics {
		t := &r.Topics[i]
		e.b = appendTopic(e.b, t.Topic, t.TopicID, e.version)
		e.b = wire.AppendArrayLen(e.b, len(t.Partitions), e.flexible)
		for j := range t.Partitions {
			e.partition(&t.Partitions[j])
		}
		e.noTags()
	}
	e.brokers(r.Brokers)
}

func (e *responseEncoder) noTags() {
	if e.flexible {
		e.b = append(e.b, 0)
	}
}

func (e *responseEncoder) partition(p *ResponsePartition) {
	e.b = wire.AppendInt32(e.b, p.Partition)
	e.b = wire.AppendInt16(e.b, int16(p.ErrorCode))
	e.b = wire.AppendInt64(e.b, p.HighWatermark)
	e.b = wire.AppendInt64(e.b, p.LastStableOffset)
	if e.version >= 5 {
		e.b = wire.AppendInt64(e.b, p.LogStartOffset)
	}
	if p.AbortedTransactions == nil {
		e.b = wire.AppendArrayLen(e.b, -1, e.flexible)
	} else {
		e.b = wire.AppendArrayLen(e.b, len(p.AbortedTransactions), e.flexible)
	}
	for _, a := range p.AbortedTransactions {
		e.b = wire.AppendInt64(e.b, a.ProducerID)
		e.b = wire.AppendInt64(e.b, a.FirstOffset)
		e.noTags()
	}
	if e.version >= 11 {
		e.b = wire.AppendInt32(e.b, p.PreferredReadReplica)
	}
	n := p.RecordsLen()
	if n >= math.MaxInt32 {
		e.err = fmt.Errorf("partition %d: %d bytes of records don't fit into a response", p.Partition, n)
		return
	}
	e.b = wire.AppendArrayLen(e.b, int(n), e.flexible)
	for range p.Records {
		e.cuts = append(e.cuts, len(e.b))
	}
	if e.flexible {
		e.partitionTags(p)
	}
}

// partitionTags: 0 DivergingEpoch, 1 CurrentLeader, 2 SnapshotId, each a struct
// of fixed size with an empty block of tags of its own.
func (e *responseEncoder) partitionTags(p *ResponsePartition) {
	var n byte
	for _, set := range []bool{p.DivergingEpoch != nil, p.CurrentLeader != nil, p.SnapshotID != nil} {
		if set {
			n++
		}
	}
	e.b = append(e.b, n)
	if d := p.DivergingEpoch; d != nil {
		e.b = append(e.b, 0, 4+8+1)
		e.b = wire.AppendInt32(e.b, d.Epoch)
		e.b = wire.AppendInt64(e.b, d.EndOffset)
		e.b = append(e.b, 0)
	}
	if l := p.CurrentLeader; l != nil {
		e.b = append(e.b, 1, 4+4+1)
		e.b = wire.AppendInt32(e.b, l.LeaderID)
		e.b = wire.AppendInt32(e.b, l.LeaderEpoch)
		e.b = append(e.b, 0)
	}
	if s := p.SnapshotID; s != nil {
		e.b = append(e.b, 2, 8+4+1)
		e.b = wire.AppendInt64(e.b, s.EndOffset)
		e.b = wire.AppendInt32(e.b, s.Epoch)
		e.b = append(e.b, 0)
	}
}

// brokers writes the response's own tags: 0 NodeEndpoints (v16+).
func (e *responseEncoder) brokers(brokers []NodeEndpoint) {
	if e.version < 16 || len(brokers) == 0 {
		e.noTags()
		return
	}
	var body []byte
	body = wire.AppendArrayLen(body, len(brokers), true)
	for i := range brokers {
		b := &brokers[i]
		body = wire.AppendInt32(body, b.NodeID)
		body = wire.AppendString(body, b.Host, true)
		body = wire.AppendInt32(body, b.Port)
		body = wire.AppendNullableString(body, b.Rack, true)
		body = append(body, 0)
	}
	e.b = append(e.b, 1, 0)
	e.b = wire.AppendUvarint(e.b, uint32(len(body)))
	e.b = append(e.b, body...)
}

// appendTopic writes a topic's name or, from version 13, its id.
func appendTopic(dst []byte, name string, id ids.UUID, version int16) []byte {
	if version >= topicIDVersion {
		return append(dst, id[:]...)
	}
	return wire.AppendString(dst, name, version >= flexibleVersion)
}

// AppendRequest appends the body of a Fetch request.
func AppendRequest(dst []byte, r *Request, version int16) ([]byte, error) {
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	flexible := version >= flexibleVersion
	if version < 15 {
		dst = wire.AppendInt32(dst, r.ReplicaID)
	}
	dst = wire.AppendInt32(dst, r.MaxWaitMillis)
	dst = wire.AppendInt32(dst, r.MinBytes)
	dst = wire.AppendInt32(dst, r.MaxBytes)
	dst = wire.AppendInt8(dst, r.IsolationLevel)
	if version >= 7 {
		dst = wire.AppendInt32(dst, r.SessionID)
		dst = wire.AppendInt32(dst, r.SessionEpoch)
	}
	dst = wire.AppendArrayLen(dst, len(r.Topics), flexible)
	for i := range r.Topics {
		t := &r.Topics[i]
		dst = appendTopic(dst, t.Topic, t.TopicID, version)
		dst = wire.AppendArrayLen(dst, len(t.Partitions), flexible)
		for j := range t.Partitions {
			dst = appendRequestPartition(dst, &t.Partitions[j], version)
		}
		if flexible {
			dst = append(dst, 0)
		}
	}
	if version >= 7 {
		dst = appendForgotten(dst, r.Forgotten, version)
	}
	if version >= 11 {
		dst = wire.AppendString(dst, r.Rack, flexible)
	}
	if flexible {
		dst = appendRequestTags(dst, r, version)
	}
	return dst, nil
}

func appendRequestPartition(dst []byte, p *RequestPartition, version int16) []byte {
	dst = wire.AppendInt32(dst, p.Partition)
	if version >= 9 {
		dst = wire.AppendInt32(dst, p.CurrentLeaderEpoch)
	}
	dst = wire.AppendInt64(dst, p.FetchOffset)
	if version >= 12 {
		dst = wire.AppendInt32(dst, p.LastFetchedEpoch)
	}
	if version >= 5 {
		dst = wire.AppendInt64(dst, p.LogStartOffset)
	}
	dst = wire.AppendInt32(dst, p.MaxBytes)
	if version < flexibleVersion {
		return dst
	}
	dir := version >= 17 && !p.ReplicaDirectoryID.IsZero()
	hw := version >= 18 && p.HighWatermark != HighWatermarkUnsupported
	var n byte
	if dir {
		n++
	}
	if hw {
		n++
	}
	dst = append(dst, n)
	if dir {
		dst = append(dst, 0, 16)
		dst = append(dst, p.ReplicaDirectoryID[:]...)
	}
	if hw {
		dst = append(dst, 1, 8)
		dst = wire.AppendInt64(dst, p.HighWatermark)
	}
	return dst
}

func appendForgotten(dst []byte, topics []ForgottenTopic, version int16) []byte {
	flexible := version >= flexibleVersion
	dst = wire.AppendArrayLen(dst, len(topics), flexible)
	for i := range topics {
		t := &topics[i]
		dst = appendTopic(dst, t.Topic, t.TopicID, version)
		dst = wire.AppendArrayLen(dst, len(t.Partitions), flexible)
		for _, p := range t.Partitions {
			dst = wire.AppendInt32(dst, p)
		}
		if flexible {
			dst = append(dst, 0)
		}
	}
	return dst
}

// appendRequestTags: 0 ClusterId, 1 ReplicaState (v15+, in place of ReplicaId).
func appendRequestTags(dst []byte, r *Request, version int16) []byte {
	replica := version >= 15 && (r.ReplicaID != -1 || r.ReplicaEpoch != -1)
	var n byte
	if r.ClusterID != nil {
		n++
	}
	if replica {
		n++
	}
	dst = append(dst, n)
	if r.ClusterID != nil {
		size := uint32(len(*r.ClusterID))
		dst = append(dst, 0)
		dst = wire.AppendUvarint(dst, size+uint32(wire.UvarintLen(size+1)))
		dst = wire.AppendString(dst, *r.ClusterID, true)
	}
	if replica {
		dst = append(dst, 1, 4+8+1)
		dst = wire.AppendInt32(dst, r.ReplicaID)
		dst = wire.AppendInt64(dst, r.ReplicaEpoch)
		dst = append(dst, 0)
	}
	return dst
}
