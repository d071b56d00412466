package partlog

import "errors"

// Close closes the log. A clean close makes everything durable and leaves what
// the next Open needs to scan nothing; the caller then passes Options.Clean.
// Spans that were read stay readable.
func (l *Log) Close(clean bool) error {
	l.closing.Store(true)
	l.cleanMu.Lock()
	defer l.cleanMu.Unlock()
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	closed := l.closed
	l.closed = true // no append from here on
	l.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if clean && l.failed.Load() == nil {
		err = l.failWrite("close", l.closeClean())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.view.Load().segs {
		s.shut()
	}
	for _, s := range l.deleted {
		err = errors.Join(err, s.remove(deletedSuffix))
	}
	l.deleted = nil
	return err
}

// closeClean writes all that an Open with Clean relies on. The caller holds
// flushMu and has closed the log for appends.
func (l *Log) closeClean() error {
	if err := l.flushLocked(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view.Load()
	if err := l.finish(v.active()); err != nil {
		return err
	}
	for _, s := range v.segs {
		if err := s.syncIndexes(); err != nil {
			return err
		}
	}
	return l.writeEpochs()
}

// Delete closes the log and removes its directory. Spans that were read stay
// readable.
func (l *Log) Delete() error {
	err := l.Close(false)
	return errors.Join(err, l.opts.FS.RemoveAll(l.opts.Dir))
}
