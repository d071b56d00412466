"""One stage of the interop test with confluent-kafka (librdkafka); the stages are described in ../scripted.go."""

import sys
import time

from confluent_kafka import (Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, OFFSET_BEGINNING,
                             Producer, TopicPartition)
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 3
RECORDS = 300
DEADLINE = 30


def check(ok, *what):
    if not ok:
        sys.exit("check failed: " + " ".join(str(w) for w in what))


def produce(servers, prefix, t0):
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(f"{prefix}-{c}", PARTITIONS, 1) for c in CODECS])
    for f in made.values():
        f.result(DEADLINE)
    again = admin.create_topics([NewTopic(f"{prefix}-none", PARTITIONS, 1)])
    try:
        again[f"{prefix}-none"].result(DEADLINE)
        sys.exit("a topic was created twice")
    except KafkaException as e:
        check(e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS, e)
    listed = admin.list_topics(timeout=DEADLINE).topics
    check(all(len(listed[f"{prefix}-{c}"].partitions) == PARTITIONS for c in CODECS), listed)
    for codec in CODECS:
        failed = []
        producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True,
                             "linger.ms": 20})
        for i in range(RECORDS):
            producer.produce(f"{prefix}-{codec}", key=f"k{i % 10}", value=f"{codec}-{i} " + "same words " * 10,
                             timestamp=t0 + i * 1000, headers={"h": "v"},
                             on_delivery=lambda err, msg: failed.append(err) if err else None)
            producer.poll(0)
        check(producer.flush(DEADLINE) == 0, codec, "not all delivered")
        check(not failed, codec, failed)


class Member:
    """A group member that commits each record it has read."""

    def __init__(self, servers, prefix, group, strategy, seen, **more):
        self.seen = seen
        self.owned = set()
        self.consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False,
                                  "auto.offset.reset": "earliest", "partition.assignment.strategy": strategy,
                                  "session.timeout.ms": 10000, "heartbeat.interval.ms": 300, **more})
        self.consumer.subscribe([f"{prefix}-zstd"], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.revoked)

    def assigned(self, consumer, parts):
        self.owned |= {p.partition for p in parts}

    def revoked(self, consumer, parts):
        self.owned -= {p.partition for p in parts}

    def poll(self):
        m = self.consumer.poll(0.05)
        if m is None:
            return
        if m.error():
            raise KafkaException(m.error())
        at = (m.partition(), m.offset())
        check(m.headers() == [("h", b"v")], m.headers())
        self.seen[at] = self.seen.get(at, 0) + 1
        if len(self.seen) % 50 == 0 or len(self.seen) > 290:
            self.consumer.commit(message=m, asynchronous=False)


def until(what, ok, *members):
    end = time.monotonic() + DEADLINE
    while not ok():
        check(time.monotonic() < end, what, [m.owned for m in members], len(members[0].seen))
        for m in members:
            m.poll()


def group(servers, prefix, t0):
    for strategy in ["range", "cooperative-sticky"]:
        name = f"{prefix}-group" if strategy == "range" else f"{prefix}-cooperative"
        seen = {}
        a = Member(servers, prefix, name, strategy, seen)
        until("one member has all", lambda: len(a.owned) == PARTITIONS, a)
        b = Member(servers, prefix, name, strategy, seen)
        until("two share", lambda: a.owned and b.owned and len(a.owned | b.owned) == PARTITIONS and not a.owned & b.owned, a, b)
        b.consumer.close()
        until("one has all again", lambda: len(a.owned) == PARTITIONS, a)
        until("all seen", lambda: len(seen) == RECORDS, a)
        ends = [TopicPartition(f"{prefix}-zstd", p, a.consumer.get_watermark_offsets(TopicPartition(f"{prefix}-zstd", p), timeout=DEADLINE)[1])
                for p in range(PARTITIONS)]
        a.consumer.commit(offsets=ends, asynchronous=False)
        committed = a.consumer.committed(ends, timeout=DEADLINE)
        check([c.offset for c in committed] == [e.offset for e in ends], committed, ends)
        a.consumer.close()
    # A member that comes later goes on at the end: nothing is left.
    admin = AdminClient({"bootstrap.servers": servers})
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"{prefix}-group")])
    got = offsets[f"{prefix}-group"].result(DEADLINE).topic_partitions
    check(sum(p.offset for p in got) == RECORDS, got)
    groups = admin.list_consumer_groups().result(DEADLINE).valid
    check({f"{prefix}-group", f"{prefix}-cooperative"} <= {g.group_id for g in groups}, groups)
    for f in admin.delete_consumer_groups([f"{prefix}-cooperative"]).values():
        f.result(DEADLINE)


def by_time(servers, prefix, t0):
    topic = f"{prefix}-snappy"
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    start = t0 + 150 * 1000
    parts = consumer.offsets_for_times([TopicPartition(topic, p, start) for p in range(PARTITIONS)], timeout=DEADLINE)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    check(consumer.poll(DEADLINE) is not None, "nothing to read")
    for p in parts:
        check(p.error is None, p)
        consumer.seek(p)
    n, end = 0, time.monotonic() + DEADLINE
    # librdkafka may still hand out what it had fetched of a partition before its seek.
    while n < 150:
        check(time.monotonic() < end, "read", n, "of 150")
        m = consumer.poll(0.1)
        if m is None:
            continue
        check(not m.error(), m.error())
        if m.offset() < next(p.offset for p in parts if p.partition == m.partition()):
            sys.exit(f"offset {m.offset()} of {m.partition()} after the seek")
        check(m.timestamp()[1] >= start, m.timestamp())
        n += 1
    check(consumer.poll(0.3) is None, "more than 150")
    consumer.close()


def delete(servers, prefix, t0):
    admin = AdminClient({"bootstrap.servers": servers})
    for f in admin.delete_records([TopicPartition(f"{prefix}-lz4", 0, 5)]).values():
        check(f.result(DEADLINE).low_watermark == 5, f.result())
    for f in admin.delete_consumer_groups([f"{prefix}-group"]).values():
        f.result(DEADLINE)
    for f in admin.delete_topics([f"{prefix}-{c}" for c in CODECS if c != "lz4"], operation_timeout=DEADLINE).values():
        f.result(DEADLINE)


if __name__ == "__main__":
    stages = {"produce": produce, "group": group, "time": by_time, "delete": delete}
    stages[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
