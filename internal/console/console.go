// Package console serves what an operator's tools ask over HTTP: metrics, health, readiness, and on loopback the profiler.
package console

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options configure a Server. Listener, Registry and Ready are required.
type Options struct {
	Listener net.Listener
	Registry *prometheus.Registry
	// Ready is nil when the node can serve clients, else says what is missing.
	Ready func() error
	// Degraded says what isn't as it should be though clients are served, a line each. Nil: nothing ever is.
	Degraded func() []string
	Logger   *slog.Logger
}

// Server answers /metrics, /healthz, /readyz, and /debug/pprof to callers on this machine.
type Server struct {
	o    Options
	http *http.Server
}

// New returns a Server; Serve runs it.
func New(o Options) *Server {
	mux := http.NewServeMux()
	s := &Server{o: o, http: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}}
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Ready(); err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		text := "ok"
		if o.Degraded != nil {
			for _, line := range o.Degraded() {
				text += "\ndegraded: " + line
			}
		}
		answer(w, http.StatusOK, text)
	})
	mux.HandleFunc("/debug/pprof/", local(pprof.Index))
	mux.HandleFunc("/debug/pprof/cmdline", local(pprof.Cmdline))
	mux.HandleFunc("/debug/pprof/profile", local(pprof.Profile))
	mux.HandleFunc("/debug/pprof/symbol", local(pprof.Symbol))
	mux.HandleFunc("/debug/pprof/trace", local(pprof.Trace))
	return s
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // a caller that hung up needs no answer
}

// local lets only callers on this machine through: profiles show memory.
func local(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			answer(w, http.StatusForbidden, "profiles are given to this machine only")
			return
		}
		h(w, r)
	}
}

// Serve answers until Close.
func (s *Server) Serve() {
	if err := s.http.Serve(s.o.Listener); err != nil && !errors.Is(err, http.ErrServerClosed) && s.o.Logger != nil {
		s.o.Logger.Error("the HTTP listener failed", "error", err)
	}
}

// Addr is the address that is listened on.
func (s *Server) Addr() string { return s.o.Listener.Addr().String() }

// Close closes the listener and every connection.
func (s *Server) Close() { _ = s.http.Close() }
