package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func (a *app) groupsCommand() *cobra.Command {
	return group("groups", "List, describe and delete consumer groups, and reset their offsets",
		a.groupsList(), a.groupsDescribe(), a.groupsDelete(), a.groupsReset())
}

func (a *app) groupsList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List groups with their type and state", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, adm *admin) error {
				gs, err := adm.ListGroups(ctx)
				if err != nil {
					return err
				}
				type row struct {
					Group    string `json:"group"`
					Type     string `json:"type"`
					State    string `json:"state"`
					Protocol string `json:"protocol_type"`
				}
				rows := []row{}
				t := table{header: []string{"GROUP", "TYPE", "STATE", "PROTOCOL-TYPE"}}
				for _, g := range gs.Sorted() {
					rows = append(rows, row{g.Group, g.GroupType, g.State, g.ProtocolType})
					t.add(g.Group, dash(g.GroupType), dash(g.State), dash(g.ProtocolType))
				}
				if a.json {
					return a.printJSON(map[string]any{"groups": rows})
				}
				a.printf("%s", t.String())
				return nil
			})
		},
	}
	return a.clientFlags(c)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

type lagJSON struct {
	Topic         string `json:"topic"`
	Partition     int32  `json:"partition"`
	CurrentOffset *int64 `json:"current_offset"`
	LogEndOffset  *int64 `json:"log_end_offset"`
	Lag           *int64 `json:"lag"`
	ConsumerID    string `json:"consumer_id,omitempty"`
	Host          string `json:"host,omitempty"`
	ClientID      string `json:"client_id,omitempty"`
}

type groupJSON struct {
	Group       string    `json:"group"`
	State       string    `json:"state"`
	Protocol    string    `json:"protocol"`
	Coordinator string    `json:"coordinator"`
	Members     int       `json:"members"`
	Partitions  []lagJSON `json:"partitions"`
}

func (a *app) groupsDescribe() *cobra.Command {
	c := &cobra.Command{
		Use: "describe [GROUP…]", Short: "Show committed offsets, lag and members of groups",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, adm *admin) error {
				out, others, failed := describeGroups(ctx, adm, args)
				for _, o := range others {
					a.notef("%v\n", o)
				}
				if len(out) == 0 && len(failed) > 0 {
					return errors.Join(failed...)
				}
				if a.json {
					return errors.Join(append(failed, a.printJSON(map[string]any{"groups": out}))...)
				}
				a.printGroups(out)
				return errors.Join(failed...)
			})
		},
	}
	return a.clientFlags(c)
}

func describeGroup(l kadm.DescribedGroupLag) (groupJSON, error) {
	if err := answer("group "+l.Group, errors.Join(l.DescribeErr, l.FetchErr), ""); err != nil {
		return groupJSON{}, err
	}
	g := groupJSON{Group: l.Group, State: l.State, Protocol: l.Protocol, Members: len(l.Members), Partitions: []lagJSON{},
		Coordinator: fmt.Sprintf("%s:%d (%d)", l.Coordinator.Host, l.Coordinator.Port, l.Coordinator.NodeID)}
	if l.State == "Dead" {
		return g, fmt.Errorf("group %s does not exist", l.Group)
	}
	for _, p := range l.Lag.Sorted() {
		j := lagJSON{Topic: p.Topic, Partition: p.Partition}
		if p.Commit.At >= 0 {
			j.CurrentOffset = &p.Commit.At
		}
		if p.End.Err == nil {
			j.LogEndOffset = &p.End.Offset
		}
		if p.Err == nil && p.Commit.At >= 0 {
			j.Lag = &p.Lag
		}
		if m := p.Member; m != nil {
			j.ConsumerID, j.Host, j.ClientID = m.MemberID, m.ClientHost, m.ClientID
		}
		g.Partitions = append(g.Partitions, j)
	}
	return g, nil
}

// printGroups prints Kafka's columns.
func (a *app) printGroups(gs []groupJSON) {
	for i, g := range gs {
		if i > 0 {
			a.printf("\n")
		}
		if g.Members == 0 {
			a.notef("Consumer group '%s' has no active members.\n", g.Group)
		}
		t := table{header: []string{"GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"}}
		for _, p := range g.Partitions {
			t.add(g.Group, p.Topic, p.Partition, number(p.CurrentOffset), number(p.LogEndOffset), number(p.Lag), dash(p.ConsumerID), dash(p.Host), dash(p.ClientID))
		}
		a.printf("%s", t.String())
	}
}

func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func (a *app) groupsDelete() *cobra.Command {
	c := &cobra.Command{
		Use: "delete GROUP…", Short: "Delete groups that have no members",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("groups delete needs GROUP: see milena groups delete --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, adm *admin) error {
				deleted, failed := deleteGroups(ctx, adm, args)
				if a.json {
					if err := a.printJSON(map[string]any{"deleted": deleted}); err != nil {
						return err
					}
				} else {
					for _, g := range deleted {
						a.printf("Deleted group %s.\n", g)
					}
				}
				return errors.Join(failed...)
			})
		},
	}
	return a.clientFlags(c)
}
