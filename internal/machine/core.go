package machine

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// Core is the logic of a runtime, without goroutine and clock: its caller says
// what time it is, when to flush and what is committed. Not safe for concurrent
// use. Replies are handed to the done functions, in the order of the commits
// they wait for and, among those of one commit, of the commands.
type Core struct {
	o    Options
	now  time.Time // of the call being handled
	load state
	err  error // why the core ended; nil while loading and serving

	hw   int64 // commit point, exclusive; never moves back
	next int64 // offset of the next record that is applied

	// The flush being gathered: applied, not yet appended. Its first record's
	// offset is next - len(batch).
	batch      []Record
	batchBytes int
	batchCmds  int
	appended   []reply // wait for the append only (Result.NoWait)

	writes  writes
	waiters waiters // wait for the commit point
	seq     uint64  // numbers waiters

	confirms   []reply // of this flush, wait for Options.Confirm
	confirming map[uint64][]reply
	confirmSeq uint64
	confirmed  func(id uint64, err error) // how Options.Confirm reports back
	timers     timers
}

type state int

const (
	stateLoading state = iota
	stateServing
	stateEnded
)

// reply hands a command's answer to its caller.
type reply struct {
	done  func(any, error)
	value any
	err   error
}

func (r reply) send() { r.done(r.value, r.err) }

// NewCore returns a core that isn't loaded.
func NewCore(o Options) *Core {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Name != "" {
		o.Logger = o.Logger.With("machine", o.Name)
	}
	if o.CheckRetry <= 0 {
		o.CheckRetry = time.Second
	}
	if o.MaxBatchBytes <= 0 {
		o.MaxBatchBytes = 1_000_000
	}
	c := &Core{o: o, confirming: map[uint64][]reply{}}
	c.confirmed = c.Confirmed
	c.timers.init()
	if b, ok := o.Machine.(Binder); ok {
		b.Bind(c)
	}
	return c
}

// Err returns nil while the core serves, ErrLoading before, and the error it
// ended with after.
func (c *Core) Err() error {
	if c.load == stateLoading {
		return ErrLoading
	}
	return c.err
}

// Load replays the log and tells the machine. stop, if not nil, is asked between
// records; its error ends the load. It returns how many records there were. An
// error leaves the core ended, with ErrLost.
func (c *Core) Load(now time.Time, stop func() error) (records int, err error) {
	c.now = now
	last := int64(-1)
	vetter, _ := c.o.Machine.(Vetter)
	err = c.o.Log.Replay(func(offset int64, r Record) error {
		if stop != nil {
			if err := stop(); err != nil {
				return err
			}
		}
		if offset < last {
			return fmt.Errorf("replay went back from offset %d to %d", last, offset)
		}
		if vetter != nil {
			if err := vetter.Vet(r); err != nil {
				return &UnknownRecordError{Offset: offset, Err: err}
			}
		}
		last = offset
		records++
		c.o.Machine.Apply(offset, r)
		return nil
	})
	c.next = c.o.Log.EndOffset()
	if err == nil && last >= c.next {
		err = fmt.Errorf("replay reached offset %d, the log's end is %d", last, c.next)
	}
	if err != nil {
		c.end(lost(err))
		return records, c.err
	}
	c.hw = c.o.Log.HighWatermark()
	// What the log holds above the commit point may be anything's last write.
	c.writes.barrier, c.writes.last = c.next, c.next
	c.load = stateServing
	c.o.Machine.Loaded(now)
	return records, nil
}

// Exec runs a command and applies its records; they are appended by the next
// Flush, or at once if the batch is full. done gets the reply, now or later.
func (c *Core) Exec(now time.Time, cmd Command, done func(any, error)) {
	c.exec(now, cmd, done, false)
}

// ExecNow is Exec for commands whose replies never wait for a commit.
func (c *Core) ExecNow(now time.Time, cmd Command, done func(any, error)) {
	c.exec(now, cmd, done, true)
}

func (c *Core) exec(now time.Time, cmd Command, done func(any, error), noWait bool) {
	c.now = now
	if err := c.Err(); err != nil {
		done(nil, err)
		return
	}
	if c.o.Check != nil {
		if err := c.o.Check(); err != nil {
			done(nil, err)
			return
		}
	}
	res := cmd(now)
	noWait = noWait || res.NoWait || mutant == "reply"
	a := reply{done: done, value: res.Reply, err: res.Err}
	if a.err != nil {
		a.value = nil
	}
	if len(res.Records) == 0 {
		c.answer(a, c.writes.seen(res), noWait)
		return
	}
	full, err := c.write(res.Records)
	if err != nil {
		done(nil, err)
		return
	}
	c.writes.add(res, c.next)
	if noWait {
		c.appended = append(c.appended, a)
	} else {
		c.wait(a, c.next)
	}
	if full {
		_ = c.flushBatch() // the waiters have the error
	}
}

// write applies the records of one command and puts them in the batch. full says
// that the batch must be appended before anything else joins it.
func (c *Core) write(recs []Record) (full bool, err error) {
	size := batchOverhead
	for _, r := range recs {
		size += r.size()
	}
	full = size > c.o.MaxBatchBytes
	if full && c.o.Bookends == nil {
		return false, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, c.o.MaxBatchBytes)
	}
	if len(c.batch) > 0 && c.batchBytes+size > c.o.MaxBatchBytes {
		if err := c.flushBatch(); err != nil {
			return false, err
		}
	}
	if len(c.batch) == 0 {
		c.batchBytes = batchOverhead
	}
	c.batchCmds++
	if !full {
		for _, r := range recs {
			c.apply(r)
		}
		return false, nil
	}
	begin, end := c.o.Bookends()
	c.apply(begin)
	for _, r := range recs {
		c.apply(r)
	}
	c.apply(end)
	return true, nil
}

func (c *Core) apply(r Record) {
	c.o.Machine.Apply(c.next, r)
	c.next++
	c.batch = append(c.batch, r)
	c.batchBytes += r.size()
}

// answer replies to a command that wrote nothing and has seen writes up to the
// offset seen.
func (c *Core) answer(a reply, seen int64, noWait bool) {
	switch {
	case noWait:
		a.send()
	case seen > c.hw:
		c.wait(a, seen)
	case c.o.Confirm != nil:
		c.confirms = append(c.confirms, a)
	default:
		a.send()
	}
}

func (c *Core) wait(a reply, end int64) {
	c.seq++
	c.waiters.push(waiter{reply: a, end: end, seq: c.seq, since: c.now})
}

// Flush appends what the commands since the last flush wrote. The caller calls
// it after the commands it had. An error has been told to all waiters.
func (c *Core) Flush(now time.Time) error {
	c.now = now
	if err := c.Err(); err != nil {
		return err
	}
	if err := c.flushBatch(); err != nil {
		return err
	}
	if len(c.confirms) > 0 {
		c.confirmSeq++
		id := c.confirmSeq
		c.confirming[id] = c.confirms
		c.confirms = nil
		c.o.Confirm(func(err error) { c.confirmed(id, err) })
	}
	return c.err
}

func (c *Core) flushBatch() error {
	if len(c.batch) == 0 {
		return nil
	}
	base := c.next - int64(len(c.batch))
	if end := c.o.Log.EndOffset(); end != base {
		c.end(lost(fmt.Errorf("log ends at offset %d, the machine at %d", end, base)))
		return c.err
	}
	last, err := c.o.Log.Append(c.batch)
	if err == nil && last != c.next-1 {
		err = fmt.Errorf("append ended at offset %d instead of %d", last, c.next-1)
	}
	if err != nil {
		c.end(lost(err))
		return c.err
	}
	if h := c.o.Hooks.Flushed; h != nil {
		h(c.batchCmds, len(c.batch), c.batchBytes)
	}
	// The log may keep the records: begin a new slice.
	c.batch, c.batchBytes, c.batchCmds = nil, 0, 0
	appended := c.appended
	c.appended = nil
	for _, a := range appended {
		a.send()
	}
	c.commit(c.o.Log.HighWatermark())
	return nil
}

// Committed says that every record below hw is committed: the replies that
// waited for it leave.
func (c *Core) Committed(now time.Time, hw int64) {
	c.now = now
	if c.load == stateServing {
		c.commit(hw)
	}
}

func (c *Core) commit(hw int64) {
	// Never beyond what is appended: the batch being gathered is still ours alone.
	hw = min(hw, c.next-int64(len(c.batch)))
	if hw <= c.hw {
		return
	}
	c.hw = hw
	c.writes.commit(hw)
	for {
		w, ok := c.waiters.pop(hw)
		if !ok {
			return
		}
		if h := c.o.Hooks.Waited; h != nil {
			h(c.now.Sub(w.since))
		}
		w.send()
	}
}

// Confirmed ends the wait of the replies that Options.Confirm was called for.
func (c *Core) Confirmed(id uint64, err error) {
	rs := c.confirming[id]
	delete(c.confirming, id)
	for _, a := range rs {
		if err != nil {
			a.value, a.err = nil, lost(err)
		}
		a.send()
	}
}

// Lost ends the core: every waiter gets ErrLost with the cause.
func (c *Core) Lost(cause error) { c.end(lost(cause)) }

// Close ends the core: every waiter gets ErrClosed.
func (c *Core) Close() { c.end(ErrClosed) }

func (c *Core) end(err error) {
	if c.load == stateEnded {
		return
	}
	c.load, c.err = stateEnded, err
	c.o.Logger.Debug("machine ended", "offset", c.next, "error", err)
	rs := slices.Concat(c.appended, c.confirms)
	for _, id := range slices.Sorted(maps.Keys(c.confirming)) {
		rs = append(rs, c.confirming[id]...)
	}
	for {
		w, ok := c.waiters.pop(c.next)
		if !ok {
			break
		}
		rs = append(rs, w.reply)
	}
	c.appended, c.confirms, c.batch = nil, nil, nil
	clear(c.confirming)
	c.timers.init()
	for _, a := range rs {
		a.done(nil, err)
	}
}

// lost wraps the cause in ErrLost.
func lost(cause error) error {
	if cause == nil || errors.Is(cause, ErrLost) || errors.Is(cause, ErrClosed) {
		if cause != nil {
			return cause
		}
		return ErrLost
	}
	return fmt.Errorf("%w: %w", ErrLost, cause)
}
