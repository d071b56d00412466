package node_test

import (
	"fmt"
	"testing"
	"time"

	"milena/internal/meta"
	"milena/internal/node/nodetest"
)

// Every controller of a quorum is registered with where it is and what it supports, again after a restart.
func TestControllersRegister(t *testing.T) {
	c := nodetest.Start(t, nodetest.Options{})
	registered := func() map[int32]string {
		out := map[int32]string{}
		nodetest.Eventually(t, 10*time.Second, func() error {
			img := c.Node(1).Image()
			for _, id := range c.IDs() {
				r := img.Controller(id)
				if r == nil || len(r.Endpoints) == 0 || r.Endpoints[0].Port == 0 {
					return fmt.Errorf("controller %d is %+v", id, r)
				}
				supports := false
				for _, f := range r.Features {
					supports = supports || f.Name == meta.MetadataVersionFeature && f.Max == img.Feature(f.Name)
				}
				if !supports {
					return fmt.Errorf("controller %d supports %+v", id, r.Features)
				}
				out[id] = r.IncarnationID.String()
			}
			return nil
		})
		return out
	}
	before := registered()
	c.Kill(3)
	c.StartNodes(3)
	nodetest.Eventually(t, 10*time.Second, func() error {
		if after := registered(); after[3] == before[3] || after[1] != before[1] {
			return fmt.Errorf("before the restart of 3 %v, after it %v", before, after)
		}
		return nil
	})
}
