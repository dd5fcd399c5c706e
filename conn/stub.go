package conn

import (
	"net/netip"

	"github.com/rdsd/rdsd/internal/cong"
	"github.com/rdsd/rdsd/verbs"
)

type Conn struct {
	state      State
	now, since int64
	cfg        Config
	host       Host
	rcong      cong.Map
	stats      Stats
}
type msgList struct{}
type msgState uint8

func New(cfg Config, h Host) *Conn { return &Conn{cfg: cfg, host: h} }
func (c *Conn) State() State       { return c.state }
func (c *Conn) Ready() bool        { return false }
func (c *Conn) Key() (local, remote netip.Addr, lane uint8) {
	return c.cfg.Local, c.cfg.Remote, c.cfg.Lane
}
func (c *Conn) Send(m *Msg)                                                  {}
func (c *Conn) Flush(now int64)                                              {}
func (c *Conn) NeedFlush() bool                                              { return false }
func (c *Conn) QueueCong(m *cong.Map)                                        {}
func (c *Conn) RemoteCong() *cong.Map                                        { return &c.rcong }
func (c *Conn) CancelMatching(match func(*Msg) bool, o Outcome)              {}
func (c *Conn) ForgetPartial(token any)                                      {}
func (c *Conn) HandleRecv(now int64, wc *verbs.WC, buf []byte)               {}
func (c *Conn) HandleSend(now int64, wc *verbs.WC)                           {}
func (c *Conn) CQEmpty(now int64)                                            {}
func (c *Conn) HandleRequest(now int64, req verbs.RequestID, private []byte) {}
func (c *Conn) HandleCM(now int64, ev *verbs.CMEvent)                        {}
func (c *Conn) Reset(now int64, why error)                                   {}
func (c *Conn) Tick(now int64)                                               {}
func (c *Conn) NextTimeout() int64                                           { return 0 }
func (c *Conn) Close(now int64)                                              {}
func (c *Conn) Info() Info                                                   { return Info{} }
func (c *Conn) Stats() *Stats                                                { return &c.stats }

const MinCredits = 4
