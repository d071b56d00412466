package admin

import (
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/server"
)

// ListConfigResources (74), versions 0 and 1, lists resources that have configs: topics and brokers, since all have, groups,
// client metrics subscriptions and mirrors where one was set.
//
//   - v0: client metrics subscriptions only (KIP-714)
//   - v1: of the types asked for, all of Kafka's if none is (KIP-1142); mirrors only if asked for, since clients that don't
//     know the type can't show it
func (h *Configs) ListConfigResources(_ context.Context, r *server.Request) {
	req := kmsg.NewPtrListConfigResourcesRequest()
	if !h.decode(r, req) {
		return
	}
	resp := h.list(req, r.Version)
	r.Reply(server.Response{Msg: resp, Code: api.Code(resp.ErrorCode)})
}

func (h *Configs) list(req *kmsg.ListConfigResourcesRequest, version int16) *kmsg.ListConfigResourcesResponse {
	resp := kmsg.NewPtrListConfigResourcesResponse()
	kafkas := []int8{config.ResourceTopic, config.ResourceBroker, config.ResourceBrokerLogger, config.ResourceClientMetrics, config.ResourceGroup}
	types := req.ResourceTypes
	switch {
	case version == 0:
		types = []int8{config.ResourceClientMetrics}
	case len(types) == 0:
		types = kafkas
	}
	for i, kind := range types {
		if !slices.Contains(kafkas, kind) && kind != config.ResourceClusterMirror {
			resp.ConfigResources = nil
			resp.ErrorCode = int16(api.UnsupportedVersion)
			return resp
		}
		if slices.Contains(types[:i], kind) {
			continue
		}
		for _, name := range h.names(kind) {
			res := kmsg.NewListConfigResourcesResponseConfigResource()
			res.Name, res.Type = name, kind
			resp.ConfigResources = append(resp.ConfigResources, res)
		}
	}
	return resp
}

func (h *Configs) names(kind int8) []string {
	image := h.o.Image()
	var out []string
	switch kind {
	case config.ResourceTopic:
		for t := range image.Topics() {
			out = append(out, t.Name)
		}
	case config.ResourceBroker, config.ResourceBrokerLogger:
		for b := range image.Brokers() {
			out = append(out, strconv.Itoa(int(b.ID)))
		}
	default:
		for name := range image.Configs(kind) {
			out = append(out, name)
		}
	}
	return out
}
