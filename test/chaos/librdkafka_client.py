"""A librdkafka client of the chaos test: `produce SERVERS TOPIC PREFIX PER_SECOND` or `consume SERVERS TOPIC GROUP RESET`.

It prints a line of JSON for each acknowledged or consumed record, as Kafka's verifiable tools do, and ends on SIGTERM.
"""

import json
import signal
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

running = True


def stop(*_):
    global running
    running = False


def say(name, **more):
    print(json.dumps({"name": name, **more}), flush=False)


def fatal(err):
    """What librdkafka calls fatal is a promise broken: records lost, doubled or out of order."""
    say("broken_promise", message=str(err))
    sys.stdout.flush()


NETWORK = {"socket.timeout.ms": 6000, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500,
           "topic.metadata.refresh.interval.ms": 5000, "socket.connection.setup.timeout.ms": 2000, "log_level": 3}


def produce(servers, topic, prefix, per_second):
    last = {}

    def offset_of(msg):
        """The offset, or -1 if librdkafka wasn't told: it then counts up from -1 within a batch."""
        offset, partition = msg.offset(), msg.partition()
        if offset <= last.get(partition, -1):
            return -1
        last[partition] = offset
        return offset

    def on_error(err):
        if err.fatal():
            fatal(err)

    def delivered(err, msg):
        value = msg.value().decode()
        if err is None:
            say("producer_send_success", value=value, partition=msg.partition(), offset=offset_of(msg))
        else:
            say("producer_send_error", value=value, message=str(err))

    # With more than one request in flight librdkafka itself writes records twice: an error of one request makes the next
    # one out of order, it then takes a new epoch and sends again what another partition has
    # (github.com/confluentinc/librdkafka/issues/4953).
    producer = Producer({"max.in.flight.requests.per.connection": 1, "bootstrap.servers": servers, "enable.idempotence": True, "acks": "all", "message.timeout.ms": 0,
                         "request.timeout.ms": 5000, "linger.ms": 5, "compression.type": "lz4", "error_cb": on_error,
                         "queue.buffering.max.messages": 20000, **NETWORK})
    n, begin = 0, time.monotonic()
    while running:
        behind = int((time.monotonic() - begin) * int(per_second)) - n
        for _ in range(max(0, min(behind, 1000))):
            try:
                producer.produce(topic, key=f"k{n % 50}", value=f"{prefix}.{n} " + "librdkafka " * 20, on_delivery=delivered)
                n += 1
            except BufferError:
                begin = time.monotonic() - n / int(per_second)
                break
        producer.poll(0.02)
        sys.stdout.flush()
    left = producer.flush(60)
    if left:
        say("broken_promise", message=f"{left} records were not delivered within 60 s of the end")
    sys.stdout.flush()


def consume(servers, topic, group, reset):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False,
                         "auto.offset.reset": reset, "session.timeout.ms": 10000, "heartbeat.interval.ms": 1000,
                         "partition.assignment.strategy": "cooperative-sticky", **NETWORK})
    consumer.subscribe([topic])
    while running:
        got = consumer.consume(500, 0.2)
        read = 0
        for msg in got:
            err = msg.error()
            if err is None:
                read += 1
                say("record_data", value=msg.value().decode(), partition=msg.partition(), offset=msg.offset())
            elif err.fatal() or err.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE,
                                               KafkaError._LOG_TRUNCATION):
                fatal(err)
        sys.stdout.flush()
        if read:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as e:
                print("commit:", e, file=sys.stderr, flush=True)
    consumer.close()


signal.signal(signal.SIGTERM, stop)
{"produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
