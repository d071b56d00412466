//go:build synctests

package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// churn creates a topic, has it written to, deletes it and creates it anew, until the context ends. What is there then stays.
func (l *load) churn(ctx context.Context) {
	cl, err := l.client("churn", kgo.UnknownTopicRetries(1), kgo.RecordDeliveryTimeout(2*time.Second))
	if err != nil {
		l.m.failf("churn: %v", err)
		return
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := adm.CreateTopic(short, 1, 3, nil, churnTopic)
		for i := 0; i < 5 && err == nil; i++ {
			err = cl.ProduceSync(short, &kgo.Record{Topic: churnTopic, Value: fmt.Append(nil, i)}).FirstErr()
		}
		cancel()
		l.m.logf("topic %s created and written to: %v", churnTopic, err)
		wait2(ctx, 300*time.Millisecond)
		short, cancel = context.WithTimeout(ctx, 2*time.Second)
		_, err = adm.DeleteTopic(short, churnTopic)
		cancel()
		l.m.logf("topic %s deleted: %v", churnTopic, err)
		wait2(ctx, 500*time.Millisecond)
	}
}
