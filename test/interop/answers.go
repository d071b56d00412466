package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/peertest"
)

// answers puts the same requests to Apache Kafka and to Milena, every API that both advertise at every version, and
// compares what comes back: error codes, which fields have values, the values where they are no accident.
type answers struct {
	*part
	ctx context.Context // of the part, as long as it asks
	// past is the time of all records, in ms: the same on both sides, and too young for retention to take them away.
	past    int64
	brokers []*asked
}

// asked is one of the brokers, with what it said.
type asked struct {
	b *peertest.Broker
	c *rawConn
	// ranges are what ApiVersions says.
	ranges map[int16][2]int16
	ids    map[string][16]byte
	// member is one of a group's, session one of fetches.
	member  string
	session int32
	cluster string
	dirs    []string
	// labels are in the order of asking; said has for each the leaves of the answer by their paths.
	labels []string
	said   map[string]map[string]string
	// names gives what is an accident (an id, a member) the same name on both sides: numbered as first seen.
	names map[string]string
}

func runAnswers(ctx context.Context, p *part) error {
	x := &answers{part: p, ctx: ctx, past: time.Now().Add(-2 * time.Hour).UnixMilli()}
	return p.steps(ctx, step{"start", x.start}, step{"what is advertised", x.advertised}, step{"ask", x.ask}, step{"compare", x.compare})
}

func (x *answers) start(ctx context.Context) error {
	props := map[string]string{"offsets.topic.num.partitions": "5", "group.initial.rebalance.delay.ms": "0"}
	kafka, err := peertest.NewKafka(ctx, peertest.KafkaOptions{Tools: x.kafka, Dir: x.dir + "/kafka", Properties: props})
	if err != nil {
		return err
	}
	ours, err := x.newMilena("milena", "", props)
	if err != nil {
		return err
	}
	for _, b := range []*peertest.Broker{kafka, ours} {
		x.addBroker(b)
		if err := b.Start(ctx); err != nil {
			return err
		}
		a := &asked{b: b, said: map[string]map[string]string{}, names: map[string]string{}, ids: map[string][16]byte{}, ranges: map[int16][2]int16{}}
		if a.c, err = dialRaw(ctx, b.Addr); err != nil {
			return err
		}
		x.onCleanUp(func() error { return a.c.Close() })
		x.brokers = append(x.brokers, a)
	}
	return nil
}

// advertised wants Kafka's keys at Kafka's versions, those that UNSUPPORTED.md lists aside, and nothing more than the mirror APIs.
func (x *answers) advertised(context.Context) error {
	for _, a := range x.brokers {
		resp := kmsg.NewPtrApiVersionsResponse()
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "interop", "1"
		if err := a.c.call(req, resp); err != nil {
			return err
		}
		for _, k := range resp.ApiKeys {
			a.ranges[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
		}
	}
	kafka, ours := x.brokers[0].ranges, x.brokers[1].ranges
	var errs []error
	for key, r := range ours {
		theirs, ok := kafka[key]
		switch {
		case key >= 1000: // mirror APIs
		case !ok:
			errs = append(errs, fmt.Errorf("API %d is advertised, and not by Kafka", key))
		case key == 19 && r == [2]int16{theirs[0], theirs[1] + 1}: // CreateTopics 8 is KIP-1279's
		case r != theirs:
			errs = append(errs, fmt.Errorf("API %d is advertised at %v, by Kafka at %v", key, r, theirs))
		}
	}
	if len(ours) < 45 {
		errs = append(errs, fmt.Errorf("only %d APIs are advertised", len(ours)))
	}
	return errors.Join(errs...)
}

// all asks with every version that Kafka has of an API; make gets the version and may read what was answered before.
func (x *answers) all(name string, key int16, mk func(v int16, a *asked) kmsg.Request) error {
	return x.from(name, key, 0, mk)
}

// from is all beginning with a version.
func (x *answers) from(name string, key, least int16, mk func(v int16, a *asked) kmsg.Request) error {
	r, ok := x.brokers[0].ranges[key]
	if !ok {
		return fmt.Errorf("%s: Kafka does not advertise API %d", name, key)
	}
	if _, ok := x.brokers[1].ranges[key]; !ok {
		return fmt.Errorf("%s: Milena does not advertise API %d", name, key)
	}
	for v := max(r[0], least); v <= r[1]; v++ {
		if _, err := x.one(name, v, mk); err != nil {
			return err
		}
	}
	return nil
}

// one asks both with a version.
func (x *answers) one(name string, v int16, mk func(v int16, a *asked) kmsg.Request) ([]kmsg.Response, error) {
	var out []kmsg.Response
	for _, a := range x.brokers {
		label := fmt.Sprintf("%s v%d", name, v)
		if _, twice := a.said[label]; twice {
			return nil, fmt.Errorf("%s is asked twice", label)
		}
		resp, leaves, err := a.put(x.ctx, v, mk)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", label, a.b.Kind, err)
		}
		a.labels = append(a.labels, label)
		a.said[label] = leaves
		out = append(out, resp)
	}
	return out, nil
}

// put asks one broker, again while a coordinator is still being loaded. The answer is nil, and its only leaf says so, if the
// connection was closed: that is an answer too.
func (a *asked) put(ctx context.Context, v int16, mk func(v int16, a *asked) kmsg.Request) (kmsg.Response, map[string]string, error) {
	for until := time.Now().Add(20 * time.Second); ; {
		req := mk(v, a)
		req.SetVersion(v)
		resp, leaves := req.ResponseKind(), map[string]string{}
		err := a.c.call(req, resp)
		var slow net.Error
		if errors.As(err, &slow) && slow.Timeout() {
			return nil, nil, err
		}
		if err != nil {
			a.c.Close()
			a.c, err = dialRaw(ctx, a.b.Addr)
			return resp, map[string]string{"": "connection closed"}, err
		}
		a.flatten("", reflect.ValueOf(resp).Elem(), leaves)
		if time.Now().After(until) || !slices.ContainsFunc(slices.Collect(maps.Values(leaves)), func(l string) bool {
			return l == kerr.CoordinatorNotAvailable.Message || l == kerr.CoordinatorLoadInProgress.Message || l == kerr.NotCoordinator.Message
		}) {
			return resp, leaves, nil
		}
		if err := peertest.Pause(ctx, 50*time.Millisecond); err != nil {
			return nil, nil, err
		}
	}
}

var (
	uuidLike = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|^[A-Za-z0-9_-]{22}$`)
	// accidental fields differ between any two brokers.
	accidental = []string{"ThrottleMillis", "ErrorMessage", "BrokerEpoch", "Port", "TotalBytes", "UsableBytes", "LastTimestamp", "LastFetchTimestamp", "LastCaughtUpTimestamp", "FinalizedFeaturesEpoch"}
)

// name numbers accidental values as they are first seen.
func (a *asked) name(kind, v string) string {
	if n, ok := a.names[v]; ok {
		return n
	}
	n := kind + strconv.Itoa(len(a.names))
	a.names[v] = n
	return n
}

// flatten writes the leaves of an answer by their paths. Elements of a list go by their own content, since Kafka's order is that of a hash map.
func (a *asked) flatten(path string, v reflect.Value, out map[string]string) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			out[path] = "null"
			return
		}
		a.flatten(path, v.Elem(), out)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Name == "Version" || f.Name == "UnknownTags" || slices.Contains(accidental, f.Name) {
				continue
			}
			a.flatten(path+"."+f.Name, v.Field(i), out)
		}
	case reflect.Slice:
		a.list(path, v, out)
	case reflect.Array:
		out[path] = a.id(v)
	default:
		out[path] = a.leaf(path, v)
	}
}

func (a *asked) id(v reflect.Value) string {
	var id [16]byte
	reflect.Copy(reflect.ValueOf(&id).Elem(), v)
	if id == ([16]byte{}) {
		return "no id"
	}
	for topic, known := range a.ids {
		if known == id {
			return "id of " + topic
		}
	}
	return "id"
}

func (a *asked) leaf(path string, v reflect.Value) string {
	field := path[strings.LastIndexByte(path, '.')+1:]
	switch {
	case field == "ErrorCode":
		if err := kerr.TypedErrorForCode(int16(v.Int())); err != nil {
			return err.Message
		}
		return "ok"
	case field == "Documentation":
		return "words" // ours are our own
	case field == "ProducerID" && v.Int() > 0:
		return "a producer id"
	case field == "SessionID" && v.Int() != 0:
		return "a session"
	case (field == "Timestamp" || field == "LogAppendTime") && v.Int() > 1_790_000_000_000:
		return "now"
	case v.Kind() == reflect.String:
		s := v.String()
		if s == a.cluster && s != "" {
			return "the cluster"
		}
		for i, d := range a.dirs {
			s = strings.ReplaceAll(s, d, "log directory "+strconv.Itoa(i))
		}
		return uuidLike.ReplaceAllStringFunc(strings.ReplaceAll(s, a.b.Addr, "the broker"), func(u string) string { return a.name("name ", u) })
	}
	return fmt.Sprint(v.Interface())
}

func (a *asked) list(path string, v reflect.Value, out map[string]string) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		b := v.Bytes()
		out[path] = fmt.Sprintf("%d bytes, %08x", len(b), crc32.ChecksumIEEE(b))
		if len(b) < 24 {
			out[path] = base64.StdEncoding.EncodeToString(b)
		}
		return
	}
	if v.Len() == 0 {
		out[path] = "empty list" // null and empty are one to kmsg's readers of old versions
		return
	}
	type element struct {
		key    string
		leaves map[string]string
	}
	var all []element
	for i := range v.Len() {
		leaves := map[string]string{}
		a.flatten("", v.Index(i), leaves)
		all = append(all, element{elementKey(leaves), leaves})
	}
	slices.SortStableFunc(all, func(p, q element) int { return strings.Compare(p.key, q.key) })
	seen := map[string]int{}
	for _, e := range all {
		n := seen[e.key]
		seen[e.key]++
		at := fmt.Sprintf("%s[%s]", path, e.key)
		if n > 0 {
			at = fmt.Sprintf("%s[%s #%d]", path, e.key, n+1)
		}
		for p, l := range e.leaves {
			out[at+p] = l
		}
	}
}

// elementKey is what tells an element from its neighbours: its name or number.
func elementKey(leaves map[string]string) string {
	var parts []string
	_, config := leaves[".ReadOnly"]
	for _, f := range []string{"", ".Topic", ".TopicID", ".Partition", ".Group", ".Key", ".Name", ".Type", ".ResourceType", ".ResourceName", ".Feature", ".ApiKey", ".BrokerID", ".Dir", ".Source", ".ProducerID"} {
		l, ok := leaves[f]
		named := leaves[".Topic"] != "" && leaves[".Topic"] != "null"
		if !ok || f == ".TopicID" && named || f == ".Source" && config {
			continue
		}
		parts = append(parts, l)
	}
	return strings.Join(parts, "/")
}

// difference is one that is known, and why it is right.
type difference struct {
	// label and path are regular expressions for the request and the place in the answer.
	label, path string
	why         string
}

// compare reports every place where the brokers don't say the same, but for the known ones. A known one that is gone is reported too.
func (x *answers) compare(context.Context) error {
	kafka, ours := x.brokers[0], x.brokers[1]
	type rule struct {
		difference
		label, path *regexp.Regexp
		used        bool
	}
	var rules []*rule
	for _, d := range knownDifferences() {
		rules = append(rules, &rule{d, regexp.MustCompile("^(?:" + d.label + ")$"), regexp.MustCompile("^(?:" + d.path + ")$"), false})
	}
	var errs []error
	for _, label := range kafka.labels {
		k, m := kafka.said[label], ours.said[label]
		paths := maps.Clone(k)
		if k[""] == "" && m[""] == "" {
			maps.Copy(paths, m)
		} else {
			paths = map[string]string{"": ""} // one closed the connection
		}
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			theirs, ok := k[path]
			if !ok {
				theirs = "(absent)"
			}
			own, ok := m[path]
			if !ok {
				own = "(absent)"
			}
			if theirs == own {
				continue
			}
			i := slices.IndexFunc(rules, func(r *rule) bool { return r.label.MatchString(label) && r.path.MatchString(path) })
			if i >= 0 {
				rules[i].used = true
				continue
			}
			errs = append(errs, fmt.Errorf("%s: %s: Kafka says %s, Milena %s", label, path, quote(theirs), quote(own)))
		}
	}
	for _, r := range rules {
		if !r.used {
			errs = append(errs, fmt.Errorf("no difference any more: %s %s", r.difference.label, r.difference.path))
		}
	}
	x.logf("%d answers compared, %d kinds of differences known", len(kafka.labels), len(rules))
	return errors.Join(errs...)
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil || len(b) > 120 {
		return strconv.Quote(s[:min(len(s), 120)])
	}
	return string(b)
}
