package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

// fenceAdmin runs f with a client on the cluster whose topics are fenced: the source of a mirror.
func (a *app) fenceAdmin(cmd *cobra.Command, f func(ctx context.Context, m *mirroradm.Client, adm *admin) error) error {
	return a.admin(cmd, func(ctx context.Context, adm *admin) error {
		m := mirroradm.NewClient(adm.raw)
		m.SetTimeout(min(time.Duration(a.timeout)*time.Millisecond, 30*time.Second))
		err := f(ctx, m, adm)
		if errors.Is(err, mirroradm.ErrNoFence) {
			return fmt.Errorf("the cluster at %s has no write fence: it is not Milena, or an older release; nothing was changed", a.bootstrap)
		}
		return err
	})
}

// clusterTopics are the topics of the cluster that names and patterns match, without internal ones; each must match one.
func clusterTopics(ctx context.Context, adm *admin, patterns []string) ([]string, error) {
	all, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range patterns {
		match, err := topicMatch([]string{p})
		if err != nil {
			return nil, err
		}
		found := false
		for _, t := range all.Names() {
			if match(t) && !all[t].IsInternal {
				found = true
				out = append(out, t)
			}
		}
		if !found {
			return nil, fmt.Errorf("the cluster has no topic that matches %s; nothing was changed", p)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (a *app) mirrorsFence() *cobra.Command {
	var topics []string
	var redirect bool
	var lasts time.Duration
	c := &cobra.Command{
		Use: "fence --topics …", Short: "Refuse clients' writes to topics of a source", Args: noArgs,
		Long: "Sets the topic config milena.write.fence on the cluster at --bootstrap-server, which is the source of a mirror: clients' writes\n" +
			"are refused with POLICY_VIOLATION until milena mirrors unfence, and so is DeleteRecords. Mirrors, followers, readers and commits\n" +
			"go on. When the command is done every broker has applied it, and nothing that a client wrote is on its way into a log.\n\n" +
			"--redirect is about the whole cluster, and needs no topics: until --for is over, clients are sent back to their bootstrap servers\n" +
			"(KIP-1102; connections of clients that don't know that are closed). Make the bootstrap name lead to the other cluster first;\n" +
			"clients whose bootstrap servers are still this cluster's come back in vain until then. Brokers, mirrors between Milena clusters and\n" +
			"the milena tool are not sent away, except milena produce and milena consume.",
		Example: "  milena mirrors fence --topics 'orders.*' --bootstrap-server old:9092\n  milena mirrors fence --redirect --for 30m --bootstrap-server old:9092",
		RunE: func(cmd *cobra.Command, _ []string) error {
			patterns := splitList(topics)
			switch {
			case len(patterns) == 0 && !redirect:
				return usagef("mirrors fence needs --topics or --redirect")
			case !redirect && cmd.Flags().Changed("for"):
				return usagef("--for goes with --redirect only: a fence of topics stays until milena mirrors unfence")
			case lasts <= 0:
				return usagef("--for must be above 0")
			}
			return a.fenceAdmin(cmd, func(ctx context.Context, m *mirroradm.Client, adm *admin) error {
				return a.fence(ctx, m, adm, patterns, redirect, lasts)
			})
		},
	}
	f := c.Flags()
	f.StringArrayVar(&topics, "topics", nil, "names and regular expressions of the cluster's topics, comma separated; may be repeated")
	f.BoolVar(&redirect, "redirect", false, "also send the cluster's clients back to their bootstrap servers")
	f.DurationVar(&lasts, "for", 10*time.Minute, "how long --redirect lasts")
	return a.clientFlags(c)
}

func (a *app) fence(ctx context.Context, m *mirroradm.Client, adm *admin, patterns []string, redirect bool, lasts time.Duration) error {
	names, err := clusterTopics(ctx, adm, patterns)
	if err != nil {
		return err
	}
	rs, unconfirmed := m.Fence(ctx, names...)
	if unconfirmed != nil && len(rs.Succeeded()) > 0 {
		unconfirmed = failedf("%w; the fence is set, and a broker that is down goes by it when it is back: run the command again then, take it back with milena mirrors unfence, or milena cluster unregister a broker that is gone for good", unconfirmed)
	}
	var until time.Time
	failed := errors.Join(rs.Error(), unconfirmed)
	if redirect && failed == nil {
		until = time.Now().Add(lasts)
		if failed = m.Redirect(ctx, until); failed != nil {
			until = time.Time{}
			failed = failedf("clients are not redirected everywhere: %w; milena mirrors unfence --redirect ends it", failed)
		}
	}
	return a.printFences(&fenceOutcome{"fenced", rs, unconfirmed == nil, until, redirect, failed})
}

func (a *app) mirrorsUnfence() *cobra.Command {
	var topics []string
	var redirect bool
	c := &cobra.Command{
		Use: "unfence --topics …", Short: "Take clients' writes to fenced topics again", Args: noArgs,
		Long: "Takes the topic config milena.write.fence off the topics, on the cluster at --bootstrap-server. A topic of an active mirror stays\n" +
			"read-only all the same. --redirect ends what milena mirrors fence --redirect began.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			patterns := splitList(topics)
			if len(patterns) == 0 && !redirect {
				return usagef("mirrors unfence needs --topics or --redirect")
			}
			return a.fenceAdmin(cmd, func(ctx context.Context, m *mirroradm.Client, adm *admin) error {
				names, err := clusterTopics(ctx, adm, patterns)
				if err != nil {
					return err
				}
				rs, unconfirmed := m.Unfence(ctx, names...)
				if unconfirmed != nil && len(rs.Succeeded()) > 0 {
					unconfirmed = failedf("%w; the fence is lifted, and a broker that is down goes by that when it is back", unconfirmed)
				}
				failed := errors.Join(rs.Error(), unconfirmed)
				if redirect && failed == nil {
					failed = m.EndRedirect(ctx)
				}
				if err := a.printFences(&fenceOutcome{"unfenced", rs, unconfirmed == nil, time.Time{}, redirect, failed}); err != nil {
					return err
				}
				if until, err := m.Redirected(ctx); err == nil && time.Now().Before(until) {
					a.notef("Clients are still sent to their bootstrap servers until %s: milena mirrors unfence --redirect ends that.\n", until.UTC().Format(time.RFC3339))
				}
				return nil
			})
		},
	}
	f := c.Flags()
	f.StringArrayVar(&topics, "topics", nil, "names and regular expressions of the cluster's topics, comma separated; may be repeated")
	f.BoolVar(&redirect, "redirect", false, "also end the redirection of clients")
	return a.clientFlags(c)
}

// fenceOutcome is what came of fence or unfence.
type fenceOutcome struct {
	verb      string
	topics    mirroradm.TopicResults
	confirmed bool      // by every broker
	until     time.Time // of a redirection that began
	redirect  bool
	failed    error // the command's
}

func (a *app) printFences(o *fenceOutcome) error {
	type row struct {
		Topic string `json:"topic"`
		Error string `json:"error,omitempty"`
	}
	rows := []row{}
	for _, r := range o.topics {
		x := row{Topic: r.Topic}
		if r.Err != nil {
			x.Error = r.Err.Error()
		}
		rows = append(rows, x)
	}
	if a.json {
		out := map[string]any{o.verb: rows, "confirmed": o.confirmed}
		if !o.until.IsZero() {
			out["redirect_until"] = o.until.UTC().Format(time.RFC3339)
		}
		return errors.Join(a.printJSON(out), o.failed)
	}
	for _, r := range rows {
		switch {
		case r.Error != "":
		case o.confirmed:
			a.printf("%s topic %s.\n", strings.ToUpper(o.verb[:1])+o.verb[1:], r.Topic)
		default:
			a.printf("Topic %s is to be %s, which not every broker has confirmed.\n", r.Topic, o.verb)
		}
	}
	switch {
	case o.failed != nil:
		return o.failed
	case !o.until.IsZero():
		a.printf("Clients are sent to their bootstrap servers until %s.\n", o.until.UTC().Format(time.RFC3339))
	case o.redirect:
		a.printf("Clients are not redirected any more.\n")
	}
	return nil
}

// fenceHint says that a topic is fenced, if a write was refused for that; else it is empty.
func fenceHint(ctx context.Context, cl *kgo.Client, topic string) string {
	fenced, err := mirroradm.NewClient(cl).Fences(ctx, topic)
	if err != nil || !fenced[topic] {
		return ""
	}
	return fmt.Sprintf(": topic %s is fenced against writes (milena.write.fence=true); milena mirrors unfence --topics %s lifts the fence", topic, topicArgument(topic))
}
