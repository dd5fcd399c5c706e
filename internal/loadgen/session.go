package loadgen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/loadgen/proto"
	"github.com/rdsd/rdsd/rds"
)

// batchBytes is how much memory a goroutine uses for messages.
const batchBytes = 256 << 10

// batchOf is how many messages of size are handled at a time.
func batchOf(size, most int) int { return max(1, min(most, 64, batchBytes/max(size, 1))) }

// messages makes n messages, each with its own buffer.
func messages(n, size int) []rds.Message {
	ms := make([]rds.Message, n)
	for i := range ms {
		ms[i].Payload = make([]byte, size)
	}
	return ms
}

// session is the server's side of one measurement. It is a client of the daemon of its own,
// so that its resources are released together.
type session struct {
	env    *Env
	hello  *proto.Hello
	from   netip.AddrPort
	client *rds.Client
	socks  []*rds.Socket
	buf    *rds.Buffer
	cookie rds.Cookie

	running  sync.WaitGroup
	received atomic.Uint64
	changed  chan struct{} // capacity 1; a value says that received rose
	wrongMu  sync.Mutex
	wrong    string
	cpu, dmn time.Duration // at Mark
}

func newSession(ctx context.Context, env *Env, h *proto.Hello, at netip.Addr, from netip.AddrPort) (se *session, err error) {
	se = &session{env: env, hello: h, from: from, changed: make(chan struct{}, 1)}
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
	for range h.Sockets {
		s, err := bind(se.client, at, h)
		if err != nil {
			return nil, err
		}
		se.socks = append(se.socks, s)
	}
	if h.Mode.RDMA() {
		if err := se.expose(ctx); err != nil {
			return nil, err
		}
	}
	se.mark()
	for i, s := range se.socks {
		se.running.Go(func() { se.serve(i, s) })
	}
	return se, nil
}

// bind makes a data socket with room for the outstanding messages.
func bind(c *rds.Client, at netip.Addr, h *proto.Hello) (*rds.Socket, error) {
	s, err := c.Bind(netip.AddrPortFrom(at, 0))
	if err != nil {
		return nil, err
	}
	if n := 2 * int(h.Depth) * int(h.Size); !h.Mode.RDMA() && n > s.SndBuf() {
		if err := errors.Join(s.SetSndBuf(n), s.SetRcvBuf(n)); err != nil {
			return nil, fmt.Errorf("socket buffers of %d bytes: %w", n, err)
		}
	}
	return s, nil
}

// expose registers a slot for each outstanding operation and exposes it to the client's
// host.
func (se *session) expose(ctx context.Context) error {
	h := se.hello
	n := int(h.Sockets) * int(h.Depth) * int(h.Size)
	var err error
	if se.buf, err = se.client.Alloc(n); err != nil {
		return fmt.Errorf("%d bytes of RDMA memory: %w", n, err)
	}
	b := se.buf.Bytes()
	for slot := range int(h.Sockets) * int(h.Depth) {
		proto.Fill(b[slot*int(h.Size):][:h.Size], uint64(slot))
	}
	access := rds.AllowRead
	if h.Mode == proto.RDMAWrite {
		access = rds.AllowWrite
	}
	r, err := se.socks[0].Register(se.buf, 0, n, access)
	if err != nil {
		return err
	}
	se.cookie = r.Cookie()
	return r.Expose(ctx, netip.AddrPortFrom(se.from.Addr(), 0))
}

func (se *session) welcome() *proto.Welcome {
	w := &proto.Welcome{Cookie: uint64(se.cookie)}
	for _, s := range se.socks {
		w.Ports = append(w.Ports, s.LocalAddrPort().Port())
	}
	return w
}

func (se *session) mark() { se.cpu, se.dmn = processCPU(), se.env.daemonCPU() }

// close ends the session's goroutines and releases its memory.
func (se *session) close() {
	se.client.Close()
	se.running.Wait()
}

// finalWait is how long messages that were sent before Bye may take.
const finalWait = 2 * time.Second

// final waits for outstanding messages and sums up.
func (se *session) final(ctx context.Context, sent uint64) *proto.Final {
	f := &proto.Final{CPU: processCPU() - se.cpu, DaemonCPU: -1}
	if d := se.env.daemonCPU(); d >= 0 && se.dmn >= 0 {
		f.DaemonCPU = d - se.dmn
	}
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
	se.wrongMu.Lock()
	defer se.wrongMu.Unlock()
	f.Received, f.Wrong = se.received.Load(), se.wrong
	return f
}

// found keeps the first error.
func (se *session) found(err error) {
	se.wrongMu.Lock()
	defer se.wrongMu.Unlock()
	if se.wrong == "" {
		se.wrong = "at the server: " + err.Error()
	}
}

func (se *session) count(n int) {
	se.received.Add(uint64(n))
	select {
	case se.changed <- struct{}{}:
	default:
	}
}

// serve serves one data socket until it is closed.
func (se *session) serve(i int, s *rds.Socket) {
	h := se.hello
	size := int(h.Size)
	if h.Mode.RDMA() {
		size = writeNotice
	}
	ms := messages(batchOf(size, 64), size)
	next := uint64(0) // the number of the next message
	for {
		n, err := s.RecvMsgs(ms)
		if err != nil {
			return
		}
		got := ms[:n]
		for k := range got {
			if err := se.check(i, &got[k], next+uint64(k)); err != nil {
				se.found(err)
			}
			got[k].Payload, got[k].Cookie = got[k].Payload[:got[k].N], 0
		}
		err = se.answer(s, got, next)
		next += uint64(n)
		se.count(n)
		for k := range got {
			got[k] = rds.Message{Payload: got[k].Payload[:size]}
		}
		if err != nil {
			return
		}
	}
}

// answer sends the mode's answer to n messages, the first of which has the number first.
func (se *session) answer(s *rds.Socket, got []rds.Message, first uint64) error {
	switch se.hello.Mode {
	case proto.RTT, proto.RDMAWrite:
		_, err := s.SendMsgs(got)
		return err
	case proto.Rate:
		// The server answers every so many messages with how many have arrived.
		sample := uint64(se.hello.Sample)
		for k := range got {
			if n := first + uint64(k) + 1; n%sample == 0 {
				if _, err := s.SendTo(binary.BigEndian.AppendUint64(nil, n), got[k].Addr); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// writeNotice is the size of the message that follows a verified RDMA write: its number,
// which is also the pattern's, and its slot.
const writeNotice = 16

// check compares message seq of socket i.
func (se *session) check(i int, m *rds.Message, seq uint64) error {
	h := se.hello
	if !h.Verify {
		if want := int(h.Size); !h.Mode.RDMA() && m.Len != want {
			return fmt.Errorf("message %d of socket %d has %d bytes, want %d", seq, i, m.Len, want)
		}
		return nil
	}
	b := m.Payload[:m.N]
	if h.Mode == proto.RDMAWrite {
		slot := uint64(0)
		if m.Len == writeNotice {
			slot = binary.BigEndian.Uint64(b[8:])
		}
		if m.Len != writeNotice || binary.BigEndian.Uint64(b) != seq || slot >= uint64(h.Depth) {
			return fmt.Errorf("message %d of socket %d: not the one behind the next RDMA write", seq, i)
		}
		b = se.buf.Bytes()[(i*int(h.Depth)+int(slot))*int(h.Size):][:h.Size]
	} else if m.Len != int(h.Size) {
		return fmt.Errorf("message %d of socket %d has %d bytes, want %d", seq, i, m.Len, h.Size)
	}
	if se.env.corrupt != nil {
		se.env.corrupt(b)
	}
	if err := proto.Check(b, seq); err != nil {
		return fmt.Errorf("socket %d: %w", i, err)
	}
	return nil
}
