package data

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/server"
)

// allocateTimeout bounds the wait for a block of producer ids.
const allocateTimeout = 10 * time.Second

// InitProducerId: API 22, versions 0 to 5.
//
// Behaviour: a new producer id at epoch 0, also for a producer that asks for
// its next epoch (version 3 and later): without a transactional id that is
// what Kafka does too. A transactional id is refused with
// UNSUPPORTED_VERSION, which clients take as final.
func (h *Handlers) InitProducerID(ctx context.Context, r *server.Request) {
	var req kmsg.InitProducerIDRequest
	if !h.decode(r, &req) {
		return
	}
	answer := func(id int64, err error) {
		c, _ := code(err)
		resp := kmsg.InitProducerIDResponse{Version: r.Version, ErrorCode: int16(c), ProducerID: -1, ProducerEpoch: -1}
		if err == nil {
			resp.ProducerID, resp.ProducerEpoch = id, 0
		}
		reply(r, &resp, c)
	}
	switch {
	case req.TransactionalID == nil:
		h.ids.next(answer)
	case *req.TransactionalID == "":
		answer(-1, api.Errorf(api.InvalidRequest, "the transactional id is empty"))
	default:
		err := errTransactional(*req.TransactionalID)
		h.o.Logger.Info("refused a transactional producer", "client", r.ClientID, "error", err)
		answer(-1, err)
	}
}

// producerIDs hands out producer ids of the blocks that the controller gives.
type producerIDs struct {
	allocate func(ctx context.Context) (start int64, n int32, err error)

	mu        sync.Mutex
	from, end int64 // [from, end) is left of the block in use
	spare     int64 // first id of the block after it
	spareEnd  int64 // 0: there is none
	size      int64 // of the last block
	fetching  bool
	waiting   []func(int64, error)
}

// next hands an id to fn, at once or when the controller has given a block.
// The error is COORDINATOR_LOAD_IN_PROGRESS, which clients retry.
func (p *producerIDs) next(fn func(int64, error)) {
	p.mu.Lock()
	id, ok := p.take()
	if !ok {
		p.waiting = append(p.waiting, fn)
	}
	if !p.fetching && p.spareEnd == 0 && (p.end-p.from)*10 <= p.size {
		p.fetching = true
		go p.fetch()
	}
	p.mu.Unlock()
	if ok {
		fn(id, nil)
	}
}

// take takes an id. mu is held.
func (p *producerIDs) take() (int64, bool) {
	if p.from == p.end && p.spareEnd > 0 {
		p.from, p.end, p.spareEnd = p.spare, p.spareEnd, 0
	}
	if p.from == p.end {
		return -1, false
	}
	p.from++
	return p.from - 1, true
}

// fetch gets blocks until nobody waits.
func (p *producerIDs) fetch() {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), allocateTimeout)
		start, n, err := p.allocate(ctx)
		cancel()
		if err == nil && (n <= 0 || start < 0) {
			err = api.Errorf(api.UnknownServerError, "the controller gave %d producer ids from %d", n, start)
		}
		type grant struct {
			fn func(int64, error)
			id int64
		}
		var grants []grant
		p.mu.Lock()
		if err == nil {
			p.spare, p.spareEnd, p.size = start, start+int64(n), int64(n)
		}
		for len(p.waiting) > 0 {
			id, ok := p.take()
			if !ok && err == nil {
				break
			}
			grants = append(grants, grant{p.waiting[0], id})
			p.waiting = p.waiting[1:]
		}
		again := len(p.waiting) > 0
		p.fetching = again
		p.mu.Unlock()
		for _, g := range grants {
			if g.id < 0 {
				g.fn(-1, &api.Error{Code: api.CoordinatorLoadInProgress, Message: "no producer ids from the controller yet", Err: err})
			} else {
				g.fn(g.id, nil)
			}
		}
		if !again {
			return
		}
	}
}
