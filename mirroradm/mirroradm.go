package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/ids"
	"milena/internal/mirrormsg"
)

// requests sends one request and returns its response; a *kgo.Client does.
type requests interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Client makes the calls. Its methods may be called from any goroutine.
type Client struct {
	cl      requests
	timeout time.Duration
}

// NewClient returns a Client on cl, which stays the caller's to close. Requests carry a timeout of 30 s. Those that do no harm twice go to
// another broker if one does not answer.
func NewClient(cl *kgo.Client) *Client {
	return &Client{cl: &anyBroker{Client: cl, answers: answers}, timeout: 30 * time.Second}
}

// SetTimeout sets the timeout that requests carry: how long the cluster may take to collect states and finish. It must not be
// called while requests are under way.
func (c *Client) SetTimeout(d time.Duration) { c.timeout = d }

func (c *Client) millis() int32 { return int32(c.timeout.Milliseconds()) }

// ask sends a request whose response is an R.
func ask[R kmsg.Response](ctx context.Context, c *Client, req kmsg.Request) (R, error) {
	var none R
	resp, err := c.cl.Request(ctx, req)
	if err != nil {
		return none, noMirroring(err)
	}
	r, ok := resp.(R)
	if !ok {
		return none, fmt.Errorf("the answer to a request of API %d is a %T", req.Key(), resp)
	}
	return r, nil
}

// Create makes a mirror with the given configs; bootstrap.servers and mirror.source.cluster.id are needed. The error is an
// *Error if the cluster refused. Whether the source can be reached is not checked.
func (c *Client) Create(ctx context.Context, name string, configs map[string]string) error {
	req := &mirrormsg.CreateClusterMirrorRequest{MirrorName: name}
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		v := configs[k]
		req.Config = append(req.Config, mirrormsg.CreateClusterMirrorConfig{Name: k, Value: &v})
	}
	r, err := ask[*mirrormsg.CreateClusterMirrorResponse](ctx, c, req)
	if err != nil {
		return err
	}
	return failure(r.ErrorCode, r.ErrorMessage)
}

// Delete removes a mirror whose topics are all stopped. The topics stay. With the mirror go the points up to which each log is
// the source's: a later failback of a topic can't tell any more what both clusters share.
func (c *Client) Delete(ctx context.Context, name string) error {
	req := mirrormsg.NewDeleteClusterMirrorRequest()
	req.MirrorName, req.TimeoutMs = name, c.millis()
	r, err := ask[*mirrormsg.DeleteClusterMirrorResponse](ctx, c, &req)
	if err != nil {
		return err
	}
	return failure(r.ErrorCode, r.ErrorMessage)
}

// TopicResult is what became of one topic of a request; Err is an *Error or nil.
type TopicResult struct {
	Topic string
	Err   error
	// Note is what the cluster adds to a success, such as that the source has no such topic yet; mostly empty.
	Note string
}

// TopicResults are what became of the topics of a request.
type TopicResults []TopicResult

// Error is the failures of all topics, nil if there is none. Each names its topic.
func (rs TopicResults) Error() error {
	var errs []error
	for _, r := range rs {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("topic %s: %w", r.Topic, r.Err))
		}
	}
	return errors.Join(errs...)
}

// On is what became of a topic; false if the cluster didn't say.
func (rs TopicResults) On(topic string) (TopicResult, bool) {
	i := slices.IndexFunc(rs, func(r TopicResult) bool { return r.Topic == topic })
	if i < 0 {
		return TopicResult{}, false
	}
	return rs[i], true
}

// Succeeded are the names of the topics without an error, in the order of the results.
func (rs TopicResults) Succeeded() []string {
	var out []string
	for _, r := range rs {
		if r.Err == nil {
			out = append(out, r.Topic)
		}
	}
	return out
}

func result(topic string, code int16, msg *string) TopicResult {
	r := TopicResult{Topic: topic, Err: failure(code, msg)}
	if r.Err == nil {
		r.Note = deref(msg)
	}
	return r
}

// StartTopic names a topic to mirror. ID and Partitions may be left zero: the cluster asks the source then.
type StartTopic struct {
	Name       string
	ID         [16]byte
	Partitions int32
}

// Start starts topics now, and topics that match the include patterns (and no exclude pattern) as they are found. Milena starts
// those that the source has at once: they are in the results beside the topics that were named. The error is the first failure
// of a topic, too.
func (c *Client) Start(ctx context.Context, mirror string, topics []StartTopic, include, exclude []string) (TopicResults, error) {
	req := mirrormsg.NewStartMirrorTopicsRequest()
	req.MirrorName, req.TimeoutMs, req.IncludePatterns, req.ExcludePatterns = mirror, c.millis(), include, exclude
	for _, t := range topics {
		req.Topics = append(req.Topics, mirrormsg.StartMirrorTopic{TopicID: ids.UUID(t.ID), TopicName: t.Name, NumPartitions: t.Partitions})
	}
	r, err := ask[*mirrormsg.StartMirrorTopicsResponse](ctx, c, &req)
	if err != nil {
		return nil, err
	}
	var out TopicResults
	for _, t := range r.Topics {
		out = append(out, result(t.Name, t.ErrorCode, t.ErrorMessage))
	}
	return out, failure(r.ErrorCode, r.ErrorMessage)
}

// Stop ends the mirroring of topics and makes them writable, once each of their partitions is STOPPED. Patterns are taken out of
// discovery: out of mirror.topics.include, and into mirror.topics.exclude.
func (c *Client) Stop(ctx context.Context, mirror string, topics, patterns []string) (TopicResults, error) {
	req := mirrormsg.NewStopMirrorTopicsRequest()
	req.MirrorName, req.TimeoutMs, req.Patterns = mirror, c.millis(), patterns
	for _, t := range topics {
		req.Topics = append(req.Topics, mirrormsg.StopMirrorTopic{TopicName: t})
	}
	r, err := ask[*mirrormsg.StopMirrorTopicsResponse](ctx, c, &req)
	if err != nil {
		return nil, err
	}
	var out TopicResults
	for _, t := range r.Topics {
		out = append(out, result(t.Name, t.ErrorCode, t.ErrorMessage))
	}
	return out, failure(r.ErrorCode, r.ErrorMessage)
}

// Pause suspends the mirroring of topics; they stay read-only.
func (c *Client) Pause(ctx context.Context, mirror string, topics []string) (TopicResults, error) {
	req := mirrormsg.NewPauseMirrorTopicsRequest()
	req.MirrorName, req.TimeoutMs = mirror, c.millis()
	for _, t := range topics {
		req.Topics = append(req.Topics, mirrormsg.PauseMirrorTopic{TopicName: t})
	}
	r, err := ask[*mirrormsg.PauseMirrorTopicsResponse](ctx, c, &req)
	if err != nil {
		return nil, err
	}
	var out TopicResults
	for _, t := range r.Topics {
		out = append(out, result(t.Name, t.ErrorCode, t.ErrorMessage))
	}
	return out, failure(r.ErrorCode, r.ErrorMessage)
}

// Resume takes the mirroring of paused topics up again.
func (c *Client) Resume(ctx context.Context, mirror string, topics []string) (TopicResults, error) {
	req := mirrormsg.NewResumeMirrorTopicsRequest()
	req.MirrorName, req.TimeoutMs = mirror, c.millis()
	for _, t := range topics {
		req.Topics = append(req.Topics, mirrormsg.ResumeMirrorTopic{TopicName: t})
	}
	r, err := ask[*mirrormsg.ResumeMirrorTopicsResponse](ctx, c, &req)
	if err != nil {
		return nil, err
	}
	var out TopicResults
	for _, t := range r.Topics {
		out = append(out, result(t.Name, t.ErrorCode, t.ErrorMessage))
	}
	return out, failure(r.ErrorCode, r.ErrorMessage)
}

// Recover takes FAILED partitions of topics back to the state they failed in, with a fresh count of retries.
func (c *Client) Recover(ctx context.Context, mirror string, topics []string) (TopicResults, error) {
	req := &mirrormsg.RecoverMirrorTopicsRequest{MirrorName: mirror}
	for _, t := range topics {
		req.Topics = append(req.Topics, mirrormsg.RecoverMirrorTopic{TopicName: t})
	}
	r, err := ask[*mirrormsg.RecoverMirrorTopicsResponse](ctx, c, req)
	if err != nil {
		return nil, err
	}
	var out TopicResults
	for _, t := range r.Topics {
		out = append(out, result(t.Name, t.ErrorCode, t.ErrorMessage))
	}
	return out, failure(r.ErrorCode, r.ErrorMessage)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// NewTopic is a topic to create as the copy of a source's before a mirror starts it: with a replication factor or a placement other
// than the default.
type NewTopic struct {
	Name string
	// SourceID is the id of the source's topic, which the copy has to have.
	SourceID [16]byte
	// Partitions is the number of the source's partitions.
	Partitions int32
	// ReplicationFactor is the number of replicas, -1 for the default. Both are -1 where Assignments place the replicas.
	ReplicationFactor int16
	// Assignments are the brokers of each partition; nil has the cluster place them.
	Assignments map[int32][]int32
	Configs     map[string]string
}

// CreateTopic creates a topic that a mirror can be started on. All of its replicas have to be on active brokers.
func (c *Client) CreateTopic(ctx context.Context, t NewTopic) error {
	versions, err := ask[*kmsg.ApiVersionsResponse](ctx, c, kmsg.NewPtrApiVersionsRequest())
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(versions.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
		return k.ApiKey == (*mirrormsg.CreateTopicsRequest)(nil).Key() && k.MaxVersion >= mirrormsg.CreateTopicsVersion
	}) {
		return fmt.Errorf("%w: it can't create topics as copies", ErrNoMirroring)
	}
	x := mirrormsg.CreatableTopic{Name: t.Name, NumPartitions: t.Partitions, ReplicationFactor: t.ReplicationFactor, MirrorInfo: &mirrormsg.MirrorInfo{TopicID: t.SourceID}}
	for _, p := range slices.Sorted(maps.Keys(t.Assignments)) {
		x.Assignments = append(x.Assignments, mirrormsg.CreatableReplicaAssignment{PartitionIndex: p, BrokerIDs: t.Assignments[p]})
	}
	for _, k := range slices.Sorted(maps.Keys(t.Configs)) {
		v := t.Configs[k]
		x.Configs = append(x.Configs, mirrormsg.CreatableTopicConfig{Name: k, Value: &v})
	}
	r, err := ask[*kmsg.CreateTopicsResponse](ctx, c, &mirrormsg.CreateTopicsRequest{Topics: []mirrormsg.CreatableTopic{x}, TimeoutMs: c.millis()})
	if err != nil {
		return err
	}
	for _, got := range r.Topics {
		if got.Topic == t.Name {
			return failure(got.ErrorCode, got.ErrorMessage)
		}
	}
	return errors.New("the answer to a request to create a topic lacks it")
}
