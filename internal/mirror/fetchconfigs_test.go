package mirror

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/replica"
)

// Spec 9.2: the configs of a mirror's fetches are what its requests ask for.
func TestFetchConfigs(t *testing.T) {
	for _, c := range []struct {
		configs                           []string
		wait, least, most, perPart, again int32 // again is asked for of a partition that is behind
	}{
		{nil, 1000, 1, 10 << 20, 1 << 20, 10 << 20},
		{[]string{"mirror.fetch.wait.max.ms", "77", "mirror.fetch.min.bytes", "5", "mirror.fetch.response.max.bytes", "300000", "mirror.fetch.max.bytes", "20000"}, 77, 5, 300000, 20000, 20000},
		{[]string{"mirror.fetch.response.max.bytes", "2000000"}, 1000, 1, 2000000, 1 << 20, 2000000},
	} {
		virtual(t, func(t *testing.T) {
			s := newSource(t, 1, &link{delay: time.Millisecond})
			defer s.close()
			s.fill(0, 300, 10_000)
			asked := make(chan *kmsg.FetchRequest, 1000)
			s.onFetch = func(r *kmsg.FetchRequest) bool { asked <- r; return true }
			d := newDestination(t, s, nil, c.configs...)
			defer d.close()
			for i, want := range []int32{c.perPart, c.again} {
				r := <-asked
				if p := r.Topics[0].Partitions[0]; r.ReplicaID != -1 || r.MaxWaitMillis != c.wait || r.MinBytes != c.least || r.MaxBytes != c.most || p.PartitionMaxBytes != want {
					t.Errorf("%v: request %d asks for %+v", c.configs, i, r)
				}
			}
			d.level(s, 0, time.Minute)
		})
	}
}

// mirror.socket.timeout.ms bounds how long an answer stays out beyond the fetch wait; mirror.fetch.backoff.ms is the pause before the next try.
func TestSocketTimeoutAndBackoff(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newSource(t, 1, &link{delay: time.Millisecond})
		defer s.close()
		s.fill(0, 1, 100)
		s.onFetch = func(*kmsg.FetchRequest) bool { return false }
		dialled := make(chan time.Time, 100)
		d := newDestination(t, s, func(o *Options, _ *replica.Settings) {
			o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialled <- time.Now()
				return s.connect(ctx, network, addr)
			}
		}, "mirror.socket.timeout.ms", "4000", "mirror.fetch.wait.max.ms", "500", "mirror.fetch.backoff.ms", "1500")
		defer d.close()
		first := <-dialled
		if took := (<-dialled).Sub(first); took < 6*time.Second || took > 6100*time.Millisecond {
			t.Errorf("the second connection came after %s, want 4.5 s and a pause of 1.5 s", took)
		}
	})
}

// mirror.fetch.backoff.ms is the pause of a partition after an error of its own.
func TestPartitionBackoff(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newSource(t, 1, &link{delay: time.Millisecond})
		defer s.close()
		s.fill(0, 3, 100)
		d := newDestination(t, s, nil, "mirror.fetch.backoff.ms", "2500")
		defer d.close()
		var failed atomic.Bool
		d.gate(func() error {
			if failed.CompareAndSwap(false, true) {
				return api.Errorf(api.KafkaStorageError, "the disk is full")
			}
			return nil
		})
		if took := d.level(s, 0, time.Minute); took < 2500*time.Millisecond || took > 2600*time.Millisecond {
			t.Errorf("after an append that failed it took %s, want 2.5 s", took)
		}
	})
}

// KIP-219: a source that throttles gets no request for as long as it says.
func TestSourceThrottles(t *testing.T) {
	f := &fetcher{m: &mirror{}, quiet: time.Now().Add(time.Hour)}
	f.m.settings.Store(&Settings{FetchBackoff: time.Second})
	if ready, pause := f.ready([]*target{{}}, time.Now()); len(ready) != 0 || pause < 59*time.Minute {
		t.Errorf("%d targets are ready, pause %s", len(ready), pause)
	}
}
