package mirroradm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/controller/mirrors"
	"milena/internal/ids"
)

// Survey is what a mirror would bring over, and what it would not. See [SurveySource].
type Survey struct {
	// ClusterID is the source's. Version is the first release of Kafka whose brokers fetch in the way that the source's do.
	ClusterID, Version string
	Brokers            []SurveyBroker
	// Mirroring says whether the source has Cluster Mirroring itself, which a failback needs.
	Mirroring bool
	Topics    []SurveyTopic
	Groups    []SurveyGroup
	// Problems are what keeps the mirror as a whole from working, or from what it does beside the topics.
	Problems []string
}

// SurveyBroker is a broker of the source at the address that it gives to clients.
type SurveyBroker struct {
	ID   int32
	Addr string
	// Err is why it could not be reached there.
	Err error
	// SendBuffer is its socket.send.buffer.bytes, -1 for the system's, 0 if it could not be read.
	SendBuffer int64
}

// SurveyTopic is a topic of the source that the patterns match.
type SurveyTopic struct {
	Name       string
	Partitions int
	// Configs are those that would come over, sorted, as key=value; NotCarried are keys that are set and would not.
	Configs, NotCarried []string
	// Refused is why the topic would not come over, empty if it would.
	Refused string
	// Held is how many records are here of partitions of which either cluster knows up to where both share their history: what lies above
	// that is set aside and cut.
	Held int64
	// Weaker is in what the copy would be weaker than the source, sorted (spec D16).
	Weaker []string
}

// SurveyGroup is a group of the source that the patterns match.
type SurveyGroup struct {
	Name string
	// Skipped is why its offsets would not come over now, empty if they would.
	Skipped string
}

// SurveySource looks at a source and a destination as a mirror with the given configs would: it reads, and changes nothing. The
// error says why the source or the destination could not be asked at all.
func SurveySource(ctx context.Context, source, destination *kgo.Client, name string, configs map[string]string) (*Survey, error) {
	s := &surveyor{src: source, dst: destination, srcAdm: kadm.NewClient(source), dstAdm: kadm.NewClient(destination), name: name, out: &Survey{}}
	if err := s.settings(configs); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{s.source, s.brokers, s.destination, s.topics, s.groups} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s.out, nil
}

type surveyor struct {
	src, dst       *kgo.Client
	srcAdm, dstAdm *kadm.Client
	name           string
	out            *Survey

	own map[string]string // the mirror's configs

	topicsIn, topicsOut, groupsIn, groupsOut, configsOut config.Patterns

	here      kadm.Metadata
	defaults  map[string]string // of a broker of the destination
	inMirrors map[string]string // topics that are active in mirrors of the destination
}

// settings checks the mirror's configs as the controller will.
func (s *surveyor) settings(own map[string]string) error {
	s.own = own
	if bad := mirrors.ValidName(s.name); bad != nil {
		s.problem("%s", bad.Message)
	}
	for _, k := range slices.Sorted(maps.Keys(own)) {
		if err := config.Validate(config.ResourceClusterMirror, s.name, k, own[k]); err != nil {
			_, msg := api.CodeOf(err)
			return errors.New(msg)
		}
	}
	if err := config.ValidateAll(config.ResourceClusterMirror, s.name, own); err != nil {
		_, msg := api.CodeOf(err)
		return errors.New(msg)
	}
	for _, e := range config.DescribeMirror(own) {
		to := map[string]*config.Patterns{
			"mirror.topics.include": &s.topicsIn, "mirror.topics.exclude": &s.topicsOut, "mirror.groups.include": &s.groupsIn,
			"mirror.groups.exclude": &s.groupsOut, "mirror.topic.properties.exclude": &s.configsOut,
		}[e.Def.Name]
		if to == nil || e.Value == nil {
			continue
		}
		p, err := config.ParsePatterns(*e.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Def.Name, err)
		}
		*to = p
	}
	return nil
}

func (s *surveyor) problem(format string, args ...any) {
	s.out.Problems = append(s.out.Problems, fmt.Sprintf(format, args...))
}

func (s *surveyor) source(ctx context.Context) error {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, s.src)
	if err != nil {
		return fmt.Errorf("asking the source: %w", err)
	}
	offered := map[int16]kmsg.ApiVersionsResponseApiKey{}
	for _, k := range resp.ApiKeys {
		offered[k.ApiKey] = k
	}
	s.out.Version = releaseOf(offered[1].MaxVersion)
	_, s.out.Mirroring = offered[int16(api.ListClusterMirrors)]
	for _, need := range []struct {
		key     int16
		version int16
		what    string
	}{
		{1, 4, "Fetch (0.11)"}, {23, 2, "OffsetForLeaderEpoch with leader epochs (2.1)"}, {32, 0, "DescribeConfigs (0.11)"},
	} {
		if offered[need.key].MaxVersion < need.version {
			s.problem("the source is too old: it does not offer %s", need.what)
		}
	}
	if offered[1].MaxVersion < 13 && offered[3].MaxVersion < 10 {
		s.problem("the source has no topic ids (before 2.8): the topics get other ids here, and a topic that is deleted and created again there is not noticed")
	}
	return nil
}

// releaseOf is the first release of Kafka with a version of the Fetch API.
func releaseOf(fetch int16) string {
	for _, r := range []struct {
		fetch   int16
		release string
	}{{18, "4.1"}, {17, "3.9"}, {16, "3.7"}, {15, "3.5"}, {13, "3.1"}, {12, "2.7"}, {11, "2.3"}, {10, "2.1"}, {8, "2.0"}, {7, "1.1"}, {5, "0.11"}} {
		if fetch >= r.fetch {
			return r.release
		}
	}
	return "before 0.11"
}

// brokers asks each broker of the source at the address that it gives to clients.
func (s *surveyor) brokers(ctx context.Context) error {
	m, err := s.srcAdm.BrokerMetadata(ctx)
	if err != nil {
		return fmt.Errorf("asking the source: %w", err)
	}
	s.out.ClusterID = m.Cluster
	s.out.Brokers = make([]SurveyBroker, len(m.Brokers))
	indexes := make([]int, len(m.Brokers))
	for i := range indexes {
		indexes[i] = i
	}
	each(indexes, func(i int) {
		b := &m.Brokers[i]
		x := &s.out.Brokers[i]
		x.ID, x.Addr = b.NodeID, fmt.Sprintf("%s:%d", b.Host, b.Port)
		if _, x.Err = s.src.Broker(int(b.NodeID)).Request(ctx, kmsg.NewPtrApiVersionsRequest()); x.Err != nil {
			return
		}
		if v, err := strconv.ParseInt(brokerConfigs(ctx, s.srcAdm, b.NodeID)["socket.send.buffer.bytes"], 10, 64); err == nil {
			x.SendBuffer = v
		}
	})
	for _, b := range s.out.Brokers {
		if b.Err != nil {
			s.problem("broker %d of the source can't be reached at %s, which it tells its clients: %v", b.ID, b.Addr, b.Err)
		}
	}
	return nil
}

// brokerConfigs are the effective configs of a broker; without the right to read them they are empty.
func brokerConfigs(ctx context.Context, adm *kadm.Client, id int32) map[string]string {
	out := map[string]string{}
	rs, err := adm.DescribeBrokerConfigs(ctx, id)
	if err != nil {
		return out
	}
	for _, r := range rs {
		for _, c := range r.Configs {
			out[c.Key] = c.MaybeValue()
		}
	}
	return out
}

func (s *surveyor) destination(ctx context.Context) error {
	m, err := s.dstAdm.Metadata(ctx)
	if err != nil {
		return err
	}
	s.here = m
	if m.Cluster == s.out.ClusterID {
		s.problem("the source is the destination itself: both have the cluster id %s", m.Cluster)
	}
	if len(m.Brokers) > 0 {
		s.defaults = brokerConfigs(ctx, s.dstAdm, m.Brokers[0].NodeID)
	}
	c := NewClient(s.dst)
	ms, err := c.List(ctx)
	if err != nil {
		return err
	}
	if _, err := c.CheckSource(ctx, s.name, s.own); err != nil && !errors.Is(err, ErrNoMirroring) { // an older release can't try
		s.problem("not every broker here reaches the source: %v", err)
	}
	s.inMirrors = map[string]string{}
	for _, x := range ms {
		if x.Name == s.name {
			s.problem("mirror %s exists already", s.name)
		}
		for _, t := range x.Topics {
			s.inMirrors[t] = x.Name
		}
	}
	return nil
}

func (s *surveyor) topics(ctx context.Context) error {
	all, err := s.srcAdm.Metadata(ctx)
	if err != nil {
		return fmt.Errorf("topics of the source: %w", err)
	}
	var names []string
	for _, t := range all.Topics.Sorted() {
		if !t.IsInternal && s.topicsIn.Match(t.Topic) && !s.topicsOut.Match(t.Topic) {
			names = append(names, t.Topic)
		}
	}
	if len(names) == 0 {
		return nil
	}
	theirs, err := topicConfigs(ctx, s.srcAdm, names)
	if err != nil {
		s.problem("topic configs of the source can't be read: %v", err)
	}
	var both []string
	for _, n := range names {
		if _, ok := s.here.Topics[n]; ok {
			both = append(both, n)
		}
	}
	ours, err := topicConfigs(ctx, s.dstAdm, both)
	if err != nil {
		return err
	}
	denied := s.readable(ctx, all, names)
	holds, shared, err := s.holds(ctx, both)
	if err != nil {
		return err
	}
	for _, n := range names {
		t := all.Topics[n]
		x := SurveyTopic{Name: n, Partitions: len(t.Partitions)}
		x.Refused, x.Held = cmp.Or(s.refused(t, holds[n]), denied[n]), shared[n]
		if theirs[n] == nil && x.Refused == "" {
			x.Refused = "its configs can't be read on the source, which a start needs: DESCRIBE_CONFIGS on the topic is missing"
		}
		for _, k := range slices.Sorted(maps.Keys(theirs[n])) {
			c := theirs[n][k]
			switch {
			case c.Source != kmsg.ConfigSourceDynamicTopicConfig:
			case s.configsOut.Match(k) || !mirrors.Carried(k):
				x.NotCarried = append(x.NotCarried, k)
			default:
				x.Configs = append(x.Configs, k+"="+c.MaybeValue())
			}
		}
		x.Weaker = s.weaker(t, theirs[n], ours[n])
		s.out.Topics = append(s.out.Topics, x)
	}
	return nil
}

// topicConfigs are the effective configs by topic and key; of topics that may not be read they are missing.
func topicConfigs(ctx context.Context, adm *kadm.Client, topics []string) (map[string]map[string]kadm.Config, error) {
	out := map[string]map[string]kadm.Config{}
	if len(topics) == 0 {
		return out, nil
	}
	rs, err := adm.DescribeTopicConfigs(ctx, topics...)
	for _, r := range rs {
		if r.Err != nil {
			continue
		}
		out[r.Name] = map[string]kadm.Config{}
		for _, c := range r.Configs {
			out[r.Name][c.Key] = c
		}
	}
	return out, err
}

// refused is why a start of the topic would be refused, or fail at once.
func (s *surveyor) refused(t kadm.TopicDetail, records int64) string {
	own, exists := s.here.Topics[t.Topic]
	switch {
	case t.Err != nil:
		return fmt.Sprintf("the source says: %v", t.Err)
	case s.inMirrors[t.Topic] != "":
		return fmt.Sprintf("it is mirrored by %s already", s.inMirrors[t.Topic])
	case exists && t.ID != kadm.TopicID{} && own.ID != t.ID:
		return fmt.Sprintf("a topic of that name with another id (%s, the source's is %s) is here: delete it first", ids.UUID(own.ID), ids.UUID(t.ID))
	case exists && records > 0:
		return fmt.Sprintf("the topic is here with %d records of which neither cluster knows that they come from the source: they are not cut without consent "+
			"(milena mirrors start --truncate-unrelated)", records)
	case exists && len(own.Partitions) > len(t.Partitions):
		return fmt.Sprintf("the topic is here with %d partitions, more than on the source", len(own.Partitions))
	}
	if !exists {
		for name, other := range s.here.Topics {
			if other.ID == t.ID && t.ID != (kadm.TopicID{}) {
				return fmt.Sprintf("topic %s here has the id of the source's topic", name)
			}
		}
		if n, err := strconv.Atoi(s.defaults["default.replication.factor"]); err == nil && n > len(s.here.Brokers) {
			return fmt.Sprintf("default.replication.factor here is %d, and there are %d brokers", n, len(s.here.Brokers))
		}
	}
	return ""
}

// holds is how many records topics have here, of which nothing is known to come from the source, and in partitions that share their history
// with it.
func (s *surveyor) holds(ctx context.Context, topics []string) (unrelated, shared map[string]int64, err error) {
	unrelated, shared = map[string]int64{}, map[string]int64{}
	if len(topics) == 0 {
		return unrelated, shared, nil
	}
	starts, err := s.dstAdm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, nil, err
	}
	ends, err := s.dstAdm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, nil, err
	}
	known := s.related(ctx)
	ends.Each(func(o kadm.ListedOffset) {
		from, ok := starts.Lookup(o.Topic, o.Partition)
		switch {
		case !ok || o.Err != nil || from.Err != nil:
		case known[TopicPartition{o.Topic, o.Partition}]:
			shared[o.Topic] += o.Offset - from.Offset
		default:
			unrelated[o.Topic] += o.Offset - from.Offset
		}
	})
	return unrelated, shared, nil
}

// related are the partitions of which the last stop of a mirror of either cluster from the other has stored what both share (spec D3).
func (s *surveyor) related(ctx context.Context) map[TopicPartition]bool {
	out := map[TopicPartition]bool{}
	for _, x := range []struct {
		who  string
		cl   *kgo.Client
		from string
	}{{"this cluster", s.dst, s.out.ClusterID}, {"the source", s.src, s.here.Cluster}} {
		if x.cl == s.src && !s.out.Mirroring {
			continue
		}
		ds, err := NewClient(x.cl).DescribeWith(ctx, DescribeOptions{State: true, SourceClusterID: x.from})
		if err == nil {
			err = ds.Error()
		}
		if err != nil {
			s.problem("what the logs here share with the source isn't known, since the last mirror epochs of %s can't be read: %v", x.who, err)
			continue
		}
		for _, d := range ds {
			for _, p := range d.Partitions {
				if p.LastMirrorOffset >= 0 || p.LastMirrorEpoch >= 0 {
					out[TopicPartition{p.Topic, p.Partition}] = true
				}
			}
		}
	}
	return out
}

// readable tries to fetch from a partition of each topic, and says of which that is refused.
func (s *surveyor) readable(ctx context.Context, all kadm.Metadata, names []string) map[string]string {
	out := map[string]string{}
	byLeader := map[int32]*kmsg.FetchRequest{}
	nameOf := map[kadm.TopicID]string{}
	for _, n := range names {
		t := all.Topics[n]
		nameOf[t.ID] = n
		for _, p := range t.Partitions.Sorted() {
			if p.Leader < 0 {
				continue
			}
			req := byLeader[p.Leader]
			if req == nil {
				req = kmsg.NewPtrFetchRequest()
				req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 0, 0, 1, -1
				byLeader[p.Leader] = req
			}
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = n, t.ID
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.PartitionMaxBytes = p.Partition, 1
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			break
		}
	}
	for leader, req := range byLeader {
		kresp, err := s.src.Broker(int(leader)).RetriableRequest(ctx, req)
		if err != nil {
			continue // the broker is among the problems already
		}
		for _, t := range kresp.(*kmsg.FetchResponse).Topics {
			name := cmp.Or(t.Topic, nameOf[t.TopicID])
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil && !errors.Is(err, kerr.OffsetOutOfRange) {
					out[name] = fmt.Sprintf("its records can't be read on the source: %v", err)
				}
			}
		}
	}
	return out
}

// weaker compares what keeps records safe (spec D16). What isn't known is not compared.
func (s *surveyor) weaker(t kadm.TopicDetail, theirs, ours map[string]kadm.Config) []string {
	value := func(cs map[string]kadm.Config, key string) string { c := cs[key]; return c.MaybeValue() }
	here := func(key string) string {
		if ours != nil {
			return value(ours, key)
		}
		return s.defaults[key]
	}
	factor := s.defaults["default.replication.factor"]
	if own, ok := s.here.Topics[t.Topic]; ok {
		factor = strconv.Itoa(replicas(own))
	}
	return mirrors.Weaker(
		mirrors.Strength{ReplicationFactor: strconv.Itoa(replicas(t)), MinISR: value(theirs, "min.insync.replicas"), Unclean: value(theirs, "unclean.leader.election.enable")},
		mirrors.Strength{ReplicationFactor: factor, MinISR: here("min.insync.replicas"), Unclean: here("unclean.leader.election.enable")})
}

// replicas is the least number of replicas of a topic's partitions.
func replicas(t kadm.TopicDetail) int {
	n := 0
	for _, p := range t.Partitions {
		if n == 0 || len(p.Replicas) < n {
			n = len(p.Replicas)
		}
	}
	return n
}

func (s *surveyor) groups(ctx context.Context) error {
	gs, err := s.srcAdm.ListGroups(ctx)
	if err != nil {
		s.problem("groups of the source can't be listed, so no offsets come over: %v", err)
		return nil
	}
	var names []string
	for _, g := range gs.Sorted() {
		if (g.ProtocolType == "" || g.ProtocolType == "consumer") && s.groupsIn.Match(g.Group) && !s.groupsOut.Match(g.Group) {
			names = append(names, g.Group)
		}
	}
	if len(names) == 0 {
		return nil
	}
	offsets := s.srcAdm.FetchManyOffsets(ctx, names...)
	own, err := s.dstAdm.DescribeGroups(ctx, names...)
	if err != nil {
		return err
	}
	for _, n := range names {
		x := SurveyGroup{Name: n}
		if r, ok := offsets[n]; ok && r.Err != nil {
			x.Skipped = fmt.Sprintf("its offsets can't be read on the source: %v", r.Err)
		} else if g, ok := own[n]; ok && len(g.Members) > 0 {
			x.Skipped = "the group has members here"
		}
		s.out.Groups = append(s.out.Groups, x)
	}
	return nil
}
