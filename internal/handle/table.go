// Package handle puts the APIs of a listener together: key to handler, explicit.
package handle

import "milena/internal/server"

// Registrar adds its handlers to a table.
type Registrar interface{ Register(t server.Table) }

// Table is the handlers of all parts. A later part replaces what an earlier one registered for the same key.
func Table(parts ...Registrar) server.Table {
	t := server.Table{}
	for _, p := range parts {
		p.Register(t)
	}
	return t
}
