//go:build mutant_reply

package machine

const mutant = "reply"
