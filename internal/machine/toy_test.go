package machine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"
)

// toy is a machine that counts writes by key and hashes everything it applies, so
// that a record lost, repeated or reordered shows at once.
type toy struct {
	Timers
	hash    [32]byte
	counts  map[string]int
	records int
	last    int64
	loaded  time.Time
	onLoad  func()
}

func newToy() *toy { return &toy{counts: map[string]int{}, last: -1} }

func (m *toy) Bind(t Timers) { m.Timers = t }

func (m *toy) Apply(offset int64, r Record) {
	if offset != m.last+1 {
		panic(fmt.Sprintf("offset %d after %d", offset, m.last))
	}
	m.last = offset
	m.hash = sha256.Sum256(fmt.Appendf(m.hash[:], "%d %q %q", offset, r.Key, r.Value))
	m.counts[string(r.Key)]++
	m.records++
}

func (m *toy) Loaded(now time.Time) {
	m.loaded = now
	if m.onLoad != nil {
		m.onLoad()
	}
}

// incr returns a command that writes key n times and replies the count it makes.
func (m *toy) incr(key string, n int) Command {
	return func(time.Time) Result {
		res := Result{Entity: key, Reply: m.counts[key] + n}
		for i := range n {
			res.Records = append(res.Records, Record{Key: []byte(key), Value: fmt.Appendf(nil, "%d", m.counts[key]+i)})
		}
		return res
	}
}

// get returns a command that reads the count of key; all if it is empty.
func (m *toy) get(key string) Command {
	return func(time.Time) Result {
		if key == "" {
			return Result{Reply: m.records}
		}
		return Result{Entity: key, Reply: m.counts[key]}
	}
}

// memLog is a log that the test commits by hand.
type memLog struct {
	mu      sync.Mutex
	recs    []Record
	batches []int // records of each append
	hw      int64
	fail    error
}

func (l *memLog) Append(recs []Record) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return 0, l.fail
	}
	l.recs = append(l.recs, recs...)
	l.batches = append(l.batches, len(recs))
	return int64(len(l.recs)) - 1, nil
}

func (l *memLog) Replay(fn func(int64, Record) error) error {
	for i, r := range l.recs {
		if err := fn(int64(i), r); err != nil {
			return err
		}
	}
	return nil
}

func (l *memLog) EndOffset() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.recs))
}

func (l *memLog) HighWatermark() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hw
}

func (l *memLog) commit(hw int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hw = min(hw, int64(len(l.recs)))
	return l.hw
}

var errTest = errors.New("test")

// answer is where a test keeps a reply.
type answer struct {
	got   bool
	value any
	err   error
}

func (a *answer) take(v any, err error) {
	if a.got {
		panic("a second reply")
	}
	a.got, a.value, a.err = true, v, err
}
