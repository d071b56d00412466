package partlog

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestKgen(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	seeds := kgo.SeedBrokers("127.0.0.1:39392")
	cl, err := kgo.NewClient(seeds, kgo.ManualFlushing(), kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	must(t, err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	sp := func(s string) *string { return &s }
	_, err = adm.CreateTopic(ctx, 1, 1, map[string]*string{"segment.bytes": sp("1048576"), "index.interval.bytes": sp("200")}, "plain")
	must(t, err)
	_, err = adm.CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": sp("compact"), "segment.ms": sp("1000"), "min.cleanable.dirty.ratio": sp("0.01")}, "compacted")
	must(t, err)
	time.Sleep(2 * time.Second)
	for i := range 60 {
		r := &kgo.Record{Topic: "plain", Key: []byte("k"), Value: fmt.Appendf(nil, "value-%d", i)}
		if i == 59 {
			r.Value = nil
		}
		cl.Produce(ctx, r, nil)
		must(t, cl.Flush(ctx))
	}
	tx, err := kgo.NewClient(seeds, kgo.TransactionalID("x"), kgo.DefaultProduceTopic("plain"))
	must(t, err)
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		must(t, tx.BeginTransaction())
		must(t, tx.ProduceSync(ctx, &kgo.Record{Value: fmt.Appendf(nil, "txn-%d", i)}, &kgo.Record{Value: []byte("more")}).FirstErr())
		must(t, tx.EndTransaction(ctx, end))
	}
	tx.Close()
	for i := range 40 {
		r := &kgo.Record{Topic: "compacted", Key: fmt.Appendf(nil, "k%d", i%5), Value: fmt.Appendf(nil, "value-%d", i)}
		if i == 37 {
			r.Value = nil
		}
		cl.Produce(ctx, r, nil)
		must(t, cl.Flush(ctx))
		if i%10 == 9 {
			time.Sleep(1200 * time.Millisecond)
		}
	}
	cl.Produce(ctx, &kgo.Record{Topic: "compacted", Key: []byte("last"), Value: []byte("last")}, nil)
	must(t, cl.Flush(ctx))
	time.Sleep(5 * time.Second)
}
