"""One stage of the interop test with kafka-python; the stages are described in ../scripted.go."""

import sys
import time

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import TopicAlreadyExistsError

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 3
RECORDS = 300
DEADLINE = 30


def check(ok, *what):
    if not ok:
        sys.exit("check failed: " + " ".join(str(w) for w in what))


def produce(servers, prefix, t0):
    admin = KafkaAdminClient(bootstrap_servers=servers)
    spec = {"num_partitions": PARTITIONS, "replication_factor": 1}
    admin.create_topics({f"{prefix}-{c}": spec for c in CODECS}, wait_for_metadata=True)
    try:
        admin.create_topics({f"{prefix}-none": spec})
        sys.exit("a topic was created twice")
    except TopicAlreadyExistsError:
        pass
    check({f"{prefix}-{c}" for c in CODECS} <= set(admin.list_topics()), admin.list_topics())
    for codec in CODECS:
        producer = KafkaProducer(bootstrap_servers=servers, compression_type=None if codec == "none" else codec,
                                 linger_ms=20, acks="all")
        sent = [producer.send(f"{prefix}-{codec}", key=b"k%d" % (i % 10), value=f"{codec}-{i} ".encode() + b"same words " * 10,
                              timestamp_ms=t0 + i * 1000, headers=[("h", b"v")]) for i in range(RECORDS)]
        producer.flush(DEADLINE)
        for f in sent:
            f.get(DEADLINE)
        producer.close()
    admin.close()


class Owned(ConsumerRebalanceListener):
    def __init__(self):
        self.parts = set()

    def on_partitions_revoked(self, revoked):
        self.parts -= set(revoked)

    def on_partitions_assigned(self, assigned):
        self.parts |= set(assigned)


class Member:
    """A group member that commits what each poll gave it."""

    def __init__(self, servers, prefix, seen):
        self.seen = seen
        self.owned = Owned()
        self.consumer = KafkaConsumer(bootstrap_servers=servers, group_id=f"{prefix}-group", enable_auto_commit=False,
                                      auto_offset_reset="earliest", session_timeout_ms=10000, heartbeat_interval_ms=300,
                                      max_poll_records=50)
        self.consumer.subscribe([f"{prefix}-zstd"], listener=self.owned)

    def poll(self):
        got = self.consumer.poll(timeout_ms=50)
        for tp, records in got.items():
            for r in records:
                check(list(r.headers) == [("h", b"v")], r)
                self.seen[tp, r.offset] = self.seen.get((tp, r.offset), 0) + 1
        if got:
            self.consumer.commit()


def until(what, ok, *members):
    end = time.monotonic() + DEADLINE
    while not ok():
        check(time.monotonic() < end, what, [m.owned.parts for m in members], len(members[0].seen))
        for m in members:
            m.poll()


def group(servers, prefix, t0):
    seen = {}
    a = Member(servers, prefix, seen)
    until("one member has all", lambda: len(a.owned.parts) == PARTITIONS, a)
    b = Member(servers, prefix, seen)
    # A join blocks its caller until all members have joined, so the second one polls beside the first.
    pollers = Pollers(a, b)
    pollers.until("two share", lambda: a.owned.parts and b.owned.parts and len(a.owned.parts | b.owned.parts) == PARTITIONS
                  and not a.owned.parts & b.owned.parts)
    b.consumer.close()
    until("one has all again", lambda: len(a.owned.parts) == PARTITIONS, a)
    until("all seen", lambda: len(seen) == RECORDS, a)
    parts = [TopicPartition(f"{prefix}-zstd", p) for p in range(PARTITIONS)]
    ends = a.consumer.end_offsets(parts)
    a.consumer.commit({p: OffsetAndMetadata(ends[p], "by the test", -1) for p in parts})
    for p in parts:
        got = a.consumer.committed(p, metadata=True)
        check(got.offset == ends[p] and got.metadata == "by the test", got, ends[p])
    a.consumer.close()
    admin = KafkaAdminClient(bootstrap_servers=servers)
    check(f"{prefix}-group" in str(admin.list_groups()), admin.list_groups())
    check("Empty" in str(admin.describe_groups([f"{prefix}-group"])), admin.describe_groups([f"{prefix}-group"]))
    admin.close()


class Pollers:
    """Polls members in threads of their own."""

    def __init__(self, *members):
        self.members = members

    def until(self, what, ok):
        import threading
        stop, failed = threading.Event(), []

        def run(m):
            try:
                while not stop.is_set():
                    m.poll()
            except BaseException as e:
                failed.append(e)
        threads = [threading.Thread(target=run, args=[m]) for m in self.members]
        for t in threads:
            t.start()
        end = time.monotonic() + DEADLINE
        while not ok() and not failed and time.monotonic() < end:
            time.sleep(0.02)
        done = ok()
        stop.set()
        for t in threads:
            t.join()
        check(done and not failed, what, failed, [m.owned.parts for m in self.members])


def by_time(servers, prefix, t0):
    parts = [TopicPartition(f"{prefix}-snappy", p) for p in range(PARTITIONS)]
    start = t0 + 150 * 1000
    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    consumer.assign(parts)
    for p, at in consumer.offsets_for_times({p: start for p in parts}).items():
        consumer.seek(p, at.offset)
    n, end = 0, time.monotonic() + DEADLINE
    while n < 150:
        check(time.monotonic() < end, "read", n, "of 150")
        for records in consumer.poll(timeout_ms=100).values():
            for r in records:
                check(r.timestamp >= start, r)
                n += 1
    check(not consumer.poll(timeout_ms=300), "more than 150")
    consumer.close()


def delete(servers, prefix, t0):
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.delete_records({TopicPartition(f"{prefix}-lz4", 0): 5})
    admin.delete_groups([f"{prefix}-group"])
    admin.delete_topics([f"{prefix}-{c}" for c in CODECS if c != "lz4"])
    admin.close()


if __name__ == "__main__":
    stages = {"produce": produce, "group": group, "time": by_time, "delete": delete}
    stages[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
