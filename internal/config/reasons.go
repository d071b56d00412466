package config

import (
	"slices"
	"strings"
)

// Why a key is refused, and what to do instead. Each ends a sentence that names the key and the value.
const (
	whyTls          = "TLS isn't served by this release: leave it out, use PLAINTEXT listeners and keep them in a trusted network"
	whySasl         = "SASL isn't served by this release: leave it out, use PLAINTEXT listeners and keep them in a trusted network"
	whyAcl          = "there is no authorization in this release, everyone who reaches a listener may do everything: leave it out and keep listeners in a trusted network"
	whyQuota        = "there are no client quotas in this release: leave it out"
	whyPlugin       = "Java classes can't be loaded: leave it out"
	whyPrincipal    = "Java classes can't be loaded: leave it out, every client is User:ANONYMOUS"
	whyReporters    = "Java classes can't be loaded: leave it out and read /metrics of milena.http.listen"
	whyProvider     = "Java classes can't be loaded, so ${...} would be taken as it stands: leave it out and write values into the file"
	whyTier         = "there is no tiered storage: leave it out and give log.dirs the space that retention needs"
	whyCordon       = "directories can't be cordoned in this release: leave it out"
	whyRate         = "connections aren't slowed down in this release: leave it out, or use max.connections"
	whyProtocols    = "only the classic group protocol is served by this release: classic must be in the list"
	whyOffsetscodec = "coordinators write uncompressed batches: leave it at 0"
	whyTxn          = "there are no transactions in this release: leave it out"
	whyUnstable     = "nothing in development is served: leave it out"
	whyKerberos     = "Kerberos isn't supported: use SASL PLAIN or SCRAM"
)

// only accepts the given values, compared as lists.
func only(values ...string) func(string) bool {
	return func(v string) bool {
		return slices.ContainsFunc(values, func(w string) bool { return slices.Equal(splitList(v), splitList(w)) })
	}
}

// hasClassic accepts lists of group protocols with the one that is served.
func hasClassic(v string) bool {
	return slices.ContainsFunc(splitList(v), func(s string) bool { return strings.EqualFold(s, "classic") })
}
