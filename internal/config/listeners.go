package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// listenerSet is what the listener keys of a file say together.
type listenerSet struct {
	bound       []Listener // this node's, controller listeners included
	advertised  []Listener // of brokers
	reachable   []Listener // of controllers, as advertised
	controller  []string
	interBroker string
}

// parseListeners reads NAME://host:port items. protocols maps upper case names; a name that is a protocol maps to itself.
func parseListeners(key string, list []string, protocols map[string]SecurityProtocol) ([]Listener, error) {
	var out []Listener
	var errs []error
	for _, item := range list {
		l, err := parseListener(key, item, protocols)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, l)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, unique(key, out)
}

func parseListener(key, item string, protocols map[string]SecurityProtocol) (Listener, error) {
	name, address, ok := strings.Cut(item, "://")
	if !ok || name == "" {
		return Listener{}, fmt.Errorf("%s: %q isn't a listener: write NAME://host:port, as in PLAINTEXT://:9092", key, item)
	}
	name = strings.ToUpper(name)
	protocol, ok := protocols[name]
	if !ok {
		return Listener{}, fmt.Errorf("%s: no security protocol is defined for listener %s: add %s:PLAINTEXT to listener.security.protocol.map", key, name, name)
	}
	host, port, err := splitHostPort(address)
	if err != nil && !errors.Is(err, errEmptyHost) {
		return Listener{}, fmt.Errorf("%s: listener %s: %w", key, name, err)
	}
	return Listener{Name: name, Host: host, Port: port, Protocol: protocol, MaxConnections: -1}, nil
}

// unique reports listeners that share a name, or an address and port. The same port is fine on an IPv4 and an IPv6 address.
func unique(key string, list []Listener) error {
	var errs []error
	for i, a := range list {
		for _, b := range list[:i] {
			switch {
			case a.Name == b.Name:
				errs = append(errs, fmt.Errorf("%s: each listener must have a different name: %s is there twice", key, a.Name))
			case a.Port != 0 && a.Port == b.Port && !differentFamilies(a.Host, b.Host):
				errs = append(errs, fmt.Errorf("%s: each listener must have a different port: %s and %s both use %d", key, b.Name, a.Name, a.Port))
			}
		}
	}
	return errors.Join(errs...)
}

func differentFamilies(a, b string) bool {
	x, errA := netip.ParseAddr(a)
	y, errB := netip.ParseAddr(b)
	return errA == nil && errB == nil && x.Is4() != y.Is4()
}

// parseProtocols reads NAME:PROTOCOL items.
func parseProtocols(text string) (map[string]SecurityProtocol, error) {
	const key = "listener.security.protocol.map"
	m := map[string]SecurityProtocol{}
	for _, item := range splitList(text) {
		name, word, ok := strings.Cut(item, ":")
		name = strings.ToUpper(strings.TrimSpace(name))
		if !ok || name == "" {
			return nil, fmt.Errorf("%s: %q must be NAME:PROTOCOL", key, item)
		}
		p, ok := protocolByName(strings.TrimSpace(word))
		if !ok {
			return nil, fmt.Errorf("%s: %s isn't a security protocol: use PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", key, word)
		}
		if _, twice := m[name]; twice {
			return nil, fmt.Errorf("%s: listener %s is there twice", key, name)
		}
		m[name] = p
	}
	return m, nil
}

func protocolByName(s string) (SecurityProtocol, bool) {
	for _, p := range []SecurityProtocol{Plaintext, SSL, SASLPlaintext, SASLSSL} {
		if strings.EqualFold(p.String(), s) {
			return p, true
		}
	}
	return 0, false
}

// listeners derives all listener settings.
func (r *reader) listeners(n *Node, env Env) listenerSet {
	protocols, err := parseProtocols(r.text("listener.security.protocol.map"))
	if err != nil {
		r.fail(err)
		return listenerSet{}
	}
	set := listenerSet{controller: upper(r.list("controller.listener.names"))}
	for _, name := range set.controller {
		// As in Kafka, controller listeners may be left out of the map while it has its default value.
		if _, ok := protocols[name]; !ok && !r.isSet("listener.security.protocol.map") {
			protocols[name] = Plaintext
		}
	}
	if set.bound, err = parseListeners("listeners", r.list("listeners"), protocols); err != nil {
		r.fail(err)
		return listenerSet{}
	}
	for i, l := range set.bound {
		if limit, ok := r.limits[l.Name]; ok {
			set.bound[i].MaxConnections = limit
			delete(r.limits, l.Name)
		}
		if l.Protocol != Plaintext {
			why := whyTls
			if l.Protocol == SASLPlaintext {
				why = whySasl
			}
			r.fail(fmt.Errorf("listeners: %s asks for %s: %s", l.Name, l.Protocol, why))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.limits)) {
		r.fail(fmt.Errorf("listener.name.%s.max.connections: %s isn't in listeners", strings.ToLower(name), name))
	}
	r.controllerListeners(n, &set)
	r.interBroker(n, &set)
	r.advertise(n, &set, protocols, env)
	return set
}

func (r *reader) controllerListeners(n *Node, set *listenerSet) {
	for _, name := range set.controller {
		if !slices.ContainsFunc(set.bound, named(name)) && n.QuorumConfigured && n.Controller {
			r.fail(fmt.Errorf("controller.listener.names: %s must also be in listeners, since controller.quorum keys are set: add %s://:9093", name, name))
		}
	}
	if n.QuorumConfigured && len(set.controller) == 0 {
		r.fail(errors.New("controller.listener.names must name a listener, since controller.quorum keys are set: set it to CONTROLLER and add CONTROLLER://:9093 to listeners"))
	}
	if n.Broker && !slices.ContainsFunc(set.bound, func(l Listener) bool { return !slices.Contains(set.controller, l.Name) }) {
		r.fail(errors.New("listeners: there must be at least one broker listener; all listeners are in controller.listener.names"))
	}
	for _, l := range set.bound {
		switch of := slices.Contains(set.controller, l.Name); {
		case of && !n.Controller:
			r.fail(fmt.Errorf("listeners: %s belongs to the controller (controller.listener.names), and this node is none: take it out", l.Name))
		case !of && !n.Broker:
			r.fail(fmt.Errorf("listeners: %s isn't in controller.listener.names, and this node is a controller only: list the controller's listeners alone, as in CONTROLLER://:9093", l.Name))
		}
	}
}

func (r *reader) interBroker(n *Node, set *listenerSet) {
	set.interBroker = strings.ToUpper(r.text("inter.broker.listener.name"))
	if set.interBroker == "" {
		set.interBroker = strings.ToUpper(r.text("security.inter.broker.protocol"))
		if !slices.ContainsFunc(set.bound, named(set.interBroker)) {
			// Kafka wants one of the protocol's name. Here the first listener stands in.
			for _, l := range set.bound {
				if !slices.Contains(set.controller, l.Name) {
					set.interBroker = l.Name
					break
				}
			}
		}
		return
	}
	if r.isSet("security.inter.broker.protocol") {
		r.fail(errors.New("only one of inter.broker.listener.name and security.inter.broker.protocol should be set"))
	}
	if slices.Contains(set.controller, set.interBroker) {
		r.fail(fmt.Errorf("inter.broker.listener.name: %s is in controller.listener.names and can't serve brokers", set.interBroker))
	}
	if n.Broker && !slices.ContainsFunc(set.bound, named(set.interBroker)) {
		r.fail(fmt.Errorf("inter.broker.listener.name: %s isn't in listeners", set.interBroker))
	}
}

// advertise derives what clients are told: advertised.listeners, or the bound broker listeners. An unspecified address never
// passes: the host's name stands for it, or start fails.
func (r *reader) advertise(n *Node, set *listenerSet, protocols map[string]SecurityProtocol, env Env) {
	list, given := set.bound, r.isSet("advertised.listeners")
	if given {
		var err error
		if list, err = parseListeners("advertised.listeners", r.list("advertised.listeners"), protocols); err != nil && !onlyPorts(list) {
			r.fail(err)
			return
		}
	}
	for _, l := range list {
		if !slices.ContainsFunc(set.bound, named(l.Name)) {
			if slices.Contains(set.controller, l.Name) && !n.Controller {
				continue // Kafka's own files for brokers have it
			}
			r.fail(fmt.Errorf("advertised.listeners: %s isn't in listeners", l.Name))
			continue
		}
		if given && unspecified(l.Host) && l.Host != "" {
			r.fail(fmt.Errorf("advertised.listeners cannot use the nonroutable meta-address %s: write a host name or address that clients can reach", l.Host))
			continue
		}
		if l.Host == "" || unspecified(l.Host) {
			host, err := hostName(env)
			if err != nil {
				r.fail(fmt.Errorf("listener %s listens on every interface and this machine's host name can't be advertised (%w): set advertised.listeners=%s://HOST:%d", l.Name, err, l.Name, l.Port))
				continue
			}
			l.Host = host
		}
		l.MaxConnections = -1
		if slices.Contains(set.controller, l.Name) {
			set.reachable = append(set.reachable, l)
		} else {
			set.advertised = append(set.advertised, l)
		}
	}
	r.reach(&set.reachable, set, env)
	if given && n.Broker && len(set.advertised) == 0 && len(r.errs) == 0 {
		r.fail(errors.New("advertised.listeners: there must be at least one broker listener"))
	}
}

// reach completes the controller's reachable listeners with those bound that aren't in advertised.listeners, and sorts them.
func (r *reader) reach(list *[]Listener, set *listenerSet, env Env) {
	var out []Listener
	for _, name := range set.controller {
		if i := slices.IndexFunc(*list, named(name)); i >= 0 {
			out = append(out, (*list)[i])
			continue
		}
		i := slices.IndexFunc(set.bound, named(name))
		if i < 0 {
			continue
		}
		l := set.bound[i]
		l.MaxConnections = -1
		if unspecified(l.Host) {
			host, err := hostName(env)
			if err != nil {
				r.fail(fmt.Errorf("listener %s listens on every interface and this machine's host name can't be advertised (%w): add %s://HOST:%d to advertised.listeners", name, err, name, l.Port))
				continue
			}
			l.Host = host
		}
		out = append(out, l)
	}
	*list = out
}

// onlyPorts reports whether parsing succeeded and only ports repeat, which advertised addresses may (a proxy in front).
func onlyPorts(list []Listener) bool {
	names := map[string]bool{}
	for _, l := range list {
		if names[l.Name] {
			return false
		}
		names[l.Name] = true
	}
	return len(list) > 0
}

func unspecified(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// hostName is the machine's name, if it is one that may be advertised.
func hostName(env Env) (string, error) {
	if env.Hostname == nil {
		return "", errors.New("it is not known")
	}
	host, err := env.Hostname()
	switch {
	case err != nil:
		return "", err
	case unspecified(host):
		return "", fmt.Errorf("it is %q", host)
	}
	return host, nil
}

func named(name string) func(Listener) bool {
	return func(l Listener) bool { return l.Name == name }
}

func upper(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToUpper(s)
	}
	return out
}

// Address is host:port for dialing, listening and messages.
func (l Listener) Address() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

// String is the listener as it stands in a properties file.
func (l Listener) String() string { return l.Name + "://" + l.Address() }

// Advertise is a copy of the node in which port 0 of advertised listeners is replaced by the port bound, by listener name.
func (n *Node) Advertise(bound map[string]int) *Node {
	c := *n
	c.Advertised, c.ControllerAdvertised = slices.Clone(n.Advertised), slices.Clone(n.ControllerAdvertised)
	for _, list := range [][]Listener{c.Advertised, c.ControllerAdvertised} {
		for i, l := range list {
			if port, ok := bound[l.Name]; ok && l.Port == 0 {
				list[i].Port = port
			}
		}
	}
	return &c
}

func parseVoters(list []string) ([]Voter, error) {
	var out []Voter
	for _, item := range list {
		id, address, ok := strings.Cut(item, "@")
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil || n < 0 {
			return nil, fmt.Errorf("Invalid voter %q: each entry must be id@host:port", item)
		}
		host, port, err := splitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("Invalid voter %q: each entry must be id@host:port", item)
		}
		out = append(out, Voter{ID: int32(n), Host: host, Port: port})
	}
	return out, nil
}

// parseOverrides reads max.connections.per.ip.overrides: address:number items. Host names, which Kafka looks up once at start,
// are refused: what they stand for may change.
func parseOverrides(text string) (map[string]int, error) {
	out := map[string]int{}
	for _, item := range splitList(text) {
		i := strings.LastIndexByte(item, ':')
		if i <= 0 {
			return nil, fmt.Errorf("max.connections.per.ip.overrides: %q must be address:number", item)
		}
		addr, err := netip.ParseAddr(strings.Trim(item[:i], "[]"))
		if err != nil {
			return nil, fmt.Errorf("max.connections.per.ip.overrides: %q must be address:number, with an IP address", item)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(item[i+1:]), 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("max.connections.per.ip.overrides: %q must be address:number, the number 0 or more", item)
		}
		out[addr.Unmap().String()] = int(n)
	}
	return out, nil
}

func parseThrottled(list []string) (ThrottledReplicas, error) {
	if len(list) == 1 && list[0] == "*" {
		return ThrottledReplicas{All: true}, nil
	}
	var t ThrottledReplicas
	for _, item := range list {
		if item == "" { // Kafka lets holes pass
			continue
		}
		p, b, ok := strings.Cut(item, ":")
		partition, errP := strconv.ParseInt(p, 10, 32)
		broker, errB := strconv.ParseInt(b, 10, 32)
		if !ok || errP != nil || errB != nil || partition < 0 || broker < 0 {
			return ThrottledReplicas{}, fmt.Errorf("%q must be partition:broker", item)
		}
		if t.Pairs == nil {
			t.Pairs = map[int32][]int32{}
		}
		t.Pairs[int32(partition)] = append(t.Pairs[int32(partition)], int32(broker))
	}
	return t, nil
}
