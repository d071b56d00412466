package cluster

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/controller"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/wire"
)

// request is a request of a client as it stands in an envelope.
func request(key api.Key, version int16, body []byte) []byte {
	row, _ := api.Lookup(key)
	client := "c"
	return append(wire.AppendRequestHeader(nil, int16(key), version, 77, &client, row.IsFlexible(version)), body...)
}

func TestEnvelopesAreChecked(t *testing.T) {
	n := startNode(t, newMem(), nil)
	create := kmsg.NewPtrCreateTopicsRequest()
	create.SetVersion(7)
	good := request(api.CreateTopics, 7, create.AppendTo(nil))
	user := appendPrincipal(nil, "User:alice")
	for _, tt := range []struct {
		name      string
		data      []byte
		principal []byte
		want      api.Code
	}{
		{"a good one", good, user, api.NoError},
		{"nothing", nil, user, api.InvalidRequest},
		{"a header cut short", good[:5], user, api.InvalidRequest},
		{"a body cut short", good[:len(good)-3], user, api.InvalidRequest},
		{"an API that isn't forwarded", request(api.Metadata, 12, nil), user, api.InvalidRequest},
		{"an envelope", request(api.Envelope, 0, nil), user, api.InvalidRequest},
		{"an unknown API", request(9999, 0, nil), user, api.InvalidRequest},
		{"a version that isn't served", request(api.CreateTopics, 99, nil), user, api.UnsupportedVersion},
		{"no principal", good, nil, api.PrincipalDeserializationFailure},
		{"a newer principal", good, []byte{0, 1, 5, 'U', 's', 'e', 'r'}, api.PrincipalDeserializationFailure},
		{"a principal cut short", good, user[:6], api.PrincipalDeserializationFailure},
	} {
		env := kmsg.NewPtrEnvelopeRequest()
		env.RequestData, env.RequestPrincipal = tt.data, tt.principal
		got := n.ctl.unwrap(t.Context(), env)
		if got.ErrorCode != int16(tt.want) {
			t.Errorf("%s: code %v, want %v", tt.name, api.Code(got.ErrorCode), tt.want)
		}
		if tt.want == api.NoError {
			id, _, err := wire.ParseResponseHeader(got.ResponseData, api.CreateTopics, true)
			if id != 77 || err != nil {
				t.Errorf("%s: the response's correlation id is %d, %v", tt.name, id, err)
			}
		}
	}
}

func TestPrincipals(t *testing.T) {
	for _, p := range []string{"User:ANONYMOUS", "User:CN=a:b", "Other:"} {
		if got, err := parsePrincipal(appendPrincipal(nil, p)); got != p || err != nil {
			t.Errorf("%s became %s, %v", p, got, err)
		}
	}
	// What Kafka's DefaultKafkaPrincipalBuilder writes for User:alice.
	want := []byte{0, 0, 5, 'U', 's', 'e', 'r', 6, 'a', 'l', 'i', 'c', 'e', 0, 0}
	if got := appendPrincipal(nil, "User:alice"); string(got) != string(want) {
		t.Errorf("% x, want % x", got, want)
	}
}

func TestOnlyTheActiveControllerDecides(t *testing.T) {
	s := controller.NewService(controller.ServiceOptions{State: controller.Options{ClusterID: testCluster}})
	_, err := s.Do(t.Context(), func(*controller.State, time.Time) machine.Result { return machine.Result{} })
	if code, _ := api.CodeOf(err); code != api.NotController || s.Active() {
		t.Errorf("before it leads: %v", err)
	}
	c := NewController(ControllerOptions{ClusterID: testCluster, Service: s})
	env := kmsg.NewPtrEnvelopeRequest()
	env.RequestData, env.RequestPrincipal = request(api.CreateTopics, 7, nil), appendPrincipal(nil, "User:a")
	if got := c.unwrap(t.Context(), env); got.ErrorCode != int16(api.NotController) {
		t.Errorf("an envelope is answered %v", api.Code(got.ErrorCode))
	}
}

// A client's change may be refused by a guard; the cluster's own, which comes directly, is not.
func TestGuardsAreForClients(t *testing.T) {
	n := startNodeWith(t, newMem(), nil, func(o *controller.Options) {
		o.Guards = []controller.Guard{func(_ *meta.Image, op controller.Op) *api.Error {
			return api.Errorf(api.PolicyViolation, "topic %s belongs to a mirror", op.Topic.Name)
		}}
	})
	if got := n.create(t, creatable("m", 1)); got.ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	tp := kmsg.NewCreatePartitionsRequestTopic()
	tp.Topic, tp.Count = "m", 2
	req.Topics = append(req.Topics, tp)
	r, err := n.broker.CallController(t.Context(), req, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.(*kmsg.CreatePartitionsResponse).Topics[0]; got.ErrorCode != int16(api.PolicyViolation) || got.ErrorMessage == nil || *got.ErrorMessage != "topic m belongs to a mirror" {
		t.Errorf("for a client: %+v", got)
	}
	// It doesn't help to send it to the controller's own listener.
	direct := n.ctl.apis[api.CreatePartitions](t.Context(), &ControllerRequest{Key: api.CreatePartitions, Version: 3, Body: req.AppendTo(nil)})
	if got := direct.(*kmsg.CreatePartitionsResponse).Topics[0]; got.ErrorCode != int16(api.PolicyViolation) {
		t.Errorf("for a client, directly: %+v", got)
	}
	r, err = loop{n.ctl}.Call(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.(*kmsg.CreatePartitionsResponse).Topics[0]; got.ErrorCode != 0 {
		t.Errorf("for the cluster itself: %+v", got)
	}
}

func FuzzEnvelope(f *testing.F) {
	for _, row := range api.Table() {
		if row.Forward {
			if req := kmsg.RequestForKey(int16(row.Key)); req != nil {
				req.SetVersion(row.KafkaMax())
				f.Add(request(row.Key, row.KafkaMax(), req.AppendTo(nil)), appendPrincipal(nil, "User:a"))
			}
		}
	}
	s := controller.NewService(controller.ServiceOptions{State: controller.Options{ClusterID: testCluster}})
	c := NewController(ControllerOptions{ClusterID: testCluster, Service: s})
	f.Fuzz(func(t *testing.T, data, principal []byte) {
		env := kmsg.NewPtrEnvelopeRequest()
		env.RequestData, env.RequestPrincipal = data, principal
		c.unwrap(t.Context(), env)
		if h, body, err := wire.ParseRequestHeader(data, api.Milena); err == nil {
			if f, ok := c.apis[h.Key]; ok && h.Key != api.Fetch && h.Key != api.FetchSnapshot && h.Key != api.DescribeCluster && h.Row.Serves(h.Version) {
				f(t.Context(), &ControllerRequest{Key: h.Key, Version: h.Version, Body: body})
			}
		}
	})
}
