package engine

import (
	"fmt"
	"github.com/rdsd/rdsd/internal/chores"
	"sync/atomic"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/trace"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// Client is one attached process: its shared memory and its state in the engine.
// Only the engine's thread may use it, from attach to detach.
type Client struct {
	handover.InState
	session uint32 // the number that it has in a state for the Heir
	name    string
	pid     int
	user    quota.User
	acct    *account // from attach until nothing uses its memory

	rings
	arenas
	handles
	pending
	attention
	ending
	hooks
	scratch shm.Entry
}

// rings are the segment of a process and its rings.
type rings struct {
	params shm.Params
	seg    *shm.Segment
	table  *shm.Table
	sub    *shm.Consumer
	ev     *shm.Producer
	sret   *shm.IDProducer
	rret   *shm.IDConsumer
	shared uint64 // bytes of all this and of the arenas
}

// arenas are where the payloads of a process are.
type arenas struct {
	send       []window   // registered one by one
	recv       *shm.Arena // chunks are allocated by the engine
	unfinished int        // bytes of recv that messages in assembly have
}

// handles map the numbers that a process uses to what they name.
type handles struct {
	socks    []*socket // by socket index
	sockFree []uint32  // handles of the next uses of free indices, oldest first
	msgs     []*txMsg  // by message id: submitted and not yet returned
	rx       []rxEntry // by receive id
	rxFree   []uint32
	slots    []*slot // by slot index
	cells    []*cell
	buffers  map[uint32]*buffer
	nextBuf  uint32
	segs     int // in operations not yet done
}

// attention is when the engine looks at a process's rings, and what it finds there.
type attention struct {
	inActive lists.Link[Client] // clientTable.active
	idle     int                // turns without work from it
	rung     atomic.Bool
	publish  bool // rings have news

	unstamped bool // the event ring has messages that lack their time, see receiver.stamp
}

// ending is how far the end of a process has come.
type ending struct {
	dead      bool               // detached: only references remain
	inLeaving lists.Link[Client] // clientTable.leaving
	ended     int                // sockets, by index
	freeing   []uint32           // buffers to free
	refs      int                // messages and buffers that still use its memory
}

// hooks are how the client's session is notified, see Attachment.
type hooks struct {
	bell   func()
	onEnd  func()
	onKill func(reason error)
	onFree func()
}

// clientTable is the attached processes.
type clientTable struct {
	e *Engine

	all     []*Client           // alive
	active  lists.List[Client]  // whose rings are looked at every turn
	dirty   []*Client           // to publish at the end of the turn
	leaving chores.Work[Client] // what they had is being ended
	rung    atomic.Bool         // one without a doorbell has rung
}

type window struct {
	mem []byte
	mr  verbs.MR
}

// rxEntry is a message in the client's receive arena that has not been given back.
type rxEntry struct {
	sock  *socket   // nil: free
	src   *[16]byte // address of the sending host, once told
	chunk uint32
	n     uint32
	at    uint32 // when it was told: ms of unix time, modulo
	sport uint16
	tail  int        // as in arrival, before it is told
	told  bool       // its event was written: the client may give it back
	run   int        // as in rxMsg
	steps int        // of a run: how many more parts of it may be given back ahead of it
	sum   frames.Sum // what it holds that has not been given back, once told

	traced trace.Set // as in rxMsg
	path   uint8     // on which it came
	seq    uint64
}

// Attachment is what a process brings when it attaches: who it is, and its shared memory,
// formatted and empty.
type Attachment struct {
	Name   string
	PID    int
	User   quota.User
	Params shm.Params
	Seg    *shm.Segment
	Table  *shm.Table
	Recv   *shm.Arena // with its windows
	Shared uint64     // bytes of all this, and of the send windows

	Bell   func()             // rings the client's doorbell
	OnEnd  func()             // run on the engine's thread, first when it is detached; may be nil, as the others below
	OnKill func(reason error) // the engine ended it because it broke a rule; must not block
	OnFree func()             // nothing uses the memory any more
}

// NewClient makes the record of a client. Not the engine's work: it may take a while.
func NewClient(a *Attachment) *Client {
	c := &Client{name: a.Name, pid: a.PID, user: a.User,
		rings:  rings{params: a.Params, seg: a.Seg, table: a.Table, shared: a.Shared},
		arenas: arenas{recv: a.Recv},
		hooks:  hooks{a.Bell, a.OnEnd, a.OnKill, a.OnFree}}
	p := c.params
	c.sub, c.ev = c.seg.SubConsumer(), c.seg.EventProducer()
	c.sret, c.rret = c.seg.SendRetProducer(), c.seg.RecvRetConsumer()
	c.msgs = make([]*txMsg, p.MaxMsgs)
	c.rx = make([]rxEntry, p.MaxRx)
	c.rxFree = make([]uint32, 0, p.MaxRx)
	for i := int(p.MaxRx) - 1; i >= 0; i-- {
		c.rxFree = append(c.rxFree, uint32(i))
	}
	c.slots = make([]*slot, p.Slots)
	c.cells = make([]*cell, p.Cells)
	c.buffers = map[uint32]*buffer{}
	return c
}

// Attach takes a client in, with its send windows.
func (e *Engine) Attach(c *Client, windows ...[]byte) error {
	for _, mem := range windows {
		if err := e.clients.addWindow(c, mem); err != nil {
			e.clients.deregWindows(c)
			return err
		}
	}
	e.clients.all = append(e.clients.all, c)
	e.st.C[stats.ClientsOpened]++
	e.st.C[stats.SharedBytes] += c.shared
	e.users.enter(c)
	e.Unpark(c)
	return nil
}

// addWindow registers the next send window for posting from it: read only, the
// address of a chunk is its offset over all windows.
func (cs *clientTable) addWindow(c *Client, mem []byte) error {
	if c.dead {
		return unix.ECONNABORTED
	}
	if len(c.send) >= maxWindows {
		return fmt.Errorf("%w: the send arena has its %d windows", unix.ENOBUFS, maxWindows)
	}
	mr, err := cs.e.devices.regMR(failpoint.RegisterWindow, mem, uint64(len(c.send))*shm.WindowSize, 0)
	if err != nil {
		return fmt.Errorf("register send window: %w", err)
	}
	c.send = append(c.send, window{mem: mem, mr: mr})
	return nil
}

// Grow is addWindow of a process that is attached, and returns how many windows its
// send arena has.
func (e *Engine) Grow(c *Client, mem []byte) (windows int, err error) {
	if err := e.clients.addWindow(c, mem); err != nil {
		return 0, err
	}
	c.shared += uint64(len(mem))
	e.st.C[stats.SharedBytes] += uint64(len(mem))
	return len(c.send), nil
}

func (cs *clientTable) deregWindows(c *Client) {
	for i := range c.send {
		_ = c.send[i].mr.Dereg()
	}
	c.send = nil
}

// kill ends the session of a client that broke a rule. Nobody else notices.
func (cs *clientTable) kill(c *Client, format string, args ...any) {
	e := cs.e
	if c.dead {
		return
	}
	e.st.C[stats.ClientViolations]++
	e.Expel(c, fmt.Errorf(format, args...))
}

// Expel ends the session of a client because of err. Nobody else notices.
func (e *Engine) Expel(c *Client, err error) {
	if c.dead {
		return
	}
	if c.onKill != nil {
		c.onKill(err) // ahead of Detach, which may let go of the memory: the process is told before it is given back
	}
	e.Detach(c)
}

// unref drops one use of the client's memory. The last one of a detached
// Client hands the memory back.
func (cs *clientTable) unref(c *Client) {
	e := cs.e
	c.refs--
	if c.refs > 0 || !c.dead {
		return
	}
	if windows := c.send; len(windows) > 0 {
		c.send, c.refs = nil, len(windows)
		for i := range windows {
			_ = windows[i].mr.Dereg()
			e.devices.untouched(windows[i].mr, func() { cs.unref(c) })
		}
		return
	}
	e.st.C[stats.SharedBytes] -= c.shared
	e.users.leave(c)
	if c.onFree != nil {
		c.onFree()
	}
}

// news marks that c's rings are to be published at the end of the turn.
func (cs *clientTable) news(c *Client) {
	if !c.publish && !c.dead {
		c.publish = true
		cs.dirty = append(cs.dirty, c)
	}
}

// publish makes what this turn wrote visible and rings the bells that are
// needed: one store per ring and at most one bell per client and turn.
func (e *Engine) publish() {
	e.looks()
	for i, c := range e.clients.dirty {
		e.clients.dirty[i] = nil
		if c.dead {
			c.publish = false
			continue
		}
		e.rx.stamp(c)
		events := c.ev.Pending()
		c.ev.Publish()
		if len(c.raised) > 0 {
			e.clients.publishMarks(c)
			events = events || c.ev.Pending()
			c.ev.Publish()
		}
		if c.gone.N > 0 {
			c.toldGone()
		}
		c.publish = false
		c.sret.Publish()
		wake := shm.WakeForReturns
		if events {
			wake = shm.WakeNeeded
			e.clients.expect(c)
		}
		if wake(c.seg.ClientAsleep()) {
			c.bell()
			e.st.C[stats.Doorbells]++
		}
	}
	e.clients.dirty = e.clients.dirty[:0]
}

// remove deletes the first x from s, keeping the order.
func remove[T comparable](s []T, x T) []T {
	for i, y := range s {
		if y == x {
			return append(s[:i], s[i+1:]...)
		}
	}
	return s
}
