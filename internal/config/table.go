package config

import (
	"iter"
	"slices"
	"strings"
	"sync"
)

// table is an index over rows. It is never changed once built.
type table struct {
	rows   []Def // sorted by name
	byName map[string]*Def
}

func newTable(groups ...[]Def) *table {
	t := &table{rows: slices.Concat(groups...), byName: map[string]*Def{}}
	slices.SortFunc(t.rows, func(a, b Def) int { return strings.Compare(a.Name, b.Name) })
	for i := range t.rows {
		t.byName[t.rows[i].Name] = &t.rows[i]
	}
	return t
}

var (
	brokerTable = sync.OnceValue(func() *table {
		return newTable(nodeKeys, networkKeys, groupKeys, offsetsKeys, shareKeys, transactionKeys, logKeys, replicaKeys, quorumKeys, remoteKeys,
			saslKeys, sslKeys, ownKeys, mirrorBrokerKeys)
	})
	topicTable  = sync.OnceValue(func() *table { return newTable(topicKeys, mirrorTopicKeys) })
	groupTable  = sync.OnceValue(func() *table { return newTable(groupConfigKeys) })
	mirrorTable = sync.OnceValue(func() *table { return newTable(mirrorKeys) })
	emptyTable  = sync.OnceValue(func() *table { return newTable() })
)

// tableOf is the table of a resource type; nil if there is none.
func tableOf(resourceType int8) *table {
	switch resourceType {
	case ResourceTopic:
		return topicTable()
	case ResourceBroker:
		return brokerTable()
	case ResourceGroup:
		return groupTable()
	case ResourceClusterMirror:
		return mirrorTable()
	case ResourceClientMetrics:
		return emptyTable()
	}
	return nil
}

// Keys walks the definitions of a resource type by name.
func Keys(resourceType int8) iter.Seq[*Def] {
	return func(yield func(*Def) bool) {
		t := tableOf(resourceType)
		if t == nil {
			return
		}
		for i := range t.rows {
			if !yield(&t.rows[i]) {
				return
			}
		}
	}
}

// Lookup finds the definition of a key.
func Lookup(resourceType int8, key string) (*Def, bool) {
	t := tableOf(resourceType)
	if t == nil {
		return nil, false
	}
	d, ok := t.byName[key]
	return d, ok
}

// Sensitive reports whether the value of a key must not be shown: passwords, and keys that nobody knows.
func Sensitive(resourceType int8, key string) bool {
	d, ok := Lookup(resourceType, unprefixed(key))
	return !ok || d.Sensitive()
}

// Redact is value, or "[hidden]" where it must not be shown.
func Redact(resourceType int8, key, value string) string {
	if Sensitive(resourceType, key) {
		return "[hidden]"
	}
	return value
}

// removed are keys of older releases of Kafka, with what replaced them.
var removed = map[string]string{
	"zookeeper.connect":                       "ZooKeeper is gone since Kafka 4.0",
	"inter.broker.protocol.version":           "feature levels replace it since Kafka 4.0",
	"log.message.format.version":              "it has no effect since Kafka 4.0",
	"message.format.version":                  "it has no effect since Kafka 4.0",
	"log.message.downconversion.enable":       "it has no effect since Kafka 4.0",
	"log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
	"message.timestamp.difference.max.ms":     "use message.timestamp.before.max.ms and message.timestamp.after.max.ms",
	"offsets.commit.required.acks":            "it is gone since Kafka 4.0, commits need all in-sync replicas",
	"broker.id.generation.enable":             "it is gone since Kafka 4.0, set node.id",
	"reserved.broker.max.id":                  "it is gone since Kafka 4.0",
	"port":                                    "use listeners",
	"host.name":                               "use listeners",
	"advertised.host.name":                    "use advertised.listeners",
	"advertised.port":                         "use advertised.listeners",
}

// unknown is the sentence for a key that isn't in the table.
func unknown(t *table, key string) string {
	s := "unknown config key " + key
	if hint, ok := removed[key]; ok {
		return s + ": " + hint
	}
	if near := nearest(t, key); near != "" {
		return s + ": did you mean " + near + "?"
	}
	return s
}

// nearest is the known key closest to a name, or "" if none is close.
func nearest(t *table, name string) string {
	var rows [3][]int
	best, bestDistance := "", min(max(2, len(name)/5), 4)+1
	for i := range t.rows {
		known := t.rows[i].Name
		if t.rows[i].Internal || len(known)-len(name) >= bestDistance || len(name)-len(known) >= bestDistance {
			continue
		}
		if d := distance(name, known, bestDistance, &rows); d < bestDistance {
			best, bestDistance = known, d
		}
	}
	return best
}

// distance is the number of insertions, removals, changes and swaps of neighbours that make a into b; any number of limit or
// more if it is not below limit.
func distance(a, b string, limit int, rows *[3][]int) int {
	for i := range rows {
		rows[i] = slices.Grow(rows[i][:0], len(b)+1)[:len(b)+1]
	}
	before, last, next := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(last[j]+1, next[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
			least = min(least, next[j])
		}
		if least > limit { // a swap may reach one row further back
			return limit
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}

// unprefixed drops listener.name.<name>. from a key.
func unprefixed(key string) string {
	rest, ok := strings.CutPrefix(key, listenerPrefix)
	if !ok {
		return key
	}
	_, rest, ok = strings.Cut(rest, ".")
	if !ok {
		return key
	}
	// A mechanism may stand before sasl keys: listener.name.x.plain.sasl.jaas.config.
	if i := strings.Index(rest, ".sasl."); i >= 0 {
		rest = rest[i+1:]
	}
	return rest
}

const listenerPrefix = "listener.name."
