package mirroradm

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Only an ACL that denies everybody everywhere to write to that very topic will do; any that is about the topic counts as one.
func TestTopicACLs(t *testing.T) {
	acl := func(name string, pattern kmsg.ACLResourcePatternType, principal, host string, op kmsg.ACLOperation, permission kmsg.ACLPermissionType) topicACLs {
		x := kmsg.NewDescribeACLsResponseResourceACL()
		x.Principal, x.Host, x.Operation, x.PermissionType = principal, host, op, permission
		r := kmsg.NewDescribeACLsResponseResource()
		r.ResourceType, r.ResourceName, r.ResourcePatternType, r.ACLs = kmsg.ACLResourceTypeTopic, name, pattern, append(r.ACLs, x)
		return topicACLs{r}
	}
	const literal, prefixed = kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed
	const write, read = kmsg.ACLOperationWrite, kmsg.ACLOperationRead
	const deny, allow = kmsg.ACLPermissionTypeDeny, kmsg.ACLPermissionTypeAllow
	for name, c := range map[string]struct {
		acls           topicACLs
		denies, covers bool
	}{
		"none":               {nil, false, false},
		"the one":            {acl("orders", literal, "User:*", "*", write, deny), true, true},
		"another topic":      {acl("other", literal, "User:*", "*", write, deny), false, false},
		"of somebody":        {acl("orders", literal, "User:a", "*", write, deny), false, true},
		"from somewhere":     {acl("orders", literal, "User:*", "10.0.0.1", write, deny), false, true},
		"an allowance":       {acl("orders", literal, "User:*", "*", write, allow), false, true},
		"reading":            {acl("orders", literal, "User:*", "*", read, deny), false, true},
		"a prefix":           {acl("ord", prefixed, "User:*", "*", read, allow), false, true},
		"a name like it":     {acl("ord", literal, "User:*", "*", read, allow), false, false},
		"everything, by '*'": {acl("*", literal, "User:a", "*", read, allow), false, true},
	} {
		if d, k := c.acls.denies("orders"), c.acls.covers("orders"); d != c.denies || k != c.covers {
			t.Errorf("%s: denies %t, covers %t", name, d, k)
		}
	}
}
