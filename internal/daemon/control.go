package daemon

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/wire"
	"github.com/rdsd/rdsd/rdmaop"
)

// maxCtl bounds the internal messages that wait for one peer. One that asks for
// keys back without end and takes no answer loses its connection.
const maxCtl = 1 << 17

// Internal is the connection's up-call for GRANT, REVOKE and REVOKED.
func (e *Engine) Internal(c *conn.Conn, t wire.InternalType, body []byte) {
	p := e.peerOf(c)
	if p.stale() {
		return
	}
	switch t {
	case wire.TypeGrant:
		g, err := wire.ParseGrant(body)
		if err == nil && !p.remote.owes(uint32(g.Cookie)) { // else this lane's REVOKE is to come, too
			err = p.grants.Add(rdmaop.Grant{Cookie: g.Cookie, Len: g.Length, Rights: rdmaop.Rights(g.Rights), Port: g.Grantee,
				Owner: rdmaop.Owner{Port: g.Owner, Inc: g.OwnerInc}})
		}
		if err != nil {
			e.cfg.Trace(p.local.addr, p.addr, "grant refused", err)
		}
		e.st.C[stats.GrantsReceived]++
	case wire.TypeRevoke:
		v, err := wire.ParseRevoke(body)
		if err != nil {
			e.cfg.Trace(p.local.addr, p.addr, "revoke", err)
			return
		}
		if p.ctls > maxCtl {
			if !p.breaking {
				p.breaking = true
				e.breaking = append(e.breaking, p)
			}
			return
		}
		e.answerRevoke(p, v.RKey)
	case wire.TypeRevoked:
		v, err := wire.ParseRevoke(body)
		if err != nil {
			e.cfg.Trace(p.local.addr, p.addr, "revoked", err)
			return
		}
		e.revoked(p, v.RKey)
	}
}

// ctlMsg is an internal message of ours. Pooled.
type ctlMsg struct {
	m    conn.Msg
	p    *peer
	rkey uint32
	port uint16 // of a GRANT: the grantee's
	buf  [64]byte
}

func (e *Engine) ctl(p *peer, t wire.InternalType, rkey uint32) *ctlMsg {
	m := e.ctls.get()
	m.p, m.rkey = p, rkey
	p.ctls++
	m.m = conn.Msg{Owner: m, Internal: t}
	return m
}

func (e *Engine) sendCtl(p *peer, m *ctlMsg, body []byte) {
	m.m.Data = body
	p.c.Send(&m.m)
	e.touch(p)
}

// ctlDone ends an internal message. A REVOKE that cannot be delivered any more
// (the peer restarted) is as good as answered: Instance has seen to it.
func (e *Engine) ctlDone(m *ctlMsg, o conn.Outcome) {
	if m.m.Internal == wire.TypeRevoke && o == conn.Acked {
		e.heard(m.p, m.rkey)
	}
	m.m = conn.Msg{}
	m.p.ctls--
	m.p = nil
	e.ctls.put(m)
}
