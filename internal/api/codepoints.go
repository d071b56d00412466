package api

// CodePoints chooses the column of numbers that mirror APIs and mirror errors
// have on the wire. Everything else has the same number in both.
type CodePoints int

const (
	// Milena is the default: the prototype's number + 1000, outside of what
	// Kafka has assigned.
	Milena CodePoints = iota
	// Prototype has the numbers of the first implementation of mirroring,
	// some of which Kafka 4.4 has assigned to other things since. It is
	// chosen with mirror.code.points=prototype.
	Prototype
)

// prototypeDistance is what lies between the two columns.
const prototypeDistance = 1000

// String returns the column's name in the configuration.
func (p CodePoints) String() string {
	if p == Prototype {
		return "prototype"
	}
	return "milena"
}

// IsMirror reports whether k is a mirror API.
func (k Key) IsMirror() bool {
	return k >= CreateClusterMirror && k <= RecoverMirrorTopics && k != StopMirrorTopics+1
}

// IsMirror reports whether c is a mirror error.
func (c Code) IsMirror() bool {
	_, ok := mirrorCodes[c]
	return ok
}

// Key returns the key that wire stands for in this column. A number of the
// other column is returned as it is, and then names no mirror API.
func (p CodePoints) Key(wire int16) Key {
	k := Key(wire)
	if p != Prototype {
		return k
	}
	if k.IsMirror() {
		return -1
	}
	if m := k + prototypeDistance; m.IsMirror() {
		return m
	}
	return k
}

// WireKey returns the number of k in this column.
func (p CodePoints) WireKey(k Key) int16 {
	if p == Prototype && k.IsMirror() {
		return int16(k - prototypeDistance)
	}
	return int16(k)
}

// Code returns the error that wire stands for in this column.
func (p CodePoints) Code(wire int16) Code {
	c := Code(wire)
	if p != Prototype {
		return c
	}
	if m := c + prototypeDistance; m.IsMirror() {
		return m
	}
	return c
}

// WireCode returns the number of c in this column.
func (p CodePoints) WireCode(c Code) int16 {
	if p == Prototype && c.IsMirror() {
		return int16(c - prototypeDistance)
	}
	return int16(c)
}
