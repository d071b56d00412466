package config

import (
	"strconv"
	"strings"
)

// Source says where a value comes from, with the numbers of DescribeConfigs.
type Source int8

// Sources.
const (
	DynamicTopic         Source = 1
	DynamicBroker        Source = 2
	DynamicDefaultBroker Source = 3
	StaticBroker         Source = 4
	Default              Source = 5
	DynamicBrokerLogger  Source = 6
	DynamicGroup         Source = 8
	DynamicMirror        Source = 9 // Milena's own, Kafka's end at 8; only asked for by resource type 64
)

// Entry is one key of a resource as DescribeConfigs shows it.
type Entry struct {
	Def      *Def
	Value    *string // nil: null, or sensitive
	Source   Source
	ReadOnly bool
	Synonyms []SynonymValue // strongest first, the value itself included
}

// SynonymValue is a value that stands behind an entry.
type SynonymValue struct {
	Name   string
	Value  *string // nil: sensitive
	Source Source
}

// DescribeBroker is every key of this node, by name.
func (n *Node) DescribeBroker() []Entry {
	var out []Entry
	for d := range Keys(ResourceBroker) {
		if d.Internal {
			continue
		}
		e := Entry{Def: d, ReadOnly: d.Mode == ReadOnly, Source: Default, Synonyms: n.behind(d.Name, family(d.Name))}
		if len(e.Synonyms) > 0 {
			e.Source = e.Synonyms[0].Source
		}
		if v, ok := n.reader().value(d.Name); ok && !d.Sensitive() {
			e.Value = ref(format(v, d.Type))
		}
		out = append(out, e)
	}
	return out
}

// DescribeClusterDefault is the dynamic broker configs that are set for all brokers.
func DescribeClusterDefault(cluster map[string]string) []Entry {
	var out []Entry
	for _, k := range sortedKeys(cluster) {
		d, ok := Lookup(ResourceBroker, k)
		if !ok {
			continue
		}
		s := SynonymValue{Name: k, Value: shown(d, cluster[k]), Source: DynamicDefaultBroker}
		out = append(out, Entry{Def: d, Value: s.Value, Source: s.Source, Synonyms: []SynonymValue{s}})
	}
	return out
}

// behind is the values that stand for a broker key on this node. As in Kafka those that are stronger than the first of the
// key's own name are left out, since they belong to another key.
func (n *Node) behind(name string, family []string) []SynonymValue {
	var out []SynonymValue
	add := func(m map[string]string, source Source) {
		for _, k := range family {
			if text, ok := m[k]; ok {
				out = append(out, SynonymValue{k, shown(brokerTable().byName[k], text), source})
			}
		}
	}
	add(n.broker, DynamicBroker)
	add(n.cluster, DynamicDefaultBroker)
	add(n.static, StaticBroker)
	for _, k := range family {
		if d := brokerTable().byName[k]; !d.Null {
			out = append(out, SynonymValue{k, shown(d, d.Default), Default})
		}
	}
	for i, s := range out {
		if s.Name == name {
			return out[i:]
		}
	}
	return nil
}

// DescribeTopic is every key of a topic with the given configs of its own on this node.
func (n *Node) DescribeTopic(own map[string]string) []Entry {
	var out []Entry
	r := n.reader()
	for d := range Keys(ResourceTopic) {
		if d.Internal {
			continue
		}
		var behind []SynonymValue
		if s, ok := synonyms[d.Name]; ok {
			behind = n.behind(s[0].name, family(s[0].name))
		}
		out = append(out, entry(d, own, DynamicTopic, r.topicValue(own, d.Name), behind))
	}
	return out
}

// DescribeGroup is every key of a group with the given configs of its own on this node.
func (n *Node) DescribeGroup(own map[string]string) []Entry {
	var out []Entry
	r := n.reader()
	for d := range Keys(ResourceGroup) {
		if d.Internal {
			continue
		}
		var behind []SynonymValue
		v, _ := parse(d.Name, d.Default, d.Type) // the table's defaults parse
		if broker := groupSynonym(d.Name); broker != "" {
			behind = n.behind(broker, []string{broker})
			if b, ok := r.value(broker); ok {
				v = b
			}
			if len(v.list) > 0 && d.Type == String {
				v.s = v.list[0] // streams.assignor.name: the first of the broker's
			}
		} else if !d.Null {
			behind = []SynonymValue{{d.Name, ref(d.Default), Default}}
		}
		if text, ok := own[d.Name]; ok {
			if o, err := parse(d.Name, text, d.Type); err == nil {
				v = o
			}
		}
		out = append(out, entry(d, own, DynamicGroup, v, behind))
	}
	return out
}

// groupSynonym is the broker key that stands for a group key; "" if there is none.
func groupSynonym(key string) string {
	if key == "streams.assignor.name" {
		return "group.streams.assignors"
	}
	if _, ok := Lookup(ResourceBroker, "group."+key); ok {
		return "group." + key
	}
	return ""
}

// DescribeMirror is every key of a mirror with the given configs.
func DescribeMirror(own map[string]string) []Entry {
	var out []Entry
	for d := range Keys(ResourceClusterMirror) {
		text, ok := own[d.Name]
		if !ok {
			text = d.Default
		}
		v, err := parse(d.Name, text, d.Type)
		if err != nil {
			v, _ = parse(d.Name, d.Default, d.Type)
		}
		e := entry(d, own, DynamicMirror, v, nil)
		if !ok && d.Null {
			e.Value = nil
		}
		out = append(out, e)
	}
	return out
}

// entry is an entry of a resource whose own configs are the strongest source.
func entry(d *Def, own map[string]string, source Source, v value, behind []SynonymValue) Entry {
	e := Entry{Def: d, Source: Default, Synonyms: behind}
	_, set := own[d.Name]
	if !d.Sensitive() && (set || !d.Null || len(behind) > 0) {
		e.Value = ref(format(v, d.Type))
	}
	if set {
		e.Synonyms = append([]SynonymValue{{d.Name, e.Value, source}}, behind...)
	}
	if len(e.Synonyms) > 0 {
		e.Source = e.Synonyms[0].Source
	}
	return e
}

// shown is a value as it may be shown.
func shown(d *Def, text string) *string {
	if d.Sensitive() {
		return nil
	}
	return &text
}

func ref(s string) *string { return &s }

// format writes a value the way Kafka does.
func format(v value, t Type) string {
	switch t {
	case Boolean:
		return strconv.FormatBool(v.b)
	case Int, Short, Long:
		return strconv.FormatInt(v.i, 10)
	case Double:
		return javaDouble(v.f)
	case List:
		return strings.Join(v.list, ",")
	}
	return v.s
}

// Rules are the rules for stored configs as a value, for packages that take them as an interface.
type Rules struct{}

// Validate is [Validate].
func (Rules) Validate(resourceType int8, name, key, value string) error {
	return Validate(resourceType, name, key, value)
}

// ValidateAll is [ValidateAll].
func (Rules) ValidateAll(resourceType int8, name string, all map[string]string) error {
	return ValidateAll(resourceType, name, all)
}

// Canonical is [Canonical].
func (Rules) Canonical(resourceType int8, key string) string { return Canonical(resourceType, key) }

// List reports whether a key's value is a list, and its default, which APPEND and SUBTRACT start from.
func (Rules) List(resourceType int8, key string) (def string, ok bool) {
	d, found := Lookup(resourceType, key)
	if !found || d.Type != List {
		return "", false
	}
	return d.Default, true
}
