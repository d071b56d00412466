package config

import (
	"time"
)

// SecurityProtocol of a listener.
type SecurityProtocol int8

// Security protocols, with Kafka's numbers.
const (
	Plaintext     SecurityProtocol = 0
	SSL           SecurityProtocol = 1
	SASLPlaintext SecurityProtocol = 2
	SASLSSL       SecurityProtocol = 3
)

// String is Kafka's name of the protocol.
func (p SecurityProtocol) String() string {
	switch p {
	case Plaintext:
		return "PLAINTEXT"
	case SSL:
		return "SSL"
	case SASLPlaintext:
		return "SASL_PLAINTEXT"
	case SASLSSL:
		return "SASL_SSL"
	}
	return "UNKNOWN"
}

// Listener is one address a node listens on or advertises. Host "" in a bind address means every interface; an advertised
// host is never empty nor unspecified.
type Listener struct {
	Name     string // upper case
	Host     string // IPv6 without brackets
	Port     int    // 0: any free port; an advertised 0 is replaced by the bound port with Node.Advertise
	Protocol SecurityProtocol
	// MaxConnections is listener.name.NAME.max.connections of a bound listener, -1: no limit of its own.
	MaxConnections int
}

// Voter is one entry of controller.quorum.voters.
type Voter struct {
	ID   int32
	Host string
	Port int
}

// Node holds the settings of one process: those fixed at start and those that dynamic broker configs may change (marked
// "dynamic"). It is immutable; [Node.WithDynamic] makes a changed copy. Sizes are bytes, limits of -1 mean none where Kafka
// says so.
type Node struct {
	ID               int32
	Broker           bool // process.roles contains broker
	Controller       bool // process.roles contains controller
	Rack             string
	LogDirs          []string // log.dirs, or log.dir, cleaned, no duplicates
	MetadataLogDir   string   // metadata.log.dir, default the first of LogDirs
	QuorumConfigured bool     // any controller.quorum.* key is set: no automatic formatting
	Voters           []Voter  // controller.quorum.voters
	BootstrapServers []string // controller.quorum.bootstrap.servers
	HTTPListen       string   // milena.http.listen: host:port, "" = off
	RedirectUntilMs  int64    // milena.redirect.clients.until.ms, since 1970; dynamic

	Listeners           []Listener // of the roles this node has; controller listeners included
	Advertised          []Listener // broker listeners as advertised; host "" never occurs
	ControllerListeners []string   // controller.listener.names, upper case
	// ControllerAdvertised are the controller's listeners as other nodes reach them, in the order of ControllerListeners.
	ControllerAdvertised []Listener
	InterBrokerListener  string // name

	Socket   Socket
	Client   Client
	Groups   Groups
	Offsets  OffsetsTopic
	Producer Producers
	Topics   TopicDefaults
	Log      LogDirs
	Replica  Replica
	Quorum   Quorum
	Mirror   MirrorNode

	// What the fields above were read from, by key: server.properties, the dynamic cluster default, this broker's own.
	static, cluster, broker map[string]string
}

// Socket holds limits of client connections.
type Socket struct {
	MaxRequestBytes         int32          // socket.request.max.bytes
	QueuedMaxBytes          int64          // queued.max.request.bytes, -1: none
	MaxInFlight             int            // milena.max.in.flight.requests.per.connection
	IdleTimeout             time.Duration  // connections.max.idle.ms, negative: none
	MaxConnections          int            // dynamic
	MaxConnectionsPerIP     int            // dynamic
	PerIPOverrides          map[string]int // max.connections.per.ip.overrides, by address as netip prints it; 0 shuts it out; dynamic
	FetchMaxBytes           int32          // fetch.max.bytes: most bytes of one fetch response
	FetchSessionCacheSlots  int            // max.incremental.fetch.session.cache.slots
	MaxPartitionsPerRequest int            // max.request.partition.size.limit (DescribeTopicPartitions)
}

// Client holds settings of connections that this node makes.
type Client struct {
	RequestTimeout time.Duration // request.timeout.ms: of requests forwarded for clients
	SetupTimeout   time.Duration // socket.connection.setup.timeout.ms
}

// Groups holds group.* settings that group coordinators read.
type Groups struct {
	MinSessionTimeout     time.Duration // group.min.session.timeout.ms
	MaxSessionTimeout     time.Duration
	MaxSize               int
	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms
}

// OffsetsTopic holds offsets.* settings.
type OffsetsTopic struct {
	Partitions             int32 // offsets.topic.num.partitions
	ReplicationFactor      int16 // at most the number of brokers is used
	SegmentBytes           int32
	Retention              time.Duration // offsets.retention.minutes
	RetentionCheckInterval time.Duration // offsets.retention.check.interval.ms
	MetadataMaxBytes       int32         // offset.metadata.max.bytes
	CommitTimeout          time.Duration // offsets.commit.timeout.ms
}

// Producers holds producer id settings.
type Producers struct {
	IDExpiration time.Duration // producer.id.expiration.ms; dynamic
}

// TopicDefaults holds what new topics get, and the log defaults that a topic's own configs override.
type TopicDefaults struct {
	Partitions        int32 // num.partitions
	ReplicationFactor int16 // default.replication.factor
	AutoCreate        bool  // auto.create.topics.enable
	DeleteEnable      bool  // delete.topic.enable
	Log               Topic // a topic without configs of its own; dynamic
}

// LogDirs holds settings of the log directories and their background work.
type LogDirs struct {
	RetentionCheck        time.Duration // log.retention.check.interval.ms
	FlushCheck            time.Duration // log.flush.scheduler.interval.ms; the longest duration: never
	RecoveryPointInterval time.Duration // log.flush.offset.checkpoint.interval.ms
	StartOffsetInterval   time.Duration // log.flush.start.offset.checkpoint.interval.ms
	ReserveBytes          int64         // log.dir.reserve.bytes; -1: 1 GiB or 5 % of the disk, whichever is less

	CleanerEnable         bool          // log.cleaner.enable
	CleanerBackoff        time.Duration // log.cleaner.backoff.ms; dynamic
	CleanerDedupeBuffer   int64         // log.cleaner.dedupe.buffer.size; dynamic
	CleanerBytesPerSecond float64       // log.cleaner.io.max.bytes.per.second, 0: no limit; dynamic
}

// Replica holds settings of partitions.
type Replica struct {
	HighWatermarkInterval time.Duration // replica.high.watermark.checkpoint.interval.ms
	Fetchers              int           // num.replica.fetchers, for each leading broker; dynamic
	LagTimeMax            time.Duration // replica.lag.time.max.ms
	FetchWait             time.Duration // replica.fetch.wait.max.ms
	FetchMinBytes         int32         // replica.fetch.min.bytes
	FetchMaxBytes         int32         // replica.fetch.max.bytes: of a partition
	FetchResponseBytes    int32         // replica.fetch.response.max.bytes
	FetchBackoff          time.Duration // replica.fetch.backoff.ms
	FetchTimeout          time.Duration // replica.socket.timeout.ms
	RackAware             bool          // replica.selector.class is the rack aware one
	LeaderThrottle        int64         // leader.replication.throttled.rate, bytes a second; dynamic
	FollowerThrottle      int64         // follower.replication.throttled.rate, bytes a second; dynamic
	MoveRate              int64         // replica.alter.log.dirs.io.max.bytes.per.second; dynamic
}

// Quorum holds settings between brokers and controllers.
type Quorum struct {
	BrokerHeartbeat     time.Duration // broker.heartbeat.interval.ms
	BrokerSession       time.Duration // broker.session.timeout.ms
	RegistrationTimeout time.Duration // initial.broker.registration.timeout.ms
	SocketTimeout       time.Duration // controller.socket.timeout.ms
	ElectionTimeout     time.Duration // controller.quorum.election.timeout.ms
	FetchTimeout        time.Duration // controller.quorum.fetch.timeout.ms
	RequestTimeout      time.Duration // controller.quorum.request.timeout.ms
	RetryBackoff        time.Duration // controller.quorum.retry.backoff.ms
	AutoRebalance       bool          // auto.leader.rebalance.enable
	RebalanceInterval   time.Duration // leader.imbalance.check.interval.seconds
	UncleanInterval     time.Duration // unclean.leader.election.interval.ms
	AutoJoin            bool          // controller.quorum.auto.join.enable
	SnapshotMaxBytes    int64         // metadata.log.max.record.bytes.between.snapshots
	SnapshotMaxInterval time.Duration // metadata.log.max.snapshot.interval.ms, 0: only by size
}

// MirrorNode holds a node's own mirror.* settings (spec 9.1).
type MirrorNode struct {
	CoordinatorWriteTimeout time.Duration
	StatePartitions         int32
	StateReplicationFactor  int16         // at most the number of brokers is used
	RefreshInterval         time.Duration // mirror.metadata.refresh.interval.ms; dynamic
	RetryInitialBackoff     time.Duration
	RetryMaxBackoff         time.Duration
	RetryMaxAttempts        int    // 0: never
	AdminListener           string // mirror.admin.listener.name, default the inter-broker listener
	FetchMemory             int64  // mirror.fetch.memory.bytes
	Fetchers                int    // mirror.num.replica.fetchers, for each mirror and source broker; dynamic
	Throttle                int64  // mirror.replication.throttled.rate, bytes a second; dynamic
	// CutRetention is mirror.cut.retention.ms, negative: for ever; CutRetentionBytes is mirror.cut.retention.bytes, -1: no
	// limit. Both are dynamic.
	CutRetention        time.Duration
	CutRetentionBytes   int64
	PrototypeCodePoints bool // mirror.code.points=prototype
}
