package fetchwire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"milena/internal/api"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/record"
	"milena/internal/wire"
)

func drawPartition(t *rapid.T, version int16) ResponsePartition {
	p := NewResponsePartition(rapid.Int32().Draw(t, "partition"))
	p.ErrorCode = api.Code(rapid.Int16Range(0, 100).Draw(t, "code"))
	p.HighWatermark = rapid.Int64().Draw(t, "hw")
	p.LastStableOffset = rapid.Int64().Draw(t, "lso")
	if version >= 5 {
		p.LogStartOffset = rapid.Int64().Draw(t, "start")
	}
	if version >= 11 {
		p.PreferredReadReplica = rapid.Int32().Draw(t, "replica")
	}
	if rapid.Bool().Draw(t, "aborted") {
		p.AbortedTransactions = []AbortedTransaction{}
		for range rapid.IntRange(0, 3).Draw(t, "n aborted") {
			p.AbortedTransactions = append(p.AbortedTransactions, AbortedTransaction{
				ProducerID: rapid.Int64().Draw(t, "producer"), FirstOffset: rapid.Int64().Draw(t, "first"),
			})
		}
	}
	if version >= 12 {
		if rapid.Bool().Draw(t, "diverging") {
			p.DivergingEpoch = &EpochEndOffset{Epoch: 3, EndOffset: rapid.Int64Min(0).Draw(t, "end")}
		}
		if rapid.Bool().Draw(t, "leader") {
			p.CurrentLeader = &LeaderAndEpoch{LeaderID: rapid.Int32Min(0).Draw(t, "id"), LeaderEpoch: 8}
		}
		if rapid.Bool().Draw(t, "snapshot") {
			p.SnapshotID = &EpochEndOffset{Epoch: 9, EndOffset: rapid.Int64Min(0).Draw(t, "end")}
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "n spans") {
		p.Records = append(p.Records, record.MemSpan(rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "records")))
	}
	return p
}

func drawResponse(t *rapid.T, version int16) *Response {
	r := &Response{ThrottleMillis: rapid.Int32().Draw(t, "throttle")}
	if version >= 7 {
		r.ErrorCode, r.SessionID = api.FetchSessionIDNotFound, rapid.Int32().Draw(t, "session")
	}
	for range rapid.IntRange(0, 3).Draw(t, "n topics") {
		var topic ResponseTopic
		if version >= 13 {
			topic.TopicID = ids.UUID{1, rapid.Byte().Draw(t, "id")}
		} else {
			topic.Topic = rapid.StringN(0, 10, 40).Draw(t, "topic")
		}
		for range rapid.IntRange(0, 3).Draw(t, "n partitions") {
			topic.Partitions = append(topic.Partitions, drawPartition(t, version))
		}
		r.Topics = append(r.Topics, topic)
	}
	if version >= 16 {
		rack := "r1"
		for i := range rapid.IntRange(0, 2).Draw(t, "n brokers") {
			r.Brokers = append(r.Brokers, NodeEndpoint{NodeID: int32(i), Host: "h", Port: 9092, Rack: &rack}, NodeEndpoint{Host: "x"})
		}
	}
	return r
}

func join(t testing.TB, pieces []Piece) []byte {
	t.Helper()
	var b []byte
	for _, p := range pieces {
		if p.Bytes != nil {
			b = append(b, p.Bytes...)
			continue
		}
		s, err := p.Span.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, s...)
	}
	return b
}

// asKmsg is r as the generated message, which encodes it in its own way.
func asKmsg(r *Response, version int16) *kmsg.FetchResponse {
	m := kmsg.NewPtrFetchResponse()
	m.Version, m.ThrottleMillis, m.ErrorCode, m.SessionID = version, r.ThrottleMillis, int16(r.ErrorCode), r.SessionID
	for _, topic := range r.Topics {
		mt := kmsg.NewFetchResponseTopic()
		mt.Topic, mt.TopicID = topic.Topic, topic.TopicID
		for _, p := range topic.Partitions {
			mp := kmsg.NewFetchResponseTopicPartition()
			mp.Partition, mp.ErrorCode, mp.HighWatermark = p.Partition, int16(p.ErrorCode), p.HighWatermark
			mp.LastStableOffset, mp.LogStartOffset, mp.PreferredReadReplica = p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica
			if p.AbortedTransactions != nil {
				mp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
			}
			for _, a := range p.AbortedTransactions {
				mp.AbortedTransactions = append(mp.AbortedTransactions,
					kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
			}
			if p.DivergingEpoch != nil {
				mp.DivergingEpoch.Epoch, mp.DivergingEpoch.EndOffset = p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset
			}
			if p.CurrentLeader != nil {
				mp.CurrentLeader.LeaderID, mp.CurrentLeader.LeaderEpoch = p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch
			}
			if p.SnapshotID != nil {
				mp.SnapshotID.Epoch, mp.SnapshotID.EndOffset = p.SnapshotID.Epoch, p.SnapshotID.EndOffset
			}
			mp.RecordBatches = []byte{}
			for _, s := range p.Records {
				mp.RecordBatches = append(mp.RecordBatches, s.Mem...)
			}
			mt.Partitions = append(mt.Partitions, mp)
		}
		m.Topics = append(m.Topics, mt)
	}
	for _, b := range r.Brokers {
		m.Brokers = append(m.Brokers, kmsg.FetchResponseBroker{NodeID: b.NodeID, Host: b.Host, Port: b.Port, Rack: b.Rack})
	}
	return m
}

func TestResponseEncodesAsTheGeneratedOne(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		version := rapid.Int16Range(MinVersion, MaxVersion).Draw(rt, "version")
		r := drawResponse(rt, version)
		pieces, err := r.Pieces(version)
		if err != nil {
			rt.Fatal(err)
		}
		if got, want := join(t, pieces), asKmsg(r, version).AppendTo(nil); !bytes.Equal(got, want) {
			rt.Fatalf("v%d:\n got %x\nwant %x", version, got, want)
		}
	})
}

func TestResponseDecodesWhatWasEncoded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		version := rapid.Int16Range(MinVersion, MaxVersion).Draw(rt, "version")
		want := drawResponse(rt, version)
		body := asKmsg(want, version).AppendTo(nil)
		for i := range want.Topics { // several spans come back as one
			for j := range want.Topics[i].Partitions {
				p := &want.Topics[i].Partitions[j]
				var all []byte
				for _, s := range p.Records {
					all = append(all, s.Mem...)
				}
				if p.Records = nil; all != nil {
					p.Records = []record.Span{record.MemSpan(all)}
				}
			}
		}
		got, err := DecodeResponse(body, version)
		if err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(record.Span{})); d != "" {
			rt.Fatalf("v%d: %s", version, d)
		}
		cut := rapid.IntRange(0, len(body)-1).Draw(rt, "cut")
		if _, err := DecodeResponse(body[:cut], version); !errors.Is(err, wire.ErrShort) {
			rt.Fatalf("cut at %d of %d: %v", cut, len(body), err)
		}
	})
}

func TestDecodedRecordsAliasTheInput(t *testing.T) {
	r := &Response{Topics: []ResponseTopic{{Topic: "t", Partitions: []ResponsePartition{NewResponsePartition(0)}}}}
	r.Topics[0].Partitions[0].Records = []record.Span{record.MemSpan([]byte("batch"))}
	pieces, err := r.Pieces(11)
	if err != nil {
		t.Fatal(err)
	}
	body := join(t, pieces)
	got, err := DecodeResponse(body, 11)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(body, []byte("batch"))
	if &got.Topics[0].Partitions[0].Records[0].Mem[0] != &body[i] {
		t.Error("the records were copied")
	}
}

func TestRecordsAreNotCopied(t *testing.T) {
	fs := disk.NewMem(1)
	f, err := fs.Create("/seg")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	closed := false
	file := record.Share(f, func() { closed = true })
	a, err := record.FileSpan(file, 0, 4)
	if err != nil {
		t.Fatal(err)
	}
	b, err := record.FileSpan(file, 4, 6)
	if err != nil {
		t.Fatal(err)
	}
	mem := []byte("memory")
	r := &Response{Topics: []ResponseTopic{{Topic: "t", Partitions: []ResponsePartition{NewResponsePartition(0), NewResponsePartition(1)}}}}
	r.Topics[0].Partitions[0].Records = []record.Span{a, b}
	r.Topics[0].Partitions[1].Records = []record.Span{record.MemSpan(mem)}
	pieces, err := r.Pieces(12)
	if err != nil {
		t.Fatal(err)
	}
	if len(pieces) != 6 || pieces[1].Span.File == nil || pieces[2].Span.File == nil || &pieces[4].Span.Mem[0] != &mem[0] {
		t.Fatalf("pieces %+v", pieces)
	}
	var n int64
	for _, p := range pieces {
		n += p.Len()
	}
	if body := join(t, pieces); int64(len(body)) != n || !bytes.Contains(body, []byte("0123456789")) {
		t.Errorf("body %q, length %d", body, n)
	}
	if err := file.Release(); err != nil || closed {
		t.Fatalf("the file is closed under the spans: %v", err)
	}
	for _, p := range pieces {
		p.Release()
	}
	if !closed {
		t.Error("the spans were not released")
	}
}

func TestTooManyRecords(t *testing.T) {
	r := &Response{Topics: []ResponseTopic{{Topic: "t", Partitions: []ResponsePartition{NewResponsePartition(0)}}}}
	r.Topics[0].Partitions[0].Records = []record.Span{{File: nopFile{}, N: math.MaxInt32}}
	if _, err := r.Pieces(12); err == nil {
		t.Error("2 GiB of records fit into a response")
	}
}

type nopFile struct{ disk.File }

func TestVersionsOutside(t *testing.T) {
	for _, v := range []int16{-1, 3, 19} {
		if _, err := (&Response{}).Pieces(v); err == nil {
			t.Errorf("Pieces at version %d", v)
		}
		if _, err := DecodeResponse(nil, v); err == nil {
			t.Errorf("DecodeResponse at version %d", v)
		}
		if _, err := AppendRequest(nil, &Request{}, v); err == nil {
			t.Errorf("AppendRequest at version %d", v)
		}
	}
}

func drawRequest(t *rapid.T) Request {
	r := NewRequest()
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes = rapid.Int32().Draw(t, "wait"), 1, rapid.Int32().Draw(t, "max")
	r.IsolationLevel, r.SessionID, r.SessionEpoch = 1, rapid.Int32().Draw(t, "session"), rapid.Int32().Draw(t, "epoch")
	r.Rack = rapid.StringN(0, 5, 20).Draw(t, "rack")
	if rapid.Bool().Draw(t, "replica") {
		r.ReplicaID, r.ReplicaEpoch = 5, 6
	}
	if rapid.Bool().Draw(t, "cluster") {
		c := rapid.StringN(0, 200, 300).Draw(t, "id")
		r.ClusterID = &c
	}
	for range rapid.IntRange(0, 3).Draw(t, "n topics") {
		topic := RequestTopic{Topic: "topic", TopicID: ids.UUID{1, 2}}
		for i := range rapid.Int32Range(0, 3).Draw(t, "n partitions") {
			p := NewRequestPartition(i, rapid.Int64().Draw(t, "offset"), 1<<20)
			p.LastFetchedEpoch, p.CurrentLeaderEpoch, p.LogStartOffset = rapid.Int32().Draw(t, "last"), 4, 3
			if rapid.Bool().Draw(t, "extras") {
				p.ReplicaDirectoryID, p.HighWatermark = ids.UUID{9}, 12
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
		r.Forgotten = append(r.Forgotten, ForgottenTopic{Topic: "old", TopicID: ids.UUID{3}, Partitions: []int32{1, 2}})
	}
	return r
}

func TestRequestEncodesAsTheGeneratedOne(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		version := rapid.Int16Range(MinVersion, MaxVersion).Draw(rt, "version")
		r := drawRequest(rt)
		m := kmsg.NewPtrFetchRequest()
		m.Version, m.MaxWaitMillis, m.MinBytes, m.MaxBytes = version, r.MaxWaitMillis, r.MinBytes, r.MaxBytes
		m.IsolationLevel, m.SessionID, m.SessionEpoch, m.Rack, m.ClusterID = 1, r.SessionID, r.SessionEpoch, r.Rack, r.ClusterID
		m.ReplicaID = r.ReplicaID
		if version >= 15 {
			m.ReplicaState.ID, m.ReplicaState.Epoch = r.ReplicaID, r.ReplicaEpoch
		}
		for _, topic := range r.Topics {
			mt := kmsg.NewFetchRequestTopic()
			mt.Topic, mt.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				mp := kmsg.NewFetchRequestTopicPartition()
				mp.Partition, mp.CurrentLeaderEpoch, mp.FetchOffset = p.Partition, p.CurrentLeaderEpoch, p.FetchOffset
				mp.LastFetchedEpoch, mp.LogStartOffset, mp.PartitionMaxBytes = p.LastFetchedEpoch, p.LogStartOffset, p.MaxBytes
				if version >= 17 {
					mp.ReplicaDirectoryID = p.ReplicaDirectoryID
				}
				if version >= 18 {
					mp.HighWatermark = p.HighWatermark
				}
				mt.Partitions = append(mt.Partitions, mp)
			}
			m.Topics = append(m.Topics, mt)
		}
		for _, f := range r.Forgotten {
			m.ForgottenTopics = append(m.ForgottenTopics, kmsg.FetchRequestForgottenTopic{Topic: f.Topic, TopicID: f.TopicID, Partitions: f.Partitions})
		}
		got, err := AppendRequest([]byte("x"), &r, version)
		if err != nil {
			rt.Fatal(err)
		}
		if want := m.AppendTo([]byte("x")); !bytes.Equal(got, want) {
			rt.Fatalf("v%d:\n got %x\nwant %x", version, got, want)
		}
		if err := wire.CheckRequest(api.Fetch, version, got[1:]); err != nil {
			rt.Fatalf("v%d: %v", version, err)
		}
	})
}

func FuzzDecodeResponse(f *testing.F) {
	r := &Response{Topics: []ResponseTopic{{Topic: "t", Partitions: []ResponsePartition{NewResponsePartition(0)}}}}
	r.Topics[0].Partitions[0].DivergingEpoch = &EpochEndOffset{Epoch: 1, EndOffset: 2}
	r.Topics[0].Partitions[0].Records = []record.Span{record.MemSpan([]byte("batch"))}
	for v := int16(MinVersion); v <= MaxVersion; v += 7 {
		pieces, err := r.Pieces(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(v, join(f, pieces))
	}
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		r, err := DecodeResponse(body, version)
		if err != nil {
			return
		}
		pieces, err := r.Pieces(version)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeResponse(join(t, pieces), version)
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("v%d: %x is read as\n%+v, and what that gives as\n%+v, %v", version, body, r, again, err)
		}
	})
}

func BenchmarkResponsePieces(b *testing.B) {
	r := &Response{Topics: []ResponseTopic{{TopicID: ids.UUID{1}}}}
	batch := make([]byte, 64<<10)
	for i := range int32(16) {
		p := NewResponsePartition(i)
		p.Records = []record.Span{record.MemSpan(batch)}
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
	}
	b.SetBytes(16 * 64 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Pieces(18); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeResponse(b *testing.B) {
	r := &Response{Topics: []ResponseTopic{{TopicID: ids.UUID{1}}}}
	for i := range int32(16) {
		p := NewResponsePartition(i)
		p.Records = []record.Span{record.MemSpan(make([]byte, 64<<10))}
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
	}
	pieces, err := r.Pieces(18)
	if err != nil {
		b.Fatal(err)
	}
	body := join(b, pieces)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeResponse(body, 18); err != nil {
			b.Fatal(err)
		}
	}
}
