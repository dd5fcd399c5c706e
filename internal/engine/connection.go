package engine

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
)

// connection is what the engine asks of a peer's connection whatever carries it:
// queue pairs (*conn.Conn) or RDS/TCP (*conn.TCP).
type connection interface {
	Send(*conn.Msg)
	Cancel(*conn.Msg, conn.Outcome) (later bool)
	CancelMatching(match func(*conn.Msg) bool, o conn.Outcome)
	GiveUp(*conn.Msg) (o conn.Outcome, later bool)
	Waiting(func(*conn.Msg))
	Withdraw(*conn.Msg) bool
	ForgetPartial(token any)
	Missing(token any) int

	QueueCong(*cong.Map)
	RemoteCong() *cong.Map

	NeedFlush() bool
	Flush(now int64)
	Tick(now int64)
	NextTimeout() int64
	TakeArrived() conn.Arrived
	Reset(now int64, why error)
	Close(now int64)

	State() conn.State
	Ready() bool
	Kernel() bool
	Instance() uint64
	Info() conn.Info
	Stats() *conn.Stats
}
