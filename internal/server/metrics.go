package server

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"milena/internal/api"
	"milena/internal/obs"
)

// Metrics are the metrics of one Server, or of the several of a process, which count together as in Kafka: their
// listeners have different names.
type Metrics struct{ *metrics }

// NewMetrics registers the metrics of servers; nil: they are kept, not registered.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m, err := newMetrics(reg)
	return &Metrics{m}, err
}

// metrics are those of a Server.
type metrics struct {
	requests *prometheus.CounterVec
	errors   *prometheus.CounterVec
	bytesIn  *prometheus.CounterVec
	bytesOut *prometheus.CounterVec

	total, queue, local, remote, respQueue, send *obs.TimingVec

	connections *prometheus.GaugeVec
	created     *prometheus.CounterVec
	closed      *prometheus.CounterVec
	refused     *prometheus.CounterVec
	expired     *prometheus.CounterVec
	malformed   *prometheus.CounterVec

	byAPI sync.Map // api.Key to *apiMetrics, made when the API is first used

	mu      sync.Mutex // guards budgets
	budgets []*budget
}

// apiMetrics are the metrics of one API, with their labels looked up.
type apiMetrics struct {
	name     string
	bytesIn  prometheus.Counter
	bytesOut prometheus.Counter

	total, queue, local, remote, respQueue, send *obs.Timing

	of        *metrics
	byVersion sync.Map // int16 to prometheus.Counter
	byCode    sync.Map // api.Code to prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	times := func(name, help string) *obs.TimingVec { return obs.NewTimingVec(name, help, obs.LabelRequest) }
	gauge := func(name, help string, f func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(f()) })
	}
	m := &metrics{
		requests:    counter(obs.Requests, "Requests received.", obs.LabelRequest, obs.LabelVersion),
		errors:      counter(obs.RequestErrors, "Responses by error code, NONE included.", obs.LabelRequest, obs.LabelError),
		bytesIn:     counter(obs.RequestBytes, "Bytes of request frames.", obs.LabelRequest),
		bytesOut:    counter(obs.ResponseBytes, "Bytes of response frames.", obs.LabelRequest),
		total:       times(obs.RequestTotalTime, "Milliseconds from a request's last byte to its response's."),
		queue:       times(obs.RequestQueueTime, "Milliseconds a request waited for its handler."),
		local:       times(obs.RequestLocalTime, "Milliseconds in the handler."),
		remote:      times(obs.RequestRemoteTime, "Milliseconds a request waited for others after its handler."),
		respQueue:   times(obs.ResponseQueueTime, "Milliseconds a response waited for those before it."),
		send:        times(obs.ResponseSendTime, "Milliseconds to hand a response to the network."),
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: obs.ConnectionCount, Help: "Open connections."}, []string{obs.LabelListener}),
		created:     counter(obs.ConnectionsCreated, "Connections accepted.", obs.LabelListener),
		closed:      counter(obs.ConnectionsClosed, "Connections closed.", obs.LabelListener),
		refused:     counter(obs.ConnectionsRefused, "Connections refused for their address's limit.", obs.LabelListener),
		expired:     counter(obs.ConnectionsExpired, "Connections closed because nothing moved on them.", obs.LabelListener),
		malformed:   counter(obs.MalformedRequests, "Connections closed for a request that makes no sense.", obs.LabelListener),
	}
	return m, obs.Register(reg, m.requests, m.errors, m.bytesIn, m.bytesOut,
		m.total, m.queue, m.local, m.remote, m.respQueue, m.send,
		m.connections, m.created, m.closed, m.refused, m.expired, m.malformed,
		gauge(obs.MemoryPoolUsed, "Bytes of request frames held, if they have a bound.", func() int64 { used, _ := m.memory(); return used }),
		gauge(obs.MemoryPoolAvailable, "Bytes left for request frames, if they have a bound.", func() int64 { _, left := m.memory(); return left }))
}

// memory sums what the servers' frames take and leave of their bounds.
func (m *metrics) memory() (used, left int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.budgets {
		u, l := b.use()
		used, left = used+u, left+l
	}
	return used, left
}

// budget adds a server's memory.
func (m *metrics) budget(b *budget) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.budgets = append(m.budgets, b)
}

// listener makes a listener's counters, so that each is there from the start and a first event shows as a rise from 0.
func (m *metrics) listener(name string) {
	m.connections.WithLabelValues(name)
	for _, c := range []*prometheus.CounterVec{m.created, m.closed, m.refused, m.expired, m.malformed} {
		c.WithLabelValues(name)
	}
}

// forAPI returns the metrics of an API.
func (m *metrics) forAPI(row api.Row) *apiMetrics {
	if a, ok := m.byAPI.Load(row.Key); ok {
		return a.(*apiMetrics)
	}
	n := row.Name
	a, _ := m.byAPI.LoadOrStore(row.Key, &apiMetrics{
		name: n, of: m, bytesIn: m.bytesIn.WithLabelValues(n), bytesOut: m.bytesOut.WithLabelValues(n),
		total: m.total.With(n), queue: m.queue.With(n), local: m.local.With(n), remote: m.remote.With(n),
		respQueue: m.respQueue.With(n), send: m.send.With(n),
	})
	return a.(*apiMetrics)
}

// version returns the count of requests at version v, which the caller has
// checked, so that clients can't make up labels.
func (a *apiMetrics) version(v int16) prometheus.Counter {
	if c, ok := a.byVersion.Load(v); ok {
		return c.(prometheus.Counter)
	}
	c := a.of.requests.WithLabelValues(a.name, strconv.Itoa(int(v)))
	a.byVersion.Store(v, c)
	return c
}

// code returns the count of responses with the code.
func (a *apiMetrics) code(code api.Code) prometheus.Counter {
	if c, ok := a.byCode.Load(code); ok {
		return c.(prometheus.Counter)
	}
	c := a.of.errors.WithLabelValues(a.name, code.Name())
	a.byCode.Store(code, c)
	return c
}
