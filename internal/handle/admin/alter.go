package admin

import (
	"context"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/server"
)

// change is one change of a config, as both alter APIs ask for it.
type change struct {
	key   string
	op    kmsg.IncrementalAlterConfigOp
	value *string
}

// check checks the changes of a resource as far as a broker can: what they say by themselves, and for brokers what would
// change on this one. The controller checks again, with the state that counts.
func (h *Configs) check(res resource, changes []change) error {
	if err := h.checkResource(res); err != nil {
		return err
	}
	if err := checkShape(changes); err != nil {
		return err
	}
	for _, c := range changes {
		switch c.op {
		case kmsg.IncrementalAlterConfigOpSet:
			if err := config.Validate(res.kind, res.name, config.Canonical(res.kind, c.key), *c.value); err != nil {
				return err
			}
			if err := h.o.Node().ValidateStep(res.kind, c.key, *c.value); err != nil {
				return err
			}
		case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
			if d, ok := config.Lookup(res.kind, c.key); ok && d.Type != config.List {
				return api.Errorf(api.InvalidConfig, "Can't %s to key %s because its type is not LIST.", strings.ToUpper(opName(c.op)), c.key)
			}
		case kmsg.IncrementalAlterConfigOpDelete:
		}
	}
	return nil
}

func (h *Configs) checkResource(res resource) error {
	switch res.kind {
	case config.ResourceClientMetrics, config.ResourceClusterMirror:
		return nil
	case config.ResourceTopic:
		if res.name == "" {
			return api.Errorf(api.InvalidRequest, "Default topic resources are not allowed.")
		}
		return nil
	case config.ResourceGroup:
		if res.name == "" {
			return api.Errorf(api.InvalidRequest, "Default group resources are not allowed.")
		}
		return nil
	case config.ResourceBroker:
		if res.name == "" {
			return nil
		}
		return here("Node", h.o.Node().ID, res.name)
	}
	return api.Errorf(api.InvalidRequest, "Unknown resource type %d", res.kind)
}

// checkShape checks that values are there, keys don't repeat and operations are known.
func checkShape(changes []change) error {
	var nulls []string
	seen := map[string]bool{}
	for _, c := range changes {
		if seen[c.key] {
			return api.Errorf(api.InvalidRequest, "Error due to duplicate config keys: %s", c.key)
		}
		seen[c.key] = true
		if c.op < kmsg.IncrementalAlterConfigOpSet || c.op > kmsg.IncrementalAlterConfigOpSubtract {
			return api.Errorf(api.InvalidRequest, "Unknown operation type %d", c.op)
		}
		if c.value == nil && c.op != kmsg.IncrementalAlterConfigOpDelete {
			nulls = append(nulls, c.key)
		}
	}
	if len(nulls) > 0 {
		return api.Errorf(api.InvalidRequest, "Null value not supported for : %s", strings.Join(nulls, ","))
	}
	return nil
}

func opName(op kmsg.IncrementalAlterConfigOp) string {
	switch op {
	case kmsg.IncrementalAlterConfigOpDelete:
		return "delete"
	case kmsg.IncrementalAlterConfigOpAppend:
		return "append"
	case kmsg.IncrementalAlterConfigOpSubtract:
		return "subtract"
	case kmsg.IncrementalAlterConfigOpSet:
		return "set"
	}
	return strconv.Itoa(int(op))
}

// twice is the resources that are in a request more than once.
func twice(all []resource) map[resource]bool {
	count := map[resource]int{}
	out := map[resource]bool{}
	for _, r := range all {
		if count[r]++; count[r] > 1 {
			out[r] = true
		}
	}
	return out
}

// outcome is the answer for one resource, whoever gave it.
type outcome struct {
	code    int16
	message *string
	decided bool // false: the controller has to say
}

func decided(err error) outcome {
	o := outcome{decided: true}
	o.code, o.message = codes(err)
	return o
}

// ask sends msg, which holds what isn't decided, to the controller, off the connection's goroutine, and has answer called with
// what came back.
func (h *Configs) ask(ctx context.Context, r *server.Request, msg kmsg.Request, answer func(kmsg.Response, error)) {
	go func() {
		resp, err := h.o.Forward(ctx, r, msg)
		if err != nil {
			h.o.Logger.Warn("the controller didn't answer a config change", "client", r.ClientID, "error", err)
			if code, _ := api.CodeOf(err); code == api.RequestTimedOut {
				err = &api.Error{Code: api.RequestTimedOut, Message: "the controller did not answer: whether the configs were changed is not known; describe them, and see the controller's log", Err: err}
			}
		}
		answer(resp, err)
	}()
}

// alteration is a request under way: what was decided for each of its resources, here or by the controller.
type alteration struct {
	all        []resource
	outcomes   []outcome
	controller map[resource]outcome
}

// told notes what the controller answered for a resource.
func (a *alteration) told(kind int8, name string, code int16, message *string) {
	if a.controller == nil {
		a.controller = map[resource]outcome{}
	}
	a.controller[resource{kind, name}] = outcome{code, message, true}
}

// end fills the outcomes that weren't decided here with the controller's, by resource, or the error that it was asked with. It
// returns all, and the first code for the metrics.
func (a *alteration) end(err error) ([]outcome, api.Code) {
	codes := make([]int16, len(a.outcomes))
	for i, res := range a.all {
		switch o, ok := a.controller[res]; {
		case a.outcomes[i].decided:
		case err != nil:
			a.outcomes[i] = decided(err)
		case ok:
			a.outcomes[i] = o
		default:
			a.outcomes[i] = decided(api.Errorf(api.UnknownServerError, "the controller didn't answer for %s %q", config.ResourceName(res.kind), res.name))
		}
		codes[i] = a.outcomes[i].code
	}
	return a.outcomes, firstCode(codes)
}
