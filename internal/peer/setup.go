package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// softwareVersion goes with api.SoftwareName in ApiVersions.
const softwareVersion = "1"

// negotiate asks what the other side serves; the caller has the turn. One that
// doesn't know the version asked for answers in version 0 and says which it
// knows (KIP-511); a broker older than that says nothing, and gets version 0.
func (c *Conn) negotiate(ctx context.Context) error {
	req := kmsg.NewApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = api.SoftwareName, softwareVersion
	version := req.MaxVersion()
	for {
		req.SetVersion(version)
		body, err := c.exchange(ctx, &req)
		if err != nil {
			return err
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.SetVersion(version)
		old := len(body) >= 2 && api.Code(binary.BigEndian.Uint16(body)) == api.UnsupportedVersion
		if old {
			resp.SetVersion(0)
		}
		if err := resp.ReadFrom(body); err != nil {
			return fmt.Errorf("malformed response: %w", err)
		}
		if old && version > 0 {
			version = fallbackVersion(resp, version)
			continue
		}
		if resp.ErrorCode != 0 {
			return &api.Error{Code: api.Code(resp.ErrorCode)}
		}
		c.versions = make(map[int16]VersionRange, len(resp.ApiKeys))
		for _, k := range resp.ApiKeys {
			c.versions[k.ApiKey] = VersionRange{Min: k.MinVersion, Max: k.MaxVersion}
		}
		c.points = c.o.CodePoints
		for key := range c.versions {
			if api.Key(key).IsMirror() {
				c.points = api.Milena
			}
		}
		return nil
	}
}

// fallbackVersion picks a version below tried from a response that refused it.
func fallbackVersion(resp *kmsg.ApiVersionsResponse, tried int16) int16 {
	for _, k := range resp.ApiKeys {
		if api.Key(k.ApiKey) == api.ApiVersions && k.MaxVersion >= 0 && k.MaxVersion < tried {
			return k.MaxVersion
		}
	}
	return 0
}

// exchange sends a request whose version is set and returns the response's
// body; the caller has the turn and keeps it meanwhile.
func (c *Conn) exchange(ctx context.Context, req kmsg.Request) ([]byte, error) {
	call, err := c.send(ctx, req.Key(), req.GetVersion(), req.IsFlexible(), false, req.AppendTo)
	if err != nil {
		return nil, err
	}
	body, _, err := c.await(ctx, call)
	return body, err
}

// exchangeMessage is exchange with a decoded response, at the newest version both sides
// know.
func (c *Conn) exchangeMessage(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	version, err := c.MaxVersion(req.Key(), 0, req.MaxVersion())
	if err != nil {
		return nil, err
	}
	req.SetVersion(version)
	body, err := c.exchange(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("malformed response: %w", err)
	}
	return resp, nil
}

// errNoFrames says that the other side only speaks SASL without frames, which
// Kafka 1.0 and newer don't need.
var errNoFrames = errors.New("it does not serve SaslHandshake version 1 and SaslAuthenticate")

// authenticate runs SASL; the caller has the turn.
func (c *Conn) authenticate(ctx context.Context) error {
	if r, ok := c.versions[int16(api.SASLHandshake)]; !ok || r.Max < 1 {
		return errNoFrames
	}
	hs := kmsg.NewSASLHandshakeRequest()
	hs.Mechanism = c.o.SASL.Name()
	resp, err := c.exchangeMessage(ctx, &hs)
	if err != nil {
		return err
	}
	hr := resp.(*kmsg.SASLHandshakeResponse)
	if code := api.Code(hr.ErrorCode); code != api.NoError {
		return api.Errorf(code, "%s; the other side offers %q", code.Message(), hr.SupportedMechanisms)
	}
	session, msg, err := c.o.SASL.Authenticate(ctx, c.host())
	if err != nil {
		return err
	}
	var lifetime time.Duration
	for done := false; !done || len(msg) > 0; {
		req := kmsg.NewSASLAuthenticateRequest()
		req.SASLAuthBytes = msg
		resp, err := c.exchangeMessage(ctx, &req)
		if err != nil {
			return err
		}
		ar := resp.(*kmsg.SASLAuthenticateResponse)
		if code := api.Code(ar.ErrorCode); code != api.NoError {
			text := code.Message()
			if ar.ErrorMessage != nil && *ar.ErrorMessage != "" {
				text = *ar.ErrorMessage
			}
			return &api.Error{Code: code, Message: text}
		}
		lifetime = time.Duration(ar.SessionLifetimeMillis) * time.Millisecond
		if done {
			break
		}
		if done, msg, err = session.Challenge(ar.SASLAuthBytes); err != nil {
			return err
		}
	}
	c.reauth = time.Time{}
	if lifetime > 0 {
		// Kafka's clients take between 85 and 95 percent as well.
		c.reauth = time.Now().Add(lifetime / 10 * 9)
	}
	return nil
}

// host returns the host part of the address, for the mechanism.
func (c *Conn) host() string {
	host, _, err := net.SplitHostPort(c.o.Addr)
	if err != nil {
		return c.o.Addr
	}
	return host
}

// keepAuthenticated authenticates again when the session is about to end; the
// caller has the turn. A failure ends the connection.
func (c *Conn) keepAuthenticated(ctx context.Context) error {
	if c.reauth.IsZero() || time.Now().Before(c.reauth) {
		return nil
	}
	// A caller in a hurry must not leave the exchange half done for the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.RequestTimeout)
	defer cancel()
	if err := c.authenticate(ctx); err != nil {
		err = fmt.Errorf("SASL %s again: %w", c.o.SASL.Name(), err)
		c.fail(err)
		return err
	}
	return nil
}
