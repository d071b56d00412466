package config

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"milena/internal/api"
)

// Patterns is a list of regular expressions that match whole names. The zero value matches nothing.
type Patterns struct{ re *regexp.Regexp }

// ParsePatterns compiles a comma separated list: items are trimmed, empty ones dropped. The dialect is RE2. The error is an *api.Error INVALID_REGULAR_EXPRESSION.
func ParsePatterns(list string) (Patterns, error) {
	var kept []string
	for _, p := range splitList(list) {
		if p == "" {
			continue
		}
		if _, err := regexp.Compile(p); err != nil {
			return Patterns{}, api.Errorf(api.InvalidRegularExpression, "%q is no regular expression of RE2: %w", p, err)
		}
		kept = append(kept, p)
	}
	if len(kept) == 0 {
		return Patterns{}, nil
	}
	re, err := regexp.Compile("^(?:" + strings.Join(kept, "|") + ")$")
	if err != nil {
		return Patterns{}, api.Errorf(api.InvalidRegularExpression, "%q is no list of regular expressions of RE2: %w", list, err)
	}
	return Patterns{re}, nil
}

// Match reports whether one of the patterns matches all of name.
func (p Patterns) Match(name string) bool { return p.re != nil && p.re.MatchString(name) }

// Empty reports whether there is no pattern.
func (p Patterns) Empty() bool { return p.re == nil }

func patterns() check {
	return check{"list of regular expressions", func(name string, v value, _ Type) error {
		if _, err := ParsePatterns(strings.Join(v.list, ",")); err != nil {
			_, text := api.CodeOf(err)
			return api.Errorf(api.InvalidRegularExpression, "%s: %s", name, text)
		}
		return nil
	}}
}

// batches are batches of the source, as topic:partition:offset each.
func batches() check {
	return check{"list of topic:partition:offset", func(name string, v value, _ Type) error {
		for _, b := range v.list {
			fields := strings.Split(b, ":")
			if len(fields) != 3 || fields[0] == "" {
				return invalid(name, b, "A batch is topic:partition:offset")
			}
			_, bad := strconv.ParseUint(fields[1], 10, 31)
			if _, err := strconv.ParseUint(fields[2], 10, 63); err != nil || bad != nil {
				return invalid(name, b, "A batch is topic:partition:offset")
			}
		}
		return nil
	}}
}

// aclRules are the bounds of mirror.acls.include: at most five fields each, names and principals are regular expressions.
func aclRules() check {
	return check{"list of type;name;operation;permission;principal", func(name string, v value, _ Type) error {
		for _, rule := range v.list {
			fields := strings.Split(rule, ";")
			if rule == "" || len(fields) > 5 {
				return invalid(name, rule, "A rule is type;name;operation;permission;principal, trailing fields may be left out")
			}
			for i, f := range fields {
				f = strings.TrimSpace(f)
				if i != 1 && i != 4 || f == "*" || f == "" {
					continue
				}
				if _, err := regexp.Compile(f); err != nil {
					return api.Errorf(api.InvalidRegularExpression, "%s: %q is no regular expression of RE2: %w", name, f, err)
				}
			}
		}
		return nil
	}}
}

// sourceAddresses are the bounds of bootstrap.servers.
func sourceAddresses() check {
	return check{"list of host:port", func(name string, v value, t Type) error {
		if err := items(false).fn(name, v, t); err != nil {
			return err
		}
		for _, item := range v.list {
			if _, port, err := splitHostPort(item); err != nil || port == 0 {
				return invalid(name, item, "Each entry must be host:port, an IPv6 host in brackets")
			}
		}
		return nil
	}}
}

func httpListen() check {
	return check{"host:port or off", func(name string, v value, _ Type) error {
		if v.s == "off" {
			return nil
		}
		if _, _, err := splitHostPort(v.s); err != nil && !errors.Is(err, errEmptyHost) {
			return invalid(name, v.s, "It must be host:port, an IPv6 host in brackets, or off")
		}
		return nil
	}}
}
