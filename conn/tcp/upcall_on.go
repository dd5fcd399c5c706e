//go:build upcalls

package tcp

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/internal/upcalls"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// checked returns a Host that notes each up-call in u and passes it on to h.
func checked(u *upcalls.Calls, h Host) Host { return &checkedHost{u, h} }

type checkedHost struct {
	up *upcalls.Calls
	h  Host
}

func (x *checkedHost) Deliver(c *Conn, h *wire.Header, payload []byte) conn.Verdict {
	defer x.up.Leave(x.up.Enter(upcalls.InDeliver))
	return x.h.Deliver(c, h, payload)
}

func (x *checkedHost) Begin(c *Conn, h *wire.Header) (dst []byte, token any, v conn.Verdict) {
	defer x.up.Leave(x.up.Enter(upcalls.InBegin))
	return x.h.Begin(c, h)
}

func (x *checkedHost) Commit(c *Conn, h *wire.Header, token any) {
	defer x.up.Leave(x.up.Enter(upcalls.InCommit))
	x.h.Commit(c, h, token)
}

func (x *checkedHost) Abort(c *Conn, token any) {
	defer x.up.Leave(x.up.Enter(upcalls.InAbort))
	x.h.Abort(c, token)
}

func (x *checkedHost) MsgDone(c *Conn, m *msg.Msg, o msg.Outcome) {
	defer x.up.Leave(x.up.Enter(upcalls.InMsgDone))
	x.h.MsgDone(c, m, o)
}

func (x *checkedHost) PeerUp(c *Conn) {
	defer x.up.Leave(x.up.Enter(upcalls.InPeerUp))
	x.h.PeerUp(c)
}

func (x *checkedHost) PeerDown(c *Conn, why error) {
	defer x.up.Leave(x.up.Enter(upcalls.InPeerDown))
	x.h.PeerDown(c, why)
}

func (x *checkedHost) Congestion(c *Conn, m *cong.Map) {
	defer x.up.Leave(x.up.Enter(upcalls.InCongestion))
	x.h.Congestion(c, m)
}

func (x *checkedHost) Dial(c *Conn, lane int, id uint64, must bool) error {
	defer x.up.Leave(x.up.Enter(upcalls.InDial))
	return x.h.Dial(c, lane, id, must)
}

func (x *checkedHost) Trace(c *Conn, event string, err error) {
	defer x.up.Leave(x.up.Enter(upcalls.InTrace))
	x.h.Trace(c, event, err)
}
