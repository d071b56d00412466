package mirrors

import (
	"regexp"
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
	// matched says what the include list matched before the first topic was added; nil until then.
	matched func(name string) bool
	// included and excluded are what the lists match, after compile.
	included, excluded config.Patterns
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

// excluding is the first exclude pattern that matches a topic.
func (e *patternEdit) excluding(topic string) string {
	for _, p := range e.exc {
		if one, err := config.ParsePatterns(p); err == nil && one.Match(topic) {
			return p
		}
	}
	return ""
}

// includeTopic is include for the name of a topic, which need not be added where a pattern matches it already: topics that
// were found by a pattern would else fill the list.
func (e *patternEdit) includeTopic(name string) {
	if e.matched == nil {
		inc, _ := config.ParsePatterns(strings.Join(e.inc, ",")) // compile tells of errors
		e.matched = inc.Match
	}
	e.exc = drop(drop(e.exc, name), regexp.QuoteMeta(name)) // a forced stop has put it there
	if !e.matched(name) {
		e.inc = add(e.inc, name)
	}
}

// withdraw takes the names of topics off the include list that are not here, which a start by name has left there for when the source
// has them: their stop is a success then. It says whether there was one.
func (e *patternEdit) withdraw(img *meta.Image, topics []TopicResult) (any bool) {
	for i, t := range topics {
		if t.Err == nil || t.Err.Code != api.UnknownTopicOrPartition || img.TopicByName(t.Name) != nil {
			continue
		}
		left := drop(drop(slices.Clone(e.inc), t.Name), regexp.QuoteMeta(t.Name))
		rest, err := config.ParsePatterns(strings.Join(left, ","))
		if len(left) == len(e.inc) || err != nil || rest.Match(t.Name) && !slices.Contains(e.exc, t.Name) {
			continue // nothing was to come by its name, or it comes by a pattern still
		}
		e.inc, any = left, true
		topics[i].Err, topics[i].Note = nil, "there is no such topic here: the start that was to come when the source has it is withdrawn"
	}
	return any
}

// compile checks the lists and fills included and excluded.
func (e *patternEdit) compile() *api.Error {
	for _, p := range slices.Concat(e.inc, e.exc) {
		if strings.Contains(p, ",") {
			return api.Errorf(api.InvalidRegularExpression, "pattern %q holds a comma, which separates patterns", p)
		}
	}
	var errs [2]error
	e.included, errs[0] = config.ParsePatterns(strings.Join(e.inc, ","))
	e.excluded, errs[1] = config.ParsePatterns(strings.Join(e.exc, ","))
	for _, err := range errs {
		if err != nil {
			_, msg := api.CodeOf(err)
			return api.Errorf(api.InvalidRegularExpression, "%s", msg)
		}
	}
	return nil
}

// Discovers returns whether a start with the given patterns finds a topic of the source by its name: one of include matches, and
// nothing excludes it afterwards.
func Discovers(img *meta.Image, mirror string, include, exclude []string) (func(topic string) bool, *api.Error) {
	edit := editPatterns(img, mirror)
	for _, p := range include {
		edit.include(p)
	}
	for _, p := range exclude {
		edit.exclude(p)
	}
	if err := edit.compile(); err != nil {
		return nil, err
	}
	inc, _ := config.ParsePatterns(strings.Join(include, ",")) // compile has checked them
	return func(topic string) bool { return inc.Match(topic) && !edit.excluded.Match(topic) }, nil
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
