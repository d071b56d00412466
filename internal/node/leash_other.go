//go:build !linux

package node

import (
	"net"
	"time"
)

// setUserTimeout does nothing where the system has no such limit: the probes remain.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
