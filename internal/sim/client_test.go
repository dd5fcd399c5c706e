package sim

import (
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/rds"
)

// client is one attached process.
type client struct {
	h     *host
	at    *engine.InProcess
	c     *rds.Client
	armed bool
	eps   []*endpoint
	mem   []*memory
	uid   uint32
	waits int  // calls that wait
	full  bool // its memory is used up
	subs  int  // entries written to the submission ring since the daemon's last turn, about
	gone  bool
}

// roomy reports whether c has slots for all its destinations: else an idle one may
// have given way, and leads nowhere.
func (c *client) roomy() bool {
	n := 0
	for _, f := range c.h.w.flowsV {
		if f.src.c == c {
			n++
		}
	}
	return n <= int(c.h.w.opt.params.Slots)
}

// room lets the daemon turn if its ring is about to be full: then a send yields
// to it, in real time, and fails. Now and then it may.
func (c *client) room(ops int) {
	c.subs += 2 + ops
	if c.subs+4 > int(c.h.w.opt.params.SubEntries) && c.h.w.rTurn.IntN(64) > 0 {
		c.h.turn()
	}
}

// wake lets the process look at its rings soon.
func (c *client) wake() {
	if c.armed || c.gone {
		return
	}
	c.armed = true
	w := c.h.w
	w.net.At(w.now()+below(w.rApp, 5000), func() {
		c.armed = false
		c.poll()
	})
}

// poll is a process looking at all its sockets.
func (c *client) poll() {
	for i := 0; i < len(c.eps) && !c.gone; i++ {
		c.eps[i].poll()
	}
	c.alive()
	if !c.gone {
		c.h.kick()
	}
}

// alive checks that the library has not ended the session, as it does when the
// daemon breaks the contract.
func (c *client) alive() {
	if err := c.c.Err(); err != nil && c.h.up && !c.gone {
		broken("session", "a process of host %d: %v", c.h.n, err)
	}
}

// kill is the death of a process.
func (c *client) kill() {
	c.h.w.log(c.h, "kill", 0, 0, 0)
	c.h.w.breaks++
	c.gone = true // the engine sees it inside the call
	_ = c.at.Close()
	c.end()
	h := c.h
	for i, o := range h.clients {
		if o == c {
			h.clients = append(h.clients[:i], h.clients[i+1:]...)
			break
		}
	}
}

// end forgets what the process had.
func (c *client) end() {
	c.gone = true
	for len(c.eps) > 0 {
		c.eps[0].forget()
	}
	if c.waits == 0 { // else when they have returned
		_ = c.c.Close()
	}
}
