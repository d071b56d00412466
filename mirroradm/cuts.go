package mirroradm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/mirrormsg"
	"milena/internal/record"
)

// Cut is a file of records that a truncation of a mirror partition took and a broker has set aside.
type Cut struct {
	// Broker is the one that cut; Dir and File are where it keeps the file.
	Broker    int32
	Dir, File string
	// Mirror is empty where an older release cut.
	Mirror    string
	Topic     string
	TopicID   string
	Partition int32
	// First is the first offset, End comes after the last.
	First, End     int64
	Records, Bytes int64
	Created        time.Time
	// LeaderEpoch is the one under which the broker cut, -1 if it isn't known.
	LeaderEpoch int32
	Reason      string
}

// Gap says that no records were cut: the offsets are those that the mirror went on without, for the Reason.
func (c *Cut) Gap() bool {
	return c.Records == 0 && c.Bytes == 0 && strings.HasPrefix(c.Reason, "gap: ")
}

// CutFilter chooses cuts. The zero value takes all.
type CutFilter struct {
	Mirror string // empty: any
	Topics []string
	Before time.Time // set aside before then
}

func (f CutFilter) match(c *Cut) bool {
	return (f.Mirror == "" || c.Mirror == f.Mirror) && (len(f.Topics) == 0 || slices.Contains(f.Topics, c.Topic)) && (f.Before.IsZero() || c.Created.Before(f.Before))
}

// listTimeout bounds how long a listing waits for one broker: it is most wanted while one of them is down.
const listTimeout = 3 * time.Second

// BrokerError is why a broker could not tell something.
type BrokerError struct {
	Broker int32
	Err    error
}

// Error implements error.
func (e *BrokerError) Error() string { return fmt.Sprintf("broker %d: %v", e.Broker, e.Err) }

// Unwrap is the reason.
func (e *BrokerError) Unwrap() error { return e.Err }

// ErrBrokerDown is why a broker that is registered and not alive can't tell anything.
var ErrBrokerDown = errors.New("it is down")

// Cuts lists what is set aside, on every broker: by topic and partition, then in the order it was cut. Of a broker that is down, can't be
// asked, or doesn't answer within 3 s, a *[BrokerError] is joined in the error, which leaves the others' cuts valid.
func (c *Client) Cuts(ctx context.Context, f CutFilter) ([]Cut, error) {
	brokers, down, err := c.registered(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	answers, errs := make([]*mirrormsg.MirrorCutsResponse, len(brokers)), make([]error, len(brokers))
	var wg sync.WaitGroup
	for i, b := range brokers {
		wg.Go(func() {
			if answers[i], errs[i] = c.onBroker(ctx, b, &mirrormsg.MirrorCutsRequest{Operation: mirrormsg.ListCuts}); errs[i] != nil {
				if ctx.Err() != nil {
					errs[i] = fmt.Errorf("it did not answer within %s: %w", listTimeout, errs[i])
				}
				errs[i] = &BrokerError{b, errs[i]}
			}
		})
	}
	wg.Wait()
	var out []Cut
	for i, b := range brokers {
		if errs[i] != nil {
			continue
		}
		for _, x := range answers[i].Cuts {
			cut := Cut{
				Broker: b, Dir: x.Dir, File: x.Name, Mirror: x.MirrorName, Topic: x.TopicName, TopicID: x.TopicID, Partition: x.PartitionIndex, First: x.FirstOffset,
				End: x.EndOffset, Records: x.Records, Bytes: x.Bytes, Created: time.UnixMilli(x.CreatedMs), LeaderEpoch: x.LeaderEpoch, Reason: x.Reason,
			}
			if f.match(&cut) {
				out = append(out, cut)
			}
		}
	}
	slices.SortFunc(out, func(a, b Cut) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), a.Created.Compare(b.Created), cmp.Compare(a.Broker, b.Broker), strings.Compare(a.File, b.File))
	})
	for _, b := range down {
		errs = append(errs, &BrokerError{b, ErrBrokerDown})
	}
	return out, errors.Join(errs...)
}

// registered are the brokers that are alive, and those that the cluster knows and that are not. A cluster that doesn't tell of those
// (before KIP-1073) has none.
func (c *Client) registered(ctx context.Context) (alive, down []int32, err error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers = true
	r, err := ask[*kmsg.DescribeClusterResponse](ctx, c, req)
	if err != nil {
		return nil, nil, err
	}
	if r.ErrorCode != 0 || r.Version < 2 {
		alive, err = c.brokers(ctx)
		return alive, nil, err
	}
	for _, b := range r.Brokers {
		if b.IsFenced {
			down = append(down, b.NodeID)
		} else {
			alive = append(alive, b.NodeID)
		}
	}
	slices.Sort(alive)
	slices.Sort(down)
	return alive, down, nil
}

func (c *Client) brokers(ctx context.Context) ([]int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	r, err := ask[*kmsg.MetadataResponse](ctx, c, req)
	if err != nil {
		return nil, err
	}
	var out []int32
	for _, b := range r.Brokers {
		out = append(out, b.NodeID)
	}
	slices.Sort(out)
	return out, nil
}

// onBroker sends one broker a request about what it has set aside.
func (c *Client) onBroker(ctx context.Context, broker int32, req *mirrormsg.MirrorCutsRequest) (*mirrormsg.MirrorCutsResponse, error) {
	cl, ok := c.cl.(interface{ Broker(int) *kgo.Broker })
	if !ok {
		return nil, errors.New("the client can't ask single brokers")
	}
	resp, err := cl.Broker(int(broker)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, noMirroring(err)
	}
	r, ok := resp.(*mirrormsg.MirrorCutsResponse)
	if !ok {
		return nil, fmt.Errorf("its answer is a %T", resp)
	}
	if err := failure(r.ErrorCode, r.ErrorMessage); err != nil {
		return nil, err
	}
	return r, nil
}

// PurgeCuts removes files for good.
func (c *Client) PurgeCuts(ctx context.Context, cuts []Cut) error {
	byBroker := map[int32]*mirrormsg.MirrorCutsRequest{}
	for _, x := range cuts {
		if byBroker[x.Broker] == nil {
			byBroker[x.Broker] = &mirrormsg.MirrorCutsRequest{Operation: mirrormsg.PurgeCuts}
		}
		byBroker[x.Broker].Names = append(byBroker[x.Broker].Names, x.File)
	}
	var errs []error
	for b, req := range byBroker {
		if _, err := c.onBroker(ctx, b, req); err != nil {
			errs = append(errs, &BrokerError{b, err})
		}
	}
	return errors.Join(errs...)
}

// cutChunk is how much of a file is asked for at once.
const cutChunk = 1 << 20

// CutData iterates over a file's bytes: whole batches of Kafka's format, as they were in the log. What it yields is the receiver's. An
// error ends the iteration.
func (c *Client) CutData(ctx context.Context, x Cut) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for pos := int64(0); ; {
			r, err := c.onBroker(ctx, x.Broker, &mirrormsg.MirrorCutsRequest{Operation: mirrormsg.ReadCut, Names: []string{x.File}, Position: pos, MaxBytes: cutChunk})
			if err != nil {
				yield(nil, &BrokerError{x.Broker, err})
				return
			}
			if len(r.Data) == 0 || !yield(r.Data, nil) {
				return
			}
			pos += int64(len(r.Data))
		}
	}
}

// CutRecord is a record that was set aside.
type CutRecord struct {
	Topic       string
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Timestamp   time.Time
	Key, Value  []byte // nil: null
	Headers     []kgo.RecordHeader
	// Transactional is set for records of a transaction; Committed if what was set aside shows that it was committed.
	Transactional, Committed bool
}

// batchKey tells whether two batches are the same one: leaders that cut one after the other may both have set it aside.
type batchKey struct {
	topicID      string
	partition    int32
	base, length int64
	epoch        int32
	crc          uint32
}

// CutRecords iterates over the records of files, each once, in the order of the files. Control records are left out. An error ends the
// iteration.
func (c *Client) CutRecords(ctx context.Context, cuts []Cut) iter.Seq2[CutRecord, error] {
	return func(yield func(CutRecord, error) bool) {
		ends := txnEnds{}
		for _, x := range cuts { // first where transactions end, which is behind their records
			for b, err := range c.cutBatches(ctx, x) {
				if err != nil {
					yield(CutRecord{}, err)
					return
				}
				if err := ends.note(x, b); err != nil {
					yield(CutRecord{}, err)
					return
				}
			}
		}
		seen := map[batchKey]bool{}
		for _, x := range cuts {
			for b, err := range c.cutBatches(ctx, x) {
				if err != nil {
					yield(CutRecord{}, err)
					return
				}
				k := batchKey{x.TopicID, x.Partition, b.BaseOffset(), b.Len(), b.LeaderEpoch(), b.CRC()}
				if b.IsControl() || seen[k] {
					continue
				}
				seen[k] = true
				if !cutRecords(x, b, ends, yield) {
					return
				}
			}
		}
	}
}

func cutRecords(x Cut, b record.Batch, ends txnEnds, yield func(CutRecord, error) bool) bool {
	for r, err := range b.Records(0) {
		if err != nil {
			return yield(CutRecord{}, fmt.Errorf("%s of broker %d: batch at offset %d: %w", x.File, x.Broker, b.BaseOffset(), err))
		}
		out := CutRecord{
			Topic: x.Topic, Partition: x.Partition, Offset: r.Offset, LeaderEpoch: b.LeaderEpoch(), Timestamp: time.UnixMilli(r.Timestamp), Key: r.Key, Value: r.Value,
			Transactional: b.IsTransactional(), Committed: !b.IsTransactional() || ends.committed(x, b),
		}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		if !yield(out, nil) {
			return false
		}
	}
	return true
}

// cutBatches iterates over a file's batches, whose checksums are looked at.
func (c *Client) cutBatches(ctx context.Context, x Cut) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		for data, err := range c.CutData(ctx, x) {
			if err != nil {
				yield(nil, err)
				return
			}
			for b, err := range record.Batches(data) {
				if err == nil {
					err = b.CheckCRC()
				}
				if err != nil {
					yield(nil, fmt.Errorf("%s of broker %d: %w", x.File, x.Broker, err))
					return
				}
				if !yield(b, nil) {
					return
				}
			}
		}
	}
}

// txnEnds are the offsets at which transactions end, by partition and producer; the value says whether by a commit.
type txnEnds map[txnKey]map[int64]bool

type txnKey struct {
	topicID   string
	partition int32
	producer  int64
}

func (e txnEnds) note(x Cut, b record.Batch) error {
	if !b.IsControl() || !b.IsTransactional() {
		return nil
	}
	end, ok, err := b.Control()
	if err != nil || !ok || !end.EndsTxn() {
		return err
	}
	k := txnKey{x.TopicID, x.Partition, b.ProducerID()}
	if e[k] == nil {
		e[k] = map[int64]bool{}
	}
	e[k][b.BaseOffset()] = end.Type == record.ControlCommit
	return nil
}

// committed says whether the first end of a transaction of the batch's producer behind it is a commit.
func (e txnEnds) committed(x Cut, b record.Batch) bool {
	first, committed := int64(-1), false
	for at, commit := range e[txnKey{x.TopicID, x.Partition, b.ProducerID()}] {
		if at > b.BaseOffset() && (first < 0 || at < first) {
			first, committed = at, commit
		}
	}
	return committed
}
