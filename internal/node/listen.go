package node

import (
	"net"
	"sync"
)

// joined accepts from two listeners as one: clients of the process itself come over memory, all others over the network.
type joined struct {
	net.Listener // the network's, for the address
	mem          net.Listener
	conns        chan accepted
	done         chan struct{}
	once         sync.Once
	start        sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

func join(network, mem net.Listener) *joined {
	return &joined{Listener: network, mem: mem, conns: make(chan accepted), done: make(chan struct{})}
}

// Accept implements net.Listener.
func (j *joined) Accept() (net.Conn, error) {
	j.start.Do(func() {
		go j.pump(j.Listener)
		go j.pump(j.mem)
	})
	select {
	case a := <-j.conns:
		return a.conn, a.err
	case <-j.done:
		return nil, net.ErrClosed
	}
}

// pump hands over what l accepts until it or j is closed.
func (j *joined) pump(l net.Listener) {
	for {
		c, err := l.Accept()
		select {
		case j.conns <- accepted{c, err}:
		case <-j.done:
			if err == nil {
				_ = c.Close()
			}
			return
		}
		if err != nil && j.closed() {
			return
		}
	}
}

func (j *joined) closed() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// Close implements net.Listener.
func (j *joined) Close() error {
	j.once.Do(func() { close(j.done) })
	_ = j.mem.Close()
	return j.Listener.Close()
}
