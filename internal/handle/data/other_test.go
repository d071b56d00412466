package data

import (
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/record"
)

func listOffsets(topic string, partition int32, time int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, time
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func TestListOffsets(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1)
	r.produce(1, 3) // times 1000 to 1002
	r.lead(1, self, 4)
	r.produce(1, 1)
	c := r.client("test")
	for _, tc := range []struct {
		time    int64
		version int16
		want    string
	}{
		{-2, 1, "0 -1"}, {-1, 1, "4 -1"}, {-2, 11, "0 -1 @0"}, {-1, 11, "4 -1 @4"},
		{-3, 7, "2 1002 @0"}, {-3, 6, "UNSUPPORTED_VERSION"}, {-4, 8, "0 -1 @0"}, {-4, 7, "UNSUPPORTED_VERSION"},
		{-5, 9, "-1 -1 @-1"}, {-5, 8, "UNSUPPORTED_VERSION"}, {-6, 11, "-1 -1 @-1"}, {-7, 11, "UNSUPPORTED_VERSION"},
		{1001, 5, "1 1001 @0"}, {5000, 5, "-1 -1 @-1"}, {0, 2, "0 1000"},
	} {
		resp := call[*kmsg.ListOffsetsResponse](c, listOffsets(name, 0, tc.time), tc.version)
		p := resp.Topics[0].Partitions[0]
		got := strconv.Itoa(int(p.Offset)) + " " + strconv.Itoa(int(p.Timestamp))
		if tc.version >= 4 {
			got += " @" + strconv.Itoa(int(p.LeaderEpoch))
		}
		if p.ErrorCode != 0 {
			got = api.Code(p.ErrorCode).Name()
		}
		if got != tc.want {
			t.Errorf("time %d at version %d: %s, want %s", tc.time, tc.version, got, tc.want)
		}
	}
	req := listOffsets(name, 0, -1)
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, req.Topics[0].Partitions[0])
	twice := call[*kmsg.ListOffsetsResponse](c, req, 7).Topics[0].Partitions
	if len(twice) != 1 {
		t.Fatalf("asked twice for one partition: %+v", twice)
	}
	wantCode(t, twice[0].ErrorCode, api.InvalidRequest)
	req = listOffsets(name, 0, -1)
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 3
	wantCode(t, call[*kmsg.ListOffsetsResponse](c, req, 7).Topics[0].Partitions[0].ErrorCode, api.FencedLeaderEpoch)
	wantCode(t, call[*kmsg.ListOffsetsResponse](c, listOffsets("nope", 0, -1), 7).Topics[0].Partitions[0].ErrorCode, api.UnknownTopicOrPartition)
}

func TestDeleteRecords(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1)
	r.topic(2, "__consumer_offsets", 1)
	r.produce(1, 5)
	c := r.client("test")
	for v := int16(0); v <= 2; v++ {
		for _, tc := range []struct {
			topic  string
			offset int64
			low    int64
			want   api.Code
		}{
			{name, int64(v) + 1, int64(v) + 1, api.NoError},
			{name, 6, -1, api.OffsetOutOfRange},
			{"__consumer_offsets", 0, -1, api.InvalidTopicException},
			{"nope", 0, -1, api.UnknownTopicOrPartition},
		} {
			req := kmsg.NewPtrDeleteRecordsRequest()
			dt := kmsg.NewDeleteRecordsRequestTopic()
			dt.Topic = tc.topic
			dt.Partitions = append(dt.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Offset: tc.offset})
			req.Topics = append(req.Topics, dt)
			p := call[*kmsg.DeleteRecordsResponse](c, req, v).Topics[0].Partitions[0]
			if api.Code(p.ErrorCode) != tc.want || p.LowWatermark != tc.low {
				t.Errorf("version %d, %s to %d: %v, low %d", v, tc.topic, tc.offset, api.Code(p.ErrorCode), p.LowWatermark)
			}
		}
	}
	if n := r.dirs.saved.Load(); n != 3 {
		t.Errorf("log starts were saved %d times for 3 requests that moved one", n)
	}
	// The start is in the middle of a batch: the batch still comes whole.
	req := fetchRequest(0, 1, 1)
	req.Topics[0].Partitions[0].FetchOffset = 3
	resp := call[*kmsg.FetchResponse](c, req, 13)
	wantSummary(t, resp, "#1-0 5")
	if start := resp.Topics[0].Partitions[0].LogStartOffset; start != 3 {
		t.Fatalf("log start %d", start)
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1)
	r.produce(1, 3)
	r.lead(1, self, 4)
	c := r.client("test")
	for v := int16(2); v <= 4; v++ {
		for _, tc := range []struct {
			epoch, current, wantEpoch int32
			end                       int64
			want                      api.Code
		}{
			{0, -1, 0, 3, 0}, {2, 4, 0, 3, 0}, {4, -1, 0, 3, 0}, {5, -1, -1, -1, 0}, {0, 3, -1, -1, api.FencedLeaderEpoch}, {0, 5, -1, -1, api.UnknownLeaderEpoch},
		} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			et := kmsg.NewOffsetForLeaderEpochRequestTopic()
			et.Topic = name
			ep := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			ep.LeaderEpoch, ep.CurrentLeaderEpoch = tc.epoch, tc.current
			et.Partitions = append(et.Partitions, ep)
			req.Topics = append(req.Topics, et)
			p := call[*kmsg.OffsetForLeaderEpochResponse](c, req, v).Topics[0].Partitions[0]
			if p.LeaderEpoch != tc.wantEpoch || p.EndOffset != tc.end || api.Code(p.ErrorCode) != tc.want {
				t.Errorf("version %d, epoch %d: %+v", v, tc.epoch, p)
			}
		}
	}
}

func TestInitProducerID(t *testing.T) {
	r := newRig(t)
	c := r.client("test")
	for v := int16(0); v <= 5; v++ {
		resp := call[*kmsg.InitProducerIDResponse](c, kmsg.NewPtrInitProducerIDRequest(), v)
		if resp.ErrorCode != 0 || resp.ProducerID != int64(v) || resp.ProducerEpoch != 0 {
			t.Fatalf("version %d: %+v", v, resp)
		}
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = 3, 7 // a new epoch is a new id
	if resp := call[*kmsg.InitProducerIDResponse](c, req, 5); resp.ErrorCode != 0 || resp.ProducerID != 6 || resp.ProducerEpoch != 0 {
		t.Fatalf("%+v", resp)
	}
	id, empty := "tx", ""
	req.TransactionalID = &id
	wantCode(t, call[*kmsg.InitProducerIDResponse](c, req, 5).ErrorCode, api.UnsupportedVersion)
	req.TransactionalID = &empty
	wantCode(t, call[*kmsg.InitProducerIDResponse](c, req, 5).ErrorCode, api.InvalidRequest)
}

func TestProducerIDsAreUnique(t *testing.T) {
	r := newRig(t)
	var mu sync.Mutex
	var got []int64
	var wg sync.WaitGroup
	const n = 2500
	for range n {
		wg.Add(1)
		go r.h.ids.next(func(id int64, err error) {
			mu.Lock()
			defer mu.Unlock()
			defer wg.Done()
			if err != nil {
				t.Error(err)
			}
			got = append(got, id)
		})
	}
	wg.Wait()
	slices.Sort(got)
	if unique := slices.Compact(slices.Clone(got)); len(unique) != n {
		t.Fatalf("%d different ids of %d", len(unique), n)
	}
	if blocks := r.allocations.Load(); blocks > 4 {
		t.Fatalf("%d blocks of 1000 for %d ids", blocks, n)
	}
}

func TestProducerIDsWithoutAController(t *testing.T) {
	r := newRig(t)
	r.noIDs.Store(true)
	c := r.client("test")
	wantCode(t, call[*kmsg.InitProducerIDResponse](c, kmsg.NewPtrInitProducerIDRequest(), 5).ErrorCode, api.CoordinatorLoadInProgress)
	r.noIDs.Store(false)
	wantCode(t, call[*kmsg.InitProducerIDResponse](c, kmsg.NewPtrInitProducerIDRequest(), 5).ErrorCode, api.NoError)
}

func TestDescribeLogDirs(t *testing.T) {
	r := newRig(t)
	r.topic(2, "", 2)
	r.topic(1, "", 1)
	r.produce(1, 3)
	c := r.client("test")
	for v := int16(1); v <= 5; v++ {
		resp := call[*kmsg.DescribeLogDirsResponse](c, kmsg.NewPtrDescribeLogDirsRequest(), v)
		if len(resp.Dirs) != 2 {
			t.Fatalf("version %d: %+v", v, resp)
		}
		good, bad := resp.Dirs[0], resp.Dirs[1]
		if good.Dir != "/data" || good.ErrorCode != 0 || len(good.Topics) != 2 || good.Topics[0].Topic != "t1" || len(good.Topics[1].Partitions) != 2 {
			t.Fatalf("version %d: %+v", v, good)
		}
		if size := good.Topics[0].Partitions[0].Size; size != int64(len(batch(t, 3, nil))) {
			t.Errorf("version %d: size %d", v, size)
		}
		if v >= 4 && (good.TotalBytes != 100 || good.UsableBytes != 10) {
			t.Errorf("version %d: %+v", v, good)
		}
		wantCode(t, bad.ErrorCode, api.KafkaStorageError)
	}
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Topics = append(req.Topics, kmsg.DescribeLogDirsRequestTopic{Topic: "t2", Partitions: []int32{1, 9}})
	got := call[*kmsg.DescribeLogDirsResponse](c, req, 4).Dirs[0].Topics
	if len(got) != 1 || len(got[0].Partitions) != 1 || got[0].Partitions[0].Partition != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestDescribeProducers(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1)
	c := r.client("test")
	b := batch(t, 3, func(o *record.BuilderOptions) { o.Producer = &record.Producer{ID: 7, Epoch: 2} })
	call[*kmsg.ProduceResponse](c, produceRequest(1, name, 1, 0, b), 13)
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = append(req.Topics, kmsg.DescribeProducersRequestTopic{Topic: name, Partitions: []int32{0, 4}}, kmsg.DescribeProducersRequestTopic{Topic: "bad/name", Partitions: []int32{0}})
	topics := call[*kmsg.DescribeProducersResponse](c, req, 0).Topics
	wantCode(t, topics[1].Partitions[0].ErrorCode, api.InvalidTopicException)
	parts := topics[0].Partitions
	wantCode(t, parts[0].ErrorCode, api.NoError)
	wantCode(t, parts[1].ErrorCode, api.UnknownTopicOrPartition)
	if len(parts[0].ActiveProducers) != 1 {
		t.Fatalf("%+v", parts[0])
	}
	if p := parts[0].ActiveProducers[0]; p.ProducerID != 7 || p.ProducerEpoch != 2 || p.LastSequence != 2 || p.CurrentTxnStartOffset != -1 {
		t.Fatalf("%+v", p)
	}
}
