package offline

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"milena/internal/disk"
	"milena/internal/machine"
	"milena/internal/quorum"
	"milena/internal/record"
)

// Line is a line of Dump: a metadata record, or a control record of the quorum (by Kafka's
// names SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VOTERS, LEADER_CHANGE).
type Line struct {
	File      string         `json:"file,omitempty"`
	Offset    *int64         `json:"offset,omitempty"` // of a record in the log
	Epoch     int64          `json:"epoch"`
	Index     uint64         `json:"index,omitempty"` // raft's, of the entry
	Committed *bool          `json:"committed,omitempty"`
	Type      string         `json:"type"`
	Version   int16          `json:"version"`
	Data      map[string]any `json:"data"`
	Error     string         `json:"error,omitempty"`
}

// Dump writes the records of a metadata directory, or of one file of one, as JSON lines. A
// directory's are those of the newest snapshot, then those of the log behind it. Files
// may be raft-*.log, *.checkpoint, and Kafka's own *.log and *.checkpoint. It returns how many
// records could not be decoded; their lines have an error.
func Dump(w io.Writer, fsys disk.FS, path string) (bad int, err error) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	d := &dumper{fs: fsys, encoder: e}
	isDir, err := d.isDir(path)
	switch {
	case err != nil:
		return 0, err
	case isDir:
		err = d.dir(path)
	case strings.HasPrefix(filepath.Base(path), "raft-"):
		d.file = filepath.Base(path)
		var entries []quorum.LogEntry
		if entries, err = quorum.InspectSegment(fsys, path); err == nil {
			err = d.entries(entries)
		}
	default:
		d.file = filepath.Base(path)
		err = d.batches(path)
	}
	return d.bad, err
}

type dumper struct {
	fs      disk.FS
	encoder *json.Encoder
	file    string
	bad     int
}

func (d *dumper) isDir(path string) (bool, error) {
	info, err := d.fs.Stat(path)
	if err != nil {
		return false, err
	}
	return info.IsDir(), nil
}

// Dir finds the metadata directory for what an operator names: itself, or the log
// directory it lies in.
func Dir(fsys disk.FS, path string) (string, error) {
	inner := filepath.Join(path, "quorum")
	ok, err := disk.Exists(fsys, inner)
	if err != nil || !ok {
		return path, err
	}
	return inner, nil
}

func (d *dumper) dir(path string) error {
	dir, err := Dir(d.fs, path)
	if err != nil {
		return err
	}
	c, err := quorum.Inspect(d.fs, dir)
	if err != nil {
		return err
	}
	if err := d.snapshot(c); err != nil {
		return err
	}
	after := c.Entries[:0:0]
	for _, e := range c.Entries {
		if e.Index > c.Index {
			after = append(after, e)
		}
	}
	if err := d.entries(after); err != nil || c.Damage == nil {
		return err
	}
	d.bad++
	return d.encoder.Encode(Line{Type: "DAMAGED", Data: map[string]any{"error": c.Damage.Error()}})
}

func (d *dumper) snapshot(c *quorum.Contents) error {
	if c.Index == 0 {
		return nil // waits to be added
	}
	epoch := int64(c.Snapshot.Epoch)
	head := map[string]any{"endOffset": c.Snapshot.EndOffset, "epoch": epoch, "generation": c.Generation}
	if c.Self.ID >= 0 {
		head["self"] = c.Self.String()
	}
	if err := d.encoder.Encode(Line{Epoch: epoch, Index: c.Index, Type: "SNAPSHOT_HEADER", Data: head}); err != nil {
		return err
	}
	if err := d.encoder.Encode(Line{Epoch: epoch, Type: "KRAFT_VOTERS", Data: voters(c.Voters)}); err != nil {
		return err
	}
	content, err := c.Open()
	if err != nil {
		return err
	}
	if content != nil {
		defer func() { _ = content.Close() }() // read only
		err = quorum.DecodeRecords(content, func(r machine.Record) error {
			return d.record(Line{Epoch: epoch}, r.Value)
		})
		if err != nil {
			return err
		}
	}
	return d.encoder.Encode(Line{Epoch: epoch, Type: "SNAPSHOT_FOOTER", Data: map[string]any{}})
}

func voters(vs []quorum.Voter) map[string]any {
	list := []any{}
	for _, v := range vs {
		endpoints := []any{}
		for _, e := range v.Endpoints {
			endpoints = append(endpoints, map[string]any{"name": e.Name, "host": e.Host, "port": e.Port})
		}
		list = append(list, map[string]any{"voterId": v.ID, "voterDirectoryId": v.Directory.String(), "endpoints": endpoints})
	}
	return map[string]any{"voters": list}
}

func (d *dumper) entries(entries []quorum.LogEntry) error {
	for i := range entries {
		e := &entries[i]
		line := Line{File: d.file, Epoch: int64(e.Term), Index: e.Index, Committed: &e.Committed}
		var err error
		switch {
		case e.Batch != nil:
			err = d.batch(e.Batch, line)
		case e.Change != "":
			line.Type, line.Data = "KRAFT_VOTERS", voters(e.Voters)
			line.Data["change"] = e.Change
			err = d.encoder.Encode(line)
		default:
			line.Type, line.Data = "LEADER_CHANGE", map[string]any{}
			err = d.encoder.Encode(line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) batch(b record.Batch, line Line) error {
	for r, err := range b.Records(maxBatch) {
		if err != nil {
			return err
		}
		line.Offset = new(r.Offset)
		if b.IsControl() {
			line.Type, line.Data = controlName(r.Key), map[string]any{}
			err = d.encoder.Encode(line)
		} else {
			err = d.record(line, r.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxBatch bounds a metadata batch after decompression.
const maxBatch = 64 << 20

// controlName names a control record by its key: version and type, two int16.
func controlName(key []byte) string {
	names := []string{"ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"}
	if len(key) == 4 && key[2] == 0 && int(key[3]) < len(names) {
		return names[key[3]]
	}
	return "UNKNOWN"
}

func (d *dumper) record(line Line, value []byte) error {
	r, err := describeRecord(value)
	if err != nil {
		d.bad++
		line.Type, line.Data, line.Error = "UNKNOWN", map[string]any{"value": value}, err.Error()
	} else {
		line.Type, line.Version, line.Data = r.Type, r.Version, r.Data
	}
	return d.encoder.Encode(line)
}

// batches dumps a file of record batches.
func (d *dumper) batches(path string) error {
	data, err := disk.ReadFile(d.fs, path)
	if err != nil {
		return err
	}
	for b, err := range record.Batches(data) {
		if err == nil {
			err = b.CheckCRC()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := d.batch(b, Line{File: d.file, Epoch: int64(b.LeaderEpoch())}); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}
