package wire

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// eachRequest calls f for every served version that Kafka has of every API of Kafka's.
func eachRequest(f func(row api.Row, version int16)) {
	for _, row := range api.Table() {
		if row.Key.IsMirror() || row.Key.IsPrivate() {
			continue
		}
		for v := row.AdvertisedMin; v <= row.KafkaMax(); v++ {
			f(row, v)
		}
	}
}

func TestCheckRequestKnowsEveryRequest(t *testing.T) {
	eachRequest(func(row api.Row, v int16) {
		req := kmsg.RequestForKey(int16(row.Key))
		req.SetVersion(v)
		fill(req, 2)
		body := req.AppendTo(nil)
		if err := CheckRequest(row.Key, v, body); err != nil {
			t.Errorf("%s v%d: a good request is refused: %v", row.Name, v, err)
		}
		// The walk must need every byte: cut anywhere and it fails.
		for cut := range len(body) {
			if err := CheckRequest(row.Key, v, body[:cut]); !errors.Is(err, ErrShort) && !errors.Is(err, ErrMalformed) {
				t.Errorf("%s v%d: cut at %d of %d: %v", row.Name, v, cut, len(body), err)
				break
			}
		}
	})
	if err := CheckRequest(api.CreateClusterMirror, 0, []byte{255}); err != nil {
		t.Errorf("a mirror request: %v", err)
	}
}

// A frame whose array claims as many elements as it has bytes left would make
// the decoder allocate a struct for each.
func TestCheckRequestStopsAllocationByCount(t *testing.T) {
	body := make([]byte, 8<<20)
	body = append(body[:0], 255, 255) // null transactional id
	body = binary.BigEndian.AppendUint16(body, 1)
	body = binary.BigEndian.AppendUint32(body, 1000)
	body = binary.BigEndian.AppendUint32(body, 1)
	body = append(body, 0, 1, 't')
	body = binary.BigEndian.AppendUint32(body, 8<<20-100) // partitions
	body = body[:cap(body)]
	for i := 20; i < len(body); i++ {
		body[i] = 255
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := CheckRequest(api.Produce, 8, body)
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Fatal("the request passes")
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
		t.Errorf("the check took %d bytes", n)
	}

	many := binary.BigEndian.AppendUint32(nil, 2<<20) // topics of Metadata v0, all ""
	many = append(many, make([]byte, 4<<20)...)
	if err := CheckRequest(api.Metadata, 0, many); !errors.Is(err, ErrMalformed) {
		t.Errorf("two million elements: %v", err)
	}
	flat := append([]byte{0, 1, 'g', 0, 0, 0, 1, 0, 1, 't'}, binary.BigEndian.AppendUint32(nil, 2<<20)...) // partitions of OffsetFetch v1
	flat = append(flat, make([]byte, 8<<20)...)
	if err := CheckRequest(api.OffsetFetch, 1, flat); !errors.Is(err, ErrMalformed) {
		t.Errorf("two million numbers: %v", err)
	}
}

func BenchmarkCheckRequest(b *testing.B) {
	req := kmsg.NewProduceRequest()
	req.Version = 13
	topic := kmsg.NewProduceRequestTopic()
	for i := range int32(16) {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = i, make([]byte, 1024)
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	body := req.AppendTo(nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := CheckRequest(api.Produce, 13, body); err != nil {
			b.Fatal(err)
		}
	}
}
