package mirror

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
)

// CheckSource tries to reach a cluster as a mirror with these configs would: by its bootstrap servers, and each of its brokers at the
// address that it gives to clients. It returns the cluster's id and how many brokers it has. mirror.source.cluster.id may be missing; if
// it is there the cluster has to have it. The error says what is wrong with the configs, or what could not be reached.
func (m *Manager) CheckSource(ctx context.Context, mirror string, configs map[string]string) (clusterID string, brokers int32, err error) {
	if err := config.ValidateAll(config.ResourceClusterMirror, mirror, configs); err != nil {
		return "", 0, err
	}
	s, err := ParseSettings(configs)
	if err != nil {
		return "", 0, err
	}
	src, err := OpenSource(s, m.opts.Dial, "mirror-check-"+mirror+"-"+strconv.Itoa(int(m.opts.NodeID)))
	if err != nil {
		return "", 0, api.Errorf(api.InvalidConfig, "%v", err)
	}
	defer src.Close()
	return src.check(ctx)
}

// check asks the source who it is, and every broker of it for its versions.
func (s *Source) check(ctx context.Context) (string, int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, s.link)
	if err != nil {
		return "", 0, api.Errorf(api.InvalidConfig, "it can't be reached: %v", err)
	}
	if resp.ClusterID == nil {
		return "", 0, api.Errorf(api.InvalidRequest, "it does not tell its cluster id")
	}
	if s.clusterID != "" && *resp.ClusterID != s.clusterID {
		return *resp.ClusterID, 0, api.Errorf(api.InconsistentClusterID, "its cluster id is %s, mirror.source.cluster.id is %s", *resp.ClusterID, s.clusterID)
	}
	var errs []error
	for _, b := range resp.Brokers {
		if _, err := s.cl.Broker(int(b.NodeID)).Request(ctx, kmsg.NewPtrApiVersionsRequest()); err != nil {
			errs = append(errs, fmt.Errorf("its broker %d can't be reached at %s:%d, which it gives to clients: %w", b.NodeID, b.Host, b.Port, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return *resp.ClusterID, int32(len(resp.Brokers)), api.Errorf(api.InvalidConfig, "%v", err)
	}
	return *resp.ClusterID, int32(len(resp.Brokers)), nil
}
