package node

import (
	"net"
	"time"
)

// unheard is how long the other end of a connection between nodes may not answer, at the level of TCP, before the connection
// is given up. After a cut TCP alone sends again at ever longer intervals, and says nothing for minutes; a new connection
// works at once when the cut is over.
const unheard = 5 * time.Second

// leash has the connection end when the other side isn't heard: by probes while nothing is under way, by a limit on what is.
func (n *Node) leash(c net.Conn) {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	err := tc.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: unheard - 3*time.Second, Interval: time.Second, Count: 3})
	if err == nil {
		err = setUserTimeout(tc, unheard)
	}
	if err != nil {
		n.log.Debug("a connection is without limits on silence", "address", c.RemoteAddr().String(), "error", err)
	}
}
