package mirrors

import (
	"slices"
	"strings"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/controller"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// Guard refuses changes that clients ask for and that a mirror owns (spec D10, D7): more partitions, deletion, and
// configs that the next sync would overwrite. What belongs to a stopped topic is the operator's again. The code is one that
// clients of today know; the mirror's own is in the message.
func Guard(img *meta.Image, op controller.Op) *api.Error { return guard(img, op, api.PolicyViolation) }

// PrototypeGuard is Guard with the mirror code itself, for clusters that use the prototype's numbers.
func PrototypeGuard(img *meta.Image, op controller.Op) *api.Error {
	return guard(img, op, api.InvalidClusterMirrorStates)
}

func guard(img *meta.Image, op controller.Op, code api.Code) *api.Error {
	if op.Kind == controller.OpUpdateFeature && op.Feature == Feature && op.Level < 1 {
		for name := range img.Configs(meta.ResourceClusterMirror) {
			return api.Errorf(api.InvalidUpdateVersion, "%s can't go to %d while there are mirrors: first run milena mirrors delete %s", Feature, op.Level, name)
		}
	}
	t := op.Topic
	if t != nil && t.Name == StateTopic && op.Kind == controller.OpDeleteTopic {
		for name := range img.Configs(meta.ResourceClusterMirror) {
			return api.Errorf(code, "INVALID_CLUSTER_MIRROR_STATES: topic %s holds the states of mirror %s and all others: delete the mirrors first (milena mirrors delete %s)", StateTopic, name, name)
		}
	}
	if t == nil || t.MirrorName == "" || mirrormsg.State(t.MirrorDesired) == mirrormsg.Stopped {
		return nil
	}
	refuse := func(what string) *api.Error {
		return api.Errorf(code, "INVALID_CLUSTER_MIRROR_STATES: topic %s belongs to mirror %s and is wished to be %s, so %s; first run "+
			"milena mirrors stop %s --topics %s", t.Name, t.MirrorName, mirrormsg.State(t.MirrorDesired), what, t.MirrorName, t.Name)
	}
	switch op.Kind {
	case controller.OpCreatePartitions:
		return refuse("its partitions follow the source")
	case controller.OpDeleteTopic:
		return refuse("it can't be deleted")
	case controller.OpAlterConfigs:
		if key := synced(img, t, op.Keys); key != "" {
			return refuse("the sync from the source sets its config " + key)
		}
	}
	return nil
}

// Carried says whether a topic config can be taken over from a source: not what tiered storage means by it, which is not
// mirrored, not the fence, which stands for one cluster's clients, and not keys that this release does not know and could not check
// (spec D7).
func Carried(key string) bool {
	_, known := config.Lookup(config.ResourceTopic, key)
	return known && key != "milena.write.fence" && !strings.HasPrefix(key, "remote.") && !strings.HasPrefix(key, "local.retention.")
}

// synced is the first of the keys that the sync from the source sets: one that is set on the topic and not excluded.
func synced(img *meta.Image, t *meta.Topic, keys []string) string {
	var exclude config.Patterns
	for _, e := range config.DescribeMirror(img.Config(meta.ResourceClusterMirror, t.MirrorName)) {
		if e.Def.Name == "mirror.topic.properties.exclude" && e.Value != nil {
			exclude, _ = config.ParsePatterns(*e.Value) // checked when it was set
		}
	}
	have := img.Config(meta.ResourceTopic, t.Name)
	i := slices.IndexFunc(keys, func(k string) bool {
		_, set := have[k]
		return set && !exclude.Match(k) && Carried(k)
	})
	if i < 0 {
		return ""
	}
	return keys[i]
}
