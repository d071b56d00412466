package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/client"
	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/peer"
	"milena/internal/quorum"
	"milena/internal/quorum/transport"
)

func (a *app) quorumCommand() *cobra.Command {
	return group("quorum", "Show the controllers, add and remove them", a.quorumDescribe(), a.quorumAdd(), a.quorumRemove())
}

// quorumFlags adds the flags of commands that a controller can be asked as well.
func (a *app) quorumFlags(c *cobra.Command, controllers *string) *cobra.Command {
	c.Flags().StringVar(controllers, "bootstrap-controller", "", "ask a controller at `HOST:PORT[,…]`, not a broker")
	return a.clientFlags(c)
}

// asker sends a request to a broker, which passes it on, or to the leading controller.
type asker func(ctx context.Context, req kmsg.Request) (kmsg.Response, error)

// ask runs f with a way to send requests, within the command's time-out.
func (a *app) ask(cmd *cobra.Command, controllers string, f func(ctx context.Context, ask asker) error) error {
	if controllers == "" {
		return a.admin(cmd, func(ctx context.Context, adm *admin) error { return f(ctx, adm.raw.Request) })
	}
	if cmd.Flags().Changed("bootstrap-server") {
		return usagef("--bootstrap-server and --bootstrap-controller exclude each other")
	}
	conf, err := a.settings(cmd)
	if err != nil {
		return err
	}
	a.bootstrap = controllers
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(a.timeout)*time.Millisecond)
	defer cancel()
	c, err := a.leadingController(ctx, conf, strings.Split(controllers, ","))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // everything was answered
	return f(ctx, c.Call)
}

func (a *app) dialController(ctx context.Context, conf *client.Config, addr string) (*peer.Conn, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, usagef("--bootstrap-controller %q is not HOST:PORT", addr)
	}
	return peer.Dial(ctx, peer.Options{
		Addr: addr, TLS: conf.TLS, SASL: conf.SASL, ClientID: conf.ClientID,
		RequestTimeout: max(conf.RequestTimeout, time.Duration(a.timeout)*time.Millisecond),
	})
}

// leadingController connects to the controller that leads, by way of one of the addresses.
// While the controllers that answer know no leader, it asks again.
func (a *app) leadingController(ctx context.Context, conf *client.Config, addrs []string) (*peer.Conn, error) {
	const patience, pause = 10 * time.Second, 200 * time.Millisecond
	for begin := time.Now(); ; {
		c, err := a.tryLeadingController(ctx, conf, addrs)
		var refused *api.Error
		if err == nil || !errors.As(err, &refused) || time.Since(begin) > patience {
			return c, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (a *app) tryLeadingController(ctx context.Context, conf *client.Config, addrs []string) (*peer.Conn, error) {
	var failed error
	for _, addr := range addrs {
		c, err := a.dialController(ctx, conf, strings.TrimSpace(addr))
		var usage *usageError
		if errors.As(err, &usage) {
			return nil, err
		}
		if err != nil {
			failed = err
			continue
		}
		leader, _, err := transport.DescribeLeader(ctx, c)
		if err == nil {
			lc, dialErr := a.dialController(ctx, conf, leader.Endpoints[0].Addr())
			_ = c.Close() // its answer is here
			if dialErr == nil {
				return lc, nil
			}
			err = dialErr
		} else {
			_ = c.Close() // it can't help
		}
		failed = err
	}
	return nil, &exitError{ExitUnreachable, fmt.Errorf("cannot reach the leading controller by %s: %w: check --bootstrap-controller and --command-config", strings.Join(addrs, ","), failed)}
}

// quorumState is what describe prints.
type quorumState struct {
	Leader        int32           `json:"leader_id"` // -1: unknown
	Epoch         int32           `json:"leader_epoch"`
	HighWatermark int64           `json:"high_watermark"`
	Voters        []quorumReplica `json:"voters"`
	Observers     []quorumReplica `json:"observers"`
}

type quorumReplica struct {
	ID           int32    `json:"id"`
	Directory    string   `json:"directory_id,omitempty"` // absent: unknown
	Endpoints    []string `json:"endpoints,omitempty"`
	LogEndOffset *int64   `json:"log_end_offset"` // null: unknown
	Lag          *int64   `json:"lag"`
	LastFetch    *int64   `json:"last_fetch_ms"` // Unix time
	LastCaughtUp *int64   `json:"last_caught_up_ms"`
	Leader       bool     `json:"leader"`
}

func (a *app) quorumDescribe() *cobra.Command {
	var controllers string
	c := &cobra.Command{
		Use: "describe", Short: "Show the leader, the voters and those that read the metadata log", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, controllers, func(ctx context.Context, ask asker) error {
				s, err := describeQuorum(ctx, ask)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(s)
				}
				a.printQuorum(s)
				return nil
			})
		},
	}
	return a.quorumFlags(c, &controllers)
}

func describeQuorum(ctx context.Context, ask asker) (*quorumState, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic, topic.Partitions = meta.TopicName, append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	r, err := ask(ctx, req)
	if err != nil {
		return nil, err
	}
	resp, ok := r.(*kmsg.DescribeQuorumResponse)
	if !ok {
		return nil, fmt.Errorf("DescribeQuorum was answered with %T", r)
	}
	if err := answer("quorum", codeError(resp.ErrorCode), deref(resp.ErrorMessage)); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("the answer does not describe the quorum")
	}
	p := &resp.Topics[0].Partitions[0]
	if err := answer("quorum", codeError(p.ErrorCode), deref(p.ErrorMessage)); err != nil {
		return nil, err
	}
	s := &quorumState{Leader: p.LeaderID, Epoch: p.LeaderEpoch, HighWatermark: p.HighWatermark, Observers: []quorumReplica{}}
	end := int64(-1)
	for _, v := range p.CurrentVoters {
		if v.ReplicaID == p.LeaderID {
			end = v.LogEndOffset
		}
	}
	for _, v := range p.CurrentVoters {
		q := describedReplica(v, end)
		q.Leader = v.ReplicaID == p.LeaderID
		for _, n := range resp.Nodes {
			if n.NodeID != v.ReplicaID {
				continue
			}
			for _, l := range n.Listeners {
				q.Endpoints = append(q.Endpoints, l.Name+"://"+net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))))
			}
		}
		s.Voters = append(s.Voters, q)
	}
	for _, o := range p.Observers {
		s.Observers = append(s.Observers, describedReplica(o, end))
	}
	return s, nil
}

func describedReplica(v kmsg.DescribeQuorumResponseTopicPartitionReplicaState, end int64) quorumReplica {
	q := quorumReplica{ID: v.ReplicaID}
	if id := ids.UUID(v.ReplicaDirectoryID); !id.IsZero() {
		q.Directory = id.String()
	}
	known := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	q.LogEndOffset, q.LastFetch, q.LastCaughtUp = known(v.LogEndOffset), known(v.LastFetchTimestamp), known(v.LastCaughtUpTimestamp)
	if end >= 0 && v.LogEndOffset >= 0 {
		q.Lag = known(max(end-v.LogEndOffset, 0))
	}
	return q
}

func (a *app) printQuorum(s *quorumState) {
	leader := "none"
	if s.Leader >= 0 {
		leader = strconv.Itoa(int(s.Leader))
	}
	a.printf("Leader: %s  Epoch: %d  HighWatermark: %d\n\n", leader, s.Epoch, s.HighWatermark)
	t := table{header: []string{"NODE", "ROLE", "LOG-END-OFFSET", "LAG", "LAST-FETCH", "LAST-CAUGHT-UP", "DIRECTORY-ID", "ENDPOINTS"}}
	add := func(q quorumReplica, role string) {
		t.add(q.ID, role, orNone(q.LogEndOffset), orNone(q.Lag), moment(q.LastFetch), moment(q.LastCaughtUp), orDash(q.Directory), orDash(strings.Join(q.Endpoints, ",")))
	}
	for _, v := range s.Voters {
		role := "voter"
		if v.Leader {
			role = "leader"
		}
		add(v, role)
	}
	for _, o := range s.Observers {
		add(o, "observer")
	}
	a.printf("%s", t.String())
}

func orNone(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func moment(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return time.UnixMilli(*ms).UTC().Format(time.RFC3339)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// voterFlags say which controller is meant.
type voterFlags struct {
	server    serverFlags
	id        int32
	directory string
	endpoints []string
}

func (v *voterFlags) add(c *cobra.Command) {
	c.Flags().Int32Var(&v.id, "controller-id", -1, "the controller's node `ID`")
	c.Flags().StringVar(&v.directory, "controller-directory-id", "", "the directory `ID` of its metadata log directory, as storage info prints")
}

func (v *voterFlags) member() (quorum.Member, error) {
	dir, err := ids.Parse(v.directory)
	if v.id < 0 || err != nil {
		return quorum.Member{}, usagef("--controller-id ID and --controller-directory-id ID are needed: milena quorum describe and milena storage info show them")
	}
	return quorum.Member{ID: v.id, Directory: dir}, nil
}

// voter is the controller that the flags, or its configuration file, describe.
func (v *voterFlags) voter(a *app) (quorum.Voter, error) {
	if v.server.config == "" {
		m, err := v.member()
		if err != nil {
			return quorum.Voter{}, err
		}
		out := quorum.Voter{Member: m}
		for _, e := range v.endpoints {
			ep, err := parseEndpoint(e)
			if err != nil {
				return quorum.Voter{}, err
			}
			out.Endpoints = append(out.Endpoints, ep)
		}
		if len(out.Endpoints) == 0 {
			return quorum.Voter{}, usagef("--endpoint HOST:PORT is needed: where the other controllers reach it")
		}
		return out, nil
	}
	n, _, err := a.nodeConfig(&v.server)
	if err != nil {
		return quorum.Voter{}, err
	}
	m, err := logdir.ReadMeta(disk.OS(), n.MetadataLogDir)
	if err != nil {
		return quorum.Voter{}, &exitError{ExitFailed, fmt.Errorf("%s: %w", n.MetadataLogDir, err)}
	}
	out := quorum.Voter{Member: quorum.Member{ID: n.ID, Directory: m.Directory}, Endpoints: controllerEndpoints(n)}
	if len(out.Endpoints) == 0 {
		return quorum.Voter{}, usagef("%s has no controller listener: set controller.listener.names and listeners", v.server.config)
	}
	return out, nil
}

// parseEndpoint reads [NAME://]HOST:PORT.
func parseEndpoint(text string) (quorum.Endpoint, error) {
	e := quorum.Endpoint{Name: "CONTROLLER"}
	addr := text
	if name, rest, ok := strings.Cut(text, "://"); ok {
		e.Name, addr = strings.ToUpper(name), rest
	}
	host, port, err := net.SplitHostPort(addr)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || n == 0 || host == "" || e.Name == "" {
		return e, usagef("--endpoint %q is not [NAME://]HOST:PORT", text)
	}
	e.Host, e.Port = host, uint16(n)
	return e, nil
}

func (a *app) quorumAdd() *cobra.Command {
	var controllers string
	var v voterFlags
	c := &cobra.Command{
		Use: "add", Short: "Make a running controller a voter", Args: noArgs,
		Long: "Makes a controller a voter of the metadata quorum. It runs, formatted with --no-initial-controllers, and the leader\n" +
			"feeds it the metadata log first. Name it by its configuration file, on its own machine, or by ids and endpoint.",
		Example: "  milena quorum add --config controller4.properties --bootstrap-server broker1:9092",
		RunE: func(cmd *cobra.Command, _ []string) error {
			voter, err := v.voter(a)
			if err != nil {
				return err
			}
			return a.ask(cmd, controllers, func(ctx context.Context, ask asker) error { return a.addVoter(ctx, ask, voter) })
		},
	}
	v.add(c)
	c.Flags().StringVar(&v.server.config, "config", "", "the controller's server.properties `FILE`")
	c.Flags().StringArrayVar(&v.endpoints, "endpoint", nil, "its controller listener, `[NAME://]HOST:PORT`; may be repeated")
	return a.quorumFlags(c, &controllers)
}

func (a *app) addVoter(ctx context.Context, ask asker, v quorum.Voter) error {
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID = v.ID, v.Directory
	req.TimeoutMillis = int32(min(a.timeout, math.MaxInt32))
	var names []string
	for _, e := range v.Endpoints {
		l := kmsg.NewAddRaftVoterRequestListener()
		l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
		req.Listeners = append(req.Listeners, l)
		names = append(names, e.Name+"://"+e.Addr())
	}
	r, err := ask(ctx, req)
	if err != nil {
		return err
	}
	resp, ok := r.(*kmsg.AddRaftVoterResponse)
	if !ok {
		return fmt.Errorf("AddRaftVoter was answered with %T", r)
	}
	if err := answer(fmt.Sprintf("controller %d", v.ID), codeError(resp.ErrorCode), deref(resp.ErrorMessage)); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"added": v.ID, "directory_id": v.Directory.String(), "endpoints": names})
	}
	a.printf("Added controller %d with directory id %s and endpoints %s.\n", v.ID, v.Directory, strings.Join(names, ","))
	return nil
}

func (a *app) quorumRemove() *cobra.Command {
	var controllers string
	var v voterFlags
	c := &cobra.Command{
		Use: "remove", Short: "Make a controller no voter any more", Args: noArgs,
		Example: "  milena quorum remove --controller-id 4 --controller-directory-id JEXY6aqzQY-32P5TStzaFg",
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := v.member()
			if err != nil {
				return err
			}
			return a.ask(cmd, controllers, func(ctx context.Context, ask asker) error { return a.removeVoter(ctx, ask, m) })
		},
	}
	v.add(c)
	return a.quorumFlags(c, &controllers)
}

func (a *app) removeVoter(ctx context.Context, ask asker, m quorum.Member) error {
	req := kmsg.NewPtrRemoveRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID = m.ID, m.Directory
	r, err := ask(ctx, req)
	if err != nil {
		return err
	}
	resp, ok := r.(*kmsg.RemoveRaftVoterResponse)
	if !ok {
		return fmt.Errorf("RemoveRaftVoter was answered with %T", r)
	}
	if err := answer(fmt.Sprintf("controller %d", m.ID), codeError(resp.ErrorCode), deref(resp.ErrorMessage)); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"removed": m.ID, "directory_id": m.Directory.String()})
	}
	a.printf("Removed controller %d with directory id %s.\n", m.ID, m.Directory)
	return nil
}
