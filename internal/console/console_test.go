package console

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func serve(t *testing.T, ready func() error) *Server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "a_gauge"})
	g.Set(7)
	reg.MustRegister(g)
	s := New(Options{Listener: ln, Registry: reg, Ready: ready})
	done := make(chan struct{})
	go func() {
		s.Serve()
		close(done)
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return s
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestPaths(t *testing.T) {
	s := serve(t, func() error { return nil })
	for path, want := range map[string]string{"/metrics": "a_gauge 7", "/healthz": "ok", "/readyz": "ok", "/debug/pprof/": "goroutine"} {
		if code, body := get(t, "http://"+s.Addr()+path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if code, _ := get(t, "http://"+s.Addr()+"/nothing"); code != http.StatusNotFound {
		t.Errorf("an unknown path answers %d", code)
	}
}

// A node that can't serve is alive and not ready, and says why.
func TestNotReady(t *testing.T) {
	s := serve(t, func() error { return errors.New("the controller has not let this broker in") })
	if code, body := get(t, "http://"+s.Addr()+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "the controller has not let") {
		t.Errorf("readyz: %d %q", code, body)
	}
	if code, _ := get(t, "http://"+s.Addr()+"/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
}

// Profiles show memory: only this machine gets them.
func TestProfilesAreLocal(t *testing.T) {
	s := New(Options{Registry: prometheus.NewRegistry(), Ready: func() error { return nil }})
	for addr, want := range map[string]int{"127.0.0.1:5": http.StatusOK, "[::1]:5": http.StatusOK, "192.0.2.7:5": http.StatusForbidden, "": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/cmdline", nil)
		r.RemoteAddr = addr
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %q: %d, want %d", addr, w.Code, want)
		}
	}
}
