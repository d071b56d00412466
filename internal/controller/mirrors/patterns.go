package mirrors

import (
	"slices"
	"strings"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/meta"
)

const (
	includeKey = "mirror.topics.include"
	excludeKey = "mirror.topics.exclude"
)

// patternEdit changes a mirror's include and exclude lists. It begins with the effective values: a stored empty exclude
// list would otherwise switch the default off unasked (spec 9.2).
type patternEdit struct {
	mirror   string
	inc, exc []string
	before   [2]string
}

func editPatterns(img *meta.Image, mirror string) *patternEdit {
	e := &patternEdit{mirror: mirror}
	for _, x := range config.DescribeMirror(img.Config(meta.ResourceClusterMirror, mirror)) {
		if x.Value == nil {
			continue
		}
		switch x.Def.Name {
		case includeKey:
			e.inc, e.before[0] = split(*x.Value), *x.Value
		case excludeKey:
			e.exc, e.before[1] = split(*x.Value), *x.Value
		}
	}
	return e
}

func split(list string) []string {
	var out []string
	for _, p := range strings.Split(list, ",") {
		if p = strings.TrimSpace(p); p != "" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func add(list []string, p string) []string {
	if p = strings.TrimSpace(p); p == "" || slices.Contains(list, p) {
		return list
	}
	return append(list, p)
}

func drop(list []string, p string) []string {
	return slices.DeleteFunc(list, func(x string) bool { return x == strings.TrimSpace(p) })
}

// include adds a pattern to the include list and takes it from the exclude list.
func (e *patternEdit) include(p string) { e.inc, e.exc = add(e.inc, p), drop(e.exc, p) }

// exclude adds a pattern to the exclude list and takes it from the include list.
func (e *patternEdit) exclude(p string) { e.exc, e.inc = add(e.exc, p), drop(e.inc, p) }

func (e *patternEdit) compiled() (inc, exc config.Patterns, err *api.Error) {
	for _, p := range slices.Concat(e.inc, e.exc) {
		if strings.Contains(p, ",") {
			return inc, exc, api.Errorf(api.InvalidRegularExpression, "pattern %q holds a comma, which separates patterns", p)
		}
	}
	inc, err1 := config.ParsePatterns(strings.Join(e.inc, ","))
	exc, err2 := config.ParsePatterns(strings.Join(e.exc, ","))
	for _, err := range []error{err1, err2} {
		if err != nil {
			_, msg := api.CodeOf(err)
			return inc, exc, api.Errorf(api.InvalidRegularExpression, "%s", msg)
		}
	}
	return inc, exc, nil
}

// records are the config records of what changed.
func (e *patternEdit) records() []meta.Record {
	var recs []meta.Record
	for i, kv := range []struct{ key, value string }{{includeKey, strings.Join(e.inc, ",")}, {excludeKey, strings.Join(e.exc, ",")}} {
		if kv.value != strings.Join(split(e.before[i]), ",") {
			recs = append(recs, &meta.ConfigRecord{ResourceType: meta.ResourceClusterMirror, ResourceName: e.mirror, Key: kv.key, Value: &kv.value})
		}
	}
	return recs
}
