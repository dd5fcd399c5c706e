package rpc

// caller is a Caller that has calls at the server.
type caller struct {
	queue  fifo[*call] // waiting
	queued int         // bytes of the bodies of calls that do not run
	busy   int         // calls that run, or have the promise of a worker
	ready  bool        // in Server.ready
}

// fifo is a queue.
type fifo[T any] struct {
	all  []T
	head int
}

func (q *fifo[T]) len() int { return len(q.all) - q.head }

func (q *fifo[T]) push(x T) {
	if q.head > len(q.all)/2 {
		n := copy(q.all, q.all[q.head:])
		clear(q.all[n:])
		q.all, q.head = q.all[:n], 0
	}
	q.all = append(q.all, x)
}

func (q *fifo[T]) pop() (x T) {
	x, q.all[q.head] = q.all[q.head], x
	q.head++
	return x
}

// admit gives c a worker, puts it into the queue, or returns why it does not.
func (v *Server) admit(c *call) answer {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.closing != nil:
		return shutDown
	case v.active[c.key] != nil:
		return refusal(statusMalformed, "a second request of this id")
	}
	of := v.callers[c.key.from]
	if of == nil {
		of = &caller{}
	}
	queue, bytes := v.o.Queue, maxQueued // that one caller may have
	if v.o.PerCaller < v.o.Handlers {
		queue, bytes = part(queue), part(bytes)
	}
	n := len(c.req.Body)
	// What of's calls that wait may run is a worker's already.
	mayRun := of.queue.len() == 0 && of.busy < v.o.PerCaller && (v.idle > 0 || v.workers < v.o.Handlers)
	if v.queued+n > maxQueued || of.queued+n > bytes || !mayRun && (v.waiting >= v.o.Queue || of.queue.len() >= queue) {
		return answer{status: statusBusy}
	}
	v.callers[c.key.from], v.active[c.key] = of, c
	of.queued += n
	v.queued += n
	if !mayRun {
		of.queue.push(c)
		v.waiting++
		v.mayRun(of)
		return answer{}
	}
	of.busy++
	v.next.push(c)
	if v.idle > 0 {
		v.idle--
		v.wake.Signal()
	} else {
		v.workers++
		v.wg.Go(v.work)
	}
	return answer{}
}

// mayRun notes that a call of a caller may run, if one waits and may.
func (v *Server) mayRun(of *caller) {
	if !of.ready && of.queue.len() > 0 && of.busy < v.o.PerCaller {
		of.ready = true
		v.ready.push(of)
	}
}

// work runs calls until the server ends.
func (v *Server) work() {
	ended := false
	defer func() {
		if !ended { // a handler has ended this goroutine
			v.wg.Go(v.work)
		}
	}()
	for c := v.take(); c != nil; c = v.take() {
		v.one(c)
	}
	ended = true
}

// one runs c and forgets it.
func (v *Server) one(c *call) {
	defer c.cancel()
	defer v.done(c)
	v.run(c)
}

// done forgets c, which has run.
func (v *Server) done(c *call) {
	v.mu.Lock()
	defer v.mu.Unlock()
	of := v.callers[c.key.from]
	of.busy--
	v.mayRun(of)
	v.forget(c, of)
}

// forget takes c, which is a call of of, out of the active ones.
func (v *Server) forget(c *call, of *caller) {
	delete(v.active, c.key)
	if of.busy == 0 && of.queue.len() == 0 {
		delete(v.callers, c.key.from)
	}
	if v.closing != nil && len(v.active) == 0 {
		v.stop()
	}
}

// take takes a call that was promised a worker, or one that waits, of one caller after the
// other, and waits for one. It returns nil at the end.
func (v *Server) take() (c *call) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.next.len() == 0 && v.ready.len() == 0 && !v.ended {
		v.idle++
		v.wake.Wait()
	}
	switch {
	case v.ended:
		return nil
	case v.next.len() > 0:
		c = v.next.pop()
	default:
		of := v.ready.pop()
		of.ready = false
		c = of.queue.pop()
		of.busy++
		v.waiting--
		v.mayRun(of)
	}
	v.dequeue(c, v.callers[c.key.from])
	return c
}

// dequeue notes that c, which is a call of of, waits no longer.
func (v *Server) dequeue(c *call, of *caller) {
	of.queued -= len(c.req.Body)
	v.queued -= len(c.req.Body)
}
