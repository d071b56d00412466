package data

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/record"
)

// produced is the one partition of a response.
func produced(t *testing.T, resp *kmsg.ProduceResponse) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("response %+v", resp)
	}
	return resp.Topics[0].Partitions[0]
}

func TestProduceVersions(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1)
	c := r.client("test")
	var next int64
	for v := int16(0); v <= 13; v++ {
		for _, acks := range []int16{1, -1} {
			resp := call[*kmsg.ProduceResponse](c, produceRequest(1, name, acks, 0, batch(t, 3, nil)), v)
			p := produced(t, resp)
			if v < 3 {
				wantCode(t, p.ErrorCode, api.UnsupportedVersion)
				continue
			}
			wantCode(t, p.ErrorCode, api.NoError)
			if p.BaseOffset != next || p.LogAppendTime != -1 {
				t.Fatalf("version %d: %+v, want base offset %d", v, p, next)
			}
			next += 3
		}
	}
}

func TestProduceRefusals(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1)
	r.topic(2, "__consumer_offsets", 1)
	c := r.client("test")
	good := func() []byte { return batch(t, 1, nil) }
	txn := "tx"
	for what, tc := range map[string]struct {
		req     *kmsg.ProduceRequest
		version int16
		want    api.Code
	}{
		"unknown topic":       {produceRequest(9, "nope", 1, 0, good()), 12, api.UnknownTopicOrPartition},
		"unknown id":          {produceRequest(9, "", 1, 0, good()), 13, api.UnknownTopicID},
		"unknown partition":   {produceRequest(1, name, 1, 7, good()), 13, api.UnknownTopicOrPartition},
		"negative partition":  {produceRequest(1, name, 1, -1, good()), 12, api.UnknownTopicOrPartition},
		"acks 2":              {produceRequest(1, name, 2, 0, good()), 12, api.InvalidRequiredAcks},
		"internal topic":      {produceRequest(2, "__consumer_offsets", 1, 0, good()), 12, api.InvalidTopicException},
		"no records":          {produceRequest(1, name, 1, 0, nil), 12, api.InvalidRecord},
		"empty records":       {produceRequest(1, name, 1, 0, []byte{}), 12, api.InvalidRecord},
		"two batches":         {produceRequest(1, name, 1, 0, append(good(), good()...)), 12, api.InvalidRecord},
		"cut batch":           {produceRequest(1, name, 1, 0, good()[:40]), 12, api.InvalidRecord},
		"wrong CRC":           {produceRequest(1, name, 1, 0, flip(good(), 70)), 12, api.CorruptMessage},
		"magic 1":             {produceRequest(1, name, 1, 0, set(good(), 16, 1)), 12, api.InvalidRecord},
		"control batch":       {produceRequest(1, name, 1, 0, batch(t, 1, func(o *record.BuilderOptions) { o.Control = true })), 12, api.InvalidRecord},
		"transactional batch": {produceRequest(1, name, 1, 0, batch(t, 1, func(o *record.BuilderOptions) { o.Transactional = true; o.Producer = &record.Producer{} })), 12, api.UnsupportedVersion},
		"zstd before 7": {produceRequest(1, name, 1, 0, batch(t, 1, func(o *record.BuilderOptions) {
			o.Compression.Codec = record.Zstd
		})), 6, api.UnsupportedCompressionType},
		"transactional id": {func() *kmsg.ProduceRequest {
			req := produceRequest(1, name, -1, 0, good())
			req.TransactionID = &txn
			return req
		}(), 12, api.UnsupportedVersion},
	} {
		resp := call[*kmsg.ProduceResponse](c, tc.req, tc.version)
		p := produced(t, resp)
		if api.Code(p.ErrorCode) != tc.want || p.BaseOffset != -1 {
			t.Errorf("%s: %v %+v, want %v", what, api.Code(p.ErrorCode), p, tc.want)
		}
		if tc.version >= 8 && (p.ErrorMessage == nil || *p.ErrorMessage == "") {
			t.Errorf("%s: no message", what)
		}
	}
	if p := produced(t, call[*kmsg.ProduceResponse](r.client("__admin_client"), produceRequest(2, "__consumer_offsets", 1, 0, good()), 12)); p.ErrorCode != 0 {
		t.Errorf("an admin client's write to an internal topic: %v", api.Code(p.ErrorCode))
	}
}

func flip(b []byte, i int) []byte { b[i] ^= 0x40; return b }

func set(b []byte, i int, v byte) []byte { b[i] = v; return b }

func TestProduceAcksZero(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1)
	c := r.client("test")
	c.send(produceRequest(1, name, 0, 0, batch(t, 2, nil)), 12)
	// The next reply is the next request's: nothing was sent for the first.
	if p := produced(t, call[*kmsg.ProduceResponse](c, produceRequest(1, name, 1, 0, batch(t, 1, nil)), 12)); p.BaseOffset != 2 {
		t.Fatalf("after acks=0: %+v", p)
	}
	c.send(produceRequest(1, name, 0, 7, batch(t, 1, nil)), 12)
	if !c.closed() {
		t.Fatal("the connection stays open after a failed produce with acks=0")
	}
}

func TestProduceToTheWrongBroker(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1)
	r.lead(1, 2, 5)
	c := r.client("test")
	for _, v := range []int16{9, 10, 13} {
		resp := call[*kmsg.ProduceResponse](c, produceRequest(1, name, 1, 0, batch(t, 1, nil)), v)
		p := produced(t, resp)
		wantCode(t, p.ErrorCode, api.NotLeaderOrFollower)
		if v < 10 {
			continue
		}
		if p.CurrentLeader.LeaderID != 2 || p.CurrentLeader.LeaderEpoch != 5 {
			t.Errorf("version %d: leader %+v", v, p.CurrentLeader)
		}
		if len(resp.Brokers) != 1 || resp.Brokers[0].Host != "two.example" || resp.Brokers[0].Port != 9093 {
			t.Errorf("version %d: brokers %+v", v, resp.Brokers)
		}
	}
}

func TestProduceErrorsByRecord(t *testing.T) {
	r := newRig(t)
	r.set.Log.Compact, r.set.Log.Delete = true, false
	name := r.topic(1, "", 1)
	b, err := record.Build(record.BuilderOptions{}, record.Record{Key: []byte("k"), Timestamp: 1}, record.Record{Value: []byte("no key"), Timestamp: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := produced(t, call[*kmsg.ProduceResponse](r.client("test"), produceRequest(1, name, 1, 0, b), 13))
	wantCode(t, p.ErrorCode, api.InvalidRecord)
	if len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 1 || p.ErrorRecords[0].ErrorMessage == nil {
		t.Fatalf("error records %+v", p.ErrorRecords)
	}
}

func TestProduceLogAppendTime(t *testing.T) {
	r := newRig(t)
	r.set.Log.LogAppendTime = true
	name := r.topic(1, "", 1)
	p := produced(t, call[*kmsg.ProduceResponse](r.client("test"), produceRequest(1, name, 1, 0, batch(t, 1, nil)), 13))
	wantCode(t, p.ErrorCode, api.NoError)
	if p.LogAppendTime <= 1000 {
		t.Fatalf("log append time %d", p.LogAppendTime)
	}
}

func TestIdempotentProduce(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1)
	c := r.client("test")
	send := func(epoch int16, seq int32, n int) kmsg.ProduceResponseTopicPartition {
		b := batch(t, n, func(o *record.BuilderOptions) {
			o.Producer = &record.Producer{ID: 7, Epoch: epoch, BaseSequence: seq}
		})
		return produced(t, call[*kmsg.ProduceResponse](c, produceRequest(1, name, -1, 0, b), 13))
	}
	for i, step := range []struct {
		epoch int16
		seq   int32
		want  api.Code
		base  int64
	}{
		{0, 0, api.NoError, 0},
		{0, 2, api.NoError, 2},
		{0, 0, api.NoError, 0}, // a duplicate gets its first offset
		{0, 2, api.NoError, 2},
		{0, 6, api.OutOfOrderSequenceNumber, -1},
		{0, 4, api.NoError, 4},
		{1, 0, api.NoError, 6},
		{0, 6, api.InvalidProducerEpoch, -1},
	} {
		p := send(step.epoch, step.seq, 2)
		if api.Code(p.ErrorCode) != step.want || p.BaseOffset != step.base {
			t.Fatalf("step %d: %v at %d, want %v at %d", i, api.Code(p.ErrorCode), p.BaseOffset, step.want, step.base)
		}
		if p.LogStartOffset != 0 { // told with errors, too: by it a producer knows whether its records were deleted
			t.Fatalf("step %d: log start %d", i, p.LogStartOffset)
		}
	}
}

func TestProduceWaitsForTheISR(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1, self, 2)
	c := r.client("test")
	p, err := r.m.Get(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	id := c.send(produceRequest(1, name, -1, 0, batch(t, 2, nil)), 13)
	// The follower takes it: its next fetch says so.
	f := r.client("broker-2")
	fetch := fetchRequest(1000, 1, 1)
	fetch.ReplicaState.ID = 2
	got := call[*kmsg.FetchResponse](f, fetch, 17)
	if n := len(got.Topics[0].Partitions[0].RecordBatches); n == 0 {
		t.Fatal("the follower got nothing")
	}
	if hw := p.HighWatermark(); hw != 0 {
		t.Fatalf("high watermark %d", hw)
	}
	fetch.Topics[0].Partitions[0].FetchOffset = 2
	fetch.MaxWaitMillis = 0
	call[*kmsg.FetchResponse](f, fetch, 17)
	var resp kmsg.ProduceResponse
	c.recv(&resp, 13, id)
	if part := produced(t, &resp); part.ErrorCode != 0 || part.BaseOffset != 0 {
		t.Fatalf("%+v", part)
	}

	// Nobody takes the next one.
	req := produceRequest(1, name, -1, 0, batch(t, 2, nil))
	req.TimeoutMillis = 20
	wantCode(t, produced(t, call[*kmsg.ProduceResponse](c, req, 13)).ErrorCode, api.RequestTimedOut)

	// And the one after is overtaken by a change of leader.
	req.TimeoutMillis = 60_000
	id = c.send(req, 13)
	for p.LogEndOffset() < 6 {
		// the append happens on the server's goroutine
		call[*kmsg.ListOffsetsResponse](f, kmsg.NewPtrListOffsetsRequest(), 8)
	}
	r.lead(1, 2, 1)
	c.recv(&resp, 13, id)
	wantCode(t, produced(t, &resp).ErrorCode, api.NotLeaderOrFollower)
}

// A batch that is sent again is in the log, but acknowledged no sooner than the first time.
func TestDuplicateWaitsForTheISR(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1, self, 2)
	c, f := r.client("test"), r.client("broker-2")
	req := func(timeoutMillis int32) *kmsg.ProduceRequest {
		req := produceRequest(1, name, -1, 0, batch(t, 2, func(o *record.BuilderOptions) { o.Producer = &record.Producer{ID: 7} }))
		req.TimeoutMillis = timeoutMillis
		return req
	}
	for range 2 {
		wantCode(t, produced(t, call[*kmsg.ProduceResponse](c, req(20), 13)).ErrorCode, api.RequestTimedOut)
	}
	id := c.send(req(60_000), 13)
	fetch := fetchRequest(0, 1, 1)
	fetch.ReplicaState.ID = 2
	fetch.Topics[0].Partitions[0].FetchOffset = 2
	call[*kmsg.FetchResponse](f, fetch, 17)
	var resp kmsg.ProduceResponse
	c.recv(&resp, 13, id)
	if part := produced(t, &resp); part.ErrorCode != 0 || part.BaseOffset != 0 {
		t.Fatalf("%+v", part)
	}
	if p, err := r.m.Get(name, 0); err != nil || p.LogEndOffset() != 2 {
		t.Fatalf("the log ends at %d (%v)", p.LogEndOffset(), err)
	}
}

func TestProduceToAFullDisk(t *testing.T) {
	r := newRig(t)
	name := r.topic(1, "", 1)
	c := r.client("test")
	r.dirs.full.Store(api.Errorf(api.KafkaStorageError, "less than log.dir.reserve.bytes left"))
	p := produced(t, call[*kmsg.ProduceResponse](c, produceRequest(1, name, 1, 0, batch(t, 1, nil)), 13))
	wantCode(t, p.ErrorCode, api.KafkaStorageError)
	if !api.Code(p.ErrorCode).Retriable() || !strings.Contains(*p.ErrorMessage, "log.dir.reserve.bytes") {
		t.Fatalf("%+v", p)
	}
	r.dirs.full.Store(nil)
	p = produced(t, call[*kmsg.ProduceResponse](c, produceRequest(1, name, 1, 0, batch(t, 1, nil)), 13))
	wantCode(t, p.ErrorCode, api.NoError)
}

func TestMalformedBodyClosesTheConnection(t *testing.T) {
	r := newRig(t)
	for _, key := range []kmsg.Request{kmsg.NewPtrProduceRequest(), kmsg.NewPtrFetchRequest(), kmsg.NewPtrListOffsetsRequest()} {
		c := r.client("test")
		key.SetVersion(key.MaxVersion() - 1)
		frame := c.f.AppendRequest(nil, key, 1)
		frame = frame[:len(frame)-4]
		frame[3] -= 4
		if _, err := c.conn.Write(frame); err != nil {
			t.Fatal(err)
		}
		if !c.closed() {
			t.Errorf("api %d: the connection stays open", key.Key())
		}
	}
}
