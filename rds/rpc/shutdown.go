package rpc

import (
	"context"
	"net/netip"

	"github.com/rdsd/rdsd/rds"
)

// The states of a call at the server.
const (
	handling  = iota // or waiting, and its context is its caller's
	stopped          // the server has ended its context; an answer still goes to the caller
	cut              // the server has told the caller that there will be no answer
	answering        // its handler has returned, and nothing but its caller ends the answer
)

// Serve answers requests until ctx ends, Shutdown is called, or the socket fails. Then it
// refuses requests that come or that wait for a handler (ErrShutdown), and waits for those
// that run. If ctx has ended, it ends their contexts first. What their handlers return
// goes to the callers. Serve waits until the answers have arrived, for up to ten seconds,
// and closes the socket, so that calls which come too late fail.
//
// Serve returns why it ended: ErrShutdown, the error of ctx, or one of rds.Socket.RecvFrom.
// A second Serve, or one after Shutdown, closes the socket and returns ErrShutdown.
func (v *Server) Serve(ctx context.Context) error {
	v.mu.Lock()
	if v.begun || v.closing != nil {
		v.mu.Unlock()
		_ = v.s.Close()
		return ErrShutdown
	}
	v.begun = true
	v.ctx, v.stop = context.WithCancel(context.WithoutCancel(ctx))
	v.mu.Unlock()
	defer close(v.served)
	defer v.stop()
	defer context.AfterFunc(ctx, func() {
		v.close(ctx.Err())
		v.interrupt(stopped)
	})()
	v.methods = v.methods.all(v.uses)
	v.s.SetNotices() // a caller that has gone needs no answer
	if err := v.receive(v.ctx); v.ctx.Err() == nil {
		v.close(err)
		v.interrupt(stopped)
		v.stop()
	}
	_ = v.receive(rds.DontWait) // refuses what came at the same time
	v.mu.Lock()
	v.ended = true
	v.wake.Broadcast()
	v.mu.Unlock()
	v.wg.Wait()
	wait, cancel := context.WithTimeout(context.Background(), v.o.callerWait)
	defer cancel()
	_ = v.s.CloseWait(wait) // an answer that does not arrive has no caller
	v.staging.free()
	return v.closing
}

// Shutdown ends the server gracefully: requests that come from now on, and those that wait
// for a handler, are refused (ErrShutdown, they did not run). Handlers that run go on and
// answer. Shutdown returns nil when the answers have arrived and the socket is closed, as
// Serve then does. So a program need not wait for Shutdown after Serve has returned: see the
// example.
//
// If ctx ends first, Shutdown ends the contexts of the handlers that still run, tells their
// callers at once that no answer comes (ErrLost), and returns the error of ctx. Serve
// returns when these handlers have.
//
// A handler that calls Shutdown waits for itself, until ctx ends.
func (v *Server) Shutdown(ctx context.Context) error {
	v.close(ErrShutdown)
	v.mu.Lock()
	begun := v.begun
	v.mu.Unlock()
	if !begun {
		return nil
	}
	select {
	case <-v.served:
		return nil
	case <-ctx.Done():
		v.interrupt(cut)
		return ctx.Err()
	}
}

// closes reports whether the server takes no more calls.
func (v *Server) closes() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closing != nil
}

// close has the server take no more calls, and refuses those that wait.
func (v *Server) close(why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closing != nil {
		return
	}
	v.closing = why
	v.ready = fifo[*caller]{}
	for _, of := range v.callers {
		of.ready = false
		for of.queue.len() > 0 {
			c := of.queue.pop()
			v.waiting--
			v.dequeue(c, of)
			c.cancel()
			v.refuse(c.key, c.req.Method, shutDown)
			v.forget(c, of)
		}
	}
	if v.begun && len(v.active) == 0 {
		v.stop()
	}
}

// interrupt ends the contexts of the calls whose handlers have not returned. If to is cut,
// it also tells their callers that there will be no answer.
func (v *Server) interrupt(to int32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	lost := map[netip.AddrPort][]uint64{}
	for key, c := range v.active {
		if c.state.CompareAndSwap(handling, to) || to == cut && c.state.CompareAndSwap(stopped, cut) {
			c.cancel()
			lost[key.from] = append(lost[key.from], key.id)
		}
	}
	for from, ids := range lost {
		for ; to == cut && len(ids) > 0; ids = ids[min(len(ids), maxIDs):] {
			v.tell(from, newIDs(kindUnknown, 0, ids[:min(len(ids), maxIDs)]))
		}
	}
}

// answers reports whether a caller waits for the answer of c, whose handler has returned. c
// is then answering, in a context that only its caller ends.
func (v *Server) answers(c *call) bool {
	// A server that ends a context changes the state first.
	if ended := c.ctx.Err() != nil; c.state.CompareAndSwap(handling, answering) {
		return !ended
	}
	if !c.state.CompareAndSwap(stopped, answering) {
		return false
	}
	c.ctx, c.stopped = v.ctx, true
	return true
}

// notRun refuses c, whose context has ended before its handler was called, if its caller waits.
func (v *Server) notRun(c *call) {
	if v.answers(c) {
		v.refuse(c.key, c.req.Method, shutDown)
	}
}
