package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// check is the bounds of a value beyond its type: its description in Kafka's notation and a function that says what is wrong
// with a parsed value.
type check struct {
	text string
	fn   func(name string, v value, t Type) error
}

var anything = check{}

func atLeast(low int64) check {
	return check{fmt.Sprintf("[%d,...]", low), func(name string, v value, t Type) error {
		if below(v, t, float64(low), low) {
			return outOfRange(name, v, t, fmt.Sprintf("Value must be at least %d", low))
		}
		return nil
	}}
}

func between(low, high int64) check {
	return check{fmt.Sprintf("[%d,...,%d]", low, high), func(name string, v value, t Type) error {
		if below(v, t, float64(low), low) {
			return outOfRange(name, v, t, fmt.Sprintf("Value must be at least %d", low))
		}
		if t == Double && v.f > float64(high) || t != Double && v.i > high {
			return outOfRange(name, v, t, fmt.Sprintf("Value must be no more than %d", high))
		}
		return nil
	}}
}

func fraction(high float64) check {
	limit := strconv.FormatFloat(high, 'f', -1, 64)
	return check{fmt.Sprintf("[0,...,%s]", limit), func(name string, v value, t Type) error {
		switch {
		case v.f < 0:
			return outOfRange(name, v, t, "Value must be at least 0")
		case v.f > high:
			return outOfRange(name, v, t, "Value must be no more than "+limit)
		}
		return nil
	}}
}

func below(v value, t Type, f float64, i int64) bool {
	if t == Double {
		return v.f < f
	}
	return v.i < i
}

func outOfRange(name string, v value, t Type, reason string) error {
	shown := strconv.FormatInt(v.i, 10)
	if t == Double {
		shown = javaDouble(v.f)
	}
	return invalid(name, shown, reason)
}

// javaDouble prints a double as Java does, for the magnitudes that occur.
func javaDouble(f float64) string {
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if f >= 1e7 || f <= -1e7 || f != 0 && f < 1e-3 && f > -1e-3 {
		s = strconv.FormatFloat(f, 'E', -1, 64)
		mantissa, exp, _ := strings.Cut(s, "E")
		if !strings.Contains(mantissa, ".") {
			mantissa += ".0"
		}
		n, err := strconv.Atoi(exp)
		if err != nil { // infinities and NaN
			return strings.TrimPrefix(strings.Replace(s, "Inf", "Infinity", 1), "+")
		}
		return mantissa + "E" + strconv.Itoa(n)
	}
	if !strings.ContainsAny(s, ".N") {
		s += ".0"
	}
	return s
}

func gzipLevel() check {
	return check{"[1,...,9] or -1", func(name string, v value, _ Type) error {
		if v.i != -1 && (v.i < 1 || v.i > 9) {
			return invalid(name, strconv.FormatInt(v.i, 10), "Value must be between 1 and 9 or equal to -1")
		}
		return nil
	}}
}

func oneOf(words ...string) check {
	return check{"[" + strings.Join(words, ", ") + "]", func(name string, v value, _ Type) error {
		if !slices.Contains(words, v.s) {
			return invalid(name, v.s, "String must be one of: "+strings.Join(words, ", "))
		}
		return nil
	}}
}

func oneOfFold(words ...string) check {
	return check{"(case insensitive) [" + strings.Join(words, ", ") + "]", func(name string, v value, _ Type) error {
		if !slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, v.s) }) {
			return invalid(name, v.s, "String must be one of (case insensitive): "+strings.Join(words, ", "))
		}
		return nil
	}}
}

func nonEmpty() check {
	return check{"non-empty string", func(name string, v value, _ Type) error {
		if v.s == "" {
			return invalid(name, v.s, "String must be non-empty")
		}
		return nil
	}}
}

func nonNull() check { return check{text: "non-null string"} }

// items are the bounds of a list: no holes, no duplicates, and only the given words if there are any.
func items(emptyAllowed bool, words ...string) check {
	text, valid := "", "any non-empty value"
	if len(words) > 0 {
		text = "[" + strings.Join(words, ", ") + "]"
		valid = text
	}
	return check{text, func(name string, v value, _ Type) error {
		if len(v.list) == 0 && !emptyAllowed {
			return fmt.Errorf("Configuration '%s' must not be empty. Valid values include: %s", name, valid)
		}
		return checkItems(name, v.list, words)
	}}
}

func checkItems(name string, list, words []string) error {
	seen := make(map[string]bool, len(list))
	for _, item := range list {
		if seen[item] {
			return fmt.Errorf("Configuration '%s' values must not be duplicated.", name)
		}
		seen[item] = true
	}
	for _, item := range list {
		if item == "" {
			return fmt.Errorf("Configuration '%s' values must not be empty.", name)
		}
		if len(words) > 0 && !slices.Contains(words, item) {
			return invalid(name, item, "String must be one of: "+strings.Join(words, ", "))
		}
	}
	return nil
}

// hostPorts are the bounds of a list of host:port, which may be empty.
func hostPorts() check {
	return check{"non-empty list", func(name string, v value, _ Type) error {
		for _, item := range v.list {
			if _, _, err := splitHostPort(item); err != nil {
				return fmt.Errorf(`Failed to parse host name from %s for the configuration %s. Each entry should be in the form "{host}:{port}"`, item, name)
			}
		}
		return nil
	}}
}

// voters are the bounds of controller.quorum.voters.
func voters() check {
	return check{"non-empty list", func(name string, v value, _ Type) error {
		if _, err := parseVoters(v.list); err != nil {
			return invalid(name, v.s, err.Error())
		}
		return nil
	}}
}

// throttled are the bounds of a list of partition:broker pairs, or *.
func throttled() check {
	return check{"[partitionId]:[brokerId],[partitionId]:[brokerId],...", func(name string, v value, _ Type) error {
		if _, err := parseThrottled(v.list); err != nil {
			return invalid(name, javaList(v.list), name+" must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...")
		}
		return nil
	}}
}

func javaList(list []string) string { return "[" + strings.Join(list, ", ") + "]" }

// rackAwareSelector is Kafka's class that fetches from the closest replica (KIP-392).
const rackAwareSelector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

// selector are the bounds of replica.selector.class, which Kafka's own table doesn't have: the classes that are there.
func selector() check {
	return check{"", func(name string, v value, _ Type) error {
		if v.s == "" || v.s == rackAwareSelector || v.s == "org.apache.kafka.common.replica.LeaderSelector" {
			return nil
		}
		return fmt.Errorf("%s=%s is refused: Java classes can't be loaded, only %s is known: leave it out or use that", name, v.s, rackAwareSelector)
	}}
}

// offsetReset are the bounds of share.auto.offset.reset.
func offsetReset() check {
	return check{"[latest, earliest, by_duration:PnDTnHnMn.nS]", func(name string, v value, _ Type) error {
		after, ok := strings.CutPrefix(v.s, "by_duration:")
		if v.s == "earliest" || v.s == "latest" || ok && isoDuration(after) {
			return nil
		}
		return invalid(name, v.s, fmt.Sprintf("Invalid value `%s` for configuration %s. The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.", v.s, name))
	}}
}

// isoDuration reports whether s is a positive ISO-8601 duration of days and below.
func isoDuration(s string) bool {
	s, ok := strings.CutPrefix(strings.ToUpper(s), "P")
	if !ok {
		return false
	}
	date, clock, timed := strings.Cut(s, "T")
	if date != "" {
		days, ok := strings.CutSuffix(date, "D")
		if _, err := strconv.ParseUint(days, 10, 31); !ok || err != nil {
			return false
		}
	}
	if !timed {
		return date != ""
	}
	if clock == "" {
		return false
	}
	_, err := time.ParseDuration(strings.ToLower(clock))
	return err == nil && !strings.HasPrefix(clock, "-") && !strings.HasPrefix(clock, "+")
}

var errEmptyHost = errors.New("no host")

// splitHostPort splits host:port; IPv6 hosts stand in brackets, which are dropped. The port must be 0 to 65535.
func splitHostPort(s string) (host string, port int, err error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", 0, fmt.Errorf("%q is not host:port", s)
	}
	host = s[:i]
	n, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q has no valid port: a number from 0 to 65535 must stand behind the last colon", s)
	}
	switch {
	case strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]"):
		host = host[1 : len(host)-1]
	case strings.ContainsAny(host, ":[]"):
		return "", 0, fmt.Errorf("%q: an IPv6 address must stand in brackets, as in [::1]:9092", s)
	}
	if host == "" {
		return "", int(n), errEmptyHost
	}
	return host, int(n), nil
}
