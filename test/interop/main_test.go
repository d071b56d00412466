package main

import (
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	names := func(ps []partSpec) string {
		var out []string
		for _, p := range ps {
			out = append(out, p.name)
		}
		return strings.Join(out, " ")
	}
	for _, tt := range []struct {
		args         []string
		target, want string
		err          string
	}{
		{nil, "milena", "java librdkafka kafka-python franz-go sarama kcat dump-log cluster-tools cluster-moves same-answers commands mirror-kafka cluster-mirror mirror-scenarios switchover-acl client-failover mirror-old migrate-mm2 bad-input", ""},
		{nil, "kafka", "java librdkafka kafka-python franz-go sarama kcat dump-log cluster-tools cluster-moves", ""},
		{[]string{"kcat", "java"}, "milena", "kcat java", ""},
		{[]string{"kafkacat"}, "milena", "", `no part "kafkacat"`},
		{[]string{"bad-input"}, "kafka", "", "part bad-input needs INTEROP_TARGET=milena"},
	} {
		got, err := choose(tt.args, tt.target)
		if names(got) != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("choose(%v, %s) = %q, %v", tt.args, tt.target, names(got), err)
		}
	}
}

func TestNoise(t *testing.T) {
	a, b := newNoise(7).bytes(500), newNoise(7).bytes(500)
	if string(a) != string(b) || string(a) == string(newNoise(8).bytes(500)) {
		t.Error("noise must depend on the seed only")
	}
	if string(a[:48]) != string(a[48:96]) {
		t.Error("text must repeat, or snappy and lz4 can't compress it")
	}
}
