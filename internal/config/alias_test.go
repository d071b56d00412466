package config

import (
	"testing"

	"milena/internal/meta"
)

// "the seed's name is used and shown, and the later is an alias for config keys" (spec 0.2).
func TestCanonical(t *testing.T) {
	for _, c := range []struct {
		kind      int8
		key, want string
	}{
		{meta.ResourceTopic, "mirror.unclean.leader.election.enable", uncleanMirrorKey},
		{meta.ResourceTopic, "mirror.full.replica.convergence.required", uncleanMirrorKey},
		{meta.ResourceTopic, uncleanMirrorKey, uncleanMirrorKey},
		{meta.ResourceTopic, "unclean.leader.election.enable", "unclean.leader.election.enable"},
		{meta.ResourceTopic, "topics.include", "topics.include"},
		{meta.ResourceClusterMirror, "topics.include", "mirror.topics.include"},
		{meta.ResourceClusterMirror, "source.cluster.id", "mirror.source.cluster.id"},
		{meta.ResourceClusterMirror, "mirror.topics.include", "mirror.topics.include"},
		{meta.ResourceClusterMirror, "bootstrap.servers", "bootstrap.servers"},
		{meta.ResourceClusterMirror, "no.such", "no.such"},
	} {
		if got := Canonical(c.kind, c.key); got != c.want {
			t.Errorf("%s: %s, want %s", c.key, got, c.want)
		}
		if _, ok := Lookup(c.kind, c.want); !ok && c.key != c.want {
			t.Errorf("%s stands for %s, which there isn't", c.key, c.want)
		}
	}
}
