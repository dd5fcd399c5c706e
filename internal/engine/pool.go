package engine

import (
	"fmt"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
)

// pool is a free list of T; it grows in blocks and never shrinks, so that a
// steady load allocates nothing.
type pool[T any] struct {
	free []*T
	out  int
}

const poolBlock = 256

func (p *pool[T]) get() *T {
	if len(p.free) == 0 {
		block := make([]T, poolBlock)
		for i := range block {
			p.free = append(p.free, &block[i])
		}
	}
	t := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.out++
	return t
}

// put takes t back; the caller has cleared what must not linger.
func (p *pool[T]) put(t *T) {
	p.out--
	p.free = append(p.free, t)
}

// initPools makes the send buffers and the overflow arena. They are
// address space until used: the shared receive queue is consumed last in, first
// out, so an idle or lightly loaded daemon touches only a few of them.
func (e *Engine) initPools() error {
	var err error
	e.sendMem = e.cfg.Alloc(e.cfg.SendBufs * e.cfg.MaxSend)
	if e.sendMR, err = e.regMR(failpoint.SendPool, e.sendMem, 0, verbs.AccessPrivate); err != nil {
		return fmt.Errorf("register send pool: %w", err)
	}
	for i := e.cfg.SendBufs - 1; i >= 0; i-- {
		off := i * e.cfg.MaxSend
		e.sendFree = append(e.sendFree, &conn.SendBuf{
			Mem: e.sendMem[off : off+e.cfg.MaxSend : off+e.cfg.MaxSend], LKey: e.sendMR.LKey(), Addr: uint64(off)})
	}
	e.ctlMem = e.cfg.Alloc(e.cfg.MaxPeers * conn.CtlLen)
	if e.ctlMR, err = e.regMR(failpoint.SendPool, e.ctlMem, 0, verbs.AccessPrivate); err != nil {
		return fmt.Errorf("register control buffers: %w", err)
	}
	e.ctlLeft = len(e.ctlMem)
	// One window more than the limit says, for what does not fit together.
	windows := (e.cfg.OverflowBytes+shm.WindowSize-1)/shm.WindowSize + 1
	e.overMem = e.cfg.Alloc(windows * shm.WindowSize)
	e.pools = append(e.pools, e.sendMem, e.ctlMem, e.overMem)
	for i := range windows {
		w := shm.NewArena()
		w.AddWindow(e.overMem[i*shm.WindowSize:][:shm.WindowSize:shm.WindowSize])
		e.overFree = append(e.overFree, w)
	}
	return nil
}
