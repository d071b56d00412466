package offline

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strconv"
	"strings"

	"milena/internal/disk"
	"milena/internal/ids"
	"milena/internal/logdir"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/quorum"
)

// QuorumDir is the name of the metadata directory inside the metadata log directory.
const QuorumDir = "quorum"

// bootstrapFile holds the records that the first active controller writes, as Kafka's does.
const bootstrapFile = "bootstrap.checkpoint"

// FormatOptions say how to format a node.
type FormatOptions struct {
	FS              disk.FS
	LogDirs         []string
	MetadataLogDir  string // may be one of LogDirs
	NodeID          int32
	ClusterID       string
	IgnoreFormatted bool
	NewID           func() (ids.UUID, error)
	// Standalone are the endpoints of a quorum of this node alone; nil: not that.
	Standalone []quorum.Endpoint
	// Voters are the voters of a new quorum (ParseVoters). The one with NodeID says which
	// directory id the metadata log directory gets.
	Voters []quorum.Voter
	// Bootstrap are the feature levels of the cluster, as the first controller writes
	// them; nil: the release's own.
	Bootstrap []meta.Record
}

// Format formats the log directories of a node and writes the first voters. With
// IgnoreFormatted a directory that is formatted stays as it is, voters included.
func Format(o FormatOptions) error {
	formatted, err := formatDirs(&o)
	if err != nil || formatted {
		return err
	}
	voters := o.Voters
	if o.Standalone != nil {
		m, err := logdir.ReadMeta(o.FS, o.MetadataLogDir)
		if err != nil {
			return err
		}
		voters = []quorum.Voter{{Member: quorum.Member{ID: o.NodeID, Directory: m.Directory}, Endpoints: o.Standalone}}
	}
	if len(voters) > 0 {
		if err := quorum.Format(o.FS, filepath.Join(o.MetadataLogDir, QuorumDir), voters); err != nil {
			return err
		}
	}
	return WriteBootstrap(o.FS, o.MetadataLogDir, o.Bootstrap)
}

// FormatForRestore formats the log directories that aren't, and leaves the voters to
// Backup.Restore.
func FormatForRestore(o FormatOptions) error {
	o.IgnoreFormatted = true
	_, err := formatDirs(&o)
	return err
}

// formatDirs formats the log directories. The metadata log directory gets the id that the
// voters give it. It tells whether that one was formatted before.
func formatDirs(o *FormatOptions) (formatted bool, err error) {
	f := logdir.FormatOptions{
		FS: o.FS, Dirs: withDir(o.LogDirs, o.MetadataLogDir), NodeID: o.NodeID, ClusterID: o.ClusterID,
		IgnoreFormatted: o.IgnoreFormatted, NewID: o.NewID,
	}
	before, err := logdir.ReadMeta(o.FS, o.MetadataLogDir)
	formatted = err == nil
	if err != nil && !errors.Is(err, logdir.ErrNotFormatted) {
		return false, err
	}
	self, err := ownVoter(o)
	if err != nil {
		return false, err
	}
	if !self.IsZero() {
		if formatted && self != before.Directory {
			return false, fmt.Errorf("%s has directory id %s, --initial-controllers says %s for node %d", o.MetadataLogDir, before.Directory, self, o.NodeID)
		}
		f.DirectoryID = map[string]ids.UUID{o.MetadataLogDir: self}
	}
	return formatted, logdir.Format(f)
}

func withDir(dirs []string, dir string) []string {
	for _, d := range dirs {
		if d == dir {
			return dirs
		}
	}
	return append(append([]string(nil), dirs...), dir)
}

// ownVoter returns the directory id that the voters give this node, zero if none.
func ownVoter(o *FormatOptions) (ids.UUID, error) {
	if len(o.Voters) == 0 {
		return ids.UUID{}, nil
	}
	for _, v := range o.Voters {
		if v.ID == o.NodeID {
			return v.Directory, nil
		}
	}
	return ids.UUID{}, fmt.Errorf("--initial-controllers doesn't name node %d: add it, or format this node with --no-initial-controllers and add it to the running quorum later", o.NodeID)
}

// ParseVoters reads the voters of --initial-controllers: a list of id@host:port:directory-id.
// listener is the name of the controllers' listener.
func ParseVoters(text, listener string) ([]quorum.Voter, error) {
	var out []quorum.Voter
	for part := range strings.SplitSeq(text, ",") {
		v, err := parseVoter(strings.TrimSpace(part), listener)
		if err != nil {
			return nil, fmt.Errorf("%q is not id@host:port:directory-id: %w", part, err)
		}
		for _, o := range out {
			if o.ID == v.ID {
				return nil, fmt.Errorf("node %d is named twice", v.ID)
			}
			if o.Directory == v.Directory {
				return nil, fmt.Errorf("nodes %d and %d have the same directory id", o.ID, v.ID)
			}
		}
		out = append(out, v)
	}
	return out, nil
}

func parseVoter(text, listener string) (quorum.Voter, error) {
	id, rest, ok := strings.Cut(text, "@")
	n, err := strconv.ParseInt(id, 10, 32)
	if !ok || err != nil || n < 0 {
		return quorum.Voter{}, errors.New("it must begin with a node id and @")
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return quorum.Voter{}, errors.New("the directory id is missing")
	}
	dir, err := ids.Parse(rest[i+1:])
	if err != nil || dir.IsReserved() {
		return quorum.Voter{}, errors.New("the directory id is none: milena storage random-uuid makes one")
	}
	j := strings.LastIndexByte(rest[:i], ':')
	if j <= 0 {
		return quorum.Voter{}, errors.New("the port is missing")
	}
	port, err := strconv.ParseUint(rest[j+1:i], 10, 16)
	if err != nil || port == 0 {
		return quorum.Voter{}, fmt.Errorf("port %q is none", rest[j+1:i])
	}
	host := strings.TrimSuffix(strings.TrimPrefix(rest[:j], "["), "]")
	if host == "" {
		return quorum.Voter{}, errors.New("the host is missing")
	}
	return quorum.Voter{
		Member:    quorum.Member{ID: int32(n), Directory: dir},
		Endpoints: []quorum.Endpoint{{Name: listener, Host: host, Port: uint16(port)}},
	}, nil
}

// WriteBootstrap writes the records that the first active controller begins the metadata
// with. Nothing is written if there are none.
func WriteBootstrap(fsys disk.FS, metadataLogDir string, records []meta.Record) error {
	if len(records) == 0 {
		return nil
	}
	var b bytes.Buffer
	if err := encodeRecords(&b, 0, slicesSeq(records)); err != nil {
		return err
	}
	return disk.WriteFileAtomic(fsys, filepath.Join(metadataLogDir, bootstrapFile), b.Bytes())
}

// ReadBootstrap reads what WriteBootstrap wrote; nil: nothing was.
func ReadBootstrap(fsys disk.FS, metadataLogDir string) ([]meta.Record, error) {
	name := filepath.Join(metadataLogDir, bootstrapFile)
	ok, err := disk.Exists(fsys, name)
	if err != nil || !ok {
		return nil, err
	}
	data, err := disk.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	var out []meta.Record
	err = quorum.DecodeRecords(bytes.NewReader(data), func(r machine.Record) error {
		rec, err := meta.Decode(r.Value)
		if err == nil {
			out = append(out, rec)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

func slicesSeq(records []meta.Record) iter.Seq[meta.Record] {
	return func(yield func(meta.Record) bool) {
		for _, r := range records {
			if !yield(r) {
				return
			}
		}
	}
}

// encodeRecords writes metadata records as the content of a snapshot.
func encodeRecords(w *bytes.Buffer, epoch int32, records iter.Seq[meta.Record]) error {
	var failed error
	err := quorum.EncodeRecords(w, epoch, func(yield func(machine.Record) bool) {
		for r := range records {
			b, err := meta.Encode(r)
			if err != nil {
				failed = err
				return
			}
			if !yield(machine.Record{Value: b}) {
				return
			}
		}
	})
	return errors.Join(err, failed)
}
