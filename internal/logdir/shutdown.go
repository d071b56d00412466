package logdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"milena/internal/disk"
)

// .kafka_cleanshutdown, Kafka's JSON: {"version":0,"brokerEpoch":5}. Its
// presence says that nothing in the directory needs recovery.
const cleanFile = ".kafka_cleanshutdown"

type cleanShutdown struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

// takeCleanShutdown reads the clean shutdown file and removes it durably, so
// that a crash from here on is seen as one. An unreadable file still says that
// the shutdown was clean; the epoch is then -1. One of a newer version is
// ErrNewerFormat, and stays.
func takeCleanShutdown(fsys disk.FS, dir string) (clean bool, epoch int64, err error) {
	name := filepath.Join(dir, cleanFile)
	data, err := disk.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, -1, nil
	}
	if err != nil {
		return false, -1, err
	}
	c := cleanShutdown{BrokerEpoch: -1}
	if json.Unmarshal(data, &c) != nil {
		c = cleanShutdown{BrokerEpoch: -1}
	}
	if c.Version > 0 {
		return false, -1, fmt.Errorf("%w: %s: version %d, this release reads 0", ErrNewerFormat, name, c.Version)
	}
	if err := fsys.Remove(name); err != nil {
		return false, -1, err
	}
	return true, c.BrokerEpoch, fsys.SyncDir(dir)
}

func writeCleanShutdown(fsys disk.FS, dir string, epoch int64) error {
	data, err := json.Marshal(cleanShutdown{BrokerEpoch: epoch})
	if err != nil {
		return err
	}
	return disk.WriteFileAtomic(fsys, filepath.Join(dir, cleanFile), data)
}
