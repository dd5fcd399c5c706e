package engine

import (
	"fmt"
	"sync"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// InProcess is a client attachment without a control socket. Its shared memory is on the
// heap, and its descriptors are only names. Tests and the simulator attach package rds
// through it (internal/attach).
type InProcess struct {
	// Cred is whom the process runs as; the zero value is root. Set before
	// the first Call.
	Cred ipc.Cred
	// Run executes f on the engine's goroutine and returns when it has run.
	Run func(f func())
	// Pump is called again and again by a Release or Free that waits; nil:
	// it blocks on a channel (the engine runs on its own goroutine).
	Pump func()
	// Answered is called on the engine's goroutine, in the middle of a turn, when
	// a Release or Free that waits has its answer; nil: nobody wants to know.
	Answered func()
	// Wake rings the client's waiter.
	Wake func()

	e    *Engine
	cl   *Client
	user quota.User
	gone chan struct{}

	shared inProcessMemory // the engine's goroutine, but for what Hello makes

	mu     sync.Mutex
	mem    map[int][]byte // by name
	next   int
	reason error
	closed bool
}

// NewInProcess prepares an attachment to e; ipc.Hello through Call attaches.
// run and wake as in InProcess; both are needed.
func NewInProcess(e *Engine, run func(f func()), wake func()) *InProcess {
	return &InProcess{Run: run, Wake: wake, e: e, gone: make(chan struct{}), mem: map[int][]byte{}, next: 1,
		shared: inProcessMemory{buffers: map[uint32]inProcessBuffer{}, waits: map[Awaited]func(error){}}}
}

// Map returns the memory that a descriptor stands for.
func (p *InProcess) Map(fd, size int, _ bool) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.mem[fd]
	if len(m) < size {
		return nil, fmt.Errorf("%w: name %d stands for %d bytes, not %d", unix.EINVAL, fd, len(m), size)
	}
	return m[:size:size], nil
}

// RingDaemon wakes the engine, which has announced sleep to this client.
func (p *InProcess) RingDaemon() {
	p.e.clients.ring(p.cl)
}

// name makes memory and the descriptor that stands for it.
func (p *InProcess) name(size int) (int, []byte) {
	m := p.e.cfg.Alloc(size)
	p.mu.Lock()
	defer p.mu.Unlock()
	fd := p.next
	p.next++
	p.mem[fd] = m
	return fd, m
}

// Call answers a request on the engine's goroutine.
func (p *InProcess) Call(req ipc.Request, _ []int) (resp ipc.Response, fds []int, err error) {
	p.mu.Lock()
	if p.closed {
		defer p.mu.Unlock()
		if p.reason != nil {
			return nil, nil, p.reason
		}
		return nil, nil, ipc.ErrClosed
	}
	p.mu.Unlock()
	switch r := req.(type) {
	case *ipc.Hello:
		return p.hello(r)
	case *ipc.Alloc:
		size, err := BufferSize(r.Size)
		if err != nil {
			return nil, nil, err
		}
		fd := -1
		p.Run(func() { // all of it with one engine, should another one take over
			if err = p.e.users.mem.Take(&p.user, 0, size); err != nil {
				return
			}
			var mem []byte
			fd, mem = p.name(int(size))
			var b uint32
			give := func() {
				p.e.users.mem.Give(&p.user, 1, 0, size)
				delete(p.shared.buffers, b)
			}
			if b, err = p.e.AddBuffer(p.cl, mem, give); err == nil {
				resp = &ipc.AllocOK{Buffer: b, Size: uint64(len(mem))}
				p.shared.buffers[b] = inProcessBuffer{mem, give}
			} else {
				give()
			}
		})
		return resp, []int{fd}, err
	case *ipc.Release, *ipc.Free:
		resp, err = p.later(req)
		return resp, nil, err
	}
	err = InPlace(p.ask, func(at *RingPlace) (err error) {
		resp, err = p.e.Serve(p.cl, req, at)
		return err
	})
	return resp, nil, err
}

// ask runs f on the engine's goroutine and returns its error.
func (p *InProcess) ask(f func() error) (err error) {
	p.Run(func() { err = f() })
	if err == errAgain {
		// Who runs the engine by hand may not turn it between two tries.
		p.Run(func() {
			p.e.chores.Renew()
			p.e.chores.Run()
		})
	}
	return err
}

func (p *InProcess) hello(h *ipc.Hello) (ipc.Response, []int, error) {
	params, err := GrantParams(h.Params)
	if err != nil {
		return nil, nil, err
	}
	p.user = quota.Of(p.e.cfg.Policy, p.Cred)
	m := &p.shared
	m.name, m.params = h.Name, params
	if err := p.e.users.mem.Take(&p.user, m.size(), 0); err != nil {
		return nil, nil, err
	}
	give := func() { p.e.users.mem.Give(&p.user, 1, m.size(), 0) }
	fds := make([]int, 4, 4+params.SendWindows+params.RecvWindows)
	fds[0], m.seg = p.name(shm.SegmentSize(params))
	fds[1], m.table = p.name(shm.TableSize(params.Slots, params.Cells))
	for i := range params.SendWindows + params.RecvWindows {
		fd, mem := p.name(shm.WindowSize)
		if i < params.SendWindows {
			m.send = append(m.send, mem)
		} else {
			m.recv = append(m.recv, mem)
		}
		fds = append(fds, fd)
	}
	seg, err := shm.NewSegment(m.seg, params)
	if err != nil {
		give()
		return nil, nil, err
	}
	c := p.client(seg, give)
	p.Run(func() { err = p.e.Attach(c, m.send...) })
	if err != nil {
		give()
		return nil, nil, err
	}
	p.cl = c
	return &ipc.HelloOK{Version: ipc.Version, Features: h.Features & (ipc.FeatureAddrs | ipc.FeatureNotify | ipc.FeatureAnybody), Instance: p.e.cfg.Instance, Params: params,
		MaxSockets: uint32(p.e.cfg.MaxSockets), MaxBuffers: MaxBuffers, MaxMessage: abi.MaxMessage, MaxBytes: 1 << 40}, fds, nil
}

func (p *InProcess) later(r ipc.Request) (ipc.Response, error) {
	done := make(chan struct{})
	var used error // before done is closed
	waits, ends := p.shared.waits, AwaitedBy(r)
	answer := func(why error) {
		delete(waits, ends)
		used = why
		close(done)
		if p.Answered != nil {
			p.Answered()
		}
	}
	err := InPlace(p.ask, func(at *RingPlace) error {
		was, waited := waits[ends]
		waits[ends] = answer
		err := p.e.ServeLater(p.cl, r, at, answer)
		if err != nil && waited {
			waits[ends] = was
		} else if err != nil {
			delete(waits, ends)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for {
		select {
		case <-done:
			if used != nil {
				return nil, used
			}
			return &ipc.OK{}, nil
		case <-p.gone:
			return nil, ipc.ErrGone
		default:
		}
		if p.Pump == nil {
			select {
			case <-done:
			case <-p.gone:
			}
			continue
		}
		p.Pump()
	}
}

// Close detaches the client.
func (p *InProcess) Close() error {
	if p.end(nil) && p.cl != nil {
		return InPlace(p.ask, func(at *RingPlace) error {
			p.e.chores.Renew()
			return p.e.Leave(p.cl, at)
		})
	}
	return nil
}

// Kill ends the attachment as the death of the daemon does: the engine is not
// told.
func (p *InProcess) Kill() { p.end(ipc.ErrGone) }

// end marks the attachment over, once.
func (p *InProcess) end(reason error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.closed, p.reason = true, reason
	close(p.gone)
	return true
}

// killed ends the attachment because the engine ended the client.
func (p *InProcess) killed(why error) { go p.end(&ipc.SessionError{Text: why.Error()}) }

// Gone is closed when the attachment has ended.
func (p *InProcess) Gone() <-chan struct{} { return p.gone }

// Reason says why it ended.
func (p *InProcess) Reason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}
