package mirror

import (
	"context"
	"fmt"
	"slices"
	"time"

	"milena/internal/coord/mirrorstate"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
)

// clampTimeout bounds how long a cut waits for the group coordinator.
const clampTimeout = 5 * time.Second

// cut truncates the partition to offset to, rounded down to the start of a batch, after it has set aside what lies above.
// Below the log start nothing is left, and the log starts at to. Committed group offsets beyond the new end are taken back to it before,
// and by settled, which comes next. done is false while their coordinators can't be reached: the partition tries again later. The caller
// keeps fetches away.
func (p *Partition) cut(to int64, why string) (done bool, err error) {
	log := p.rep.Log()
	start, end := log.StartOffset(), log.EndOffset()
	if to >= end {
		return true, nil
	}
	from := max(to, start)
	truncate := func() error { return p.rep.TruncateFullyAndStartAt(to) }
	if to >= start {
		if to, err = batchStart(log, to); err != nil {
			return false, err
		}
		from, truncate = to, func() error { return p.rep.TruncateTo(to) }
	}
	// Before the cut, so that a leader that ends between the two leaves no committed offset beyond the log; and after it, for those that
	// are committed meanwhile.
	if !p.takenBack(to) {
		return false, nil
	}
	_, epoch, _ := p.rep.Leader()
	aside, err := p.mgr.cuts.add(log, p.key.TopicID, from, end, Cut{Mirror: p.mirror, Topic: p.tp.topic, Partition: p.tp.partition, LeaderEpoch: epoch, Reason: why})
	if err != nil {
		return false, fmt.Errorf("records from offset %d on could not be set aside, so none was cut: %w", from, err)
	}
	if err := truncate(); err != nil {
		return false, err
	}
	p.rep.AlignFollowers(true)
	p.clampTo = to
	p.audit.cut(to)
	p.mgr.metrics.cutRecords.WithLabelValues(p.mirror).Add(float64(end - from))
	p.log.Warn("mirror partition was cut", "reason", why, "offset", to, "end", end, "records", end-from,
		"set_aside", aside.Records, "bytes", aside.Bytes, "file", aside.Name)
	return true, nil
}

// cutMirroring cuts the log while mirroring, to where the source's parts from it. If it can't be done yet the source is asked again.
func (p *Partition) cutMirroring(to int64, why string) bool {
	p.cutting.Store(true)
	done, err := p.cut(to, why)
	switch {
	case err != nil:
		return p.fail(err, true)
	case !done:
		return false
	case p.mgr.waitsForAll(p.tp.topic):
		return p.write(write{state: mirrormsg.ULELogTruncation})
	}
	return true
}

// uncleanTruncation waits until all replicas agree on a log that was cut because of an unclean election at the source (spec 7.6
// ULE_LOG_TRUNCATION).
func (p *Partition) uncleanTruncation() bool {
	p.unfetch()
	if !p.cutDone || !p.rep.Marked() {
		p.rep.AlignFollowers(true)
		p.cutDone = true
	}
	if !p.settled(true) {
		return false
	}
	return p.write(write{state: mirrormsg.Mirroring})
}

// guardPause is how long a partition that waits for replicas waits without news of them.
const guardPause = time.Second

// converged reports whether no replica that counts goes beyond this leader's log (phase 2 of spec 7.7): those in sync or about to be,
// or all. Until then it is looked at when a follower fetches, when the ISR changes, and now and then.
func (p *Partition) converged(all bool) bool {
	waiting := p.rep.Unaligned(all)
	if len(waiting) == 0 {
		return true
	}
	p.wait(fmt.Errorf("waiting for replicas %v to cut their logs as the leader has", waiting))
	return false
}

// noted reports whether the controller knows of the replicas that are away and have to cut their logs when they are back, whoever leads
// then.
func (p *Partition) noted() bool {
	err := p.rep.Noted()
	if err != nil {
		p.wait(err)
	}
	return err == nil
}

// settled reports whether a cut is over: the replicas agree or will have to, and no group has committed more than there is.
func (p *Partition) settled(all bool) bool { return p.clamped() && p.converged(all) && p.noted() }

// SetAside keeps what a replica here is about to lose because it was away when its partition was cut to an offset, and was then chosen to
// lead it; for replica.Manager.OnSelfCut. The topic may have left its mirror by now.
func (m *Manager) SetAside(rep *replica.Partition, to int64) error {
	log := rep.Log()
	from, err := max(to, log.StartOffset()), error(nil)
	if from == to {
		if from, err = batchStart(log, to); err != nil {
			return err
		}
	}
	mirrorName := ""
	if t := m.topic(rep.Topic()); t != nil {
		mirrorName = t.MirrorName
	}
	_, epoch, _ := rep.Leader()
	end := log.EndOffset()
	aside, err := m.cuts.add(log, rep.TopicID(), from, end, Cut{Mirror: mirrorName, Topic: rep.Topic(), Partition: rep.Index(), LeaderEpoch: epoch,
		Reason: fmt.Sprintf("the replica was away when the partition was cut to %d, and was chosen to lead it", to)})
	if err != nil {
		return fmt.Errorf("records from offset %d on could not be set aside, so none was cut: %w", from, err)
	}
	m.metrics.cutRecords.WithLabelValues(mirrorName).Add(float64(end - from))
	m.opts.Logger.Warn("records of a replica that was away during a cut are set aside", "topic", rep.Topic(), "partition", rep.Index(), "offset", from, "end", end,
		"set_aside", aside.Records, "file", aside.Name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() == nil {
		m.work.Go(func() { m.clamp(rep, from) })
	}
	return nil
}

// clamp takes back the committed offsets of a partition that is no mirror's at the moment, for as long as a cut waits for that.
func (m *Manager) clamp(rep *replica.Partition, to int64) {
	for began := time.Now(); ; {
		ctx, cancel := context.WithTimeout(m.ctx, clampTimeout)
		groups, err := m.opts.ClampOffsets(ctx, rep.Topic(), rep.TopicID(), rep.Index(), to, rep.Log().LatestEpoch())
		cancel()
		switch {
		case err == nil && len(groups) > 0:
			m.opts.Logger.Warn("committed offsets above a cut were taken back", "topic", rep.Topic(), "partition", rep.Index(), "offset", to, "groups", groups)
			return
		case err == nil, m.ctx.Err() != nil:
			return
		case time.Since(began) > clampPatience:
			m.opts.Logger.Error("committed offsets above the cut could not be taken back", "topic", rep.Topic(), "partition", rep.Index(), "offset", to, "error", err)
			return
		}
		m.tasks.Wait(m.ctx, guardPause, nil)
	}
}

// clampPatience is how long a partition waits for the coordinators of groups before it goes on without.
const clampPatience = time.Minute

// clamped takes back committed offsets above a cut that were committed while it was made, or of which a new leader doesn't know whether
// they were taken back.
func (p *Partition) clamped() bool {
	if p.clampTo >= 0 && !p.takenBack(p.clampTo) {
		return false
	}
	p.clampTo, p.clampSince = -1, time.Time{}
	return true
}

// takenBack takes committed offsets back to an offset. It is false while that has to be tried again.
func (p *Partition) takenBack(to int64) bool {
	ctx, cancel := context.WithTimeout(p.ctx, clampTimeout)
	defer cancel()
	groups, err := p.mgr.opts.ClampOffsets(ctx, p.tp.topic, p.key.TopicID, p.tp.partition, to, p.rep.Log().EpochFor(to-1))
	if len(groups) > 0 {
		p.log.Warn("committed offsets above a cut were taken back", "offset", to, "groups", groups)
	}
	if p.clampSince.IsZero() {
		p.clampSince = time.Now()
	}
	switch {
	case err == nil:
		p.clampSince = time.Time{}
	case time.Since(p.clampSince) < clampPatience:
		p.wait(fmt.Errorf("taking back committed offsets above %d: %w", to, err))
		return false
	default:
		p.log.Error("committed offsets above the cut could not be taken back", "offset", to, "error", err)
	}
	return true
}

// wait shows what a partition waits for and looks again later.
func (p *Partition) wait(err error) {
	p.sawError(err)
	p.kickIn(guardPause)
}

// setStatus takes over what the coordinator holds. In a state that has come after an alignment the log is not cut unasked, but
// for what the source tells while mirroring.
func (p *Partition) setStatus(st mirrorstate.Status) {
	p.status = st
	p.actual.Store(int32(st.State))
	state := st.State
	if state == mirrormsg.Failed {
		state = st.Previous
	}
	unaligned := state == mirrormsg.Unknown || state == mirrormsg.LogTruncation || state == mirrormsg.ULELogTruncation
	if p.unaligned.Swap(unaligned) != unaligned {
		p.rep.AlignmentChanged()
	}
}

// Alignment is a partition's part in its mirror (spec D5), for replica.Manager.SetAlignments; nil for a topic that isn't mirrored.
func (m *Manager) Alignment(t *meta.Topic, partition int32) *replica.Alignment {
	if wish := mirrormsg.State(t.MirrorDesired); t.MirrorName == "" || wish != mirrormsg.Mirroring && wish != mirrormsg.Paused {
		return nil
	}
	mirrorName, k := t.MirrorName, tp{t.Name, partition}
	return &replica.Alignment{Pending: func() bool {
		p := m.partition(k)
		return p == nil || p.mirror != mirrorName || p.unaligned.Load() || p.cutting.Load()
	}}
}

// batchStart is off, or the base offset of the batch that it lies inside of: a cut never splits a batch (spec A.8).
func batchStart(log *partlog.Log, off int64) (int64, error) {
	if off >= log.EndOffset() {
		return off, nil
	}
	b, err := batchAt(log, off)
	if b == nil || err != nil {
		return off, err
	}
	return min(off, b.BaseOffset()), nil
}

// batchAt is a copy of the batch that holds off, or the first after it; nil if there is none.
func batchAt(log *partlog.Log, off int64) (record.Batch, error) {
	info, err := log.Read(off, 1, log.EndOffset(), true)
	if err != nil {
		return nil, err
	}
	defer info.Release()
	for _, s := range info.Spans {
		buf, err := s.Bytes()
		if err != nil {
			return nil, err
		}
		for b, err := range record.Batches(buf) {
			return slices.Clone(b), err
		}
	}
	return nil, nil
}

// expireInterval is how often it is looked whether what cuts set aside was kept long enough.
const expireInterval = time.Minute

func (m *Manager) expireLoop() {
	for m.ctx.Err() == nil {
		m.cuts.expire(m.opts.CutRetention(), time.Now())
		m.tasks.Wait(m.ctx, expireInterval, nil)
	}
}

// Cuts lists what cuts of mirror partitions have set aside on this broker, the oldest first.
func (m *Manager) Cuts() []Cut { return m.cuts.list() }

// ReadCut returns whole batches of a file of Cuts from position pos on, at most most bytes but for the first; nothing at its end.
func (m *Manager) ReadCut(name string, pos int64, most int) ([]byte, error) {
	return m.cuts.read(name, pos, most)
}

// PurgeCut removes a file of Cuts for good.
func (m *Manager) PurgeCut(name string) error { return m.cuts.remove(name) }
