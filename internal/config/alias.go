package config

import "milena/internal/meta"

// uncleanMirrorKey has a source's unclean elections followed with all replicas (spec 7.6).
const uncleanMirrorKey = "mirror.support.unclean.leader.election"

// Canonical is the name under which a key is stored and shown: keys of mirroring that KIP-1279 named otherwise later may be given
// by the later name (spec 0.2).
func Canonical(resourceType int8, key string) string {
	switch resourceType {
	case meta.ResourceTopic:
		switch key {
		case "mirror.unclean.leader.election.enable", "mirror.full.replica.convergence.required":
			return uncleanMirrorKey
		}
	case meta.ResourceClusterMirror:
		if _, ok := Lookup(resourceType, key); ok {
			return key
		}
		if _, ok := Lookup(resourceType, "mirror."+key); ok {
			return "mirror." + key
		}
	}
	return key
}
