package node

import (
	"context"
	"errors"
)

// Shutdown stops the node cleanly: the controller hands its leaderships over, requests under way finish within ctx, the
// logs are flushed and marked clean, so that the next start does no recovery. A controller hands over to another one last.
func (n *Node) Shutdown(ctx context.Context) error {
	var errs []error
	if n.o.Config.Broker {
		left, cancel := context.WithTimeout(ctx, shutdownGrace)
		errLeave := n.session.Shutdown(left)
		cancel()
		if errLeave != nil {
			n.log.Warn("the controller did not answer the shutdown; stopping all the same", "error", errLeave)
		}
	}
	if n.console != nil {
		n.console.Close()
	}
	if n.o.Config.Broker {
		errs = append(errs, n.serving.Load().server.Shutdown(ctx))
		n.mirrors.close()
		n.groups.Close()
	}
	if n.quorum != nil {
		if err := n.quorum.Resign(ctx); err != nil {
			n.log.Warn("the quorum's leadership was not handed over", "error", err)
		}
	}
	n.stop()
	epoch := int64(-1)
	if n.o.Config.Broker {
		epoch = n.session.Epoch()
		n.fetchers.Close()
		errs = append(errs, n.replicas.Close())
	}
	errs = append(errs, n.dirs.Close(ctx, true, epoch))
	errs = append(errs, n.closeController(ctx))
	n.wg.Wait()
	return errors.Join(errs...)
}

func (n *Node) closeController(ctx context.Context) error {
	var errs []error
	if n.finder != nil {
		errs = append(errs, n.links.follow.Close())
		n.finder.Close()
	}
	if n.ctlServer != nil {
		errs = append(errs, n.ctlServer.Shutdown(ctx))
	}
	if n.quorum != nil {
		errs = append(errs, n.quorum.Close())
	}
	if n.transport != nil {
		errs = append(errs, n.transport.Close())
	}
	return errors.Join(errs...)
}

// Kill stops whatever runs without a word and without marking anything clean, as a crash would, but leaves no goroutine and
// no open file behind.
func (n *Node) Kill() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n.stop()
	for _, ln := range n.bound {
		_ = ln.Close()
	}
	if n.quorum != nil {
		_ = n.quorum.Close() // first: what follows must reach nobody
	}
	if n.console != nil {
		n.console.Close()
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
	if n.fetchers != nil {
		n.fetchers.Close()
	}
	if n.replicas != nil {
		_ = n.replicas.Close()
	}
	if n.dirs != nil {
		_ = n.dirs.Close(ctx, false, -1)
	}
	_ = n.closeController(ctx)
	n.wg.Wait()
}
