package sim

import (
	"context"
	"slices"
	"time"

	"milena/internal/ids"
	"milena/internal/quorum"
)

// changeVoters adds a controller to the voters of the quorum or takes one of them out, if one leads.
func (f *faults) changeVoters() {
	c := f.c
	i := slices.IndexFunc(c.hosts[:c.controllers], func(h *host) bool { return h.up && h.ctl != nil && h.ctl.active })
	if i < 0 {
		return
	}
	k := c.hosts[i].ctl
	v := voterOf(c.rnd.IntN(c.controllers))
	ctx, cancel := context.WithCancel(context.Background())
	change, what := func() (<-chan error, error) { return k.m.AddVoter(ctx, v) }, "add"
	if voters := k.q.Voters(); slices.Contains(voters, v.Member) {
		if len(voters) <= 2 {
			cancel()
			return
		}
		change, what = func() (<-chan error, error) { return k.m.RemoveVoter(ctx, v.Member) }, "remove"
	}
	c.logf("%s voter %d", what, v.ID)
	answer, err := change()
	if err != nil {
		c.logf("%s voter %d: %v", what, v.ID, err)
		cancel()
		return
	}
	k.asked = append(k.asked, confirmation{answer, func(err error) { c.logf("%s voter %d: %v", what, v.ID, err) }})
	c.after(3*time.Second, cancel)
}

func voterOf(id int) quorum.Voter {
	return quorum.Voter{Member: quorum.Member{ID: int32(id), Directory: ids.UUID{0: 9, 15: byte(id + 1)}}}
}
