package partlog

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"milena/internal/disk"
	"milena/internal/ids"
)

// partition.metadata, Kafka's text format:
//
//	version: 0
//	topic_id: AAAAAAAAAAAAAAAAAAAAAQ

// ReadTopicID reads the topic id of a partition directory; zero if the file is
// missing. A newer version is ErrNewerFormat.
func ReadTopicID(fsys disk.FS, file string) (ids.UUID, error) {
	data, err := disk.ReadFile(fsys, file)
	if errors.Is(err, fs.ErrNotExist) {
		return ids.Zero, nil
	}
	if err != nil {
		return ids.Zero, err
	}
	var id ids.UUID
	found := false
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		key, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case ok && key == "version":
			if v, err := strconv.Atoi(value); err != nil {
				return ids.Zero, fmt.Errorf("%s: %w: version is %.20q", file, ErrCorrupt, value)
			} else if v != 0 {
				return ids.Zero, fmt.Errorf("%s: %w: version %d, this release reads 0", file, ErrNewerFormat, v)
			}
		case ok && key == "topic_id":
			if id, err = ids.Parse(value); err != nil {
				return ids.Zero, fmt.Errorf("%s: %w: %w", file, ErrCorrupt, err)
			}
			found = true
		}
	}
	if !found {
		return ids.Zero, fmt.Errorf("%s: %w: no topic_id", file, ErrCorrupt)
	}
	return id, nil
}

// loadTopicID settles the topic's id: the file's, or the given one, which is
// then written. A file that can't be read is written anew if the id is given.
func (l *Log) loadTopicID() error {
	id, err := ReadTopicID(l.opts.FS, l.path(metadataFile))
	given := l.opts.TopicID
	switch {
	case errors.Is(err, ErrCorrupt) && !given.IsZero():
		l.log.Warn("partition.metadata is damaged and written anew", "topic", l.opts.Topic, "partition", l.opts.Partition, "error", err)
	case err != nil:
		return err
	case !id.IsZero() && !given.IsZero() && id != given:
		return fmt.Errorf("%s holds topic id %s, expected %s", l.path(metadataFile), id, given)
	case !id.IsZero() || given.IsZero():
		l.topicID = id
		return nil
	}
	return l.saveTopicID(given)
}

// saveTopicID makes id the topic's id, durably.
func (l *Log) saveTopicID(id ids.UUID) error {
	l.topicID = id
	return disk.WriteFileAtomic(l.opts.FS, l.path(metadataFile), []byte("version: 0\ntopic_id: "+id.String()+"\n"))
}

// AdoptTopicID gives a log whose topic id isn't known that id: its partition.metadata was never written, as on a disk that was full. A
// log that has one keeps it.
func (l *Log) AdoptTopicID(id ids.UUID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(); err != nil || !l.topicID.IsZero() {
		return err
	}
	err := l.saveTopicID(id)
	if err != nil {
		l.topicID = ids.Zero
	}
	return l.failWrite("partition.metadata", err)
}
