package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"milena/internal/node/nodetest"
	"milena/internal/peertest"
)

// What a broker that is down has set aside is said to be unknown, not left out, while what the others have is shown.
func TestDescribeSaysWhoCouldNotTell(t *testing.T) {
	src := testCluster(t)
	c := nodetest.Start(t, nodetest.Options{Props: map[string]string{"broker.session.timeout.ms": "600", "broker.heartbeat.interval.ms": "100"}})
	at := func(want ExitCode, args ...string) (string, string) {
		t.Helper()
		code, out, errs := invoke("", append(args, "--bootstrap-server", c.Node(1).Addr())...)
		if code != want {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
		return out, errs
	}
	at(ExitOK, "mirrors", "create", "dr", "--source", src.Addr())
	if out, _ := at(ExitOK, "mirrors", "describe", "--json"); strings.Contains(out, "set_aside_unknown") {
		t.Error(out)
	}
	c.Kill(3)
	peertest.Eventually(t, 10*time.Second, func() error {
		if out, _ := at(ExitOK, "cluster", "describe"); !strings.Contains(out, " fenced") {
			return fmt.Errorf("not noticed: %s", out)
		}
		return nil
	})
	if out, _ := at(ExitOK, "mirrors", "describe", "dr"); !strings.Contains(out, "What broker 3 has set aside isn't known: it is down.\n") {
		t.Error(out)
	}
	out, _ := at(ExitOK, "mirrors", "describe", "--json")
	var got struct {
		Unknown []unaskedJSON `json:"set_aside_unknown"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Unknown) != 1 || *got.Unknown[0].Broker != 3 || got.Unknown[0].Error != "it is down" {
		t.Errorf("%v: %s", err, out)
	}
	if _, errs := at(ExitFailed, "mirrors", "cut", "list"); !strings.Contains(errs, "broker 3: it is down") {
		t.Error(errs)
	}
}
