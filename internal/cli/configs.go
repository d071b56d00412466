package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// entity is what configs belong to: a topic, a broker, all brokers (the empty name), a group, a mirror.
type entity struct {
	kind kmsg.ConfigResourceType
	name string
}

// entityKinds are the names of --entity-type, Kafka's and those of mirrors.
func entityKinds() map[string]kmsg.ConfigResourceType {
	return map[string]kmsg.ConfigResourceType{
		"topics": kmsg.ConfigResourceTypeTopic, "brokers": kmsg.ConfigResourceTypeBroker, "broker-loggers": kmsg.ConfigResourceTypeBrokerLogger,
		"groups": kmsg.ConfigResourceTypeGroupConfig, "cluster-mirrors": 64,
	}
}

type entityFlags struct {
	kind, name           string
	byDefault            bool
	topic, broker, group string
}

func (f *entityFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.kind, "entity-type", "", "topics, brokers, broker-loggers, groups or cluster-mirrors")
	fl.StringVar(&f.name, "entity-name", "", "name of the entity")
	fl.BoolVar(&f.byDefault, "entity-default", false, "the cluster-wide default of brokers")
	fl.StringVar(&f.topic, "topic", "", "short for --entity-type topics --entity-name `NAME`")
	fl.StringVar(&f.broker, "broker", "", "short for --entity-type brokers --entity-name `ID`")
	fl.StringVar(&f.group, "group", "", "short for --entity-type groups --entity-name `NAME`")
	values(c, "entity-type", "topics", "brokers", "broker-loggers", "groups", "cluster-mirrors")
}

func (f *entityFlags) entity() (entity, error) {
	kind, name := f.kind, f.name
	for k, n := range map[string]string{"topics": f.topic, "brokers": f.broker, "groups": f.group} {
		if n != "" {
			if kind != "" && kind != k || name != "" {
				return entity{}, usagef("name one entity only")
			}
			kind, name = k, n
		}
	}
	t, ok := entityKinds()[kind]
	switch {
	case kind == "":
		return entity{}, usagef("name the entity: --topic NAME, --broker ID, --group NAME, or --entity-type and --entity-name")
	case !ok:
		return entity{}, usagef("--entity-type %q is not one of topics, brokers, broker-loggers, groups, cluster-mirrors", kind)
	case f.byDefault && (kind != "brokers" || name != ""):
		return entity{}, usagef("--entity-default goes with --entity-type brokers alone")
	case name == "" && !f.byDefault:
		return entity{}, usagef("--entity-name is missing")
	}
	return entity{t, name}, nil
}

func (a *app) configsCommand() *cobra.Command {
	return group("configs", "Describe and alter the configs of topics, brokers, groups and mirrors", a.configsDescribe(), a.configsAlter())
}

// alteredJSON is what was altered; Altered is empty for the cluster-wide default of brokers.
type alteredJSON struct {
	Altered    string `json:"altered"`
	EntityType string `json:"entity_type"`
	Default    bool   `json:"default"`
}

// configSourceName is the name of a config's source. The client knows none for those of mirrors.
func configSourceName(s kmsg.ConfigSource) string {
	if s == mirrorSource {
		return "DYNAMIC_CLUSTER_MIRROR_CONFIG"
	}
	return s.String()
}

type configJSON struct {
	Name      string  `json:"name"`
	Value     *string `json:"value"`
	Source    string  `json:"source"`
	Sensitive bool    `json:"sensitive"`
	ReadOnly  bool    `json:"read_only"`
}

func (a *app) configsDescribe() *cobra.Command {
	var f entityFlags
	var all bool
	c := &cobra.Command{
		Use: "describe", Short: "Show configs", Args: noArgs,
		Example: "  milena configs describe --topic orders\n  milena configs describe --entity-type brokers --entity-default",
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := f.entity()
			if err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, adm *admin) error { return a.describeConfigs(ctx, adm, e, all) })
		},
	}
	f.add(c)
	c.Flags().BoolVar(&all, "all", false, "show inherited and default values too")
	return a.clientFlags(c)
}

func (a *app) describeConfigs(ctx context.Context, adm *admin, e entity, all bool) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = e.kind, e.name
	req.Resources = append(req.Resources, res)
	shards := adm.raw.RequestSharded(ctx, req)
	out := []configJSON{}
	for _, s := range shards {
		if s.Err != nil {
			return e.unreached(ctx, adm, s.Err)
		}
		for _, r := range s.Resp.(*kmsg.DescribeConfigsResponse).Resources {
			if err := answer(e.String(), codeError(r.ErrorCode), deref(r.ErrorMessage)); err != nil {
				return err
			}
			for _, c := range r.Configs {
				if all || c.Source == e.ownSource() {
					out = append(out, configJSON{c.Name, c.Value, configSourceName(c.Source), c.IsSensitive, c.ReadOnly})
				}
			}
		}
	}
	slices.SortFunc(out, func(x, y configJSON) int { return strings.Compare(x.Name, y.Name) })
	if a.json {
		return a.printJSON(map[string]any{"configs": out})
	}
	for _, c := range out {
		v := "null"
		if c.Value != nil {
			v = *c.Value
		}
		a.printf("%s=%s\tsensitive=%t\tsource=%s\n", c.Name, v, c.Sensitive, c.Source)
	}
	return nil
}

// unreached explains why a request for the entity was not sent: the client knows no broker of that id.
func (e entity) unreached(ctx context.Context, adm *admin, err error) error {
	if err.Error() != "unknown broker" { // the client's error has no name
		return err
	}
	brokers, listErr := adm.ListBrokers(ctx)
	if listErr != nil {
		return err
	}
	return fmt.Errorf("the cluster has no broker %s: it has %s", e.name, joinInts(brokers.NodeIDs()))
}

// byDefault says whether it is the cluster-wide default of brokers.
func (e entity) byDefault() bool { return e.kind == kmsg.ConfigResourceTypeBroker && e.name == "" }

// String names the entity for people.
func (e entity) String() string {
	if e.byDefault() {
		return "the cluster-wide default of brokers"
	}
	switch e.kindName() {
	case "topics":
		return "topic " + e.name
	case "brokers":
		return "broker " + e.name
	case "broker-loggers":
		return "loggers of broker " + e.name
	case "groups":
		return "group " + e.name
	default:
		return "mirror " + e.name
	}
}

// kindName is what --entity-type says.
func (e entity) kindName() string {
	for name, kind := range entityKinds() {
		if kind == e.kind {
			return name
		}
	}
	return ""
}

// ownSource is the source of values that were set on the entity and not inherited.
func (e entity) ownSource() kmsg.ConfigSource {
	switch {
	case e.kind == kmsg.ConfigResourceTypeTopic:
		return kmsg.ConfigSourceDynamicTopicConfig
	case e.kind == kmsg.ConfigResourceTypeBroker && e.name == "":
		return kmsg.ConfigSourceDynamicDefaultBrokerConfig
	case e.kind == kmsg.ConfigResourceTypeBroker:
		return kmsg.ConfigSourceDynamicBrokerConfig
	case e.kind == kmsg.ConfigResourceTypeBrokerLogger:
		return kmsg.ConfigSourceDynamicBrokerLoggerConfig
	case e.kind == kmsg.ConfigResourceTypeGroupConfig:
		return kmsg.ConfigSourceGroupConfig
	}
	return mirrorSource
}

// mirrorSource is the source of a mirror's own configs.
const mirrorSource kmsg.ConfigSource = 9

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (a *app) configsAlter() *cobra.Command {
	var f entityFlags
	var set, appends, subtracts, deletes []string
	c := &cobra.Command{
		Use: "alter", Short: "Set and delete configs", Args: noArgs,
		Example: "  milena configs alter --topic orders --set retention.ms=-1 --delete cleanup.policy",
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := f.entity()
			if err != nil {
				return err
			}
			req, err := alterRequest(e, set, appends, subtracts, deletes)
			if err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, adm *admin) error {
				for _, s := range adm.raw.RequestSharded(ctx, req) {
					if s.Err != nil {
						return e.unreached(ctx, adm, s.Err)
					}
					for _, r := range s.Resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
						if err := answer(e.String(), codeError(r.ErrorCode), deref(r.ErrorMessage)); err != nil {
							return err
						}
					}
				}
				if a.json {
					return a.printJSON(alteredJSON{e.name, e.kindName(), e.byDefault()})
				}
				a.printf("Altered configs of %s.\n", e)
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().StringArrayVar(&set, "set", nil, "set a config, `KEY=VALUE`; may be repeated")
	c.Flags().StringArrayVar(&appends, "append", nil, "append to a list config, `KEY=VALUE`")
	c.Flags().StringArrayVar(&subtracts, "subtract", nil, "remove from a list config, `KEY=VALUE`")
	c.Flags().StringArrayVar(&deletes, "delete", nil, "delete a config, back to the inherited value")
	return a.clientFlags(c)
}

func alterRequest(e entity, set, appends, subtracts, deletes []string) (*kmsg.IncrementalAlterConfigsRequest, error) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = e.kind, e.name
	for _, op := range []struct {
		flag string
		op   kmsg.IncrementalAlterConfigOp
		kvs  []string
	}{
		{"set", kmsg.IncrementalAlterConfigOpSet, set}, {"append", kmsg.IncrementalAlterConfigOpAppend, appends}, {"subtract", kmsg.IncrementalAlterConfigOpSubtract, subtracts},
	} {
		for _, kv := range op.kvs {
			m, err := keyValues(op.flag, []string{kv})
			if err != nil {
				return nil, err
			}
			for k, v := range m {
				c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
				c.Name, c.Value, c.Op = k, &v, op.op
				res.Configs = append(res.Configs, c)
			}
		}
	}
	for _, k := range deletes {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op = k, kmsg.IncrementalAlterConfigOpDelete
		res.Configs = append(res.Configs, c)
	}
	if len(res.Configs) == 0 {
		return nil, usagef("nothing to alter: give --set, --append, --subtract or --delete")
	}
	req.Resources = append(req.Resources, res)
	return req, nil
}
