package admin

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/controller"
	"milena/internal/server"
)

// DescribeConfigs (32), versions 1 to 4, answers what configs topics, this broker, the cluster default of brokers, loggers,
// groups and mirrors have, where each value comes from and what stands behind it.
//
//   - v3: types and documentation (KIP-569)
//   - v4: flexible
//
// Values of passwords, and of keys that nobody knows, are null.
func (h *Configs) DescribeConfigs(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	if !h.decode(r, req) {
		return
	}
	resp := h.describe(req)
	var parts []int16
	for _, res := range resp.Resources {
		parts = append(parts, res.ErrorCode)
	}
	r.Reply(server.Response{Msg: resp, Code: firstCode(parts)})
}

func (h *Configs) describe(req *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	for _, want := range req.Resources {
		res := kmsg.NewDescribeConfigsResponseResource()
		res.ResourceType, res.ResourceName = want.ResourceType, want.ResourceName
		entries, err := h.entries(int8(want.ResourceType), want.ResourceName)
		res.ErrorCode, res.ErrorMessage = codes(err)
		for i := range entries {
			if len(want.ConfigNames) == 0 || slices.Contains(want.ConfigNames, entries[i].Def.Name) {
				res.Configs = append(res.Configs, described(&entries[i], req))
			}
		}
		resp.Resources = append(resp.Resources, res)
	}
	return resp
}

// entries are the keys of a resource, or an *api.Error.
func (h *Configs) entries(kind int8, name string) ([]config.Entry, error) {
	image, node := h.o.Image(), h.o.Node()
	switch kind {
	case config.ResourceTopic:
		if name == "" {
			return nil, api.Errorf(api.InvalidTopicException, "Topic name is invalid: the empty string is not allowed")
		}
		if image.TopicByName(name) == nil {
			if err := controller.CheckTopicName(name); err != nil {
				return nil, err
			}
			return nil, &api.Error{Code: api.UnknownTopicOrPartition}
		}
		return node.DescribeTopic(image.Config(kind, name)), nil
	case config.ResourceBroker:
		if name == "" {
			return config.DescribeClusterDefault(image.Config(kind, "")), nil
		}
		if err := here("Broker", node.ID, name); err != nil {
			return nil, err
		}
		return node.DescribeBroker(), nil
	case config.ResourceBrokerLogger:
		if name == "" {
			return nil, api.Errorf(api.InvalidRequest, "Broker id must not be empty")
		}
		if err := here("Broker", node.ID, name); err != nil {
			return nil, err
		}
		return h.loggerEntries(), nil
	case config.ResourceGroup:
		if name == "" {
			return nil, api.Errorf(api.InvalidRequest, "Group name must not be empty")
		}
		return node.DescribeGroup(image.Config(kind, name)), nil
	case config.ResourceClientMetrics:
		if name == "" {
			return nil, api.Errorf(api.InvalidRequest, "Client metrics subscription name must not be empty")
		}
		return nil, nil // nobody has any
	case config.ResourceClusterMirror:
		own := image.Config(kind, name)
		if len(own) == 0 {
			return nil, api.Errorf(api.UnknownClusterMirror, "there is no mirror %q", name)
		}
		return config.DescribeMirror(own), nil
	}
	return nil, api.Errorf(api.InvalidRequest, "Unsupported resource type: %d", kind)
}

// here checks that a broker resource is this broker: only it knows its settings. what is Kafka's word for it.
func here(what string, id int32, name string) error {
	n, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return api.Errorf(api.InvalidRequest, "%s id must be an integer, but it is: %s", what, name)
	}
	if int32(n) != id {
		return api.Errorf(api.InvalidRequest, "Unexpected %s id, expected %d or empty string, but received %s", strings.ToLower(what), id, name)
	}
	return nil
}

func described(e *config.Entry, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.ReadOnly = e.Def.Name, e.Value, e.ReadOnly
	c.Source, c.IsSensitive = kmsg.ConfigSource(e.Source), e.Def.Sensitive()
	c.ConfigType = kmsg.ConfigType(e.Def.Type)
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			syn := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			syn.Name, syn.Value, syn.Source = s.Name, s.Value, kmsg.ConfigSource(s.Source)
			c.ConfigSynonyms = append(c.ConfigSynonyms, syn)
		}
	}
	if req.IncludeDocumentation && e.Def.Doc != "" {
		doc := e.Def.Doc
		c.Documentation = &doc
	}
	return c
}
