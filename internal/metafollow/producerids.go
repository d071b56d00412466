package metafollow

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AllocateProducerIDs gets a block of n producer ids, the first of which is start, that
// the cluster never hands out again (KIP-730). epoch is the broker's, from [Session.Epoch].
func AllocateProducerIDs(ctx context.Context, controller Caller, broker int32, epoch int64) (start int64, n int32, err error) {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = broker, epoch
	r, err := controller.Call(ctx, req)
	if err != nil {
		return 0, 0, err
	}
	resp, ok := r.(*kmsg.AllocateProducerIDsResponse)
	if !ok {
		return 0, 0, fmt.Errorf("the controller answered AllocateProducerIds with %T", r)
	}
	if err := codeError(resp.ErrorCode); err != nil {
		return 0, 0, err
	}
	return resp.ProducerIDStart, resp.ProducerIDLen, nil
}
