package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"milena/internal/peertest"
)

// switchoverACL switches over from an Apache Kafka with an authorizer, which has no fence: its producers are kept out by ACLs, with --deny-acl.
type switchoverACL struct {
	*part
	src, dst *peertest.Broker
	adm      *kadm.Client // of the source
}

const deniedTopic = "denied"

func runSwitchoverACL(ctx context.Context, p *part) error {
	m := &switchoverACL{part: p}
	return p.steps(ctx,
		step{"start Kafka with an authorizer, and a node that mirrors it", m.start},
		step{"an ACL that takes reading away is taken back", m.withoutACLs},
		step{"an ACL that denies writes", m.deny},
		step{"and again, with the ACL there already", m.again},
	)
}

func (m *switchoverACL) start(ctx context.Context) (err error) {
	m.src, err = peertest.NewKafka(ctx, peertest.KafkaOptions{Tools: m.kafka, Dir: filepath.Join(m.dir, "source"), Properties: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "allow.everyone.if.no.acl.found": "true",
		"auto.create.topics.enable": "false",
	}})
	if err != nil {
		return err
	}
	m.addBroker(m.src)
	if err := m.src.Start(ctx); err != nil {
		return err
	}
	if m.dst, err = m.newMilena("standby", "", nil); err != nil {
		return err
	}
	m.addBroker(m.dst)
	if err := m.dst.Start(ctx); err != nil {
		return err
	}
	if m.adm, err = m.admin(m.src.Addr); err != nil {
		return err
	}
	if _, err := m.adm.CreateTopic(ctx, 1, 1, nil, deniedTopic); err != nil {
		return err
	}
	if err := produceEach(ctx, m.src.Addr, deniedTopic, 1, 10); err != nil {
		return err
	}
	if _, err := m.run(ctx, m.dst.Addr, "mirrors", "create", "dr", "--source", m.src.Addr, "--topics", deniedTopic); err != nil {
		return err
	}
	return m.awaitLevel(ctx)
}

func (m *switchoverACL) awaitLevel(ctx context.Context) error {
	return peertest.WaitFor(ctx, time.Minute, "the mirror is level", func(ctx context.Context) error {
		ms, err := m.mirrors(ctx, m.dst.Addr, "dr")
		if err != nil {
			return err
		}
		if ps := ms[0].Partitions; len(ps) != 1 || ps[0].State != "MIRRORING" || ps[0].Lag == nil || *ps[0].Lag != 0 {
			return fmt.Errorf("%+v", ms)
		}
		return nil
	})
}

func (m *switchoverACL) switchover(ctx context.Context) (string, error) {
	return m.run(ctx, m.dst.Addr, "mirrors", "switchover", "dr", "--yes", "--deny-acl", "--quiet", "1s")
}

// write is what a producer of nobody's is told.
func (m *switchoverACL) write(ctx context.Context, bootstrap string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(deniedTopic))
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr()
}

// withoutACLs is a source that lets everybody do everything where there is no ACL: one that denies writes would end reading, and with it the
// mirror.
func (m *switchoverACL) withoutACLs(ctx context.Context) error {
	_, err := m.switchover(ctx)
	if err == nil || !strings.Contains(err.Error(), "allow.everyone.if.no.acl.found") {
		return fmt.Errorf("a switchover by ACLs alone: %w", err)
	}
	acls, err := m.adm.DescribeACLs(ctx, kadm.NewACLs().Topics().ResourcePatternType(kadm.ACLPatternAny).Allow().AllowHosts().Deny().DenyHosts().Operations())
	if err != nil {
		return err
	}
	for _, r := range acls {
		if len(r.Described) > 0 {
			return fmt.Errorf("an ACL is left: %+v", r.Described)
		}
	}
	return errors.Join(m.write(ctx, m.src.Addr), m.awaitLevel(ctx))
}

func (m *switchoverACL) deny(ctx context.Context) error {
	rs, err := m.adm.CreateACLs(ctx, kadm.NewACLs().Topics("*").ResourcePatternType(kadm.ACLPatternLiteral).Allow("User:ANONYMOUS").AllowHosts("*").Operations(kadm.OpAll))
	for _, r := range rs {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(m.write(ctx, m.src.Addr), m.awaitLevel(ctx)); err != nil {
		return err
	}
	out, err := m.switchover(ctx)
	if err != nil {
		return err
	}
	for _, want := range []string{`(?m)^quiet .*ACLs on the source deny everybody to write to 1 topic, .*not bound by them are its super users`, `Records lost: 0\.`,
		`(?m)^The source denies everybody to write to denied, by ACLs: remove them with kafka-acls there to go back\.$`} {
		if !regexp.MustCompile(want).MatchString(out) {
			return fmt.Errorf("no %s in %s", want, out)
		}
	}
	if err := m.write(ctx, m.src.Addr); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		return fmt.Errorf("a write to the source: %w", err)
	}
	listed, err := m.adm.ListEndOffsets(ctx, deniedTopic) // reading goes on
	if err == nil {
		err = listed.Error()
	}
	return errors.Join(err, m.write(ctx, m.dst.Addr))
}

// again goes back, and switches over a second time.
func (m *switchoverACL) again(ctx context.Context) error {
	if _, err := m.run(ctx, m.dst.Addr, "mirrors", "start", "dr", "--topics", deniedTopic); err != nil {
		return err
	}
	if err := m.awaitLevel(ctx); err != nil {
		return err
	}
	out, err := m.switchover(ctx)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "Records lost: 0.") {
		return fmt.Errorf("the second switchover: %s", out)
	}
	return m.write(ctx, m.dst.Addr)
}
