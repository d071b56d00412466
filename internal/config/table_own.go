package config

// ownKeys are Milena's own broker keys, and keys that Kafka reads outside its broker definition.
var ownKeys = []Def{
	key("milena.http.listen", String, "127.0.0.1:9644", httpListen(), Medium, ReadOnly, Honoured, "Address of metrics, health and the console as host:port, or off.").own(),
	key("milena.max.in.flight.requests.per.connection", Int, "64", between(1, 10000), Low, ReadOnly, Honoured, "Requests of one connection that are read while the reply to an earlier one waits.").own(),
	key("milena.redirect.clients.until.ms", Long, "0", atLeast(0), Medium, ClusterWide, Honoured, "Until then, in milliseconds since 1970, clients are sent back to their bootstrap servers (KIP-1102) and nothing else is answered. Set by milena mirrors fence --redirect.").own(),
	key("log.dir.reserve.bytes", Long, "-1", atLeast(-1), Medium, ReadOnly, Honoured, "A log directory with less free space refuses writes of clients and mirrors until there is more. -1 means 1 GiB or 5 % of the disk, whichever is less; 0 turns it off.").own(),
	key("leader.replication.throttled.rate", Long, "9223372036854775807", atLeast(0), Medium, ClusterWide, Honoured, "Bytes per second that a leader gives to throttled replicas."),
	key("follower.replication.throttled.rate", Long, "9223372036854775807", atLeast(0), Medium, ClusterWide, Honoured, "Bytes per second that throttled replicas fetch."),
	key("replica.alter.log.dirs.io.max.bytes.per.second", Long, "9223372036854775807", atLeast(0), Medium, ClusterWide, Honoured, "Bytes per second of moves between log directories."),
	key("super.users", String, "", anything, High, ReadOnly, Refused, "Principals that may do everything.").why(whyAcl),
	key("allow.everyone.if.no.acl.found", Boolean, "false", anything, High, ReadOnly, Refused, "Resources without rules are open to everyone.").why(whyAcl),
}

// mirrorBrokerKeys are the keys of a node's part in mirroring (spec 9.1, D4).
var mirrorBrokerKeys = []Def{
	key("mirror.code.points", String, "milena", oneOf("milena", "prototype"), Low, ReadOnly, Honoured, "API keys and error codes of mirroring: Milena's own numbers, or those of the prototype of KIP-1279 for use with it.").own(),
	key("mirror.coordinator.threads", Int, "1", atLeast(1), Low, ReadOnly, WithoutMeaning, "Threads of the mirror coordinator. Each shard has a goroutine.").own(),
	key("mirror.coordinator.write.timeout.ms", Long, "5000", atLeast(1), Medium, ReadOnly, Honoured, "Deadline of a write of mirror states.").own(),
	key("mirror.coordinator.append.linger.ms", Int, "10", atLeast(0), Low, ReadOnly, WithoutMeaning, "The mirror coordinator gathers writes for up to this long. Here it gathers those that wait.").own(),
	key("mirror.coordinator.load.buffer.size", Int, "5242880", atLeast(1), Low, ReadOnly, WithoutMeaning, "Read size when a shard of the mirror coordinator loads its partition.").own(),
	key("mirror.state.topic.num.partitions", Int, "50", atLeast(1), Medium, ReadOnly, Honoured, "Partitions of __mirror_state; fixed once the topic exists.").own(),
	key("mirror.state.topic.replication.factor", Short, "3", atLeast(1), Medium, ReadOnly, Honoured, "Replicas of __mirror_state. With fewer brokers it begins with as many as there are, and gets the rest when they join.").own(),
	key("mirror.num.replica.fetchers", Int, "1", atLeast(1), Medium, ClusterWide, Honoured, "Fetchers, each with a connection of its own, for each mirror and source broker. One change may at most halve or double it.").own(),
	key("mirror.metadata.refresh.interval.ms", Long, "60000", atLeast(0), Medium, ClusterWide, Honoured, "How often topics, partitions and configs of a source are compared.").own(),
	key("mirror.failed.retry.initial.backoff.ms", Long, "1000", atLeast(1), Low, ReadOnly, Honoured, "Delay of the first retry of a failed mirror partition.").own(),
	key("mirror.failed.retry.max.backoff.ms", Long, "300000", atLeast(1), Low, ReadOnly, Honoured, "Cap of that delay.").own(),
	key("mirror.failed.retry.max.attempts", Int, "100", between(0, 32767), Low, ReadOnly, Honoured, "Retries of a failed mirror partition; 0 turns them off.").own(),
	key("mirror.admin.listener.name", String, null, anything, Low, ReadOnly, WithoutMeaning, "Listener of this cluster that its own mirrors connect to. They connect in memory; it must still be an advertised one.").own(),
	key("sasl.mechanism.mirror.admin.protocol", String, null, anything, Low, ReadOnly, WithoutMeaning, "SASL mechanism of that connection. Listeners are PLAINTEXT.").own(),
	key("mirror.replication.throttled.rate", Long, "9223372036854775807", atLeast(0), Medium, ClusterWide, Honoured, "Bytes per second that this broker fetches for throttled mirror replicas. Dynamic only.").own(),
	key("mirror.fetch.memory.bytes", Long, "268435456", atLeast(1<<20), Medium, ReadOnly, Honoured, "Memory for fetched bytes of all mirrors of this node: no more is asked for at a time. A single batch may be larger.").own(),
	key("mirror.cut.retention.ms", Long, "604800000", atLeast(-1), Medium, ClusterWide, Honoured, "How long records that a truncation of a mirror cut off are kept aside; -1 means forever.").own(),
	key("mirror.cut.retention.bytes", Long, "-1", atLeast(-1), Medium, ClusterWide, Honoured, "Most bytes of such records in a log directory, the oldest go first; -1 means no limit.").own(),
}

// mirrorTopicKeys are configs of a mirrored topic on the destination (spec 9.3), and the fence of one on the source.
var mirrorTopicKeys = []Def{
	key("mirror.support.unclean.leader.election", Boolean, "false", anything, Medium, ClusterWide, Honoured, "A truncation of a mirror partition waits until all replicas agree, not only those in sync. Set it on the destination, and before a failback on the old source.").own(),
	key("milena.write.fence", Boolean, "false", anything, Medium, ClusterWide, Honoured, "Clients can't write to the topic, nor delete its records; what is mirrored and replicated goes on. Set by milena mirrors fence.").own(),
	key("mirror.replication.throttled.replicas", List, "", throttled(), Medium, ClusterWide, Honoured, "Replicas, as partition:broker pairs or *, whose mirror fetch counts against mirror.replication.throttled.rate.").own(),
}
