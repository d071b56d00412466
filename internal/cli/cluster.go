package cli

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (a *app) clusterCommand() *cobra.Command {
	return group("cluster", "Show the nodes of the cluster, and take brokers out of it", a.clusterDescribe(), a.clusterUnregister())
}

// clusterJSON is what describe prints.
type clusterJSON struct {
	ClusterID  string            `json:"cluster_id"`
	Controller *int32            `json:"controller_id"` // null: unknown; a broker's answer names any broker
	Nodes      []clusterNodeJSON `json:"nodes"`
}

type clusterNodeJSON struct {
	ID     int32   `json:"id"`
	Host   string  `json:"host"`
	Port   int32   `json:"port"`
	Rack   *string `json:"rack"`
	Fenced *bool   `json:"fenced"` // null: unknown
}

// Types of endpoints in DescribeCluster.
const (
	describeBrokers     int8 = 1
	describeControllers int8 = 2
)

func (a *app) clusterDescribe() *cobra.Command {
	var controllers string
	c := &cobra.Command{
		Use: "describe", Short: "Show the cluster id and its brokers, or with --bootstrap-controller its controllers", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, controllers, func(ctx context.Context, ask asker) error {
				kind := describeBrokers
				if controllers != "" {
					kind = describeControllers
				}
				out, err := describeCluster(ctx, ask, kind)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(out)
				}
				a.printCluster(out, kind)
				return nil
			})
		},
	}
	return a.quorumFlags(c, &controllers)
}

func describeCluster(ctx context.Context, ask asker, kind int8) (*clusterJSON, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType, req.IncludeFencedBrokers = kind, kind == describeBrokers
	r, err := ask(ctx, req)
	if err != nil {
		return nil, err
	}
	resp, ok := r.(*kmsg.DescribeClusterResponse)
	if !ok {
		return nil, fmt.Errorf("DescribeCluster was answered with %T", r)
	}
	if err := answer("cluster", codeError(resp.ErrorCode), deref(resp.ErrorMessage)); err != nil {
		return nil, err
	}
	out := &clusterJSON{ClusterID: resp.ClusterID, Nodes: []clusterNodeJSON{}}
	if resp.ControllerID >= 0 {
		out.Controller = &resp.ControllerID
	}
	for _, b := range resp.Brokers {
		n := clusterNodeJSON{ID: b.NodeID, Host: b.Host, Port: b.Port, Rack: b.Rack}
		if resp.Version >= 2 && kind == describeBrokers { // KIP-1073
			n.Fenced = &b.IsFenced
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out, nil
}

func (a *app) printCluster(c *clusterJSON, kind int8) {
	a.printf("Cluster id: %s\n", c.ClusterID)
	t := table{header: []string{"BROKER", "ADDRESS", "RACK", "STATE"}}
	if kind == describeControllers {
		t.header = []string{"CONTROLLER", "ADDRESS", "RACK", "STATE"}
	}
	for _, n := range c.Nodes {
		state := "-"
		switch {
		case kind == describeControllers && c.Controller != nil && *c.Controller == n.ID:
			state = "active"
		case n.Fenced != nil && *n.Fenced:
			state = "fenced"
		case n.Fenced != nil:
			state = "unfenced"
		}
		t.add(n.ID, net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port))), orDash(deref(n.Rack)), state)
	}
	a.printf("%s", t.String())
}

func (a *app) clusterUnregister() *cobra.Command {
	var controllers string
	c := &cobra.Command{
		Use: "unregister BROKER", Short: "Take a broker that is gone for good out of the cluster", Args: exactly("BROKER"),
		Long: "Stop the broker first, and move its replicas elsewhere: they stay assigned to it. A broker that still runs registers\n" +
			"again by itself.",
		Example: "  milena cluster unregister 3",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || id < 0 {
				return usagef("%q is no id of a broker: see milena cluster describe", args[0])
			}
			return a.ask(cmd, controllers, func(ctx context.Context, ask asker) error {
				req := kmsg.NewPtrUnregisterBrokerRequest()
				req.BrokerID = int32(id)
				r, err := ask(ctx, req)
				if err != nil {
					return err
				}
				resp, ok := r.(*kmsg.UnregisterBrokerResponse)
				if !ok {
					return fmt.Errorf("UnregisterBroker was answered with %T", r)
				}
				if err := answer(fmt.Sprintf("broker %d", id), codeError(resp.ErrorCode), deref(resp.ErrorMessage)); err != nil {
					return err
				}
				if a.json {
					return a.printJSON(map[string]any{"broker": id, "unregistered": true})
				}
				a.printf("Broker %d is unregistered.\n", id)
				return nil
			})
		},
	}
	return a.quorumFlags(c, &controllers)
}
