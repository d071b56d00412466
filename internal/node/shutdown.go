package node

import (
	"context"
	"errors"
)

// Shutdown stops the node cleanly: the controller hands its leaderships over, requests under way finish within ctx, the
// logs are flushed and marked clean, so that the next start does no recovery.
func (n *Node) Shutdown(ctx context.Context) error {
	epoch := n.session.Epoch()
	left, cancel := context.WithTimeout(ctx, shutdownGrace)
	errLeave := n.session.Shutdown(left)
	cancel()
	if errLeave != nil {
		n.log.Warn("the controller did not answer the shutdown; stopping all the same", "error", errLeave)
	}
	var errs []error
	if n.console != nil {
		n.console.Close()
	}
	errs = append(errs, n.serving.Load().server.Shutdown(ctx))
	n.mirrors.close()
	n.groups.Close()
	n.stop()
	errs = append(errs, n.replicas.Close())
	errs = append(errs, n.dirs.Close(ctx, true, epoch))
	errs = append(errs, n.closeController(ctx))
	n.wg.Wait()
	return errors.Join(errs...)
}

func (n *Node) closeController(ctx context.Context) error {
	var errs []error
	for _, l := range []interface{ Close() error }{n.links.follow, n.links.session, n.links.forward} {
		errs = append(errs, l.Close())
	}
	if n.ctlServer != nil {
		errs = append(errs, n.ctlServer.Shutdown(ctx))
	}
	if n.quorum != nil {
		errs = append(errs, n.quorum.Close())
	}
	return errors.Join(errs...)
}

// Kill stops whatever runs without a word and without marking anything clean, as a crash would, but leaves no goroutine and
// no open file behind.
func (n *Node) Kill() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n.stop()
	if n.console != nil {
		n.console.Close()
	}
	for _, ln := range n.bound {
		_ = ln.Close()
	}
	if s := n.serving.Load(); s != nil {
		_ = s.server.Shutdown(ctx)
	}
	if n.mirrors != nil {
		n.mirrors.close()
	}
	if n.groups != nil {
		n.groups.Close()
	}
	if n.replicas != nil {
		_ = n.replicas.Close()
	}
	if n.dirs != nil {
		_ = n.dirs.Close(ctx, false, -1)
	}
	if n.links.follow != nil {
		_ = n.closeController(ctx)
	}
	n.wg.Wait()
}
