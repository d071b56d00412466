package config

import (
	"errors"
	"fmt"
	"strings"

	"milena/internal/api"
)

// Value checks a value against type, bounds and support of a key. The error's text is Kafka's where Kafka has one, and never
// repeats a password.
func (d *Def) Value(text string) error {
	v, err := parse(d.Name, text, d.Type)
	if err == nil && d.check.fn != nil {
		err = d.check.fn(d.Name, v, d.Type)
	}
	if err != nil {
		return err
	}
	if d.asks(text) {
		shown := text
		if d.Sensitive() {
			shown = "[hidden]"
		}
		return fmt.Errorf("%s=%s is refused: %s", d.Name, shown, d.Why)
	}
	return nil
}

// Validate checks one value of a resource as broker and controller must before it is stored: the key is known, may change at
// run time, and the value is within its bounds and asks for nothing that isn't there. name is the resource's name, "" for the
// cluster default of brokers. The error is an *api.Error: INVALID_CONFIG, for brokers INVALID_REQUEST as in Kafka, or
// INVALID_REGULAR_EXPRESSION.
func Validate(resourceType int8, name, key, value string) error {
	t := tableOf(resourceType)
	if t == nil {
		return api.Errorf(api.InvalidRequest, "resources of type %s have no stored configs", ResourceName(resourceType))
	}
	if resourceType == ResourceClientMetrics {
		return api.Errorf(api.InvalidConfig, "client metrics subscriptions aren't there yet: %s can't be set", key)
	}
	d, ok := t.byName[key]
	if !ok {
		return unknownKey(resourceType, t, key)
	}
	if resourceType == ResourceBroker {
		if err := changeable(d, name); err != nil {
			return err
		}
	}
	return asAPI(resourceType, d.Value(value))
}

func unknownKey(resourceType int8, t *table, key string) error {
	near := ""
	if hint, ok := removed[key]; ok {
		near = " (" + hint + ")"
	} else if n := nearest(t, key); n != "" {
		near = " (did you mean " + n + "?)"
	}
	switch resourceType {
	case ResourceTopic:
		return api.Errorf(api.InvalidConfig, "Unknown topic config name: %s%s", key, near)
	case ResourceGroup:
		return api.Errorf(api.InvalidConfig, "Unknown group config name: %s%s", key, near)
	case ResourceClusterMirror:
		return api.Errorf(api.InvalidConfig, "Unknown mirror config name: %s%s", key, near)
	}
	if base := unprefixed(key); base != key {
		return api.Errorf(api.InvalidRequest, "%s: configs of one listener can't be changed at run time; set it in server.properties and restart", key)
	}
	return api.Errorf(api.InvalidRequest, "Unknown broker config name: %s%s", key, near)
}

// changeable reports whether a broker key may be set for a broker, or with name "" for all.
func changeable(d *Def, name string) error {
	switch {
	case d.Mode == ReadOnly:
		return api.Errorf(api.InvalidRequest, "Cannot update these configs dynamically: [%s]", d.Name)
	case d.Mode == PerBroker && name == "":
		return api.Errorf(api.InvalidRequest, "Cannot update these configs at default cluster level, broker id must be specified: [%s]", d.Name)
	case d.Name == "min.insync.replicas" && name != "":
		// The controller tells by it who may lead (KIP-966): it has to be the same value on every broker.
		return api.Errorf(api.InvalidConfig, "Broker-level min.insync.replicas cannot be altered while ELR is enabled: set it for a topic, or as the cluster-wide default of brokers")
	}
	return nil
}

func asAPI(resourceType int8, err error) error {
	var e *api.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	code := api.InvalidConfig
	if resourceType == ResourceBroker {
		code = api.InvalidRequest
	}
	return &api.Error{Code: code, Message: err.Error(), Err: err}
}

// ValidateAll checks the whole config of a resource as it would be after a change: each value, and rules across keys. What it
// accepts, [Node.Topic] and [Node.WithDynamic] take over without complaint.
func ValidateAll(resourceType int8, name string, all map[string]string) error {
	for _, k := range sortedKeys(all) {
		if err := Validate(resourceType, name, k, all[k]); err != nil {
			return err
		}
	}
	switch resourceType {
	case ResourceTopic:
		return validateTopic(all)
	case ResourceBroker:
		return validateDynamicBroker(all)
	case ResourceClusterMirror:
		return validateMirror(all)
	}
	return nil
}

func validateTopic(all map[string]string) error {
	low, lowSet := longOf(all, "min.compaction.lag.ms")
	high, highSet := longOf(all, "max.compaction.lag.ms")
	if (lowSet || highSet) && low > high {
		return api.Errorf(api.InvalidConfig, "conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", low, high)
	}
	return nil
}

// longOf reads a topic key from a map, or its default.
func longOf(all map[string]string, key string) (n int64, set bool) {
	text, set := all[key]
	d := topicTable().byName[key]
	if !set {
		text = d.Default
	}
	v, err := parse(key, text, Long)
	if err != nil {
		return 0, false
	}
	return v.i, set
}

// validateDynamicBroker holds the rules that Kafka checks outside its definitions, for keys that can change at run time.
func validateDynamicBroker(all map[string]string) error {
	return asAPI(ResourceBroker, errors.Join(looseRules(func(key string) (string, bool) { v, ok := all[key]; return v, ok })...))
}

// looseRules are bounds of broker keys that Kafka has in code instead of its definitions.
func looseRules(get func(key string) (string, bool)) []error {
	var errs []error
	for _, k := range []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"} {
		if text, ok := get(k); ok {
			if v, err := parse(k, text, Long); err == nil && v.i != -1 && v.i < 1 {
				errs = append(errs, fmt.Errorf("%s must be unlimited (-1) or, greater than or equal to 1", k))
			}
		}
	}
	for _, rule := range []struct {
		key string
		low int64
	}{{"log.roll.ms", 1}, {"log.roll.jitter.ms", 0}} {
		if text, ok := get(rule.key); ok {
			if v, err := parse(rule.key, text, Long); err == nil && v.i < rule.low {
				errs = append(errs, fmt.Errorf("%s must be greater than or equal to %d", rule.key, rule.low))
			}
		}
	}
	for _, k := range []string{"max.connections", "max.connections.per.ip"} {
		if text, ok := get(k); ok {
			if v, err := parse(k, text, Int); err == nil && v.i == 0 {
				errs = append(errs, fmt.Errorf("%s=0 would let nobody in: leave it out, or shut single addresses out with max.connections.per.ip.overrides", k))
			}
		}
	}
	if text, ok := get("max.connections.per.ip.overrides"); ok {
		if _, err := parseOverrides(text); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func validateMirror(all map[string]string) error {
	if len(all) == 0 {
		return nil // the mirror is gone
	}
	if all["bootstrap.servers"] == "" {
		return api.Errorf(api.InvalidConfig, "a mirror needs bootstrap.servers: the addresses of its source cluster as host:port")
	}
	protocol := all["security.protocol"]
	if (protocol == SASLPlaintext.String() || protocol == SASLSSL.String()) && all["sasl.jaas.config"] == "" {
		return api.Errorf(api.InvalidConfig, "security.protocol=%s needs sasl.jaas.config: the login at the source", protocol)
	}
	return nil
}

// ValidateStep checks a new value against this node's settings: mirror.num.replica.fetchers may at most halve or double in one
// change, and configs of groups must be within the broker's bounds for them.
func (n *Node) ValidateStep(resourceType int8, key, text string) error {
	switch {
	case resourceType == ResourceBroker && key == "mirror.num.replica.fetchers":
		return n.validateFetchers(key, text)
	case resourceType == ResourceGroup:
		return n.validateGroup(key, text)
	}
	return nil
}

func (n *Node) validateFetchers(key, text string) error {
	v, err := parse(key, text, Int)
	if err != nil {
		return asAPI(ResourceBroker, err)
	}
	if have := n.reader().num(key); v.i > 2*have || 2*v.i < have {
		return api.Errorf(api.InvalidRequest, "%s=%d: one change may at most halve or double it, and it is %d", key, v.i, have)
	}
	return nil
}

// validateGroup holds a config such as consumer.session.timeout.ms against group.consumer.min.session.timeout.ms and .max.
func (n *Node) validateGroup(key, text string) error {
	kind, rest, _ := strings.Cut(key, ".")
	rest = strings.TrimPrefix(rest, "num.")
	low, high := "group."+kind+".min."+rest, "group."+kind+".max."+rest
	d, known := Lookup(ResourceGroup, key)
	_, hasLow := Lookup(ResourceBroker, low)
	_, hasHigh := Lookup(ResourceBroker, high)
	if !known || !hasLow && !hasHigh {
		return nil
	}
	v, err := parse(key, text, d.Type)
	if err != nil {
		return asAPI(ResourceGroup, err)
	}
	r := n.reader()
	switch {
	case hasLow && hasHigh && (v.i < r.num(low) || v.i > r.num(high)):
		return api.Errorf(api.InvalidConfig, "%s must be in the range %d to %d inclusive.", key, r.num(low), r.num(high))
	case hasHigh && v.i > r.num(high):
		return api.Errorf(api.InvalidConfig, "%s must be less than or equal to %s.", key, high)
	case hasLow && v.i < r.num(low):
		return api.Errorf(api.InvalidConfig, "%s must be greater than or equal to %s.", key, low)
	}
	return nil
}
