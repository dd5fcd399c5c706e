package sim

import (
	"context"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/rds"
)

// client is an attached process.
type client struct {
	h      *host
	at     *engine.InProcess
	c      *rds.Client
	armed  bool
	eps    []*endpoint
	mem    []*memory
	uid    uint32
	waits  int  // how many calls wait now
	full   bool // the process can get no more memory
	subs   int  // about how many entries it wrote to the submission ring since the daemon's last turn
	gone   bool
	ending bool  // it is being killed
	deaf   int64 // looks at nothing until this time
}

// attach adds a client with its sockets.
func (h *host) attach() *client {
	w := h.w
	c := h.opens(w.opt.cred(len(h.clients)), w.opt.params)
	for range w.opt.sockets {
		c.bind(0)
	}
	return c
}

// opens adds a client without sockets.
func (h *host) opens(cred ipc.Cred, params rds.Params) *client {
	w := h.w
	c := &client{h: h}
	bell := &pumpWaiter{c: c}
	c.at = engine.NewInProcess(h.e, h.ask, func() {
		bell.Ring()
		h.at("ring")
		c.answered()
	})
	c.at.Pump, c.at.Answered = w.pump, c.answered
	c.at.Cred = cred
	c.uid = c.at.Cred.UID
	var err error
	c.c, err = rds.Open(attach.Through(context.Background(), attach.Way{Control: c.at, Wake: bell}), rds.Options{Spin: -1, Params: params})
	must(err)
	h.clients = append(h.clients, c)
	return c
}

// roomy reports whether c has slots for all its destinations. Otherwise an idle destination may
// have lost its slot, and what the ledger knows of it no longer holds.
func (c *client) roomy() bool {
	n := 0
	for _, f := range c.h.w.flowsV {
		if f.src.c == c {
			n++
		}
	}
	return n <= int(c.h.w.opt.params.Slots)
}

// room has the daemon turn if the submission ring is about to be full. A send on a full ring
// yields in real time and then fails. One time in 64 room lets that happen.
func (c *client) room(ops int) {
	c.subs += 2 + ops
	if c.subs+4 > int(c.h.w.opt.params.SubEntries) && c.h.w.rTurn.IntN(64) > 0 {
		c.h.turn()
	}
}

// wake has the process look at its rings soon.
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

// poll has the process look at all its sockets.
func (c *client) poll() {
	if c.deaf > c.h.w.now() && !c.h.w.over {
		return
	}
	for i := 0; i < len(c.eps) && !c.gone; i++ {
		c.eps[i].poll()
	}
	c.alive()
	if !c.gone {
		c.h.kick()
	}
}

// alive checks that the library has not ended the session. It does so when the daemon breaks the
// contract.
func (c *client) alive() {
	if err := c.c.Err(); err != nil && c.h.up && !c.gone {
		broken("session", "a process of host %d: %v", c.h.n, err)
	}
}

// kill ends the process as a crash would.
func (c *client) kill() {
	c.h.w.log(c.h, "kill", 0, 0, 0)
	c.h.w.breaks++
	c.ending = true
	c.h.w.meet()
	c.gone = true // first, because the engine sees the end inside the call
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

// another has the process killed and another one take its place.
func (c *client) another() {
	h := c.h
	c.kill()
	h.attach()
}

// end drops what the ledger knows of the process.
func (c *client) end() {
	c.gone = true
	for len(c.eps) > 0 {
		c.eps[0].forget()
	}
	if c.waits == 0 { // otherwise the last of these calls closes the client when it returns
		_ = c.c.Close()
	}
}
