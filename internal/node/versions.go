package node

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/server"
)

// apiVersions answers ApiVersions (18) with what the table serves, and on a broker with the cluster's finalized features
// and those this release knows.
func (n *Node) apiVersions(table server.Table, points api.CodePoints, controller bool) server.Handler {
	return func(_ context.Context, r *server.Request) {
		if r.UnsupportedVersion {
			r.Reply(server.VersionsFallback())
			return
		}
		req := kmsg.NewPtrApiVersionsRequest()
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := r.Decode(req); err != nil || !validSoftware(r.Version, req) {
			resp.ErrorCode = int16(api.InvalidRequest)
			r.Reply(server.Response{Msg: resp, Code: api.InvalidRequest})
			return
		}
		if r.Version >= 3 {
			r.Conn.SetClientSoftware(req.ClientSoftwareName, req.ClientSoftwareVersion)
		}
		for _, v := range table.APIs(points) {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = v.Key, v.Min, v.Max
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		if !controller {
			resp.Version = r.Version
			n.addFeatures(resp)
		}
		r.Reply(server.Response{Msg: resp})
	}
}

// validSoftware checks the client's name and version as KIP-511 demands from version 3 on.
func validSoftware(version int16, req *kmsg.ApiVersionsRequest) bool {
	return version < 3 || validWord(req.ClientSoftwareName) && validWord(req.ClientSoftwareVersion)
}

// validWord: letters, digits, '-' and '.', the first and last one a letter or digit.
func validWord(s string) bool {
	alnum := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	for i := range len(s) {
		if !alnum(s[i]) && (i == 0 || i == len(s)-1 || s[i] != '-' && s[i] != '.') {
			return false
		}
	}
	return s != ""
}

func (n *Node) addFeatures(resp *kmsg.ApiVersionsResponse) {
	for _, f := range controller.Features() {
		if f.Min == 0 && resp.Version < 4 {
			continue // clients of older versions can't bear a range from 0 (KAFKA-17011)
		}
		s := kmsg.NewApiVersionsResponseSupportedFeature()
		s.Name, s.MinVersion, s.MaxVersion = f.Name, f.Min, f.Max
		resp.SupportedFeatures = append(resp.SupportedFeatures, s)
	}
	img := n.image()
	resp.FinalizedFeaturesEpoch = img.Offset
	for _, f := range controller.Features() {
		level := img.Feature(f.Name)
		if level == 0 {
			continue
		}
		x := kmsg.NewApiVersionsResponseFinalizedFeature()
		x.Name, x.MinVersionLevel, x.MaxVersionLevel = f.Name, level, level
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, x)
	}
}
