package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestListeners(t *testing.T) {
	for _, c := range []struct {
		name, text        string
		bound, advertised []Listener
		inter             string
	}{
		{"default", "", []Listener{{"PLAINTEXT", "", 9092, Plaintext, -1}}, []Listener{{"PLAINTEXT", "box.example", 9092, Plaintext, -1}}, "PLAINTEXT"},
		{"IPv4 of every interface", "listeners=PLAINTEXT://0.0.0.0:1", []Listener{{"PLAINTEXT", "0.0.0.0", 1, Plaintext, -1}}, []Listener{{"PLAINTEXT", "box.example", 1, Plaintext, -1}}, "PLAINTEXT"},
		{"IPv6 of every interface", "listeners=PLAINTEXT://[::]:1", []Listener{{"PLAINTEXT", "::", 1, Plaintext, -1}}, []Listener{{"PLAINTEXT", "box.example", 1, Plaintext, -1}}, "PLAINTEXT"},
		{"IPv6 written out", "listeners=PLAINTEXT://[0:0:0:0:0:0:0:0]:1", []Listener{{"PLAINTEXT", "0:0:0:0:0:0:0:0", 1, Plaintext, -1}}, []Listener{{"PLAINTEXT", "box.example", 1, Plaintext, -1}}, "PLAINTEXT"},
		{"IPv6", "listeners=PLAINTEXT://[::1]:0", []Listener{{"PLAINTEXT", "::1", 0, Plaintext, -1}}, []Listener{{"PLAINTEXT", "::1", 0, Plaintext, -1}}, "PLAINTEXT"},
		{"names", "listeners=in://127.0.0.1:1, OUT://127.0.0.2:2\nlistener.security.protocol.map=IN:PLAINTEXT,out:plaintext\ninter.broker.listener.name=out\nadvertised.listeners=OUT://proxy:80,IN://127.0.0.1:80",
			[]Listener{{"IN", "127.0.0.1", 1, Plaintext, -1}, {"OUT", "127.0.0.2", 2, Plaintext, -1}}, []Listener{{"OUT", "proxy", 80, Plaintext, -1}, {"IN", "127.0.0.1", 80, Plaintext, -1}}, "OUT"},
		{"one port, two families", "listeners=A://127.0.0.1:1,B://[::1]:1\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
			[]Listener{{"A", "127.0.0.1", 1, Plaintext, -1}, {"B", "::1", 1, Plaintext, -1}}, []Listener{{"A", "127.0.0.1", 1, Plaintext, -1}, {"B", "::1", 1, Plaintext, -1}}, "A"},
		{"advertised without host", "listeners=PLAINTEXT://0.0.0.0:1\nadvertised.listeners=PLAINTEXT://:7", []Listener{{"PLAINTEXT", "0.0.0.0", 1, Plaintext, -1}}, []Listener{{"PLAINTEXT", "box.example", 7, Plaintext, -1}}, "PLAINTEXT"},
		{"controller apart", "listeners=PLAINTEXT://h:1,CTL://h:2\ncontroller.listener.names=ctl", []Listener{{"PLAINTEXT", "h", 1, Plaintext, -1}, {"CTL", "h", 2, Plaintext, -1}}, []Listener{{"PLAINTEXT", "h", 1, Plaintext, -1}}, "PLAINTEXT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, _ := load(t, c.text)
			if d := cmp.Diff(c.bound, n.Listeners); d != "" {
				t.Errorf("listeners (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.advertised, n.Advertised); d != "" {
				t.Errorf("advertised (-want +got):\n%s", d)
			}
			if n.InterBrokerListener != c.inter {
				t.Errorf("inter-broker listener %s, want %s", n.InterBrokerListener, c.inter)
			}
			for _, l := range n.Advertised {
				if unspecified(l.Host) {
					t.Errorf("%s is advertised", l)
				}
			}
		})
	}
}

func TestListenerErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no protocol", "listeners=127.0.0.1:9092", "write NAME://host:port"},
		{"no port", "listeners=PLAINTEXT://localhost", "is not host:port"},
		{"big port", "listeners=PLAINTEXT://localhost:65536", "no valid port"},
		{"bare IPv6", "listeners=PLAINTEXT://::1:9092", "must stand in brackets"},
		{"unmapped", "listeners=FOO://:1", "add FOO:PLAINTEXT to listener.security.protocol.map"},
		{"not a protocol", "listener.security.protocol.map=A:TLS", "TLS isn't a security protocol"},
		{"mapped twice", "listener.security.protocol.map=A:SSL,a:SSL", "A is there twice"},
		{"no name", "listener.security.protocol.map=PLAINTEXT", "must be NAME:PROTOCOL"},
		{"name twice", "listeners=PLAINTEXT://:1,plaintext://:2", "must have a different name"},
		{"port twice", "listeners=A://:1,B://:1\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT", "must have a different port"},
		{"TLS", "listeners=SSL://:1", "SSL asks for SSL: TLS isn't served"},
		{"SASL", "listeners=SASL_PLAINTEXT://:1", "SASL_PLAINTEXT asks for SASL_PLAINTEXT: SASL isn't served"},
		{"renamed TLS", "listeners=IN://:1\nlistener.security.protocol.map=IN:SASL_SSL", "IN asks for SASL_SSL"},
		{"advertised meta address", "advertised.listeners=PLAINTEXT://0.0.0.0:1", "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0"},
		{"advertised meta address 6", "advertised.listeners=PLAINTEXT://[::]:1", "nonroutable meta-address ::"},
		{"advertised unknown", "listeners=PLAINTEXT://h:1\nadvertised.listeners=PLAINTEXT://h:1,SSL://h:2", "SSL isn't in listeners"},
		{"advertised twice", "listeners=PLAINTEXT://h:1\nadvertised.listeners=PLAINTEXT://h:1,PLAINTEXT://h:2", "must have a different name"},
		{"empty", "listeners=", "Configuration 'listeners' must not be empty"},
		{"controller missing", "controller.quorum.bootstrap.servers=h:2\ncontroller.listener.names=CTL\nlisteners=PLAINTEXT://h:1", "CTL must also be in listeners"},
		{"controller unnamed", "controller.quorum.bootstrap.servers=h:2\nlisteners=PLAINTEXT://h:1", "controller.listener.names must name a listener"},
		{"only controllers", "listeners=PLAINTEXT://h:1\ncontroller.listener.names=PLAINTEXT", "at least one broker listener"},
		{"inter-broker is a controller", "listeners=PLAINTEXT://h:1,CTL://h:2\ncontroller.listener.names=CTL\ninter.broker.listener.name=CTL", "can't serve brokers"},
		{"inter-broker missing", "inter.broker.listener.name=X", "X isn't in listeners"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := Load(propsOf(t, c.text), testEnv); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestListenerLimit(t *testing.T) {
	n, _ := load(t, "listeners=PLAINTEXT://h:1,CTL://h:2\ncontroller.listener.names=CTL\nlistener.name.plaintext.max.connections= 3")
	if n.Listeners[0].MaxConnections != 3 || n.Listeners[1].MaxConnections != -1 {
		t.Errorf("%+v", n.Listeners)
	}
}

func TestAdvertiseBoundPorts(t *testing.T) {
	n, _ := load(t, "listeners=PLAINTEXT://127.0.0.1:0")
	c := n.Advertise(map[string]int{"PLAINTEXT": 4711})
	if c.Advertised[0].Port != 4711 || n.Advertised[0].Port != 0 || c.Advertised[0].String() != "PLAINTEXT://127.0.0.1:4711" {
		t.Errorf("advertised %v, before %v", c.Advertised, n.Advertised)
	}
	if got := (Listener{Name: "A", Host: "::1", Port: 2}).Address(); got != "[::1]:2" {
		t.Errorf("address %s", got)
	}
}
