package mirroradm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errDenyUndone is that the ACLs that deny writes are not there, or were removed again.
var errDenyUndone = errors.New("the source has no ACLs of this switchover")

// denial is the ACLs that deny everybody to write to topics.
func denial(topics []string) *kadm.ACLBuilder {
	return kadm.NewACLs().Topics(topics...).ResourcePatternType(kadm.ACLPatternLiteral).Deny("User:*").DenyHosts("*").Operations(kadm.OpWrite)
}

// denyWrites creates an ACL for each topic that denies everybody to write, and returns when every broker of the cluster has them. Where an
// authorizer lets everybody do everything as long as a topic has no ACL, such an ACL takes reading away as well: then it is removed, since the
// mirror has to read. bare are the topics that had no ACL before.
func denyWrites(ctx context.Context, cl *kgo.Client, topics []string) (bare []string, err error) {
	adm := kadm.NewClient(cl)
	had, err := aclsAt(ctx, cl, kmsg.NewPtrDescribeACLsRequest())
	if err != nil {
		return nil, fmt.Errorf("the ACLs of the source: %w; %w", err, errDenyUndone)
	}
	missing := slices.DeleteFunc(slices.Clone(topics), had.denies)
	bare = slices.DeleteFunc(slices.Clone(topics), had.covers)
	if len(missing) > 0 {
		rs, err := adm.CreateACLs(ctx, denial(missing))
		for _, r := range rs {
			if r.Err != nil {
				err = errors.Join(err, fmt.Errorf("topic %s: %w", r.Name, r.Err))
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("creating ACLs on the source that deny writes: %w", err), undeny(ctx, adm, missing))
		}
	}
	if err := awaitDenied(ctx, cl, topics); err != nil {
		return nil, err
	}
	if err := stillReadable(ctx, cl, topics); err != nil {
		return nil, errors.Join(err, undeny(ctx, adm, missing))
	}
	return bare, nil
}

// stillReadable fails if topics can't be fetched from, as the mirror does.
func stillReadable(ctx context.Context, cl *kgo.Client, topics []string) error {
	all, err := kadm.NewClient(cl).Metadata(ctx, topics...)
	if err != nil {
		return fmt.Errorf("whether the mirror can read the topics with the ACLs could not be found out: %w", err)
	}
	denied := (&surveyor{src: cl}).readable(ctx, all, topics)
	for _, t := range topics {
		why := denied[t]
		if x := all.Topics[t]; x.Err != nil {
			why = x.Err.Error()
		}
		if why != "" {
			return fmt.Errorf("with an ACL on topic %s the mirror can't read it (%s): the source allows everything where there is no ACL (allow.everyone.if.no.acl.found), and "+
				"nothing else where there is one. First allow the mirror's principal READ, DESCRIBE and DESCRIBE_CONFIGS on the topics, and other readers theirs", t, why)
		}
	}
	return nil
}

// undeny removes the ACLs again; the error is errDenyUndone, or says what is left.
func undeny(ctx context.Context, adm *kadm.Client, topics []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if len(topics) == 0 {
		return nil // they were there before
	}
	rs, err := adm.DeleteACLs(ctx, denial(topics))
	for _, r := range rs {
		err = errors.Join(err, r.Err)
		for _, x := range r.Deleted {
			err = errors.Join(err, x.Err)
		}
	}
	if err != nil {
		return fmt.Errorf("removing the ACLs again: %w", err)
	}
	return errDenyUndone
}

// topicACLs are the ACLs on topics that a broker knows.
type topicACLs []kmsg.DescribeACLsResponseResource

// aclsAt asks a broker, or any.
func aclsAt(ctx context.Context, at requests, req *kmsg.DescribeACLsRequest) (topicACLs, error) {
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeAny
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	resp, err := at.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	r, ok := resp.(*kmsg.DescribeACLsResponse)
	if !ok {
		return nil, fmt.Errorf("the answer to DescribeAcls is a %T", resp)
	}
	return r.Resources, kerr.ErrorForCode(r.ErrorCode)
}

// denies says whether there is the ACL that denies everybody to write to a topic.
func (a topicACLs) denies(topic string) bool {
	return slices.ContainsFunc(a, func(r kmsg.DescribeACLsResponseResource) bool {
		return r.ResourceName == topic && r.ResourcePatternType == kmsg.ACLResourcePatternTypeLiteral &&
			slices.ContainsFunc(r.ACLs, func(x kmsg.DescribeACLsResponseResourceACL) bool {
				return x.Principal == "User:*" && x.Host == "*" && x.Operation == kmsg.ACLOperationWrite && x.PermissionType == kmsg.ACLPermissionTypeDeny
			})
	})
}

// covers says whether any ACL is about a topic.
func (a topicACLs) covers(topic string) bool {
	return slices.ContainsFunc(a, func(r kmsg.DescribeACLsResponseResource) bool {
		return r.ResourceName == topic || r.ResourceName == "*" || r.ResourcePatternType == kmsg.ACLResourcePatternTypePrefixed && strings.HasPrefix(topic, r.ResourceName)
	})
}

// awaitDenied waits until each broker knows the ACLs: they are followed from the controller.
func awaitDenied(ctx context.Context, cl *kgo.Client, topics []string) error {
	m, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	if err != nil {
		return fmt.Errorf("the brokers of the source: %w", err)
	}
	for _, b := range m.Brokers {
		for {
			acls, err := aclsAt(ctx, cl.Broker(int(b.NodeID)), kmsg.NewPtrDescribeACLsRequest())
			if err == nil && !slices.ContainsFunc(topics, func(t string) bool { return !acls.denies(t) }) {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("broker %d of the source does not show the ACLs: %w", b.NodeID, errors.Join(err, context.Cause(ctx)))
			}
		}
	}
	return nil
}
