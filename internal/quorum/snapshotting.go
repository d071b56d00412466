package quorum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

const (
	// keepSnapshots is how many snapshots stay: a reader may be in the middle of
	// the one before the newest.
	keepSnapshots = 2
	// snapshotRetry is how long a failed snapshot waits.
	snapshotRetry = 10 * time.Second
	// fetchBytes is the size of a piece of a snapshot from another voter.
	fetchBytes = 1 << 20
)

// snapper knows when a snapshot is due. Owned by the run goroutine.
type snapper struct {
	bytes    int64     // committed since the newest snapshot
	last     time.Time // of the newest snapshot
	retry    time.Time // not before
	writing  bool
	fetching bool
	// newcomers says that the newest snapshot doesn't know a voter that was added
	// since. Raft drops such a snapshot when that voter is sent it.
	newcomers bool
}

// maybeSnapshot starts writing a snapshot if one is due.
func (d *driver) maybeSnapshot() error {
	o, s := &d.n.o, &d.snapper
	if o.Snapshot == nil || s.writing || s.bytes == 0 {
		return nil
	}
	now := time.Now()
	due := s.bytes >= o.SnapshotBytes || now.Sub(s.last) >= o.SnapshotInterval || s.newcomers
	if !due || now.Before(s.retry) {
		return nil
	}
	s.writing = true
	d.n.job(func() {
		name := filepath.Join(o.Dir, "snapshot.tmp")
		var end int64
		size, crc, err := d.n.snaps.writeContent(name, func(w io.Writer) (err error) {
			end, err = o.Snapshot(w)
			return err
		})
		_ = d.n.send(func(in *input) { // a closed node forgets it: the file is cleaned at the next start
			in.calls = append(in.calls, func() error { d.written(name, end, size, crc, err); return nil })
		})
	})
	return nil
}

// written publishes the snapshot whose content was written.
func (d *driver) written(name string, end, size int64, crc uint32, err error) {
	d.snapper.writing = false
	before := d.store.snap
	if err == nil {
		err = d.publishSnapshot(name, end, size, crc)
	}
	if err != nil {
		// Nothing is lost: the log still has everything.
		d.n.o.Logger.Error("metadata snapshot failed", "offset", end, "error", err)
	}
	if d.store.snap == before {
		d.snapper.retry = time.Now().Add(snapshotRetry)
	}
}

func (d *driver) publishSnapshot(name string, end, size int64, crc uint32) error {
	old := d.store.snap
	if end <= old.id.EndOffset {
		return d.n.o.FS.Remove(name)
	}
	at, ok := d.store.at(end)
	if !ok {
		return fmt.Errorf("end offset %d is not the end of a committed batch", end)
	}
	snap := &snapshot{id: SnapshotID{EndOffset: end, Epoch: d.store.epochBefore(end)}, at: at, size: size, crc: crc, generation: old.generation}
	d.setSnapshotConf(snap)
	if err := d.n.snaps.publish(snap, name); err != nil {
		return err
	}
	d.snapshotPublished(snap)
	dropped := d.store.compact(snap, d.n.o.KeepEntries, d.n.o.SnapshotBytes)
	d.snapper.bytes, d.snapper.last = d.store.dataAfter(at.index), time.Now()
	d.publish()
	d.n.o.Logger.Info("metadata snapshot", "offset", end, "epoch", snap.id.Epoch, "bytes", size)
	if err := d.log.compact(dropped); err != nil {
		return err
	}
	return d.n.snaps.clean(keepSnapshots)
}

// setSnapshotConf gives a snapshot the membership of its index.
func (d *driver) setSnapshotConf(snap *snapshot) {
	for _, c := range d.confs {
		if c.index <= snap.at.index {
			snap.conf, snap.members = c.conf, c.members
		}
	}
}

// snapshotPublished forgets what the newest snapshot knows.
func (d *driver) snapshotPublished(snap *snapshot) {
	for len(d.confs) > 1 && d.confs[1].index <= snap.at.index {
		d.confs = d.confs[1:]
	}
	d.snapper.newcomers = !containsAll(snap.members, d.confs[len(d.confs)-1].members)
	d.store.setStale(d.snapper.newcomers)
}

// refreshSnapshot moves the newest snapshot on to the applied index if nothing but
// the membership has changed since.
func (d *driver) refreshSnapshot() error {
	old := d.store.snap
	if d.store.hw != old.id.EndOffset {
		return nil // maybeSnapshot makes another
	}
	snap := *old
	var err error
	snap.at.index = d.store.applied
	if snap.at.term, err = d.store.Term(snap.at.index); err != nil {
		return err
	}
	d.setSnapshotConf(&snap)
	if err := d.n.snaps.publish(&snap, ""); err != nil {
		return err
	}
	d.store.compact(&snap, d.n.o.KeepEntries, d.n.o.SnapshotBytes)
	d.snapshotPublished(&snap)
	return nil
}

// dataAfter returns the bytes of committed data after index.
func (s *store) dataAfter(index uint64) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n, base := int64(0), s.entries[0].GetIndex()
	for i := index + 1; i <= s.applied; i++ {
		if e := s.entries[i-base]; isData(e) {
			n += int64(len(e.GetData()))
		}
	}
	return n
}

// Fetcher is implemented by Transports that can read a snapshot from another
// voter, as Kafka's FetchSnapshot does. A voter that lacks compacted entries needs
// it.
type Fetcher interface {
	// FetchSnapshot returns at most maxBytes of the snapshot's content at position.
	FetchSnapshot(ctx context.Context, from Voter, id SnapshotID, position int64, maxBytes int) ([]byte, error)
}

// fetchSnapshot gets the content of the snapshot that the leader offers and then
// steps the message.
func (d *driver) fetchSnapshot(r received) {
	m := r.m
	snap, err := parseSnapshot(m.GetSnapshot().GetData())
	if err == nil && (snap.at.index != m.GetSnapshot().GetMetadata().GetIndex() ||
		snap.at.term != m.GetSnapshot().GetMetadata().GetTerm()) {
		err = fmt.Errorf("%w: snapshot description does not match its message", ErrCorrupt)
	}
	if err != nil {
		d.n.o.Logger.Warn("snapshot from the leader ignored", "error", err)
		return
	}
	if d.snapper.fetching {
		return // the leader offers again
	}
	fetcher, ok := d.n.o.Transport.(Fetcher)
	if snap.size > 0 && !ok {
		d.n.o.Logger.Warn("snapshot from the leader ignored: this transport can't fetch it", "offset", snap.id.EndOffset)
		return
	}
	d.snapper.fetching = true
	d.n.job(func() {
		err := d.n.fetch(fetcher, r.from, snap)
		_ = d.n.send(func(in *input) {
			in.calls = append(in.calls, func() error { return d.fetched(m, err) })
		})
	})
}

// fetchedName is where the content of a fetched snapshot lies until raft takes it.
func (n *Node) fetchedName() string { return filepath.Join(n.o.Dir, "fetched.tmp") }

func (n *Node) fetch(f Fetcher, from Voter, snap *snapshot) error {
	size, crc, err := n.snaps.writeContent(n.fetchedName(), func(w io.Writer) error {
		for got := int64(0); got < snap.size; {
			b, err := f.FetchSnapshot(n.ctx, from, snap.id, got, fetchBytes)
			if err != nil {
				return err
			}
			if len(b) == 0 {
				return io.ErrUnexpectedEOF
			}
			got += int64(len(b))
			if _, err := io.Copy(w, bytes.NewReader(b)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if size != snap.size || crc != snap.crc {
		return fmt.Errorf("%w: fetched %d bytes with checksum %08x, should be %d with %08x", ErrCorrupt, size, crc, snap.size, snap.crc)
	}
	return nil
}

// fetched hands raft the offer whose content is here. If raft takes it,
// installSnapshot follows at once, before another fetch can begin.
func (d *driver) fetched(m *pb.Message, err error) error {
	d.snapper.fetching = false
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			d.n.o.Logger.Warn("snapshot from the leader failed", "error", err)
		}
		return nil
	}
	if err := d.raft.Step(m); err != nil {
		d.n.o.Logger.Debug("raft message ignored", "type", m.GetType(), "error", err)
	}
	return d.ready()
}

// installSnapshot takes the fetched snapshot: first its files, then the log's
// reset. A crash between leaves a log that newStore finds replaced.
func (d *driver) installSnapshot(s *pb.Snapshot) error {
	snap, err := parseSnapshot(s.GetData())
	if err != nil {
		return err
	}
	if err := d.n.snaps.publish(snap, d.n.fetchedName()); err != nil {
		return err
	}
	if err := d.log.reset(snap.at); err != nil {
		return err
	}
	d.store.install(snap)
	d.setConf()
	d.snapper.bytes, d.snapper.last = 0, time.Now()
	d.n.o.Logger.Info("metadata snapshot from the leader", "offset", snap.id.EndOffset, "epoch", snap.id.Epoch)
	if err := d.log.compact(snap.at.index); err != nil {
		return err
	}
	return d.n.snaps.clean(keepSnapshots)
}
