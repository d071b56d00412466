package offline

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"
	"path/filepath"
	"time"

	"milena/internal/disk"
	"milena/internal/logdir"
	"milena/internal/meta"
	"milena/internal/quorum"
)

// A backup file is:
//
//	magic   8 bytes  "MLNBACK\n"
//	version uint32   1
//	length  uint32   of the header
//	header           JSON: BackupInfo
//	records          record batches, as in a snapshot
//	crc     uint32   CRC-32C of the bytes before
const (
	backupMagic   = "MLNBACK\n"
	backupVersion = 1
	maxHeader     = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BackupInfo says what a backup holds.
type BackupInfo struct {
	ClusterID string    `json:"clusterId"`
	EndOffset int64     `json:"endOffset"` // it has all records below
	Epoch     int32     `json:"epoch"`     // of the last of them
	Time      time.Time `json:"time"`
	// Uncommitted is how many of its records, at the end, were not known to be committed
	// where the backup was made. Others may have acknowledged them; or nobody.
	Uncommitted int64 `json:"uncommitted"`
	// Damage says where the log could not be read on; empty if it was whole.
	Damage     string `json:"damage,omitempty"`
	Brokers    int    `json:"brokers"`
	Topics     int    `json:"topics"`
	Partitions int    `json:"partitions"`
}

// Backup is the state of a cluster's metadata.
type Backup struct {
	Info  BackupInfo
	Image *meta.Image
}

// NewBackup takes the image as it is.
func NewBackup(img *meta.Image, now time.Time) *Backup {
	b := &Backup{Image: img, Info: BackupInfo{ClusterID: img.ClusterID, EndOffset: img.Offset + 1, Epoch: img.Epoch, Time: now.UTC().Truncate(time.Second)}}
	for range img.Brokers() {
		b.Info.Brokers++
	}
	for t := range img.Topics() {
		b.Info.Topics++
		b.Info.Partitions += len(t.Partitions)
	}
	return b
}

// BackupDir makes a backup of a metadata directory, with all records that are in it: those
// that are not known to be committed as well, since of a lost majority they may be all
// that is left. A log that is damaged where it had been durable is refused (quorum.ErrCorrupt) unless damaged
// says that what can be read is wanted all the same; the backup's Info.Damage tells then.
func BackupDir(fsys disk.FS, path string, now time.Time, damaged bool) (*Backup, error) {
	dir, err := Dir(fsys, path)
	if err != nil {
		return nil, err
	}
	c, err := quorum.Inspect(fsys, dir)
	if err != nil {
		return nil, err
	}
	if c.Damage != nil && !damaged {
		return nil, fmt.Errorf("%w: what was committed behind that place can't be read; take the backup of another controller, "+
			"or say --damaged to go without", c.Damage)
	}
	m, err := logdir.ReadMeta(fsys, filepath.Dir(filepath.Clean(dir)))
	if err != nil {
		return nil, err
	}
	img := meta.Empty(m.ClusterID)
	content, err := c.Open()
	if err != nil {
		return nil, err
	}
	if content != nil {
		data, err := io.ReadAll(content)
		_ = content.Close() // read only
		if err == nil {
			img, err = meta.ReadSnapshot(m.ClusterID, data, c.Snapshot.EndOffset, c.Snapshot.Epoch)
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot at offset %d: %w", c.Snapshot.EndOffset, err)
		}
	}
	draft := img.Draft()
	uncommitted := int64(0)
	for _, e := range c.After() {
		if err := draft.ApplyBatches(e.Batch); err != nil {
			return nil, fmt.Errorf("raft entry %d: %w", e.Index, err)
		}
		if !e.Committed {
			uncommitted += e.Batch.NextOffset() - e.Batch.BaseOffset()
		}
	}
	b := NewBackup(draft.Image(), now)
	if b.Info.EndOffset <= 0 {
		return nil, fmt.Errorf("%s holds no metadata yet", dir)
	}
	b.Info.Uncommitted = uncommitted
	if c.Damage != nil {
		b.Info.Damage = c.Damage.Error()
	}
	return b, nil
}

// Write writes the backup file.
func (b *Backup) Write(w io.Writer) error {
	head, err := json.Marshal(b.Info)
	if err != nil {
		return err
	}
	out := bytes.NewBufferString(backupMagic)
	out.Write(binary.BigEndian.AppendUint32(nil, backupVersion))
	out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(head))))
	out.Write(head)
	if err := encodeRecords(out, b.Info.Epoch, b.Image.Records()); err != nil {
		return err
	}
	out.Write(binary.BigEndian.AppendUint32(nil, crc32.Checksum(out.Bytes(), castagnoli)))
	_, err = w.Write(out.Bytes())
	return err
}

// ErrBackup says that a file is no backup, or a damaged one.
var ErrBackup = errors.New("not a metadata backup")

// ReadBackup reads what Write wrote.
func ReadBackup(data []byte) (*Backup, error) {
	const fixed = 16
	if len(data) < fixed+4 || string(data[:8]) != backupMagic {
		return nil, ErrBackup
	}
	body, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: its checksum is wrong", ErrBackup)
	}
	if v := binary.BigEndian.Uint32(body[8:]); v != backupVersion {
		return nil, fmt.Errorf("backup format version %d is not supported, this version reads %d", v, backupVersion)
	}
	n := binary.BigEndian.Uint32(body[12:])
	if n > maxHeader || int(n) > len(body)-fixed {
		return nil, fmt.Errorf("%w: header of %d bytes", ErrBackup, n)
	}
	b := &Backup{}
	if err := json.Unmarshal(body[fixed:fixed+n], &b.Info); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrBackup, err)
	}
	if b.Info.EndOffset <= 0 || b.Info.Epoch < 0 || b.Info.ClusterID == "" {
		return nil, fmt.Errorf("%w: end offset %d, epoch %d", ErrBackup, b.Info.EndOffset, b.Info.Epoch)
	}
	var err error
	b.Image, err = meta.ReadSnapshot(b.Info.ClusterID, body[fixed+n:], b.Info.EndOffset, b.Info.Epoch)
	return b, err
}

// How far a restored cluster is moved on from its backup, plus what comes of RestoreOptions.Life.
const (
	offsetJump      = 10_000_000
	epochJump       = 1_000
	leaderEpochJump = 1_000
	producerIDJump  = 1 << 32
)

// RestoreOptions say where to restore.
type RestoreOptions struct {
	FS             disk.FS
	MetadataLogDir string // formatted for the backup's cluster
	Voters         []quorum.Voter
	// Life tells this restore from any other of the same backup, 1 to MaxLife: what an earlier one did under its own epochs
	// and producer ids must not come back either. All first voters need the same.
	Life int64
}

// MaxLife is the largest RestoreOptions.Life: leader epochs are moved on by it.
const MaxLife = 1 << 20

// Restore begins a new quorum with the backup's state in a formatted metadata log
// directory that has no metadata.
func (b *Backup) Restore(o RestoreOptions) error {
	m, err := logdir.ReadMeta(o.FS, o.MetadataLogDir)
	if err != nil {
		return err
	}
	if m.ClusterID != b.Info.ClusterID {
		return fmt.Errorf("%s is formatted for cluster %s, the backup is of cluster %s", o.MetadataLogDir, m.ClusterID, b.Info.ClusterID)
	}
	if o.Life < 1 || o.Life > MaxLife {
		return fmt.Errorf("restore id %d is not in 1 to %d", o.Life, MaxLife)
	}
	offsets, epochs := o.Life*offsetJump, int32(o.Life)+epochJump
	if b.Info.EndOffset > math.MaxInt64-offsets || b.Info.Epoch > math.MaxInt32-epochs {
		return fmt.Errorf("%w: end offset %d, epoch %d", ErrBackup, b.Info.EndOffset, b.Info.Epoch)
	}
	id := quorum.SnapshotID{EndOffset: b.Info.EndOffset + offsets, Epoch: b.Info.Epoch + epochs}
	var content bytes.Buffer
	if err := encodeRecords(&content, id.Epoch, movedOn(b.Image.Records(), o.Life)); err != nil {
		return err
	}
	return quorum.Restore(o.FS, filepath.Join(o.MetadataLogDir, QuorumDir), quorum.Restored{
		ID: id, Voters: o.Voters, Generation: b.generation(o), Content: &content,
	})
}

// generation tells the restored quorum from others. All its first voters must come to the
// same, so it is drawn from the backup, the voters and the restore's own number.
func (b *Backup) generation(o RestoreOptions) uint64 {
	h := sha256.New()
	fmt.Fprintf(h, "%d %+v", o.Life, b.Info)
	for _, v := range o.Voters {
		h.Write(quorum.AppendVoter(nil, v))
	}
	return max(binary.BigEndian.Uint64(h.Sum(nil))>>1, 1)
}

// movedOn moves the numbers in the records on that must not come back: a leader epoch of the
// lost time would let two logs hold different records under the same one, and a producer id
// would make one producer's records another's duplicates.
func movedOn(records iter.Seq[meta.Record], life int64) iter.Seq[meta.Record] {
	epochs := int32(life) + leaderEpochJump
	return func(yield func(meta.Record) bool) {
		next := int64(0)
		for r := range records {
			switch r := r.(type) {
			case *meta.PartitionRecord:
				moved := *r
				moved.LeaderEpoch += epochs
				moved.PartitionEpoch += epochs
				if !yield(&moved) {
					return
				}
				continue
			case *meta.ProducerIdsRecord:
				next = r.NextProducerID
				continue
			}
			if !yield(r) {
				return
			}
		}
		yield(&meta.ProducerIdsRecord{BrokerID: -1, BrokerEpoch: -1, NextProducerID: next + life*producerIDJump})
	}
}
