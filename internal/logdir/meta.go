package logdir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/magiconair/properties"

	"milena/internal/disk"
	"milena/internal/ids"
)

// meta.properties, Kafka's version 1: a Java properties file with the keys
// version, cluster.id, node.id and directory.id.
const (
	metaFile    = "meta.properties"
	metaVersion = 1
)

// Meta is the content of a directory's meta.properties.
type Meta struct {
	ClusterID string
	NodeID    int32
	Directory ids.UUID
}

// ReadMeta reads a directory's meta.properties: ErrNotFormatted if there is
// none, ErrNewerFormat if a newer release wrote it.
func ReadMeta(fsys disk.FS, dir string) (Meta, error) {
	name := filepath.Join(dir, metaFile)
	data, err := disk.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return Meta{}, fmt.Errorf("%w: %s is missing; run storage format", ErrNotFormatted, name)
	}
	if err != nil {
		return Meta{}, err
	}
	m, err := parseMeta(data)
	if err != nil {
		return Meta{}, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func parseMeta(data []byte) (Meta, error) {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes(data)
	if err != nil {
		return Meta{}, fmt.Errorf("not a properties file: %w", err)
	}
	get := func(key string) string { return strings.TrimSpace(p.GetString(key, "")) }
	version, err := strconv.Atoi(get("version"))
	switch {
	case err != nil:
		return Meta{}, fmt.Errorf("version is %q", get("version"))
	case version > metaVersion:
		return Meta{}, fmt.Errorf("%w: version %d, this release reads %d", ErrNewerFormat, version, metaVersion)
	case version < metaVersion:
		return Meta{}, fmt.Errorf("version %d is of a ZooKeeper broker; only %d is supported", version, metaVersion)
	}
	node, err := strconv.ParseInt(get("node.id"), 10, 32)
	if err != nil || node < 0 {
		return Meta{}, fmt.Errorf("node.id is %q", get("node.id"))
	}
	m := Meta{ClusterID: get("cluster.id"), NodeID: int32(node)}
	if m.ClusterID == "" {
		return Meta{}, errors.New("cluster.id is missing")
	}
	if m.Directory, err = ids.Parse(get("directory.id")); err != nil || m.Directory.IsZero() {
		return Meta{}, fmt.Errorf("directory.id is %q", get("directory.id"))
	}
	return m, nil
}

func (m Meta) encode() []byte {
	return fmt.Appendf(nil, "#\ncluster.id=%s\ndirectory.id=%s\nnode.id=%d\nversion=%d\n",
		m.ClusterID, m.Directory, m.NodeID, metaVersion)
}

// FormatOptions say how to format directories.
type FormatOptions struct {
	FS        disk.FS
	Dirs      []string
	NodeID    int32
	ClusterID string
	NewID     func() (ids.UUID, error) // directory ids
	// DirectoryID are the ids of directories whose id is given, by path.
	DirectoryID map[string]ids.UUID
	// IgnoreFormatted leaves directories alone that are formatted for the same cluster and node.
	IgnoreFormatted bool
}

// Format writes meta.properties into each directory, making it if missing.
// Nothing is written if any of them is formatted already (see IgnoreFormatted).
func Format(o FormatOptions) error {
	if o.ClusterID == "" || strings.ContainsAny(o.ClusterID, " \t\r\n=:#!\\") {
		return fmt.Errorf("cluster id %q is not usable; use 22 characters of base64url as 'storage random-uuid' prints", o.ClusterID)
	}
	var todo []string
	for _, dir := range o.Dirs {
		m, err := ReadMeta(o.FS, dir)
		switch {
		case errors.Is(err, ErrNotFormatted):
			todo = append(todo, dir)
		case err != nil:
			return err
		case m.ClusterID != o.ClusterID || m.NodeID != o.NodeID:
			return fmt.Errorf("%w: %s is formatted for node %d of cluster %s", ErrForeign, dir, m.NodeID, m.ClusterID)
		case !o.IgnoreFormatted:
			return fmt.Errorf("%s is formatted already; pass --ignore-formatted to leave it as it is", dir)
		}
	}
	for _, dir := range todo {
		id, given := o.DirectoryID[dir]
		if !given {
			var err error
			if id, err = o.NewID(); err != nil {
				return err
			}
		}
		if err := o.FS.Mkdir(dir); err != nil {
			return err
		}
		m := Meta{ClusterID: o.ClusterID, NodeID: o.NodeID, Directory: id}
		if err := disk.WriteFileAtomic(o.FS, filepath.Join(dir, metaFile), m.encode()); err != nil {
			return err
		}
		if err := o.FS.SyncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}
