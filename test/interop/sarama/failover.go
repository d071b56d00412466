package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// say prints an event as Kafka's verifiable tools do.
func say(name string, more map[string]any) {
	more["name"] = name
	line, err := json.Marshal(more)
	if err == nil {
		fmt.Println(string(line))
	}
}

// keepProducing writes records to the topic of that name, as an idempotent producer, until SIGTERM.
func (c client) keepProducing() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := config()
	cfg.Producer.RequiredAcks, cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = sarama.WaitForAll, true, 1
	cfg.Producer.Retry.Max, cfg.Producer.Retry.Backoff = 100, 100*time.Millisecond
	p, err := sarama.NewSyncProducer([]string{c.addr}, cfg)
	if err != nil {
		return err
	}
	for n := 0; ctx.Err() == nil; n++ {
		value := fmt.Sprintf("sarama.%d the same words", n)
		part, offset, err := p.SendMessage(&sarama.ProducerMessage{Topic: c.prefix, Key: sarama.StringEncoder(fmt.Sprintf("k%d", n%10)), Value: sarama.StringEncoder(value)})
		if err == nil {
			say("producer_send_success", map[string]any{"value": value, "partition": part, "offset": offset})
		} else {
			say("producer_send_error", map[string]any{"value": value, "message": err.Error()})
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return p.Close()
}

// told is a member that prints each record and marks it.
type told struct{ mu sync.Mutex }

func (*told) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*told) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (t *told) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		t.mu.Lock()
		say("record_data", map[string]any{"value": string(m.Value), "partition": m.Partition, "offset": m.Offset})
		t.mu.Unlock()
		s.MarkMessage(m, "")
	}
	return nil
}

// keepConsuming reads the topic in the group sarama until SIGTERM. Sarama has no policy "none": what it is told of lost offsets it says.
func (c client) keepConsuming() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := config()
	cfg.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	g, err := sarama.NewConsumerGroup([]string{c.addr}, "sarama", cfg)
	if err != nil {
		return err
	}
	go func() {
		for err := range g.Errors() {
			if errors.Is(err, sarama.ErrOffsetOutOfRange) {
				say("broken_promise", map[string]any{"message": err.Error()})
			}
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	handler := &told{}
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{c.prefix}, handler); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "consume:", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	return g.Close()
}
