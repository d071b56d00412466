package mirror

import (
	"context"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/replica"
)

// 154. Quota: throttled rate is respected within the usual tolerance, lag grows, nothing fails.
func TestScenario154(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, rate = 2_000, 200_000
		s := newSource(t, 3, &link{delay: time.Millisecond})
		defer s.close()
		listed := func(partition, broker int32) bool { return partition < 2 && broker == 1 }
		d := newDestination(t, s, func(_ *Options, set *replica.Settings) { set.MirrorThrottled = listed })
		defer d.close()
		d.m.SetThrottles(math.MaxInt64, math.MaxInt64, rate)
		for p := range int32(3) {
			s.fill(p, 2000, size) // 4 MB
		}
		begun := time.Now()
		if took := d.level(s, 2, time.Minute); took > time.Second {
			t.Errorf("a partition that is not listed took %s", took)
		}
		lag := func(p int) int64 {
			pr := d.parts[p].Progress(time.Now())
			if !pr.Known() {
				t.Fatalf("partition %d: the lag is unknown after %s: %+v", p, time.Since(begun), pr)
			}
			return pr.SourceOffset - pr.DestinationOffset
		}
		before := lag(0)
		for range 10 { // 2 MB in 10 s are more than the half of the rate that is its
			time.Sleep(time.Second)
			s.fill(0, 100, size)
		}
		// A second's worth may be had at once, and an answer may go beyond.
		elapsed := time.Since(begun).Seconds()
		got := float64((d.part(0).LogEndOffset() + d.part(1).LogEndOffset()) * size)
		if low, high := rate*elapsed*0.9, rate*(elapsed+2)*1.02; got < low || got > high {
			t.Errorf("%.0f bytes in %.1f s, want %.0f to %.0f", got, elapsed, low, high)
		}
		if now := lag(0); now <= before {
			t.Errorf("the lag went from %d to %d", before, now)
		}
		if r := d.gauge("kafka_server_mirrorreplication_byte_rate"); r < rate*0.8 || r > rate*1.3 {
			t.Errorf("the byte rate is %.0f", r)
		}
		d.m.SetThrottles(math.MaxInt64, math.MaxInt64, 0) // nothing at all, and still it is known how far behind that is
		time.Sleep(3 * time.Second)
		at := d.part(0).LogEndOffset()
		s.fill(0, 100, size)
		time.Sleep(20 * time.Second)
		if now := d.part(0).LogEndOffset(); now != at {
			t.Errorf("at a rate of 0 %d records came", now-at)
		}
		if got := lag(0); got != s.part(0).LogEndOffset()-at {
			t.Errorf("at a rate of 0 the lag is %d, want %d", got, s.part(0).LogEndOffset()-at)
		}
		for i, p := range d.parts {
			if gone, o := p.target.Load().ended(); gone {
				t.Errorf("partition %d is not fetched any more: %+v", i, o)
			}
		}
		d.m.SetThrottles(math.MaxInt64, math.MaxInt64, math.MaxInt64)
		for p := range int32(2) {
			if took := d.level(s, p, time.Minute); took > 2*time.Second {
				t.Errorf("without the throttle it took %s", took)
			}
			d.same(s, p)
		}
	})
}

type buffered struct {
	net.Conn
	size *atomic.Int64
}

func (b buffered) SetReadBuffer(n int) error { b.size.Store(int64(n)); return nil }

// mirror.socket.receive.buffer.bytes is set below TLS, where the socket is.
func TestReceiveBufferBelowTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, 1, &link{delay: time.Millisecond})
		defer s.close()
		var size atomic.Int64
		d := newDestination(t, s, func(o *Options, _ *replica.Settings) {
			o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := s.connect(ctx, network, addr)
				return buffered{c, &size}, err
			}
		}, "security.protocol", "SSL", "mirror.socket.receive.buffer.bytes", "76543")
		defer d.close()
		until(t, time.Minute, func() bool { return size.Load() == 76543 })
	})
}

// An answer that was long under way tells of the past: the source's end in it is as old as the request, but for what the source may have
// waited (spec D6).
func TestSourceAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, 1, &link{delay: 4 * time.Second})
		defer s.close()
		s.fill(0, 1, 100)
		d := newDestination(t, s, nil)
		defer d.close()
		d.level(s, 0, time.Minute)
		if pr := d.parts[0].Progress(time.Now()); pr.Age < 7*time.Second || pr.Age > 9*time.Second || pr.Behind < 7*time.Second {
			t.Errorf("after 8 s on the way, at most 1 of them waiting at the source, the source's end is %s old, and was reached %s ago", pr.Age, pr.Behind)
		}
	})
}
