package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// session is the server's side of one measurement. It is a client of the daemon of its own,
// so that its resources are released together.
type session struct {
	env    *Env
	hello  *hello
	client *rds.Client
	socks  []*rds.Socket
	buf    *rds.Buffer
	cookie rds.Cookie
	alive  *time.Timer // ends the session when the client was silent for too long

	running  sync.WaitGroup
	received atomic.Uint64
	changed  chan struct{} // capacity 1; a value says that received rose
	mu       sync.Mutex
	wrong    string
	cpu      cpu // at the mark
}

// newSession makes the session of the client at from. gone is called, at most once for each
// socket, when the session cannot go on.
func newSession(ctx context.Context, env *Env, h *hello, at, from netip.Addr, gone func(se *session, why error)) (se *session, err error) {
	se = &session{env: env, hello: h, changed: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if se.client, err = env.Open(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			se.client.Close()
		}
	}()
	if se.socks, err = bind(se.client, at, h); err != nil {
		return nil, err
	}
	if h.Mode.RDMA() {
		if err := se.expose(ctx, from); err != nil {
			return nil, err
		}
	}
	se.mark()
	made := se
	for i := range se.socks {
		l := se.answers(i)
		se.running.Go(func() {
			if err := l.Run(context.Background(), context.Background()); !errors.Is(err, rds.ErrClosed) {
				gone(made, err)
			}
		})
	}
	return se, nil
}

// newSndBuf is the send buffer limit of a new socket, bytes.
const newSndBuf = 512 << 10

// bind makes data sockets with room for the outstanding messages.
func bind(c *rds.Client, at netip.Addr, h *hello) (socks []*rds.Socket, err error) {
	for range h.Sockets {
		s, err := c.Bind(netip.AddrPortFrom(at, 0))
		if err != nil {
			return nil, err
		}
		if n := 2 * h.Depth * h.Size; !h.Mode.RDMA() && n > newSndBuf {
			if err := errors.Join(s.SetSndBuf(n), s.SetRcvBuf(n)); err != nil {
				return nil, fmt.Errorf("socket buffers of %d bytes: %w", n, err)
			}
		}
		s.SetNotices(rds.Lost, rds.NoSocket)
		socks = append(socks, s)
	}
	return socks, nil
}

// noticed returns the error of a notice.
func noticed(n *rds.Notice) error {
	return fmt.Errorf("%v at %v, %d messages", n.Kind, n.To, n.Count)
}

// expose registers a slot for each outstanding operation and exposes it to the client's host.
func (se *session) expose(ctx context.Context, from netip.Addr) error {
	h := se.hello
	n := h.Sockets * h.Depth * h.Size
	var err error
	if se.buf, err = se.client.Alloc(n); err != nil {
		return fmt.Errorf("%d bytes of RDMA memory: %w", n, err)
	}
	for slot := range h.Sockets * h.Depth {
		fill(se.memory(slot), uint64(slot))
	}
	access := rds.AllowRead
	if h.Mode == RDMAWrite {
		access = rds.AllowWrite
	}
	r, err := se.socks[0].Register(se.buf, 0, n, access)
	if err != nil {
		return err
	}
	se.cookie = r.Cookie()
	return r.Expose(ctx, netip.AddrPortFrom(from, 0))
}

func (se *session) memory(slot int) []byte {
	return se.buf.Bytes()[slot*se.hello.Size:][:se.hello.Size]
}

func (se *session) welcome() *welcome {
	w := &welcome{Cookie: uint64(se.cookie)}
	for _, s := range se.socks {
		w.Ports = append(w.Ports, s.LocalAddrPort().Port())
	}
	return w
}

func (se *session) mark() { se.cpu = se.env.cpu() }

// close ends the session's loops and releases its memory.
func (se *session) close() {
	se.alive.Stop()
	se.client.Close()
	se.running.Wait()
}

// finalWait is how long messages that were sent before the end may take.
const finalWait = 2 * time.Second

// final waits for outstanding messages and sums up.
func (se *session) final(ctx context.Context, sent uint64) *final {
	used := se.env.cpu().since(se.cpu)
	f := &final{CPU: used.own, DaemonCPU: used.daemon}
	wait := time.NewTimer(finalWait)
	defer wait.Stop()
	for se.received.Load() < sent {
		select {
		case <-se.changed:
			continue
		case <-wait.C:
		case <-ctx.Done():
		}
		break
	}
	f.Received, f.Wrong = se.received.Load(), se.found(nil)
	return f
}

// found notes err, if it is the first, and returns the first one's text.
func (se *session) found(err error) string {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.wrong == "" && err != nil {
		se.wrong = "at the server: " + err.Error()
	}
	return se.wrong
}

// answers is what one data socket has received and answered.
type answers struct {
	se            *session
	i             int
	flow          *Flow
	out           batch
	every         uint64 // messages for each answer
	got, answered uint64
	counted       uint64 // of got
}

func (se *session) answers(i int) *Loop {
	h := se.hello
	a := &answers{se: se, i: i, every: 1}
	in, out := h.Size, h.Size
	switch h.Mode {
	case Rate:
		a.every, out = uint64(h.Sample), countSize
	case RDMAWrite, RDMARead:
		in, out = countSize, countSize
	}
	a.out = batch{sock: se.socks[i], all: messages(batchOf(out, 64), out)}
	l := &Loop{Sock: se.socks[i], Flows: []Flow{{Send: a.send}}, In: Room(in), Take: a.take, Notice: noticed}
	a.flow = &l.Flows[0]
	return l
}

// take checks the next message.
func (a *answers) take(m *rds.Received, _ time.Time) error {
	if err := a.check(m); err != nil {
		a.se.found(err)
	}
	a.flow.To = m.Addr
	a.got++
	return nil
}

func (a *answers) check(m *rds.Received) error {
	se, h := a.se, a.se.hello
	if h.Mode != RDMAWrite {
		if err := se.env.checked(m, h.Size, a.got, h.Verify); err != nil {
			return fmt.Errorf("socket %d: %w", a.i, err)
		}
		return nil
	}
	if !isCount(m, a.got) {
		return fmt.Errorf("message %d of socket %d: not the one behind the next RDMA write", a.got, a.i)
	}
	if err := se.env.compared(se.memory(a.i*h.Depth+int(a.got%uint64(h.Depth))), a.got); err != nil {
		return fmt.Errorf("socket %d: %w", a.i, err)
	}
	return nil
}

// send sends the answers that are owed: the same message, or a count.
func (a *answers) send() error {
	if a.got > a.counted {
		a.se.received.Add(a.got - a.counted)
		a.counted = a.got
		select {
		case a.se.changed <- struct{}{}:
		default:
		}
	}
	for {
		if len(a.out.ready) == 0 {
			n := min(len(a.out.all), int(a.got/a.every-a.answered))
			if n == 0 {
				return nil
			}
			for k, m := range a.out.next(n, a.flow.To) {
				seq := a.answered + uint64(k)
				switch {
				case a.se.hello.Mode != RTT:
					putCount(m.Payload, (seq+1)*a.every)
				case a.se.hello.Verify:
					fill(m.Payload, seq)
				}
			}
			a.answered += uint64(n)
		}
		if _, err := a.out.send(); err != nil {
			return err
		}
	}
}
