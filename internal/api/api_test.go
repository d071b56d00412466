package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaFacts reads testdata/kafka-4.4.0.txt, what Kafka's own client jar says.
func kafkaFacts(t *testing.T) (apis, codes [][]string) {
	t.Helper()
	f, err := os.Open("testdata/kafka-4.4.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		switch fields[0] {
		case "api":
			apis = append(apis, fields[1:])
		case "error":
			codes = append(codes, fields[1:])
		}
	}
	return apis, codes
}

func TestTableIsKafkas(t *testing.T) {
	apis, _ := kafkaFacts(t)
	facts := make(map[Key][]string)
	for _, f := range apis {
		k, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatal(err)
		}
		facts[Key(k)] = f
	}
	if len(facts) != 95 {
		t.Fatalf("%d apis in testdata", len(facts))
	}
	for _, row := range Table() {
		if row.Key.IsMirror() || row.Key.IsPrivate() {
			continue
		}
		var listeners []string
		if row.Broker {
			listeners = append(listeners, "broker")
		}
		if row.Controller {
			listeners = append(listeners, "controller")
		}
		got := fmt.Sprintf("%d %s %d %d %d %s %v",
			int(row.Key), row.Name, row.Min, row.KafkaMax(), row.Flexible, strings.Join(listeners, ","), row.Forward)
		want := strings.Join(facts[row.Key], " ")
		if got != want {
			t.Errorf("row %s, Kafka %s", got, want)
		}
		// KAFKA-18659: Produce is listed from version 0, and served from 3.
		if wantMin := row.Min; row.Key == Produce && row.AdvertisedMin != 0 || row.Key != Produce && row.AdvertisedMin != wantMin {
			t.Errorf("%s is advertised from %d", row.Name, row.AdvertisedMin)
		}
	}
}

func TestTableFitsTheMessages(t *testing.T) {
	last := Key(-1)
	for _, row := range Table() {
		if row.Key <= last {
			t.Errorf("%s is out of order", row.Name)
		}
		last = row.Key
		if got, ok := Lookup(row.Key); !ok || got != row || row.Key.String() != row.Name {
			t.Errorf("Lookup(%d) = %v, %v", row.Key, got, ok)
		}
		if row.Key.IsMirror() || row.Key.IsPrivate() {
			continue
		}
		req := kmsg.RequestForKey(int16(row.Key))
		if req.MaxVersion() < row.KafkaMax() {
			t.Errorf("%s: kmsg knows up to %d, the table says %d", row.Name, req.MaxVersion(), row.KafkaMax())
		}
		for v := row.Min; v <= row.Max; v++ {
			req.SetVersion(v)
			if req.IsFlexible() != row.IsFlexible(v) {
				t.Errorf("%s v%d: flexible in kmsg %v, here %v", row.Name, v, req.IsFlexible(), row.IsFlexible(v))
			}
		}
		if row.Serves(row.Min-1) || row.Serves(row.Max+1) || !row.Serves(row.Min) || !row.Serves(row.Max) {
			t.Errorf("%s: Serves is off", row.Name)
		}
	}
	for _, k := range []Key{-1, LeaderAndISR, 1097, 9999} {
		if row, ok := Lookup(k); ok || k.String() != "api key "+strconv.Itoa(int(k)) {
			t.Errorf("Lookup(%d) = %v", k, row)
		}
	}
	Table()[0].Max = 99
	if row, _ := Lookup(Produce); row.Max == 99 {
		t.Error("a caller can change the table")
	}
}

func TestCodesAreKafkas(t *testing.T) {
	_, codes := kafkaFacts(t)
	if len(codes) != 138 {
		t.Fatalf("%d codes in testdata", len(codes))
	}
	for _, f := range codes {
		n, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatal(err)
		}
		c := Code(n)
		if c.Name() != f[1] || c.String() != f[1] || strconv.FormatBool(c.Retriable()) != f[2] || c.Message() == "" {
			t.Errorf("code %d: %s retriable %v, Kafka says %v", n, c, c.Retriable(), f)
		}
	}
	for _, c := range []Code{-2, 137, 1133, 1135, -32768, 32767} {
		if c.Name() != "UNKNOWN_CODE_"+strconv.Itoa(int(c)) || c.Retriable() || c.Message() == "" {
			t.Errorf("code %d: %s", c, c.Name())
		}
	}
}

func TestCodePointsAreTheSpecs(t *testing.T) {
	b, err := os.ReadFile("testdata/code-points.json")
	if err != nil {
		t.Fatal(err)
	}
	type point struct {
		Name              string
		Milena, Prototype int16
	}
	var spec struct{ APIs, Errors []point }
	if err := json.Unmarshal(b, &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.APIs) != 13 || len(spec.Errors) != 7 {
		t.Fatalf("%d apis and %d errors in the spec", len(spec.APIs), len(spec.Errors))
	}
	for _, p := range spec.APIs {
		k := Key(p.Milena)
		if k.String() != p.Name || !k.IsMirror() {
			t.Errorf("%s is %d here %v", p.Name, p.Milena, k)
		}
		if Milena.WireKey(k) != p.Milena || Prototype.WireKey(k) != p.Prototype ||
			Milena.Key(p.Milena) != k || Prototype.Key(p.Prototype) != k {
			t.Errorf("%s: numbers %d and %d", p.Name, Milena.WireKey(k), Prototype.WireKey(k))
		}
		if Prototype.Key(p.Milena).IsMirror() || Milena.Key(p.Prototype).IsMirror() {
			t.Errorf("%s has a number of the other column", p.Name)
		}
	}
	for _, p := range spec.Errors {
		c := Code(p.Milena)
		if c.Name() != p.Name || !c.IsMirror() || Milena.WireCode(c) != p.Milena || Prototype.WireCode(c) != p.Prototype ||
			Milena.Code(p.Milena) != c || Prototype.Code(p.Prototype) != c {
			t.Errorf("%s: %v, numbers %d and %d", p.Name, c, Milena.WireCode(c), Prototype.WireCode(c))
		}
	}
	for _, points := range []CodePoints{Milena, Prototype} {
		if points.WireKey(Fetch) != 1 || points.Key(1) != Fetch || points.WireCode(NotCoordinator) != 16 || points.Code(16) != NotCoordinator {
			t.Errorf("%s changes Kafka's own numbers", points)
		}
		// No number stands for two APIs.
		seen := make(map[int16]Key)
		for _, row := range Table() {
			w := points.WireKey(row.Key)
			if other, ok := seen[w]; ok {
				t.Errorf("%s: %s and %s are both %d", points, other, row.Key, w)
			}
			seen[w] = row.Key
		}
	}
	if Milena.String() != "milena" || Prototype.String() != "prototype" {
		t.Error("names of the columns")
	}
}

func TestCodeOf(t *testing.T) {
	wrapped := fmt.Errorf("while appending: %w", Errorf(NotEnoughReplicas, "topic %s has too few", "t"))
	for _, x := range []struct {
		err  error
		code Code
		msg  string
	}{
		{nil, NoError, ""},
		{wrapped, NotEnoughReplicas, "topic t has too few"},
		{&Error{Code: NotCoordinator}, NotCoordinator, NotCoordinator.Message()},
		{&Error{Code: NoError}, NoError, ""},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), RequestTimedOut, RequestTimedOut.Message()},
		{&Error{Code: NotController, Err: context.DeadlineExceeded}, NotController, NotController.Message()},
		{errors.New("open /secret/path: no"), UnknownServerError, UnknownServerError.Message()},
		{context.Canceled, UnknownServerError, UnknownServerError.Message()},
	} {
		if code, msg := CodeOf(x.err); code != x.code || msg != x.msg {
			t.Errorf("CodeOf(%v) = %v, %q", x.err, code, msg)
		}
	}
}

func TestErrorChain(t *testing.T) {
	err := fmt.Errorf("outer: %w", Errorf(InvalidRequest, "bad frame: %w", io.ErrUnexpectedEOF))
	if !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, &Error{Code: InvalidRequest}) || errors.Is(err, &Error{Code: NoError}) {
		t.Errorf("chain of %v", err)
	}
	if want := "outer: INVALID_REQUEST: bad frame: unexpected EOF"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	two := Errorf(InvalidConfig, "%w and %w", io.EOF, io.ErrNoProgress)
	if !errors.Is(two, io.EOF) || !errors.Is(two, io.ErrNoProgress) {
		t.Errorf("chain of %v", two)
	}
	for _, e := range []*Error{{Code: InvalidConfig}, {Code: InvalidConfig, Err: io.EOF}} {
		if !strings.HasPrefix(e.Error(), "INVALID_CONFIG: ") || len(e.Error()) < 18 {
			t.Errorf("%q", e.Error())
		}
	}
}
