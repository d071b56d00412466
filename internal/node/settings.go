package node

import (
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/config"
	"milena/internal/coord/group"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/partlog"
	"milena/internal/replica"
	"milena/internal/server"
)

type partlogConfig = partlog.Config

// Loggers sets log levels at run time (KIP-412).
type Loggers interface {
	Levels() map[string]slog.Level
	SetLevel(name string, level *slog.Level) error
}

// noLoggers are for a process whose logger has no levels to set.
type noLoggers struct{}

func (noLoggers) Levels() map[string]slog.Level      { return nil }
func (noLoggers) SetLevel(string, *slog.Level) error { return nil }

// logConfig is what a topic's settings mean for its logs.
func logConfig(t *config.Topic, n *config.Node) partlog.Config {
	return partlog.Config{
		Delete: t.Cleanup.Delete, Compact: t.Cleanup.Compact, Compression: partlog.Compression(t.Compression),
		GzipLevel: t.GzipLevel, LZ4Level: t.LZ4Level, ZstdLevel: t.ZstdLevel,
		SegmentBytes: t.SegmentBytes, SegmentAge: t.SegmentAge, SegmentJitter: t.SegmentJitter, IndexBytes: t.IndexBytes, IndexInterval: t.IndexInterval,
		Retention: t.Retention, RetentionBytes: t.RetentionBytes, FlushMessages: t.FlushMessages, FlushInterval: t.FlushInterval,
		FileDeleteDelay: t.FileDeleteDelay, DeleteRetention: t.DeleteRetention, MinCleanableRatio: t.MinCleanableRatio,
		MinCompactionLag: t.MinCompactionLag, MaxCompactionLag: t.MaxCompactionLag,
		MaxMessageBytes: t.MaxMessageBytes, MaxDecompressedBytes: t.MaxDecompressedBytes, LogAppendTime: t.TimestampType == config.LogAppendTime,
		TimestampBeforeMax: t.TimestampBeforeMax, TimestampAfterMax: t.TimestampAfterMax, ProducerIDExpiration: n.Producer.IDExpiration,
	}
}

// topicSettings derives a topic's settings from its configs in the metadata and this node's defaults.
func (n *Node) topicSettings(img *meta.Image, topic string) replica.Settings {
	c := n.live.Node()
	t := c.Topic(img.Config(meta.ResourceTopic, topic))
	return replica.Settings{
		Log: logConfig(&t, c), MinISR: t.MinInsyncReplicas, Fenced: t.WriteFence,
		LeaderThrottled: throttledBy(t.LeaderThrottled), FollowerThrottled: throttledBy(t.FollowerThrottled), MirrorThrottled: throttledBy(t.MirrorThrottled),
	}
}

// throttledBy tells which replicas a list of them holds; nil for none.
func throttledBy(t config.ThrottledReplicas) func(partition, broker int32) bool {
	switch {
	case t.All:
		return func(int32, int32) bool { return true }
	case len(t.Pairs) == 0:
		return nil
	}
	return func(partition, broker int32) bool { return slices.Contains(t.Pairs[partition], broker) }
}

// applyDynamic takes over dynamic broker configs; it comes before everything that derives settings from them.
func (n *Node) applyDynamic(d *meta.Delta) {
	mine := d.Next.Config(meta.ResourceBroker, itoa(n.o.Config.ID))
	for _, r := range d.Configs {
		if r.Type != meta.ResourceBroker || r.Name != "" && r.Name != itoa(n.o.Config.ID) {
			continue
		}
		for _, note := range n.live.Apply(d.Next.Config(meta.ResourceBroker, ""), mine) {
			n.log.Warn("dynamic broker config left out", "note", note)
		}
		return
	}
}

// applyLimits hands changed settings to the parts that hold copies of them; topics' settings are derived anew by the replicas.
func (n *Node) applyLimits(before, after *config.Node) {
	if s := n.serving.Load(); s != nil {
		s.server.SetLimits(serverLimits(after))
		if after.RedirectUntilMs != before.RedirectUntilMs && redirecting(after) {
			s.server.CloseConns(redirectable)
		}
	}
	n.dirs.SetCleaner(cleanerOptions(after))
	if n.replicas != nil {
		n.replicas.SetThrottles(after.Replica.LeaderThrottle, after.Replica.FollowerThrottle, after.Mirror.Throttle)
		n.replicas.SetMoveRate(after.Replica.MoveRate)
	}
}

func serverLimits(c *config.Node) server.Limits {
	return server.Limits{MaxConnections: c.Socket.MaxConnections, MaxConnectionsPerIP: c.Socket.MaxConnectionsPerIP, MaxConnectionsPerIPOverrides: c.Socket.PerIPOverrides}
}

func cleanerOptions(c *config.Node) logdir.CleanerOptions {
	return logdir.CleanerOptions{Enable: c.Log.CleanerEnable, Backoff: c.Log.CleanerBackoff, DedupeBytes: c.Log.CleanerDedupeBuffer, IOBytesPerSecond: c.Log.CleanerBytesPerSecond}
}

// createdConfigs lists all configs of a new topic with the given ones of its own, for the answer of CreateTopics.
func (n *Node) createdConfigs(own map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
	out := []kmsg.CreateTopicsResponseTopicConfig{}
	for _, e := range n.live.Node().DescribeTopic(own) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.ReadOnly, c.Source, c.IsSensitive = e.Def.Name, e.Value, e.ReadOnly, int8(e.Source), config.Sensitive(config.ResourceTopic, e.Def.Name)
		out = append(out, c)
	}
	return out
}

// groupConfig is what the group coordinator reads, at each use.
func (n *Node) groupConfig() group.Config {
	c := n.live.Node()
	g := group.DefaultConfig()
	g.MinSessionTimeout, g.MaxSessionTimeout = c.Groups.MinSessionTimeout, c.Groups.MaxSessionTimeout
	g.InitialRebalanceDelay, g.MaxSize = c.Groups.InitialRebalanceDelay, c.Groups.MaxSize
	g.MetadataMaxBytes, g.Retention, g.RetentionCheck = int(c.Offsets.MetadataMaxBytes), c.Offsets.Retention, c.Offsets.RetentionCheckInterval
	g.CommitTimeout = c.Offsets.CommitTimeout
	g.MaxBatchBytes = int(min(c.Topics.Log.MaxMessageBytes, int64(g.MaxBatchBytes))) // a batch its log refuses would cost the shard
	return g
}

// offsetsTopicConfigs are the configs __consumer_offsets is created with.
func offsetsTopicConfigs(c *config.Node) map[string]string {
	return map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": itoa(c.Offsets.SegmentBytes)}
}

// registerProcess adds what every process exposes: the Go runtime, the process, and the version.
func registerProcess(r *prometheus.Registry, version string) {
	_ = r.Register(collectors.NewGoCollector()) // a registry that has them already keeps its own
	_ = r.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "milena_build_info", Help: "Always 1; the version is in the labels."}, []string{"version", "goversion", "revision"})
	revision := ""
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	g.WithLabelValues(version, runtime.Version(), revision).Set(1)
	_ = r.Register(g)
}
