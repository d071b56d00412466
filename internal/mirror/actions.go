package mirror

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"milena/internal/api"
	"milena/internal/coord/mirrorstate"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
	"milena/internal/partlog"
	"milena/internal/record"
	"milena/internal/replica"
)

// mirroring sees to it that a fetcher has the partition.
func (p *Partition) mirroring() bool {
	if t := p.target.Load(); t != nil {
		gone, o := t.ended()
		switch {
		case o != nil:
			return p.onOutcome(o)
		case !gone && t.fetched.Load() && (p.status.RetryAttempt != 0 || p.status.Error != ""):
			return p.write(write{state: mirrormsg.Mirroring, clear: true})
		case !gone && p.rep.Marked():
			return false
		}
		p.unfetch()
	}
	if !p.rep.Marked() {
		// A new leader. One before it may have cut the log while mirroring, and told neither the controller nor all followers; and
		// followers that are out of sync may have more than this log, which the source may not have any more.
		p.rep.AlignFollowers(false)
	}
	if !p.settled(false) {
		return false
	}
	if p.cutting.Swap(false) {
		p.rep.AlignmentChanged()
	}
	m, ok := p.sourceMirror()
	if !ok {
		return false
	}
	ctx, cancel := p.work(m.set().Client.RequestTimeout)
	defer cancel()
	leader, err := p.leader(ctx, m)
	if err != nil {
		return p.sourceFailed(ctx, m, err)
	}
	if own := p.key.TopicID; !leader.TopicID.IsZero() && leader.TopicID != own {
		return p.fail(errRecreated(leader.TopicID, own), false)
	}
	// Retention and compaction must not run on this topic by other rules than the source's: the first sync of its
	// configs comes before the first byte (spec D7).
	if err := m.configsOnce(ctx, p.tp.topic); err != nil {
		return p.sourceFailed(ctx, m, fmt.Errorf("topic configs of the source: %w", err))
	}
	t := &target{p: p, rep: p.rep, key: p.tp, topicID: leader.TopicID, sle: leader.Epoch}
	p.target.Store(t)
	if p.ctx.Err() != nil {
		p.unfetch()
		return false
	}
	m.fetch(leader.Addr, t)
	return false
}

// errRecreated says that the source's topic is another one than ours.
func errRecreated(source, own ids.UUID) error {
	return fmt.Errorf("the source topic has id %s, the mirror topic %s: it was deleted and created again; delete the topic here to mirror the new one", source, own)
}

// sourceMirror is the mirror's runtime; a mirror whose configs are not here yet is waited for.
func (p *Partition) sourceMirror() (*mirror, bool) {
	m, err := p.mgr.mirror(p.mirror)
	if err != nil {
		if p.mgr.hasMirror(p.mirror) {
			p.fail(err, true) // its configs can't be used
		} else {
			p.kickIn(coordinatorBackoff)
		}
		return nil, false
	}
	return m, true
}

// leader is the source leader of the partition, asked for if it isn't known or was of no use.
func (p *Partition) leader(ctx context.Context, m *mirror) (Leader, error) {
	if l, ok := m.source.Leader(p.tp.topic, p.tp.partition); ok && !p.distrust {
		return l, nil
	}
	found, err := m.source.Refresh(ctx, []string{p.tp.topic})
	if err != nil {
		return Leader{}, fmt.Errorf("no source metadata: %w", err)
	}
	switch t := found[p.tp.topic]; {
	case t == nil:
		return Leader{}, errors.New("no source metadata: the source does not know the topic")
	case t.Err != nil:
		return Leader{}, fmt.Errorf("no source metadata: %w", t.Err)
	}
	if l, ok := m.source.Leader(p.tp.topic, p.tp.partition); ok {
		p.distrust = false
		return l, nil
	}
	return Leader{}, errors.New("no source metadata: the source knows no leader of the partition")
}

// truncation aligns the log with the source before the first fetch, and then waits for the followers (spec 7.6 LOG_TRUNCATION, 7.7,
// with decisions D3 and D5). A new leader begins again.
func (p *Partition) truncation() bool {
	p.unfetch()
	if !p.cutDone || !p.rep.Marked() {
		return p.align()
	}
	if !p.settled(p.mgr.waitsForAll(p.tp.topic)) {
		return false
	}
	return p.write(write{state: mirrormsg.Mirroring})
}

// align cuts the log to what it shares with the source.
func (p *Partition) align() bool {
	m, ok := p.sourceMirror()
	if !ok {
		return false
	}
	// A client's append that was let in while the partition was STOPPED may be under way: nothing is at MaxInt64 to be cut,
	// but the truncation waits for appends, and the gate lets no more in.
	if err := p.rep.TruncateTo(math.MaxInt64); err != nil {
		return p.fail(err, true)
	}
	ctx, cancel := p.work(m.set().Client.RequestTimeout)
	defer cancel()
	last, shared, known, err := p.commonEpoch(ctx, m)
	if err != nil {
		return p.sourceFailed(ctx, m, err)
	}
	log := p.rep.Log()
	start, end := log.StartOffset(), log.EndOffset()
	to := end
	switch {
	case known:
		to = cutPoint(log.Epochs(), last, end)
		if shared >= 0 { // what was written here behind the stop may have an epoch of before it
			to = min(to, shared)
		}
	case end > start && !m.set().TruncateUnrelated[p.tp.topic]:
		return p.fail(fmt.Errorf("the topic holds %d records here that do not come from this source: they would be cut to mirror it; "+
			"milena mirrors start %s --topics %s --truncate-unrelated allows that (mirror.truncate.unrelated.topics)", end-start, p.mirror, p.tp.topic), false)
	case end > start:
		to = 0
	}
	if known && mutant == "lmeskip" {
		to = end
	}
	if to < end {
		if err := p.rep.MayCut(p.mgr.waitsForAll(p.tp.topic)); err != nil {
			p.wait(err)
			return false
		}
		done, err := p.cut(to, fmt.Sprintf("alignment with the source at last mirror epoch %d", last))
		if err != nil {
			return p.fail(err, true)
		}
		if !done {
			return false
		}
	}
	// Also where nothing was cut here: a leader before this one may have been ahead of its followers with that, and of the groups.
	p.rep.AlignFollowers(end > 0)
	if known && to >= end {
		p.clampTo = end
	}
	p.cutDone = true
	return true
}

// cutPoint is where a log is cut to keep the shared history up to an epoch: the start of its first epoch above (spec A.3).
func cutPoint(epochs []partlog.EpochEntry, last int32, end int64) int64 {
	for _, e := range epochs {
		if e.Epoch > last {
			return min(e.Start, end)
		}
	}
	return end
}

// commonEpoch is the last mirror epoch up to which our log and the source's share their history, and the offset behind it (-1: not
// known): the higher of what the source holds from mirroring us, and what we hold from mirroring it, in whichever mirror. known is
// false if neither holds any. Whatever can't be answered is an error, never "none".
func (p *Partition) commonEpoch(ctx context.Context, m *mirror) (last int32, shared int64, known bool, err error) {
	last, shared, err = p.ownEpoch(ctx, m.set().SourceClusterID)
	if err != nil {
		return 0, -1, false, err
	}
	known = shared >= 0
	theirs, offset, found, err := p.theirEpoch(ctx, m)
	result := lookupNone
	switch {
	case err != nil:
		result = lookupError
	case found:
		result = lookupFound
	}
	p.mgr.metrics.lookups.WithLabelValues(p.mirror, result).Inc()
	if err != nil {
		return 0, -1, false, err
	}
	if found && (!known || laterStop(theirs, offset, last, shared)) {
		last, shared, known = theirs, offset, true
	}
	return last, shared, known, nil
}

// theirEpoch is what the source holds from mirroring the partition from here; found is false if it holds nothing.
func (p *Partition) theirEpoch(ctx context.Context, m *mirror) (last int32, offset int64, found bool, err error) {
	own := p.mgr.opts.ClusterID
	back, err := m.source.mirrorsFrom(ctx, own)
	if err != nil {
		return -1, -1, false, fmt.Errorf("mirrors of the source: %w", err)
	}
	if len(back.mirrors) == 0 {
		return -1, -1, false, nil
	}
	for _, b := range back.mirrors {
		if slices.Contains(b.TopicNames, p.tp.topic) {
			return -1, -1, false, fmt.Errorf("%s %s: the source's mirror %s copies topic %s from this cluster; stop it there first",
				loopWords, p.mirror, b.MirrorName, p.tp.topic)
		}
	}
	if last, offset, found, err = m.source.lastMirrorEpoch(ctx, back, p.tp, own); err != nil {
		return -1, -1, false, fmt.Errorf("last mirror epochs of the source: %w", err)
	}
	return last, offset, found, nil
}

// laterStop reports whether a stop that captured an epoch and an offset came after another.
func laterStop(epoch int32, offset int64, than int32, thanOffset int64) bool {
	return epoch > than || epoch == than && offset > thanOffset
}

// loopWords are what tests of KIP-1279 look for.
const loopWords = "Detected mirror loop for mirror"

// ownEpoch is the highest last mirror epoch, with its offset, that stops of mirrors from the source cluster captured here for the
// partition. The offset is -1 if none did: it is there if and only if a log that was aligned was stopped, even if it held no batch.
func (p *Partition) ownEpoch(ctx context.Context, source string) (last int32, offset int64, err error) {
	last, offset = p.status.LastMirrorEpoch, p.status.LastMirrorOffset
	for name, own := range p.mgr.image.Load().Configs(meta.ResourceClusterMirror) {
		if name == p.mirror || own["mirror.source.cluster.id"] != source {
			continue
		}
		st, err := p.mgr.opts.States.Read(ctx, mirrorstate.Key{Mirror: name, TopicID: p.key.TopicID, Partition: p.key.Partition}, -1)
		if err != nil {
			return -1, -1, fmt.Errorf("last mirror epoch of mirror %s: %w", name, err)
		}
		if st.LastMirrorOffset >= 0 && (offset < 0 || laterStop(st.LastMirrorEpoch, st.LastMirrorOffset, last, offset)) {
			last, offset = st.LastMirrorEpoch, st.LastMirrorOffset
		}
	}
	return last, offset, nil
}

// fencing raises the leader epoch above the source's (spec 7.6 EPOCH_FENCING).
func (p *Partition) fencing() bool {
	p.unfetch()
	m, ok := p.sourceMirror()
	if !ok {
		return false
	}
	ctx, cancel := p.work(m.set().Client.RequestTimeout)
	defer cancel()
	p.distrust = true
	l, err := p.leader(ctx, m)
	if err != nil {
		return p.sourceFailed(ctx, m, err)
	}
	// A source too old to tell its epoch is known by its batches.
	if err := p.bump(ctx, max(l.Epoch, p.fenced)+epochIncrement); err != nil {
		return p.sourceFailed(ctx, m, err)
	}
	return p.write(write{state: mirrormsg.Mirroring})
}

// bumpTimeout bounds the wait for a raised leader epoch.
const bumpTimeout = 15 * time.Second

// bump asks the controller for a leader epoch above least and waits until this broker leads with it.
func (p *Partition) bump(ctx context.Context, least int32) error {
	if _, epoch, _ := p.rep.Leader(); epoch > least {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bumpTimeout)
	defer cancel()
	if err := p.mgr.bumpEpochs(ctx, map[tp]int32{p.tp: least}); err != nil {
		return fmt.Errorf("raising the leader epoch above %d: %w", least, err)
	}
	for {
		changed := p.mgr.changed()
		if _, epoch, self := p.rep.Leader(); epoch > least && self {
			p.mgr.metrics.bumps.WithLabelValues(p.mirror).Inc()
			return nil
		}
		if p.mgr.tasks.Wait(ctx, -1, changed) == WokenEnd {
			return fmt.Errorf("raising the leader epoch above %d: %w", least, ctx.Err())
		}
	}
}

// bumpSoon raises the leader epoch in the background, so that the source's next elections don't stop the fetch (the
// proactive bump of spec 8.5).
func (p *Partition) bumpSoon(least int32) {
	if !p.bumping.CompareAndSwap(false, true) {
		return
	}
	p.mgr.work.Go(func() {
		defer p.bumping.Store(false)
		if err := p.bump(p.ctx, least); err != nil && p.ctx.Err() == nil {
			p.log.Warn("leader epoch could not be raised ahead of the source's", "error", err)
			p.mgr.tasks.Wait(p.ctx, coordinatorBackoff, nil) // the next batch would ask again at once
		}
	})
}

// stopping ends the mirroring of the partition and makes it writable (spec 7.6 STOPPING, D2). It needs nothing of the
// source. A failure is retried from the beginning; what was captured for this wish stays.
func (p *Partition) stopping(topic *meta.Topic) bool {
	p.unfetch()
	if mutant == "lmelate" {
		if err := p.closeLog(); err != nil {
			return p.stopFailed(err)
		}
	}
	if !p.captureLast(topic.MirrorChangeOffset) {
		return false
	}
	if err := p.closeLog(); err != nil {
		return p.stopFailed(err)
	}
	return p.write(write{state: mirrormsg.Stopped})
}

// stopFailed has a stop tried again from its beginning.
func (p *Partition) stopFailed(err error) bool {
	if p.ctx.Err() == nil {
		p.log.Warn("stopping the mirror partition failed, trying again", "error", err)
		p.sawError(fmt.Errorf("stopping: %w", err))
		p.kickIn(stopRetry)
	}
	return false
}

// stopRetry is the pause before a failed stop is tried again (spec 3.10).
const stopRetry = 5 * time.Second

// captureLast stores the last mirror epoch for a stop wish, once, before anything of the stop is appended. A log that was
// not aligned since the last start keeps what an earlier stop stored, whichever mirror's it was: a failback is told by this one.
func (p *Partition) captureLast(wish int64) bool {
	if p.status.StopWish == wish {
		return true
	}
	// What was mirrored counts once a leader after this one has it as well.
	if err := p.awaitCommitted(p.rep.LogEndOffset()); err != nil {
		return p.stopFailed(err)
	}
	c := capture{wish: wish, epoch: p.rep.Log().LatestEpoch(), offset: p.rep.LogEndOffset()}
	if p.status.Previous == mirrormsg.LogTruncation || p.status.Previous == mirrormsg.Unknown && p.status.Error != "" {
		source := p.mgr.image.Load().Config(meta.ResourceClusterMirror, p.mirror)["mirror.source.cluster.id"]
		var err error
		if c.epoch, c.offset, err = p.ownEpoch(p.ctx, source); err != nil {
			return p.stopFailed(err)
		}
	}
	return p.write(write{state: mirrormsg.Unknown, capture: &c})
}

// closeLog raises the leader epoch above every one in the log, aborts open transactions and clears the producers.
func (p *Partition) closeLog() error {
	if err := p.bump(p.ctx, p.rep.Log().LatestEpoch()); err != nil {
		return err
	}
	done, err := p.isReset()
	if err != nil {
		return err
	}
	if done {
		return p.awaitCommitted(p.rep.LogEndOffset())
	}
	now := time.Now().UnixMilli()
	for _, s := range p.rep.Log().ProducerStates() {
		if s.TxnStart < 0 {
			continue
		}
		marker := record.EndTxnMarker(false, max(s.CoordinatorEpoch, 0), s.ID, s.Epoch, now)
		if _, err := p.appendControl(marker); err != nil {
			return fmt.Errorf("abort of the open transaction of producer %d: %w", s.ID, err)
		}
	}
	last, err := p.appendControl(record.MirrorPIDReset(now))
	if err != nil {
		return fmt.Errorf("reset of the producers: %w", err)
	}
	return p.awaitCommitted(last.LastOffset + 1)
}

// isReset reports whether this stop has got to its end before, under whichever leader: the log ends with the reset of the producers.
func (p *Partition) isReset() (bool, error) {
	log := p.rep.Log()
	end := log.EndOffset()
	if p.status.LastMirrorOffset < 0 || end <= p.status.LastMirrorOffset || end <= log.StartOffset() {
		return false, nil
	}
	last, err := batchAt(log, end-1)
	if last == nil || err != nil {
		return false, err
	}
	c, ok, err := last.Control()
	return ok && c.Type == record.ControlMirrorPIDReset, err
}

func (p *Partition) appendControl(b record.Batch) (partlog.AppendInfo, error) {
	return p.rep.Append(b, replica.AppendOptions{Origin: partlog.OriginCoordinator, Acks: -1, Epoch: replica.AnyEpoch})
}

// controlTimeout bounds the wait for the commit of a stop's control batches (spec 3.10).
const controlTimeout = 5 * time.Second

// awaitCommitted waits until everything below end is committed.
func (p *Partition) awaitCommitted(end int64) error {
	done := make(chan struct{})
	var failed error
	_, epoch, _ := p.rep.Leader()
	cancel := p.rep.AwaitHW(epoch, end, func(err error) {
		failed = err
		close(done)
	})
	switch p.mgr.tasks.Wait(p.ctx, controlTimeout, done) {
	case WokenSignal:
		return failed
	case WokenTime:
		cancel()
		return api.Errorf(api.RequestTimedOut, "the records below offset %d were not committed in %s", end, controlTimeout)
	default:
		cancel()
		return p.ctx.Err()
	}
}
