// Package api holds every code point of the protocol in one place: API keys
// with the versions and listeners they are served on, and error codes with
// their names.
//
// Kafka's own numbers are fixed. The numbers of the mirror APIs and errors come
// in two columns (see [CodePoints]): inside the process they always have
// Milena's numbers, and they are translated where bytes enter or leave it.
//
// [CodeOf] is the one mapping from a Go error to a code.
package api
