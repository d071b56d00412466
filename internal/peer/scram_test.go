package peer

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	fscram "github.com/twmb/franz-go/pkg/sasl/scram"
	"github.com/xdg-go/scram"

	"milena/internal/api"
	"milena/internal/server"
)

// SCRAM takes several rounds, and both sides prove that they know the password.
func TestSASLScram(t *testing.T) {
	client, err := scram.SHA256.NewClient("alice", "secret", "")
	if err != nil {
		t.Fatal(err)
	}
	stored, err := client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: "salt", Iters: 4096})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := scram.SHA256.NewServer(func(string) (scram.StoredCredentials, error) { return stored, nil })
	if err != nil {
		t.Fatal(err)
	}
	conv := srv.NewConversation()
	n := startNode(t, server.Table{
		api.Heartbeat: echo,
		api.SASLHandshake: func(_ context.Context, r *server.Request) {
			r.Reply(server.Response{Msg: kmsg.NewPtrSASLHandshakeResponse()})
		},
		api.SASLAuthenticate: func(_ context.Context, r *server.Request) {
			var req kmsg.SASLAuthenticateRequest
			if err := r.Decode(&req); err != nil {
				t.Error(err)
			}
			resp := kmsg.NewPtrSASLAuthenticateResponse()
			out, err := conv.Step(string(req.SASLAuthBytes))
			if err != nil {
				resp.ErrorCode = int16(api.SaslAuthenticationFailed)
			}
			resp.SASLAuthBytes = []byte(out)
			r.Reply(server.Response{Msg: resp})
		},
	}, nil)
	o := n.options()
	o.SASL = fscram.Auth{User: "alice", Pass: "secret"}.AsSha256Mechanism()
	c := connect(t, o)
	if _, err := c.Call(t.Context(), heartbeatOf("m")); err != nil || !conv.Valid() {
		t.Errorf("call after SCRAM: %v, conversation valid %v", err, conv.Valid())
	}
	conv = srv.NewConversation()
	o.SASL = fscram.Auth{User: "alice", Pass: "wrong"}.AsSha256Mechanism()
	_, err = Dial(t.Context(), o)
	if code, _ := api.CodeOf(err); code != api.SaslAuthenticationFailed {
		t.Errorf("wrong password: %v", err)
	}
}
