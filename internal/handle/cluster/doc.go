// Package cluster answers the APIs about the cluster itself: one file for each, named by
// its number. [Broker] has those of the broker's listeners, which read the broker's own
// metadata image and forward changes to the controller (KIP-590); [Controller] has those
// of the controller's listener, which run commands on the controller's state and serve the
// committed metadata log.
package cluster
