package config

// excludedTopicConfigs is the default of mirror.topic.properties.exclude.
const excludedTopicConfigs = "follower.replication.throttled.replicas,leader.replication.throttled.replicas,message.timestamp.difference.max.ms," +
	"log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms,message.timestamp.type,unclean.leader.election.enable," +
	"min.insync.replicas,mirror.replication.throttled.replicas,mirror.support.unclean.leader.election"

// mirrorKeys are the configs of a mirror (spec 9.2 with decisions D3, D4, D8, D11 and D12). All are dynamic.
var mirrorKeys = []Def{
	key("bootstrap.servers", List, null, sourceAddresses(), High, ClusterWide, Honoured, "Addresses of the source cluster, as host:port.").own(),
	key("mirror.source.cluster.id", String, null, anything, High, ClusterWide, Honoured, "Cluster id that the source must have. Filled in when the mirror is created.").own(),
	key("request.timeout.ms", Int, "30000", atLeast(0), Medium, ClusterWide, Honoured, "Deadline of admin requests to the source.").own(),
	key("socket.connection.setup.timeout.ms", Long, "10000", atLeast(0), Low, ClusterWide, Honoured, "Time that a connection to the source has to come up.").own(),
	key("socket.connection.setup.timeout.max.ms", Long, "30000", atLeast(0), Low, ClusterWide, WithoutMeaning, "Cap of that time when attempts fail one after another.").own(),
	key("connections.max.idle.ms", Long, "600000", anything, Low, ClusterWide, Honoured, "A connection to the source without traffic for this long is closed.").own(),

	key("mirror.fetch.wait.max.ms", Int, "1000", atLeast(0), Medium, ClusterWide, Honoured, "Longest wait of a fetch at the source.").own(),
	key("mirror.fetch.backoff.ms", Long, "1000", atLeast(0), Medium, ClusterWide, Honoured, "Pause of a fetcher after an error, and when it has nothing to fetch.").own(),
	key("mirror.fetch.min.bytes", Int, "1", atLeast(0), Medium, ClusterWide, Honoured, "Bytes that a fetch at the source waits for.").own(),
	key("mirror.fetch.response.max.bytes", Int, "10485760", atLeast(0), Medium, ClusterWide, Honoured, "Most bytes of one answer of the source; a first larger batch still comes. Unless it is set, answers on long lines are larger, up to 64 MiB or a quarter of mirror.fetch.memory.bytes.").own(),
	key("mirror.fetch.max.bytes", Int, "1048576", atLeast(0), Medium, ClusterWide, Honoured, "Most bytes per partition; a first larger batch still comes. Unless it is set, partitions that are behind share what an answer has room for.").own(),
	key("mirror.socket.timeout.ms", Int, "30000", atLeast(0), Medium, ClusterWide, Honoured, "Deadline of a fetch at the source.").own(),
	key("mirror.socket.receive.buffer.bytes", Int, "-1", atLeast(-1), Medium, ClusterWide, Honoured, "Receive buffer of a fetcher's connection; -1 leaves it to the system, which lets it grow on long lines.").own(),

	key("mirror.topic.properties.exclude", List, excludedTopicConfigs, patterns(), Medium, ClusterWide, Honoured, "Topic configs that aren't taken over from the source, as patterns. Setting it replaces the default.").own(),
	key("mirror.topics.include", List, "", patterns(), High, ClusterWide, Honoured, "Patterns of topics that are found on the source and mirrored; if empty only named topics are.").own(),
	key("mirror.topics.exclude", List, "__.*", patterns(), High, ClusterWide, Honoured, "Patterns of topics that aren't mirrored, whatever the include list says.").own(),
	key("mirror.groups.include", List, ".*", patterns(), High, ClusterWide, Honoured, "Patterns of groups whose committed offsets are taken over.").own(),
	key("mirror.groups.exclude", List, "", patterns(), High, ClusterWide, Honoured, "Patterns of groups whose offsets aren't taken over, whatever the include list says.").own(),
	key("mirror.groups.sync.interval.ms", Long, "5000", atLeast(1), Medium, ClusterWide, Honoured, "How often committed offsets are taken over.").own(),
	key("mirror.acls.include", List, "*", aclRules(), Medium, ClusterWide, WithoutMeaning, "Access rules that are taken over, as type;name;operation;permission;principal. There are no access rules yet.").own(),

	key("mirror.truncate.unrelated.topics", List, "", items(true), Medium, ClusterWide, Honoured, "Topics whose records may be cut off although they share no history with the source.").own(),
	key("mirror.skip.batches", List, "", batches(), Medium, ClusterWide, Honoured, "Batches of the source that fail their check and are left out, as topic:partition:offset.").own(),
	key("mirror.max.cut.records", Long, "-1", atLeast(-1), Medium, ClusterWide, Honoured, "A truncation while mirroring that would cut off more records than this fails instead; -1 means no limit.").own(),
	key("mirror.audit.interval.ms", Long, "86400000", atLeast(0), Low, ClusterWide, Honoured, "How often the leader of a partition compares it with the source; 0 means never.").own(),
	key("mirror.audit.bytes.per.second", Long, "262144", atLeast(0), Low, ClusterWide, Honoured, "What each broker reads from the source to compare, in bytes per second; 0 means nothing.").own(),
	key("mirror.source.code.points", String, "milena", oneOf("milena", "prototype"), Low, ClusterWide, Honoured, "Numbers of the mirror requests at the source where it doesn't offer Milena's own.").own(),

	key("security.protocol", String, "PLAINTEXT", oneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), High, ClusterWide, Honoured, "Security protocol towards the source.").own(),
	key("security.providers", String, null, anything, Low, ClusterWide, Refused, "Java classes that provide cryptography.").own().why(whyPlugin),
	key("sasl.mechanism", String, "PLAIN", oneOf("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), High, ClusterWide, Honoured, "SASL mechanism towards the source.").own(),
	key("sasl.jaas.config", Password, null, anything, High, ClusterWide, Honoured, "Login at the source: a JAAS line of PlainLoginModule or ScramLoginModule.").own(),
	key("sasl.client.callback.handler.class", String, null, anything, Low, ClusterWide, Refused, "Java class for SASL as a client.").own().why(whyPlugin),
	key("sasl.login.callback.handler.class", String, null, anything, Low, ClusterWide, Refused, "Java class for SASL logins.").own().why(whyPlugin),
	key("sasl.login.class", String, null, anything, Low, ClusterWide, Refused, "Java class for SASL logins.").own().why(whyPlugin),
	key("sasl.kerberos.service.name", String, null, anything, Low, ClusterWide, Refused, "Kerberos name of the source's brokers.").own().why(whyKerberos),
	key("ssl.protocol", String, "TLSv1.3", oneOf("TLSv1.2", "TLSv1.3"), Low, ClusterWide, Honoured, "TLS version where ssl.enabled.protocols isn't set.").own(),
	key("ssl.provider", String, null, anything, Low, ClusterWide, WithoutMeaning, "Java's TLS provider.").own(),
	key("ssl.cipher.suites", List, null, items(true), Low, ClusterWide, Honoured, "Cipher suites of TLS 1.2, by their standard names.").own(),
	key("ssl.enabled.protocols", List, null, items(true, "TLSv1.2", "TLSv1.3"), Low, ClusterWide, Honoured, "TLS versions that may be used.").own(),
	key("ssl.keystore.type", String, "JKS", oneOf("JKS", "PKCS12", "PEM"), Medium, ClusterWide, Honoured, "Type of the key store.").own(),
	key("ssl.keystore.location", String, null, anything, Medium, ClusterWide, Honoured, "Key store file; it must exist on every broker. Keys as PEM in the config avoid that.").own(),
	key("ssl.keystore.password", Password, null, anything, Medium, ClusterWide, Honoured, "Password of the key store.").own(),
	key("ssl.key.password", Password, null, anything, Medium, ClusterWide, Honoured, "Password of the private key.").own(),
	key("ssl.keystore.key", Password, null, anything, Medium, ClusterWide, Honoured, "Private key, as PEM.").own(),
	key("ssl.keystore.certificate.chain", Password, null, anything, Medium, ClusterWide, Honoured, "Certificate chain, as PEM.").own(),
	key("ssl.truststore.type", String, "JKS", oneOf("JKS", "PKCS12", "PEM"), Medium, ClusterWide, Honoured, "Type of the trust store.").own(),
	key("ssl.truststore.location", String, null, anything, Medium, ClusterWide, Honoured, "Trust store file; it must exist on every broker.").own(),
	key("ssl.truststore.password", Password, null, anything, Medium, ClusterWide, Honoured, "Password of the trust store.").own(),
	key("ssl.truststore.certificates", Password, null, anything, Medium, ClusterWide, Honoured, "Certificates that are trusted, as PEM.").own(),
	key("ssl.keymanager.algorithm", String, null, anything, Low, ClusterWide, WithoutMeaning, "Java's key manager.").own(),
	key("ssl.trustmanager.algorithm", String, null, anything, Low, ClusterWide, WithoutMeaning, "Java's trust manager.").own(),
	key("ssl.endpoint.identification.algorithm", String, "https", oneOf("https", ""), Medium, ClusterWide, Honoured, "https checks the source's host names against its certificates; empty doesn't.").own(),
	key("ssl.secure.random.implementation", String, null, anything, Low, ClusterWide, WithoutMeaning, "Java's random source.").own(),
	key("ssl.engine.factory.class", String, null, anything, Low, ClusterWide, Refused, "Java class that makes TLS engines.").own().why(whyPlugin),
}
