package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

func TestEndTxnMarker(t *testing.T) {
	for _, commit := range []bool{true, false} {
		b := EndTxnMarker(commit, 17, 4000, 6, 1234)
		if err := errors.Join(b.Validate(), b.CheckCRC()); err != nil {
			t.Fatal(err)
		}
		want := ControlAbort
		if commit {
			want = ControlCommit
		}
		c, ok, err := b.Control()
		if err != nil || !ok || c.Type != want || c.CoordinatorEpoch != 17 || !c.EndsTxn() {
			t.Errorf("%+v %t %v", c, ok, err)
		}
		if !b.IsTransactional() || !b.IsControl() || b.ProducerID() != 4000 || b.ProducerEpoch() != 6 ||
			b.BaseSequence() != NoSequence || b.MaxTimestamp() != 1234 || b.Count() != 1 {
			t.Errorf("marker header: %x", []byte(b[:HeaderSize]))
		}
	}
}

// "magic 2, control flag set, not transactional, producer ID -1, producer epoch -1,
// base sequence -1, timestamp type create time, no compression, one record; key: int16
// version = 0, int16 type = 7; value: flexible structure, version int16 = 0"
func TestMirrorPIDReset(t *testing.T) {
	b := MirrorPIDReset(99)
	if err := errors.Join(b.Validate(), b.CheckCRC()); err != nil {
		t.Fatal(err)
	}
	if b.Attributes() != attrControl || b.ProducerID() != -1 || b.ProducerEpoch() != -1 || b.BaseSequence() != -1 || b.Count() != 1 {
		t.Errorf("header: %x", []byte(b[:HeaderSize]))
	}
	r := collect(t, b)[0]
	if got := hex.EncodeToString(r.Key); got != "00000007" {
		t.Errorf("key %s", got)
	}
	if got := hex.EncodeToString(r.Value); got != "000000" {
		t.Errorf("value %s", got)
	}
	if c, ok, err := b.Control(); !ok || err != nil || c.Type != ControlMirrorPIDReset || c.EndsTxn() {
		t.Errorf("%+v %t %v", c, ok, err)
	}
}

func TestParseControl(t *testing.T) {
	tests := []struct {
		name       string
		key, value []byte
		want       ControlType
		bad        bool
	}{
		{"unknown type is no error", []byte{0, 0, 0, 55}, nil, 55, false},
		{"later version with more fields", []byte{0, 1, 0, 1, 9, 9}, []byte{0, 1, 0, 0, 0, 3, 1, 2}, ControlCommit, false},
		{"no key", nil, nil, 0, true},
		{"short key", []byte{0, 0, 0}, nil, 0, true},
		{"negative version", []byte{0xff, 0xff, 0, 1}, []byte{0, 0, 0, 0, 0, 3}, 0, true},
		{"short value", []byte{0, 0, 0, 1}, []byte{0, 0, 0}, 0, true},
	}
	for _, tt := range tests {
		c, err := ParseControl(Record{Key: tt.key, Value: tt.value})
		if (err != nil) != tt.bad || tt.bad != errors.Is(err, ErrInvalid) || c.Type != tt.want {
			t.Errorf("%s: %+v %v", tt.name, c, err)
		}
	}
	if _, ok, err := mustBuild(t, BuilderOptions{}, Record{Key: []byte("data")}).Control(); ok || err != nil {
		t.Errorf("data batch: %t %v", ok, err)
	}
	last := int64(0)
	if _, ok, err := mustBuild(t, BuilderOptions{Control: true, LastOffset: &last}).Control(); ok || err != nil {
		t.Errorf("emptied control batch: %t %v", ok, err)
	}
}

func TestDump(t *testing.T) {
	horizon := int64(777)
	var file []byte
	file = append(file, mustBuild(t, BuilderOptions{LeaderEpoch: 3, Compression: Compression{Codec: Gzip}, Producer: &Producer{ID: 5, Epoch: 1, BaseSequence: 10}},
		Record{Timestamp: 1000, Key: []byte("k"), Value: []byte("hello"), Headers: []Header{{Key: "a"}, {Key: "b"}}},
		Record{Timestamp: 1001, Value: []byte{}})...)
	marker := EndTxnMarker(false, 2, 5, 1, 1002)
	marker.SetBaseOffset(4)
	file = append(file, marker...)
	damaged := mustBuild(t, BuilderOptions{BaseOffset: 5, DeleteHorizon: &horizon}, Record{Timestamp: 1003, Key: []byte("x")})
	damaged[len(damaged)-1] ^= 0xff
	file = append(file, damaged...)
	file = append(file, make([]byte, 70)...)

	var out bytes.Buffer
	res, err := Dump(&out, bytes.NewReader(file), int64(len(file)), DumpOptions{Contents: true})
	if err != nil {
		t.Fatal(err)
	}
	if res.Batches != 3 || res.Records != 4 || res.Invalid != 1 || res.TrailingBytes != 70 || len(res.Gaps) != 1 || res.Gaps[0] != [2]int64{1, 4} {
		t.Errorf("%+v", res)
	}
	for _, want := range []string{
		"baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 10 lastSequence: 11 producerId: 5 producerEpoch: 1 partitionLeaderEpoch: 3" +
			" isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1001 size: ",
		" magic: 2 compresscodec: gzip crc: ",
		" isvalid: true\n",
		"| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 5 sequence: 10 headerKeys: [a,b] key: k payload: hello\n",
		"| offset: 1 CreateTime: 1001 keySize: -1 valueSize: 0 sequence: 11 headerKeys: [] payload: \n",
		"| offset: 4 CreateTime: 1002 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: ABORT coordinatorEpoch: 2\n",
		"deleteHorizonMs: OptionalLong[777]",
		" isvalid: false\n",
		"| unreadable: ",
	} {
		if !bytes.Contains(out.Bytes(), []byte(want)) {
			t.Errorf("missing %q in:\n%s", want, out.String())
		}
	}
}
