package group

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"milena/internal/ids"
	"milena/internal/machine"
)

// golden are the bytes of each kind of record. Apache Kafka 4.4's own classes
// (GroupMetadataKey/Value, OffsetCommitKey/Value) were seen to decode them to
// what the names say, with nothing left over.
func golden() []struct {
	name, key, value string
	record           machine.Record
} {
	inst := "inst"
	g := newGroup("grp", 1700000000000)
	g.generation = 7
	g.protocol, g.hasProtocol = "range", true
	g.add(&member{
		id: "m-1", instance: &inst, client: Client{"cl", "/10.0.0.1"}, sessionTimeout: 10 * time.Second, rebalanceTimeout: 20 * time.Second,
		protocolType: "consumer", protocols: []protocol{{"range", []byte("sub")}}, assignment: []byte("asg"),
	})
	const groupKey, offsetKey = "00020003677270", "000100036772700003746f7000000003"
	return []struct {
		name, key, value string
		record           machine.Record
	}{
		{"group with a member", groupKey,
			"00030008636f6e73756d657200000007000572616e676500036d2d310000018bcfe568000000000100036d2d310004696e73740002636c00092f31302e302e302e3100004e20000027100000000373756200000003617367",
			groupRecord(g, func(m *member) []byte { return m.assignment })},
		{"new group", groupKey, "0003000000000000ffffffff0000018bcfe5680000000000", newGroupRecord(newGroup("grp", 1700000000000))},
		{"offset with topic id", offsetKey, "0004000000000000002a00000005036d640000018bcfe5680001001001020300000000000000000000000000",
			offsetRecord("grp", "top", 3, committed{offset: 42, epoch: 5, metadata: "md", commitMs: 1700000000000, expireMs: -1, topicID: ids.UUID{1, 2, 3}})},
		{"offset", offsetKey, "0004000000000000002affffffff010000018bcfe5680000",
			offsetRecord("grp", "top", 3, committed{offset: 42, epoch: -1, commitMs: 1700000000000, expireMs: -1})},
		{"offset with a retention of its own", offsetKey, "0001000000000000002a00026d640000018bcfe568000000018bcfe58f0f",
			offsetRecord("grp", "top", 3, committed{offset: 42, epoch: 5, metadata: "md", commitMs: 1700000000000, expireMs: 1700000009999})},
		{"group tombstone", groupKey, "", groupTombstone("grp")},
		{"offset tombstone", offsetKey, "", offsetTombstone("grp", "top", 3)},
	}
}

func TestRecordBytes(t *testing.T) {
	for _, c := range golden() {
		if key := hex.EncodeToString(c.record.Key); key != c.key {
			t.Errorf("%s: key %s, want %s", c.name, key, c.key)
		}
		if value := hex.EncodeToString(c.record.Value); value != c.value || (c.value == "") != (c.record.Value == nil) {
			t.Errorf("%s: value %s, want %s", c.name, value, c.value)
		}
	}
}

// What earlier versions of Kafka wrote is read too.
func TestOlderRecords(t *testing.T) {
	m := NewMachine(MachineOptions{})
	for _, r := range []struct{ key, value string }{
		{"00000003677270" + "0003746f70" + "00000001", "0000" + "0000000000000001" + "00026d64" + "0000018bcfe56800"},                                                // offset, key 0, value 0
		{"00010003677270" + "0003746f70" + "00000002", "0002" + "0000000000000002" + "0000" + "0000018bcfe56800"},                                                    // offset, value 2
		{"00010003677270" + "0003746f70" + "00000003", "0003" + "0000000000000003" + "00000007" + "0000" + "0000018bcfe56800"},                                       // offset, value 3
		{"00020003677270", "0000" + "0001" + "78" + "00000005" + "000170" + "00016d" + "00000001" + "00016d000163000168" + "00002710" + "00000001aa" + "00000001bb"}, // group, value 0
	} {
		key, err := hex.DecodeString(r.key)
		if err != nil {
			t.Fatal(err)
		}
		value, err := hex.DecodeString(r.value)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.apply(machine.Record{Key: key, Value: value}); err != nil {
			t.Errorf("%s %s: %v", r.key, r.value, err)
		}
	}
	g := m.groups["grp"]
	if g == nil || g.state != Stable || g.generation != 5 || g.stateMs != -1 || g.members["m"].rebalanceTimeout != 10*time.Second || g.leader != "m" {
		t.Fatalf("group %+v", g)
	}
	if got, want := offsetsOf(g), fmt.Sprintf("top-1=%+v top-2=%+v top-3=%+v ",
		committed{offset: 1, epoch: -1, metadata: "md", commitMs: 1700000000000, expireMs: -1},
		committed{offset: 2, epoch: -1, commitMs: 1700000000000, expireMs: -1},
		committed{offset: 3, epoch: 7, commitMs: 1700000000000, expireMs: -1}); got != want {
		t.Errorf("offsets\n%s, want\n%s", got, want)
	}
}

// Records that aren't ours, are newer, or are damaged are refused by name and
// change nothing.
func TestForeignRecords(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"", "", "key of 0 bytes"},
		{"0003" + "0003677270", "0000", "records of type 3 are not known here"}, // KIP-848
		{"0002", "", "key of group metadata: "},
		{"0001" + "0003677270", "", "key of an offset commit: "},
		{"0002" + "0003677270", "00", `metadata of group "grp": value of 1 bytes`},
		{"0002" + "0003677270", "0009", `metadata of group "grp": value version 9 is newer than 3, the newest known here`},
		{"0002" + "0003677270", "0003" + "7fff", `metadata of group "grp": `},
		{"0001" + "0003677270" + "0003746f70" + "00000002", "0005", `offset of group "grp": value version 5 is newer than 4, the newest known here`},
		{"0001" + "0003677270" + "0003746f70" + "00000002", "ffff", `offset of group "grp": value version -1 is newer than 4, the newest known here`},
	} {
		m := NewMachine(MachineOptions{})
		key, _ := hex.DecodeString(c.key)
		value, _ := hex.DecodeString(c.value)
		err := m.apply(machine.Record{Key: key, Value: value})
		if err == nil || len(err.Error()) < len(c.want) || err.Error()[:len(c.want)] != c.want {
			t.Errorf("%s %s: %v, want %s", c.key, c.value, err, c.want)
		}
		m.Apply(0, machine.Record{Key: key, Value: value})
		if len(m.groups) != 0 {
			t.Errorf("%s %s left a group", c.key, c.value)
		}
	}
}

// A replay goes on past what is ours, deleted or damaged, and stops at what a newer release wrote.
func TestVet(t *testing.T) {
	for _, c := range golden() {
		if err := (&Machine{}).Vet(c.record); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, c := range []struct{ key, value, want string }{
		{"00", "0000", ""},
		{"0002", "00", ""},
		{"0005" + "0001" + "67", "", ""},
		{"0000" + "0001" + "67", "0000", ""},
		{"0002" + "0001" + "67", "0004", "type 2 version 4, the newest known version is 3"},
		{"0000" + "0001" + "67", "0005", "type 0 version 5, the newest known version is 4"},
		{"0001" + "0001" + "67", "ffff", "type 1 version -1, the newest known version is 4"},
		{"0003" + "0001" + "67", "0000", "type 3 (Kafka's ConsumerGroupMetadata) version 0"},
		{"0017" + "0001" + "67", "0001", "type 23 (Kafka's StreamsGroupTopology) version 1"},
		{"0063" + "0001" + "67", "0000", "type 99 version 0"},
	} {
		key, _ := hex.DecodeString(c.key)
		value, _ := hex.DecodeString(c.value)
		err := (&Machine{}).Vet(machine.Record{Key: key, Value: value})
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.key, c.value, err, c.want)
		}
	}
}

// FuzzApply: no record of a damaged log breaks a coordinator, and what was read
// can be lived with: sessions end, offsets expire.
func FuzzApply(f *testing.F) {
	for _, c := range golden() {
		f.Add(c.record.Key, c.record.Value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m := NewMachine(MachineOptions{})
		m.Apply(0, machine.Record{Key: key, Value: value})
		now := time.UnixMilli(1_700_000_000_000)
		m.Loaded(now)
		for id := range m.groups {
			m.Describe(id)
			m.Fetch(&FetchRequest{Group: id})
		}
		m.Views()
		for range 100 {
			at, ok := m.NextDeadline()
			if !ok {
				t.Fatal("no deadline is set")
			}
			if at.After(now) {
				now = at
			}
			for i, r := range m.Tick(now).Records {
				m.Apply(int64(i), r)
			}
		}
	})
}
