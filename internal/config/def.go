package config

import "slices"

// Type is the type of a key's value, with the numbers of DescribeConfigs (KIP-569).
type Type int8

// Types of values.
const (
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3 // 32 bits
	Short    Type = 4 // 16 bits
	Long     Type = 5 // 64 bits
	Double   Type = 6
	List     Type = 7
	Class    Type = 8 // name of a Java class
	Password Type = 9
)

var typeNames = [...]string{"UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"}

// String is Kafka's name of the type.
func (t Type) String() string {
	if t < 0 || int(t) >= len(typeNames) {
		return typeNames[0]
	}
	return typeNames[t]
}

// Mode says how a broker key may change while the broker runs (KIP-226).
type Mode int8

// Modes.
const (
	ReadOnly    Mode = iota // only in server.properties
	PerBroker               // dynamic, for one broker only
	ClusterWide             // dynamic, for one broker or as the cluster's default
)

// String is Kafka's name of the mode.
func (m Mode) String() string {
	return [...]string{"read-only", "per-broker", "cluster-wide"}[m]
}

// Support says what Milena does with a key.
type Support int8

// Supports.
const (
	Honoured       Support = iota // does what it says
	WithoutMeaning                // accepted, sizes or tunes something that isn't there; listed once at start
	Refused                       // a value that asks for something is an error
)

// String is the word used in the docs.
func (s Support) String() string {
	return [...]string{"honoured", "without meaning", "refused"}[s]
}

// Importance of a key, as in Kafka's docs.
type Importance int8

// Importances.
const (
	High Importance = iota
	Medium
	Low
)

// String is Kafka's name of the importance.
func (i Importance) String() string { return [...]string{"high", "medium", "low"}[i] }

// Def is one key. The tables are never changed after they are built; callers must not write to a Def.
type Def struct {
	Name       string
	Type       Type
	Default    string // as written in a properties file
	Null       bool   // there is no default value: null
	Importance Importance
	Mode       Mode // broker keys only; for other resources every key is dynamic
	Support    Support
	Internal   bool   // works, but is listed neither by DescribeConfigs nor in the docs
	Milena     bool   // not a key of Apache Kafka
	Doc        string // one or two sentences
	Why        string // Refused: what is missing and what to do

	check   check
	accepts func(value string) bool // Refused: values other than the default that ask for nothing
}

// Valid describes the accepted values, in Kafka's notation; "" if any value of the type will do.
func (d *Def) Valid() string { return d.check.text }

// Sensitive reports whether the value must never be shown.
func (d *Def) Sensitive() bool { return d.Type == Password }

// asks reports whether value asks for something that a Refused key doesn't give.
func (d *Def) asks(value string) bool {
	if d.Support != Refused {
		return false
	}
	if !d.Null && sameValue(d.Type, value, d.Default) {
		return false
	}
	return d.accepts == nil || !d.accepts(value)
}

func sameValue(t Type, a, b string) bool {
	if t == List {
		return slices.Equal(splitList(a), splitList(b))
	}
	x, errA := parse("", a, t)
	y, errB := parse("", b, t)
	return errA == nil && errB == nil && x.i == y.i && x.f == y.f && x.s == y.s
}

// The rows of the tables are written with these.

const null = "\x00" // as default: there is none

func key(name string, t Type, def string, c check, imp Importance, m Mode, s Support, doc string) Def {
	d := Def{Name: name, Type: t, Default: def, Importance: imp, Mode: m, Support: s, Doc: doc, check: c}
	if def == null {
		d.Default, d.Null = "", true
	}
	return d
}

func (d Def) internal() Def { d.Internal = true; return d }
func (d Def) own() Def      { d.Milena = true; return d }

func (d Def) why(reason string) Def {
	d.Support, d.Why = Refused, reason
	return d
}

func (d Def) accept(fn func(string) bool) Def { d.accepts = fn; return d }
