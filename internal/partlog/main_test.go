package partlog

import (
	"flag"
	"os"
	"testing"
)

// TestMain makes the model tests shorter under the race detector, which slows
// them down tenfold. -rapid.checks on the command line wins.
func TestMain(m *testing.M) {
	if raceDetector {
		if err := flag.Set("rapid.checks", "20"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
