package engine

import (
	"cmp"
	"fmt"

	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/shm"
)

// inProcessMemory is what an InProcess has of its own, whichever engine it is attached to.
type inProcessMemory struct {
	name       string
	params     shm.Params
	seg, table []byte
	send, recv [][]byte
	buffers    map[uint32]inProcessBuffer
	waits      map[Awaited]func(error) // answers of requests
}

type inProcessBuffer struct {
	mem  []byte
	give func()
}

// size is how much the segment, the table and the arenas take.
func (m *inProcessMemory) size() uint64 {
	p := m.params
	return uint64(shm.SegmentSize(p) + shm.TableSize(p.Slots, p.Cells) + int(p.SendWindows+p.RecvWindows)*shm.WindowSize)
}

// client makes the record of the process for an engine.
func (p *InProcess) client(seg *shm.Segment, give func()) *Client {
	m := &p.shared
	at := Attachment{Name: m.name, PID: p.Cred.PID, User: p.user, Params: m.params, Seg: seg, Recv: shm.NewArena(), Bell: p.Wake, OnFree: give,
		Table:  shm.NewTable(m.table, m.params.Slots, m.params.Cells),
		OnKill: p.killed}
	for _, mem := range m.recv {
		at.Recv.AddWindow(mem)
	}
	return NewClient(&at)
}

// InProcessHeirs is the Heir of an engine that takes over from another one in the same
// process. Their clients are InProcess.
type InProcessHeirs struct {
	to      *Engine
	all     []*InProcess
	clients []*Client
}

// NewInProcessHeirs names the clients of an engine that is to be handed over.
func NewInProcessHeirs(all []*InProcess) *InProcessHeirs {
	return &InProcessHeirs{all: all, clients: make([]*Client, len(all))}
}

// Number is Encode's number of a client.
func (h *InProcessHeirs) Number(c *Client) uint32 {
	for i, p := range h.all {
		if p.cl == c {
			return uint32(i)
		}
	}
	return handover.NoNumber
}

// Client implements Heir.
func (h *InProcessHeirs) Client(number uint32) *Client {
	if uint64(number) >= uint64(len(h.all)) || h.clients[number] != nil {
		return nil
	}
	p := h.all[number]
	m := &p.shared
	seg, err := shm.AttachSegment(m.seg, m.params)
	if err != nil || h.to.users.mem.Take(&p.user, m.size(), 0) != nil {
		return nil
	}
	c := p.client(seg, func() { p.e.users.mem.Give(&p.user, 1, m.size(), 0) })
	c.Inherit(m.send...)
	h.clients[number] = c
	return c
}

// Buffer implements Heir.
func (h *InProcessHeirs) Buffer(client, buffer uint32) ([]byte, func()) {
	p := h.all[client]
	b, ok := p.shared.buffers[buffer]
	if !ok || h.to.users.mem.Take(&p.user, 0, uint64(len(b.mem))) != nil {
		return nil, nil
	}
	return b.mem, b.give
}

// Later implements Heir.
func (h *InProcessHeirs) Later(client uint32, what Awaited) func(error) {
	return h.all[client].shared.waits[what]
}

// Adopt has e adopt state. The clients go on with e then.
func (h *InProcessHeirs) Adopt(e *Engine, state []byte) error {
	r, err := handover.Read(state)
	if err != nil {
		return err
	}
	h.to = e
	if err := cmp.Or(e.Adopt(r, h), r.Close()); err != nil {
		return err
	}
	for i, p := range h.all {
		if h.clients[i] == nil {
			return fmt.Errorf("%w: client %d was left out", handover.ErrFormat, i)
		}
		p.e, p.cl = e, h.clients[i]
	}
	return nil
}
