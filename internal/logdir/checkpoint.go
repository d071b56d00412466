package logdir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strconv"
	"strings"

	"milena/internal/disk"
)

// The checkpoint files of a directory, in Kafka's text format:
//
//	0                     version
//	2                     number of entries
//	orders 0 1042         topic, partition, offset
//	orders 1 7
const (
	recoveryFile = "recovery-point-offset-checkpoint"
	hwFile       = "replication-offset-checkpoint"
	startFile    = "log-start-offset-checkpoint"
	cleanerFile  = "cleaner-offset-checkpoint"
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is the name of the partition's directory.
func (tp TopicPartition) String() string {
	return tp.Topic + "-" + strconv.Itoa(int(tp.Partition))
}

func (tp TopicPartition) compare(o TopicPartition) int {
	return cmp.Or(cmp.Compare(tp.Topic, o.Topic), cmp.Compare(tp.Partition, o.Partition))
}

type offsets map[TopicPartition]int64

var errDamaged = errors.New("logdir: damaged checkpoint")

// readCheckpoint reads a checkpoint file; nil if it is missing. Damage wraps
// errDamaged, a newer version ErrNewerFormat.
func readCheckpoint(fsys disk.FS, name string) (offsets, error) {
	data, err := disk.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := parseCheckpoint(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

func parseCheckpoint(data string) (offsets, error) {
	lines := strings.Split(strings.TrimSuffix(data, "\n"), "\n")
	version, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return nil, fmt.Errorf("%w: first line is %.40q", errDamaged, lines[0])
	}
	if version != 0 {
		return nil, fmt.Errorf("%w: version %d, this release reads 0", ErrNewerFormat, version)
	}
	if len(lines) < 2 {
		return nil, fmt.Errorf("%w: no count", errDamaged)
	}
	n, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	if err != nil || n != len(lines)-2 {
		return nil, fmt.Errorf("%w: says %.40q entries, has %d", errDamaged, lines[1], len(lines)-2)
	}
	out := make(offsets, n)
	for i, line := range lines[2:] {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("%w: line %d is %.80q", errDamaged, i+3, line)
		}
		p, err1 := strconv.ParseInt(f[1], 10, 32)
		off, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil || p < 0 || off < 0 {
			return nil, fmt.Errorf("%w: line %d is %.80q", errDamaged, i+3, line)
		}
		out[TopicPartition{f[0], int32(p)}] = off
	}
	return out, nil
}

// writeCheckpoint replaces a checkpoint file.
func writeCheckpoint(fsys disk.FS, name string, o offsets) error {
	keys := make([]TopicPartition, 0, len(o))
	for tp := range o {
		keys = append(keys, tp)
	}
	sort.Slice(keys, func(i, j int) bool {
		a, b := keys[i], keys[j]
		return a.Topic < b.Topic || a.Topic == b.Topic && a.Partition < b.Partition
	})
	b := make([]byte, 0, 16+len(keys)*48)
	b = append(b, "0\n"...)
	b = strconv.AppendInt(b, int64(len(keys)), 10)
	b = append(b, '\n')
	for _, tp := range keys {
		b = append(b, tp.Topic...)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(tp.Partition), 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, o[tp], 10)
		b = append(b, '\n')
	}
	return disk.WriteFileAtomic(fsys, name, b)
}
