// Package client turns Kafka client properties (the file behind --command-config, the source settings of a
// mirror) into what Milena's own clients need: a TLS config, a SASL mechanism, kgo options and peer options.
//
// Every property of Kafka's producer, consumer and admin client stands in one table (properties.go) as
// honoured, without meaning here, or refused. A refused or unknown property is an error that names it:
// ignoring it silently could mean connecting with less security than was asked for.
package client
