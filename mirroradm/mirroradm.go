// Package mirroradm is the admin client of Cluster Mirroring (KIP-1279): its calls on a kgo.Client, in shapes like kadm's.
//
//	cl, err := kgo.NewClient(kgo.SeedBrokers("standby:9092"), kgo.MaxVersions(nil))
//	adm := mirroradm.NewClient(cl)
//	mirrors, err := adm.Describe(ctx)
//
// The client must be made with kgo.MaxVersions(nil): kgo would refuse API keys it does not know otherwise.
package mirroradm

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/ids"
	"milena/internal/mirrormsg"
)

// Error is what a cluster answered: Kafka's code with its name, and the cluster's own words.
type Error struct {
	Code    int16
	Name    string
	Message string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Name
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Name)
}

func failure(code int16, msg *string) error {
	if code == 0 {
		return nil
	}
	e := &Error{Code: code, Name: api.Code(code).Name()}
	if msg != nil {
		e.Message = *msg
	}
	return e
}

// requests sends one request and returns its response; a *kgo.Client does.
type requests interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Client makes the calls. Its methods may be called from any goroutine.
type Client struct {
	cl      requests
	timeout time.Duration
}

// NewClient returns a Client on cl, which stays the caller's to close. Requests carry a timeout of 30 s.
func NewClient(cl *kgo.Client) *Client { return &Client{cl: cl, timeout: 30 * time.Second} }

// SetTimeout sets the timeout that requests carry: how long the cluster may take to collect states and finish.
func (c *Client) SetTimeout(d time.Duration) { c.timeout = d }

func (c *Client) millis() int32 { return int32(c.timeout.Milliseconds()) }

// Create makes a mirror with the given configs; bootstrap.servers and mirror.source.cluster.id are needed. The error is an
// *Error if the cluster refused.
func (c *Client) Create(ctx context.Context, name string, configs map[string]string) error {
	req := &mirrormsg.CreateClusterMirrorRequest{MirrorName: name}
	keys := make([]string, 0, len(configs))
	for k := range configs {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		v := configs[k]
		req.Config = append(req.Config, mirrormsg.CreateClusterMirrorConfig{Name: k, Value: &v})
	}
	resp, err := c.cl.Request(ctx, req)
	if err != nil {
		return err
	}
	r := resp.(*mirrormsg.CreateClusterMirrorResponse)
	return failure(r.ErrorCode, r.ErrorMessage)
}

// Delete removes a mirror whose topics are all stopped.
func (c *Client) Delete(ctx context.Context, name string) error {
	req := mirrormsg.NewDeleteClusterMirrorRequest()
	req.MirrorName, req.TimeoutMs = name, c.millis()
	resp, err := c.cl.Request(ctx, &req)
	if err != nil {
		return err
	}
	r := resp.(*mirrormsg.DeleteClusterMirrorResponse)
	return failure(r.ErrorCode, r.ErrorMessage)
}

// TopicResult is what became of one topic of a request; Err is an *Error or nil.
type TopicResult struct {
	Topic string
	Err   error
}

// StartTopic names a topic to mirror. ID and Partitions may be left zero: the cluster asks the source then.
type StartTopic struct {
	Name       string
	ID         [16]byte
	Partitions int32
}

// Start starts topics now, and topics that match the include patterns (and no exclude pattern) as they are found.
func (c *Client) Start(ctx context.Context, mirror string, topics []StartTopic, include, exclude []string) ([]TopicResult, error) {
	req := mirrormsg.NewStartMirrorTopicsRequest()
	req.MirrorName, req.TimeoutMs, req.IncludePatterns, req.ExcludePatterns = mirror, c.millis(), include, exclude
	for _, t := range topics {
		req.Topics = append(req.Topics, mirrormsg.StartMirrorTopic{TopicID: ids.UUID(t.ID), TopicName: t.Name, NumPartitions: t.Partitions})
	}
	resp, err := c.cl.Request(ctx, &req)
	if err != nil {
		return nil, err
	}
	r := resp.(*mirrormsg.StartMirrorTopicsResponse)
	var out []TopicResult
	for _, t := range r.Topics {
		out = append(out, TopicResult{t.Name, failure(t.ErrorCode, t.ErrorMessage)})
	}
	return out, failure(r.ErrorCode, r.ErrorMessage)
}

// Stop ends the mirroring of topics and makes them writable. Patterns are taken out of discovery.
func (c *Client) Stop(ctx context.Context, mirror string, topics, patterns []string) ([]TopicResult, error) {
	req := mirrormsg.NewStopMirrorTopicsRequest()
	req.MirrorName, req.TimeoutMs, req.Patterns = mirror, c.millis(), patterns
	for _, t := range topics {
		req.Topics = append(req.Topics, mirrormsg.StopMirrorTopic{TopicName: t})
	}
	resp, err := c.cl.Request(ctx, &req)
	if err != nil {
		return nil, err
	}
	r := resp.(*mirrormsg.StopMirrorTopicsResponse)
	var out []TopicResult
	for _, t := range r.Topics {
		out = append(out, TopicResult{t.Name, failure(t.ErrorCode, t.ErrorMessage)})
	}
	return out, failure(r.ErrorCode, r.ErrorMessage)
}

// Pause suspends the mirroring of topics; they stay read-only.
func (c *Client) Pause(ctx context.Context, mirror string, topics []string) ([]TopicResult, error) {
	req := mirrormsg.NewPauseMirrorTopicsRequest()
	req.MirrorName, req.TimeoutMs = mirror, c.millis()
	for _, t := range topics {
		req.Topics = append(req.Topics, mirrormsg.PauseMirrorTopic{TopicName: t})
	}
	resp, err := c.cl.Request(ctx, &req)
	if err != nil {
		return nil, err
	}
	r := resp.(*mirrormsg.PauseMirrorTopicsResponse)
	var out []TopicResult
	for _, t := range r.Topics {
		out = append(out, TopicResult{t.Name, failure(t.ErrorCode, t.ErrorMessage)})
	}
	return out, failure(r.ErrorCode, r.ErrorMessage)
}

// Resume takes the mirroring of paused topics up again.
func (c *Client) Resume(ctx context.Context, mirror string, topics []string) ([]TopicResult, error) {
	req := mirrormsg.NewResumeMirrorTopicsRequest()
	req.MirrorName, req.TimeoutMs = mirror, c.millis()
	for _, t := range topics {
		req.Topics = append(req.Topics, mirrormsg.ResumeMirrorTopic{TopicName: t})
	}
	resp, err := c.cl.Request(ctx, &req)
	if err != nil {
		return nil, err
	}
	r := resp.(*mirrormsg.ResumeMirrorTopicsResponse)
	var out []TopicResult
	for _, t := range r.Topics {
		out = append(out, TopicResult{t.Name, failure(t.ErrorCode, t.ErrorMessage)})
	}
	return out, failure(r.ErrorCode, r.ErrorMessage)
}

// Recover takes FAILED partitions of topics back to the state they failed in.
func (c *Client) Recover(ctx context.Context, mirror string, topics []string) ([]TopicResult, error) {
	req := &mirrormsg.RecoverMirrorTopicsRequest{MirrorName: mirror}
	for _, t := range topics {
		req.Topics = append(req.Topics, mirrormsg.RecoverMirrorTopic{TopicName: t})
	}
	resp, err := c.cl.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	r := resp.(*mirrormsg.RecoverMirrorTopicsResponse)
	var out []TopicResult
	for _, t := range r.Topics {
		out = append(out, TopicResult{t.Name, failure(t.ErrorCode, t.ErrorMessage)})
	}
	return out, failure(r.ErrorCode, r.ErrorMessage)
}

// Listed is a mirror as List shows it. Topics are those wished to be mirrored or paused.
type Listed struct {
	Name            string
	SourceBootstrap string
	SourceClusterID string
	ActiveTopics    int32
	Topics          []string
}

// List lists the mirrors, all without names.
func (c *Client) List(ctx context.Context, names ...string) ([]Listed, error) {
	resp, err := c.cl.Request(ctx, &mirrormsg.ListClusterMirrorsRequest{MirrorNameFilter: names})
	if err != nil {
		return nil, err
	}
	r := resp.(*mirrormsg.ListClusterMirrorsResponse)
	if err := failure(r.ErrorCode, r.ErrorMessage); err != nil {
		return nil, err
	}
	var out []Listed
	for _, m := range r.Mirrors {
		out = append(out, Listed{m.MirrorName, m.SourceBootstrap, m.SourceClusterID, m.TopicCount, m.TopicNames})
	}
	return out, nil
}

// Described is a mirror with its partitions. Err is an *Error if this mirror could not be described.
type Described struct {
	Name            string
	SourceBootstrap string
	SourceClusterID string
	Partitions      []Partition
	Err             error
}

// Partition is the state and progress of a mirror partition.
type Partition struct {
	Topic     string
	Partition int32
	// State is the partition's state by name, UNKNOWN if none is known.
	State string
	// SourceOffset is the source's high watermark as last seen, -1 if unknown; SourceAge is how long ago, negative if never.
	SourceOffset int64
	SourceAge    time.Duration
	// DestinationOffset is the mirror's high watermark, -1 if unknown.
	DestinationOffset int64
	// RetryAttempt counts automatic retries of a FAILED partition; -1: it is not retried.
	RetryAttempt int16
	// LastError says why the partition is FAILED, or what went wrong last.
	LastError string
}

// staleAfter is the age from which a source offset is not compared with any more.
const staleAfter = 11 * time.Second

// Lag is how many offsets the mirror is behind; false if that is not known.
func (p Partition) Lag() (int64, bool) {
	if p.SourceOffset < 0 || p.DestinationOffset < 0 || p.SourceAge < 0 || p.SourceAge > staleAfter {
		return 0, false
	}
	return max(p.SourceOffset-p.DestinationOffset, 0), true
}

// Describe collects states and progress of mirrors, all without names.
func (c *Client) Describe(ctx context.Context, names ...string) ([]Described, error) {
	if len(names) == 0 {
		names = nil // null asks for all, an empty list for none
	}
	req := &mirrormsg.DescribeClusterMirrorsRequest{MirrorNames: names, IncludeMirrorState: true, IncludeMirrorLags: true, TimeoutMs: c.millis()}
	resp, err := c.cl.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	r := resp.(*mirrormsg.DescribeClusterMirrorsResponse)
	if err := failure(r.ErrorCode, r.ErrorMessage); err != nil {
		return nil, err
	}
	var out []Described
	for _, m := range r.Mirrors {
		d := Described{Name: m.MirrorName, SourceBootstrap: deref(m.SourceBootstrap), SourceClusterID: deref(m.SourceClusterID), Err: failure(m.ErrorCode, m.ErrorMessage)}
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				d.Partitions = append(d.Partitions, Partition{Topic: t.TopicName, Partition: p.PartitionIndex, State: p.StateValue, SourceOffset: p.SourceOffset,
					SourceAge: time.Duration(p.SourceOffsetAgeMs) * time.Millisecond, DestinationOffset: p.DestinationOffset, RetryAttempt: p.RetryAttempt, LastError: deref(p.ErrorMessage)})
			}
		}
		out = append(out, d)
	}
	return out, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
