package config

import (
	"sync"
	"sync/atomic"
)

// Live is a node's settings as dynamic broker configs change them. Reads are one atomic load.
type Live struct {
	current atomic.Pointer[Node]

	mu        sync.Mutex // held while a change is told, so that changes are told in order
	listeners []func(before, after *Node)
}

// NewLive starts from the settings of a node's start.
func NewLive(n *Node) *Live {
	l := &Live{}
	l.current.Store(n)
	return l
}

// Node is the current settings.
func (l *Live) Node() *Node { return l.current.Load() }

// Subscribe has fn called after each change, one at a time, in order. fn must not call Apply or Subscribe.
func (l *Live) Subscribe(fn func(before, after *Node)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners = append(l.listeners, fn)
}

// Apply takes over the dynamic broker configs of the metadata: the cluster default's and this broker's own. It returns a
// sentence for each value that was left out.
func (l *Live) Apply(cluster, broker map[string]string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.current.Load()
	after, notes := before.WithDynamic(cluster, broker)
	l.current.Store(after)
	for _, fn := range l.listeners {
		fn(before, after)
	}
	return notes
}
