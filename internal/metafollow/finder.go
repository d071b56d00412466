package metafollow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/ids"
	"milena/internal/meta"
)

// Controller is a controller as this node knows it.
type Controller struct {
	ID   int32  // -1: not known yet
	Addr string // host:port, empty for the one in this process
}

func (c Controller) String() string {
	switch {
	case c.Addr == "":
		return fmt.Sprintf("controller %d in this process", c.ID)
	case c.ID < 0:
		return "controller at " + c.Addr
	}
	return fmt.Sprintf("controller %d at %s", c.ID, c.Addr)
}

// FinderOptions of a Finder. Dial is required.
type FinderOptions struct {
	NodeID    int32
	ClusterID string
	// Dial connects to a controller, in this process if the address is empty.
	Dial func(ctx context.Context, addr, clientID string) (Conn, error)
	// Inside: this process has a controller.
	Inside bool
	// Voters are the controllers as they are known at the moment beyond what others say:
	// from the configuration, or from the quorum in this process. May be nil.
	Voters func() []Controller
	// Bootstrap are addresses of controllers (controller.quorum.bootstrap.servers).
	Bootstrap []string
	// Timeout bounds each attempt at one controller (controller.quorum.request.timeout.ms).
	// Default 2 s.
	Timeout time.Duration
	// Backoff is the pause before controllers are asked again (controller.quorum.retry.backoff.ms).
	// Default 20 ms.
	Backoff time.Duration
	Logger  *slog.Logger // default: discards
}

// Finder knows where the active controller is: the leader of the metadata quorum. It asks
// the controllers it knows of, and learns from every reply that names the leader and its
// epoch; a newer epoch wins, so a controller that is cut off misleads nobody for long.
type Finder struct {
	o FinderOptions

	ctx  context.Context // of the questions; ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex // guards the fields below; never held across a wait
	leader  int32      // -1: not known
	epoch   int32      // the newest heard of
	addrs   map[int32]string
	links   []*Link             // that must reach the active controller
	asking  map[Controller]bool // questions under way
	changed chan struct{}       // closed and replaced when something was learned
}

// NewFinder returns a finder that knows nothing yet.
func NewFinder(o FinderOptions) *Finder {
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Backoff <= 0 {
		o.Backoff = 20 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Finder{o: o, leader: -1, epoch: -1, addrs: map[int32]string{}, asking: map[Controller]bool{}, changed: make(chan struct{})}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Close closes the links to the active controller and ends what is under way. Links to
// any controller are closed by themselves.
func (f *Finder) Close() {
	f.mu.Lock()
	links := f.links
	f.links = nil
	f.mu.Unlock()
	f.stop()
	for _, l := range links {
		_ = l.Close() // it can't fail
	}
	f.wg.Wait()
}

// Active returns a link to the active controller. It is dropped as soon as another one is
// known to be active.
func (f *Finder) Active(clientID string) *Link {
	l := newLink(func(ctx context.Context, _ int) (Conn, Controller, error) { return f.dialActive(ctx, clientID) }, f.refuted)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links = append(f.links, l)
	return l
}

// Any returns a link to any controller, the one in this process first, for what every
// controller can answer. When its connection is given up, the next controller is tried.
func (f *Finder) Any(clientID string) *Link {
	return newLink(func(ctx context.Context, turn int) (Conn, Controller, error) { return f.dialAny(ctx, clientID, turn) }, f.refuted)
}

// Leader returns the active controller as far as it is known.
func (f *Finder) Leader() (c Controller, epoch int32, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok = f.known()
	return c, f.epoch, ok
}

// known is the leader, if its address is known too; f.mu is held.
func (f *Finder) known() (Controller, bool) {
	if f.leader < 0 {
		return Controller{ID: -1}, false
	}
	if f.leader == f.o.NodeID && f.o.Inside {
		return Controller{ID: f.leader}, true
	}
	if addr, ok := f.addrs[f.leader]; ok {
		return Controller{ID: f.leader, Addr: addr}, true
	}
	return Controller{ID: -1}, false
}

// Learn takes in what a controller said: the leader of an epoch, -1 if it knows none, and
// where controllers are.
func (f *Finder) Learn(leader, epoch int32, nodes []Controller) {
	if f.o.Voters != nil {
		nodes = append(f.o.Voters(), nodes...)
	}
	f.mu.Lock()
	for _, n := range nodes {
		if n.ID >= 0 && n.Addr != "" {
			f.addrs[n.ID] = n.Addr
		}
	}
	before := f.leader
	switch {
	case epoch > f.epoch:
		f.leader, f.epoch = leader, epoch
	case epoch == f.epoch && f.leader < 0:
		f.leader = leader
	}
	leader, epoch = f.leader, f.epoch
	moved := leader >= 0 && leader != before
	var links []*Link
	if moved {
		links = slices.Clone(f.links)
	}
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
	if moved {
		f.o.Logger.Debug("the active controller", "controller", leader, "epoch", epoch)
	}
	for _, l := range links {
		l.leave(leader)
	}
}

// refuted hears that a controller broke off, or isn't the active one.
func (f *Finder) refuted(c Controller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.ID >= 0 && f.leader == c.ID {
		f.leader = -1
	}
}

func (f *Finder) dialActive(ctx context.Context, clientID string) (Conn, Controller, error) {
	c, err := f.find(ctx)
	if err != nil {
		return nil, c, err
	}
	conn, err := f.connect(ctx, c, clientID)
	if err != nil && ctx.Err() == nil {
		f.refuted(c)
	}
	return conn, c, err
}

func (f *Finder) connect(ctx context.Context, c Controller, clientID string) (Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	return f.o.Dial(ctx, c.Addr, clientID)
}

func (f *Finder) dialAny(ctx context.Context, clientID string, turn int) (Conn, Controller, error) {
	list := f.candidates()
	if len(list) == 0 {
		return nil, Controller{ID: -1}, errNowhere
	}
	if !f.o.Inside {
		turn += int(f.o.NodeID) // so that brokers spread over the controllers
	}
	c := list[turn%len(list)]
	conn, err := f.connect(ctx, c, clientID)
	return conn, c, err
}

var errNowhere = errors.New("no address of a controller is known: set controller.quorum.bootstrap.servers")

// candidates are all controllers that are known of: the one inside, then by id, then those
// of which only the address is known.
func (f *Finder) candidates() []Controller {
	addrs := map[int32]string{}
	f.mu.Lock()
	maps.Copy(addrs, f.addrs)
	f.mu.Unlock()
	if f.o.Voters != nil {
		for _, v := range f.o.Voters() {
			addrs[v.ID] = v.Addr
		}
	}
	var out []Controller
	seen := map[string]bool{}
	if f.o.Inside {
		out = append(out, Controller{ID: f.o.NodeID})
		seen[addrs[f.o.NodeID]] = true
	}
	for _, id := range slices.Sorted(maps.Keys(addrs)) {
		if addr := addrs[id]; addr != "" && !seen[addr] {
			seen[addr] = true
			out = append(out, Controller{ID: id, Addr: addr})
		}
	}
	for _, addr := range f.o.Bootstrap {
		if !seen[addr] {
			seen[addr] = true
			out = append(out, Controller{ID: -1, Addr: addr})
		}
	}
	return out
}

// find returns the active controller. It asks all controllers at once if it isn't known;
// one that hangs delays nobody. The error says what they answered.
func (f *Finder) find(ctx context.Context) (Controller, error) {
	f.mu.Lock()
	c, ok := f.known()
	changed := f.changed
	f.mu.Unlock()
	if ok {
		return c, nil
	}
	list := f.candidates()
	if len(list) == 0 {
		return c, errNowhere
	}
	answers := make(chan error, len(list))
	open := 0
	for _, c := range list {
		if f.startAsking(c) {
			open++
			f.wg.Go(func() { answers <- f.ask(c) })
		}
	}
	var errs []error
	settle := time.NewTimer(f.o.Timeout)
	defer settle.Stop()
	for {
		select {
		case err := <-answers:
			errs = append(errs, err)
			if open--; open == 0 { // those still asked by others may yet tell
				settle.Reset(f.o.Backoff)
			}
		case <-changed:
		case <-settle.C:
			return Controller{ID: -1}, nobodyLeads(errs)
		case <-ctx.Done():
			return Controller{ID: -1}, ctx.Err()
		case <-f.ctx.Done():
			return Controller{ID: -1}, errLinkClosed
		}
		f.mu.Lock()
		c, ok := f.known()
		changed = f.changed
		f.mu.Unlock()
		if ok {
			return c, nil
		}
	}
}

// nobodyLeads says what the controllers answered, in one line.
func nobodyLeads(errs []error) error {
	err := errors.New("no controller says that it is the active one")
	for _, e := range errs {
		if e != nil {
			err = fmt.Errorf("%w; %w", err, e)
		}
	}
	return err
}

func (f *Finder) startAsking(c Controller) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asking[c] {
		return false
	}
	f.asking[c] = true
	return true
}

// ask has a controller say who leads. Its answer is learned, whoever waits for it.
func (f *Finder) ask(c Controller) error {
	ctx, cancel := context.WithTimeout(f.ctx, f.o.Timeout)
	defer cancel()
	defer func() {
		f.mu.Lock()
		delete(f.asking, c)
		f.mu.Unlock()
	}()
	conn, err := f.o.Dial(ctx, c.Addr, fmt.Sprintf("node-%d-find-controller", f.o.NodeID))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it has answered
	r, err := conn.Call(ctx, whoLeads(f.o.ClusterID))
	if err != nil {
		return err
	}
	resp, ok := r.(*kmsg.FetchResponse)
	if !ok {
		return fmt.Errorf("%s answered Fetch with %T", c, r)
	}
	if err := codeError(resp.ErrorCode); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	leader, epoch, nodes, ok := leaderOf(resp)
	if !ok {
		return fmt.Errorf("%s doesn't know the metadata log", c)
	}
	f.Learn(leader, epoch, nodes)
	if leader < 0 {
		return fmt.Errorf("%s knows no leader, epoch %d", c, epoch)
	}
	return nil
}

// whoLeads is a fetch of nothing: its reply says who leads (KIP-595).
func whoLeads(cluster string) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ClusterID = &cluster
	req.ReplicaID, req.ReplicaState.ID = -1, -1
	req.SessionEpoch = -1
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.LastFetchedEpoch = math.MaxInt64, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = meta.TopicName, ids.MetadataTopic
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

// leaderOf reads who leads out of a reply to a fetch of the metadata log.
func leaderOf(resp *kmsg.FetchResponse) (leader, epoch int32, nodes []Controller, ok bool) {
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return -1, -1, nil, false
	}
	for _, b := range resp.Brokers {
		nodes = append(nodes, Controller{ID: b.NodeID, Addr: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))})
	}
	p := &resp.Topics[0].Partitions[0]
	return p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch, nodes, true
}
