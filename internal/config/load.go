package config

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"milena/internal/api"
)

// Env is what the derivation of a Node needs from the machine.
type Env struct {
	Hostname func() (string, error) // os.Hostname
}

// Notice is what a start should log: keys that have no effect, and what to know about values.
type Notice struct {
	Unknown        []string // a sentence for each unknown key, with the nearest known one
	WithoutMeaning []string // keys that were given and size nothing here, sorted: one line at start
	Warnings       []string // other sentences
}

// Load derives a Node from static settings by key. All faults come in one error, a line each.
func Load(props map[string]string, env Env) (*Node, *Notice, error) {
	notice := &Notice{}
	n := &Node{static: map[string]string{}}
	r := &reader{limits: map[string]int{}}
	for _, k := range sortedKeys(props) {
		r.admit(n.static, k, props[k], notice)
	}
	if len(r.errs) > 0 {
		return nil, notice, errors.Join(r.errs...)
	}
	r.layers = []map[string]string{n.static}
	r.errs = append(r.errs, looseRules(func(k string) (string, bool) { v, ok := n.static[k]; return v, ok })...)
	n.identity(r)
	set := r.listeners(n, env)
	n.Listeners, n.Advertised, n.ControllerListeners, n.InterBrokerListener = set.bound, set.advertised, set.controller, set.interBroker
	n.ControllerAdvertised = set.reachable
	n.fixed(r)
	n.dynamic(r)
	n.across(r)
	if len(r.errs) > 0 {
		return nil, notice, errors.Join(r.errs...)
	}
	return n, notice, nil
}

// admit checks one static setting and sorts it: into the node's settings, the notice, or the faults.
func (r *reader) admit(into map[string]string, key, text string, notice *Notice) {
	d, ok := brokerTable().byName[key]
	if !ok {
		r.admitForeign(key, text, notice)
		return
	}
	if d.Name == "mirror.replication.throttled.rate" {
		r.fail(fmt.Errorf("%s can't stand in a file: it is dynamic only", key))
		return
	}
	if err := d.Value(text); err != nil {
		r.fail(errors.New(message(err)))
		return
	}
	if d.Support == WithoutMeaning {
		notice.WithoutMeaning = append(notice.WithoutMeaning, key)
	}
	into[key] = text
}

// admitForeign sorts a key that isn't in the table: of one listener, or unknown.
func (r *reader) admitForeign(key, text string, notice *Notice) {
	base := unprefixed(key)
	d, ok := brokerTable().byName[base]
	switch {
	case base == key || !ok:
		notice.Unknown = append(notice.Unknown, unknown(brokerTable(), key))
	case d.Support == WithoutMeaning:
		notice.WithoutMeaning = append(notice.WithoutMeaning, key)
	case base == "max.connections":
		if err := d.Value(text); err != nil {
			r.fail(fmt.Errorf("%s: %w", key, err))
			return
		}
		v, _ := parse(key, text, d.Type) // Value has parsed it
		r.limits[strings.ToUpper(strings.TrimSuffix(strings.TrimPrefix(key, listenerPrefix), "."+base))] = int(v.i)
	case d.Support == Refused:
		r.fail(fmt.Errorf("%s is refused: %s", key, d.Why))
	default:
		r.fail(fmt.Errorf("%s is refused: it can't be set for one listener, set %s for the node", key, base))
	}
}

// message is the text of an error without the code's name in front.
func message(err error) string {
	var e *api.Error
	if errors.As(err, &e) && e.Message != "" {
		return e.Message
	}
	return err.Error()
}

// identity reads who this node is and where its data lies.
func (n *Node) identity(r *reader) {
	n.ID = 1
	ids := []string{"node.id", "broker.id"} // one stands for the other
	for i, k := range ids {
		if text, ok := n.static[k]; ok && !r.isSet(ids[1-i]) {
			n.static[ids[1-i]] = text
		}
	}
	if r.isSet("node.id") {
		n.ID = r.int32("node.id")
	}
	if r.num("node.id") != r.num("broker.id") && r.isSet("node.id") {
		r.fail(fmt.Errorf("node.id=%d and broker.id=%d must be the same: leave broker.id out", r.num("node.id"), r.num("broker.id")))
	}
	if n.ID < 0 {
		r.fail(fmt.Errorf("broker.id=%d: a node's number is 0 or more; ids aren't generated", n.ID))
	}
	n.Broker, n.Controller = true, true
	if r.isSet("process.roles") {
		roles := r.list("process.roles")
		n.Broker, n.Controller = slices.Contains(roles, "broker"), slices.Contains(roles, "controller")
	}
	for k := range n.static {
		n.QuorumConfigured = n.QuorumConfigured || strings.HasPrefix(k, "controller.quorum.")
	}
	n.BootstrapServers = r.list("controller.quorum.bootstrap.servers")
	var err error
	if n.Voters, err = parseVoters(r.list("controller.quorum.voters")); err != nil {
		r.fail(err)
	}
	n.quorumRules(r)
	n.Rack = r.text("broker.rack")
	n.LogDirs = r.list("log.dirs")
	if len(n.LogDirs) == 0 {
		n.LogDirs = r.list("log.dir")
	}
	for i, dir := range n.LogDirs {
		n.LogDirs[i] = filepath.Clean(dir)
		if slices.Contains(n.LogDirs[:i], n.LogDirs[i]) {
			r.fail(fmt.Errorf("log.dirs: %s is there twice", n.LogDirs[i]))
		}
	}
	if dir := r.text("metadata.log.dir"); dir != "" {
		n.MetadataLogDir = filepath.Clean(dir)
	} else if len(n.LogDirs) > 0 {
		n.MetadataLogDir = n.LogDirs[0]
	}
	if n.HTTPListen = r.text("milena.http.listen"); n.HTTPListen == "off" {
		n.HTTPListen = ""
	}
}

// quorumRules checks where the quorum is against the roles of this node.
func (n *Node) quorumRules(r *reader) {
	isVoter := slices.ContainsFunc(n.Voters, func(v Voter) bool { return v.ID == n.ID })
	switch {
	case len(n.Voters) > 0 && n.Controller && !isVoter:
		r.fail(fmt.Errorf("controller.quorum.voters: node %d is a controller and isn't among them: add %d@host:port, or take controller out of process.roles", n.ID, n.ID))
	case isVoter && !n.Controller:
		r.fail(fmt.Errorf("controller.quorum.voters: node %d is among them and isn't a controller: add controller to process.roles, or take it out", n.ID))
	case !n.Controller && len(n.Voters) == 0 && len(n.BootstrapServers) == 0:
		r.fail(errors.New("process.roles=broker: a broker alone must know where its controllers are: set controller.quorum.bootstrap.servers to their host:port"))
	case n.Controller && !n.Broker && !n.QuorumConfigured:
		r.fail(errors.New("process.roles=controller: a controller alone needs controller.quorum.bootstrap.servers (or controller.quorum.voters), with the addresses of all controllers"))
	}
	for i, v := range n.Voters {
		if slices.ContainsFunc(n.Voters[:i], func(w Voter) bool { return w.ID == v.ID }) {
			r.fail(fmt.Errorf("controller.quorum.voters: %d is there twice", v.ID))
		}
	}
}

// fixed reads settings that need a restart.
func (n *Node) fixed(r *reader) {
	n.Socket = Socket{
		MaxRequestBytes: r.int32("socket.request.max.bytes"), QueuedMaxBytes: r.num("queued.max.request.bytes"),
		MaxInFlight: r.int("milena.max.in.flight.requests.per.connection"), IdleTimeout: r.ms("connections.max.idle.ms"),
		FetchMaxBytes: r.int32("fetch.max.bytes"), FetchSessionCacheSlots: r.int("max.incremental.fetch.session.cache.slots"),
		MaxPartitionsPerRequest: r.int("max.request.partition.size.limit"),
	}
	n.Client = Client{RequestTimeout: r.ms("request.timeout.ms"), SetupTimeout: r.ms("socket.connection.setup.timeout.ms")}
	n.Groups = Groups{
		MinSessionTimeout: r.ms("group.min.session.timeout.ms"), MaxSessionTimeout: r.ms("group.max.session.timeout.ms"),
		MaxSize: r.int("group.max.size"), InitialRebalanceDelay: r.ms("group.initial.rebalance.delay.ms"),
	}
	n.Offsets = OffsetsTopic{
		Partitions: r.int32("offsets.topic.num.partitions"), ReplicationFactor: r.int16("offsets.topic.replication.factor"),
		SegmentBytes: r.int32("offsets.topic.segment.bytes"), Retention: times(r.num("offsets.retention.minutes"), time.Minute),
		RetentionCheckInterval: r.ms("offsets.retention.check.interval.ms"), MetadataMaxBytes: r.int32("offset.metadata.max.bytes"),
		CommitTimeout: r.ms("offsets.commit.timeout.ms"),
	}
	n.Quorum = Quorum{
		BrokerHeartbeat: r.ms("broker.heartbeat.interval.ms"), BrokerSession: r.ms("broker.session.timeout.ms"),
		RegistrationTimeout: r.ms("initial.broker.registration.timeout.ms"), SocketTimeout: r.ms("controller.socket.timeout.ms"),
		ElectionTimeout: r.ms("controller.quorum.election.timeout.ms"), FetchTimeout: r.ms("controller.quorum.fetch.timeout.ms"),
		RequestTimeout: r.ms("controller.quorum.request.timeout.ms"), RetryBackoff: r.ms("controller.quorum.retry.backoff.ms"),
		AutoRebalance: r.bool("auto.leader.rebalance.enable"), RebalanceInterval: times(r.num("leader.imbalance.check.interval.seconds"), time.Second),
		UncleanInterval: r.ms("unclean.leader.election.interval.ms"), AutoJoin: r.bool("controller.quorum.auto.join.enable"),
		SnapshotMaxBytes:    r.num("metadata.log.max.record.bytes.between.snapshots"),
		SnapshotMaxInterval: r.ms("metadata.log.max.snapshot.interval.ms"),
	}
	n.Replica = Replica{
		HighWatermarkInterval: r.ms("replica.high.watermark.checkpoint.interval.ms"), LagTimeMax: r.ms("replica.lag.time.max.ms"),
		FetchWait: r.ms("replica.fetch.wait.max.ms"), FetchMinBytes: r.int32("replica.fetch.min.bytes"), FetchMaxBytes: r.int32("replica.fetch.max.bytes"),
		FetchResponseBytes: r.int32("replica.fetch.response.max.bytes"), FetchBackoff: r.ms("replica.fetch.backoff.ms"), FetchTimeout: r.ms("replica.socket.timeout.ms"),
		RackAware: r.text("replica.selector.class") == rackAwareSelector,
	}
	n.Mirror = MirrorNode{
		CoordinatorWriteTimeout: r.ms("mirror.coordinator.write.timeout.ms"),
		StatePartitions:         r.int32("mirror.state.topic.num.partitions"), StateReplicationFactor: r.int16("mirror.state.topic.replication.factor"),
		RetryInitialBackoff: r.ms("mirror.failed.retry.initial.backoff.ms"), RetryMaxBackoff: r.ms("mirror.failed.retry.max.backoff.ms"),
		RetryMaxAttempts: r.int("mirror.failed.retry.max.attempts"), AdminListener: strings.ToUpper(r.text("mirror.admin.listener.name")),
		FetchMemory: r.num("mirror.fetch.memory.bytes"), PrototypeCodePoints: r.text("mirror.code.points") == "prototype",
	}
	if n.Mirror.AdminListener == "" {
		n.Mirror.AdminListener = n.InterBrokerListener
	}
}

// dynamic reads settings that dynamic broker configs may change. Structs read by fixed keep what it read.
func (n *Node) dynamic(r *reader) {
	n.Socket.MaxConnections = r.int("max.connections")
	n.Socket.MaxConnectionsPerIP = r.int("max.connections.per.ip")
	overrides, err := parseOverrides(r.text("max.connections.per.ip.overrides"))
	if err == nil { // else it was reported when it was given
		n.Socket.PerIPOverrides = overrides
	}
	n.Producer.IDExpiration = r.ms("producer.id.expiration.ms")
	n.Topics = TopicDefaults{
		Partitions: r.int32("num.partitions"), ReplicationFactor: r.int16("default.replication.factor"),
		AutoCreate: r.bool("auto.create.topics.enable"), DeleteEnable: r.bool("delete.topic.enable"), Log: r.topic(nil),
	}
	n.Log = LogDirs{
		RetentionCheck: r.ms("log.retention.check.interval.ms"), FlushCheck: r.ms("log.flush.scheduler.interval.ms"),
		RecoveryPointInterval: r.ms("log.flush.offset.checkpoint.interval.ms"),
		StartOffsetInterval:   r.ms("log.flush.start.offset.checkpoint.interval.ms"),
		CleanerEnable:         r.bool("log.cleaner.enable"), CleanerBackoff: r.ms("log.cleaner.backoff.ms"),
		CleanerDedupeBuffer: r.num("log.cleaner.dedupe.buffer.size"), ReserveBytes: r.num("log.dir.reserve.bytes"),
	}
	if v, _ := r.value("log.cleaner.io.max.bytes.per.second"); v.f < math.MaxFloat64 {
		n.Log.CleanerBytesPerSecond = v.f
	}
	n.RedirectUntilMs = r.num("milena.redirect.clients.until.ms")
	n.Mirror.RefreshInterval = r.ms("mirror.metadata.refresh.interval.ms")
	n.Mirror.CutRetention, n.Mirror.CutRetentionBytes = r.ms("mirror.cut.retention.ms"), r.num("mirror.cut.retention.bytes")
	n.Mirror.Fetchers, n.Mirror.Throttle = r.int("mirror.num.replica.fetchers"), r.num("mirror.replication.throttled.rate")
	n.Replica.Fetchers = r.int("num.replica.fetchers")
	n.Replica.LeaderThrottle, n.Replica.FollowerThrottle = r.num("leader.replication.throttled.rate"), r.num("follower.replication.throttled.rate")
	n.Replica.MoveRate = r.num("replica.alter.log.dirs.io.max.bytes.per.second")
}

// across checks rules between keys.
func (n *Node) across(r *reader) {
	if n.Groups.MinSessionTimeout > n.Groups.MaxSessionTimeout {
		r.fail(errors.New("group.max.session.timeout.ms must be greater than or equals to group.min.session.timeout.ms"))
	}
	if q := n.Socket.QueuedMaxBytes; q <= 0 && q != -1 || q > 0 && q < r.num("socket.receive.buffer.bytes") {
		r.fail(fmt.Errorf("queued.max.request.bytes=%d must be -1, or at least socket.receive.buffer.bytes", q))
	}
	if n.Quorum.BrokerHeartbeat <= 0 || n.Quorum.BrokerSession <= n.Quorum.BrokerHeartbeat {
		r.fail(fmt.Errorf("broker.session.timeout.ms=%d must be more than broker.heartbeat.interval.ms=%d, and both above 0: a broker would be fenced between two heartbeats",
			n.Quorum.BrokerSession.Milliseconds(), n.Quorum.BrokerHeartbeat.Milliseconds()))
	}
	if n.Replica.FetchWait >= n.Replica.LagTimeMax {
		r.fail(fmt.Errorf("replica.fetch.wait.max.ms=%d must be below replica.lag.time.max.ms=%d: followers would leave the ISR while they wait",
			n.Replica.FetchWait.Milliseconds(), n.Replica.LagTimeMax.Milliseconds()))
	}
	if n.Replica.FetchTimeout < n.Replica.FetchWait {
		r.fail(fmt.Errorf("replica.socket.timeout.ms=%d must be at least replica.fetch.wait.max.ms=%d", n.Replica.FetchTimeout.Milliseconds(), n.Replica.FetchWait.Milliseconds()))
	}
	if r.num("default.replication.factor") < 1 || r.num("default.replication.factor") > math.MaxInt16 {
		r.fail(fmt.Errorf("default.replication.factor=%d must be from 1 to %d", r.num("default.replication.factor"), math.MaxInt16))
	}
	if n.Topics.Log.MinCompactionLag > n.Topics.Log.MaxCompactionLag {
		r.fail(errors.New("log.cleaner.min.compaction.lag.ms must not be above log.cleaner.max.compaction.lag.ms"))
	}
	if l := n.Mirror.AdminListener; !slices.ContainsFunc(n.Advertised, named(l)) && r.isSet("mirror.admin.listener.name") {
		r.fail(fmt.Errorf("mirror.admin.listener.name: %s isn't an advertised broker listener", l))
	}
	if n.Mirror.RetryInitialBackoff > n.Mirror.RetryMaxBackoff {
		r.fail(errors.New("mirror.failed.retry.initial.backoff.ms must not be above mirror.failed.retry.max.backoff.ms"))
	}
}
