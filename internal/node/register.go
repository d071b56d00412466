package node

import (
	"context"

	"milena/internal/controller"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/metafollow"
)

// registerController has the active controller note what this controller supports and where others reach it, so that no
// feature level is raised above what it knows (KIP-919). One that nobody else reaches has no need to: the active one is itself.
func (n *Node) registerController() error {
	c := n.o.Config
	if !c.Controller || len(n.reachable) == 0 {
		return nil
	}
	incarnation, err := ids.New(n.o.Random)
	if err != nil {
		return err
	}
	r := metafollow.ControllerRegistration{ID: c.ID, Incarnation: incarnation, Features: controller.Features()}
	for _, l := range n.reachable {
		r.Endpoints = append(r.Endpoints, meta.Endpoint{Name: l.Name, Host: l.Host, Port: uint16(l.Port), SecurityProtocol: int16(l.Protocol)})
	}
	n.run("controller registration", func(ctx context.Context) error {
		if err := metafollow.RegisterController(ctx, n.links.forward, r); err != nil && ctx.Err() == nil {
			n.log.Error("this controller doesn't support the cluster's feature levels: upgrade it, since it may not be able to lead", "controller", c.ID, "error", err)
		}
		return nil
	})
	return nil
}
