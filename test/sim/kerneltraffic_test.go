package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/rdsd/rdsd/rds"
)

func kwContent(id uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(id*131 + uint64(i)*7 + uint64(i)>>8)
	}
	return b
}

func (w *kworld) payload(id uint64, n int) []byte {
	b := kwContent(id, max(n, 12))
	binary.BigEndian.PutUint64(b, id)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)))
	return b
}

func (w *kworld) size() int {
	switch w.r.IntN(12) {
	case 0:
		return pick(w.r, 4095, 4096, 4097, 8192, 8193)
	case 1:
		return 12 + w.r.IntN(60_000)
	case 2:
		if w.r.IntN(10) == 0 && w.host == nil { // beside others the user's quota of the daemon's memory is soon used up
			return 1 << 20
		}
	}
	return 12 + w.r.IntN(500)
}

func (w *kworld) next(dir, sport, dport uint16) (f [4]uint16, idx int) {
	f = [4]uint16{dir, sport, dport}
	w.last[[4]uint16{dir, sport, dport, 1}]++
	return f, w.last[[4]uint16{dir, sport, dport, 1}]
}

// send sends a message of one of our sockets.
func (w *kworld) send() {
	i := w.r.IntN(len(w.socks))
	s, port := w.socks[i], w.ports[w.r.IntN(len(w.ports))]
	id := uint64(len(w.out))
	m := &kwmsg{size: min(w.size(), w.limits[i]), status: kwOpen}
	msg := rds.Message{Payload: w.payload(id, m.size), Addr: w.to(port)}
	switch k := w.r.IntN(10); {
	case k < 3 && w.saw["up"] > 0: // the kernel's message brought a cookie
		n := 1 + w.r.IntN(9000)
		if w.local+n > 2<<20 || w.local+n > len(w.mem)/2 { // each byte is used once
			return
		}
		m.op, m.write, m.n, m.loc, m.off = true, w.r.IntN(2) == 0, n, w.local, w.local
		w.local += n
		m.badKey = w.bad && w.r.IntN(6) == 0
		cookie := w.cookie
		if m.badKey {
			cookie ^= 0x5a5a00
		}
		copy(w.buf.Bytes()[m.loc:], kwContent(id+1<<40, n))
		op := &rds.RDMA{Cookie: rds.Cookie(cookie), RemoteOff: uint64(m.off), Token: id, Notify: true,
			Local: []rds.Segment{{Buf: w.buf, Off: m.loc, Len: n}}}
		if m.write {
			op.Write = true
		} else {
			copy(w.mem[w.cookie>>32+uint64(m.off):], kwContent(id+2<<40, n))
		}
		if w.r.IntN(6) == 0 {
			m.silent, op.Silent, msg.Payload = true, true, nil
		}
		msg.Op = op
	case k == 3:
		if r := w.region(s); r != nil {
			msg.Cookie = r.r.Cookie()
			m.carrying = r
		}
	}
	m.flow, m.idx = w.next(0, s.LocalAddrPort().Port(), port)
	_, err := s.Send(rds.DontWait, &msg)
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOBUFS):
		w.last[[4]uint16{0, m.flow[1], m.flow[2], 1}]--
		w.saw["send: "+errors.Unwrap(err).Error()]++
		return
	case err != nil:
		w.fatalf("send: %v", err)
	}
	w.out = append(w.out, m)
}

// region registers memory of ours for the kernel, or returns nil if there is none left.
func (w *kworld) region(s *rds.Socket) *kwregion {
	r := &kwregion{off: 2<<20 + len(w.free)*kwRegion, once: w.r.IntN(3) == 0}
	if r.off+kwRegion > len(w.buf.Bytes()) {
		return nil
	}
	a := rds.AllowRead | rds.AllowWrite
	if r.once {
		a |= rds.UseOnce
	}
	var err error
	r.r, err = s.Register(w.buf, r.off, kwRegion, a)
	must(err)
	w.free = append(w.free, r)
	return r
}

// kernelGot checks a message that arrived at the kernel.
func (w *kworld) kernelGot(inc *kinc) {
	if inc.h.SPort == 0 {
		w.saw["pong to the kernel"]++
		return
	}
	id := binary.BigEndian.Uint64(inc.data)
	if id >= uint64(len(w.out)) {
		w.fatalf("message %d to the kernel was never sent", id)
	}
	m := w.out[id]
	if want := w.payload(id, m.size); !bytes.Equal(inc.data, want) {
		w.fatalf("message %d: %d bytes are not the %d sent", id, len(inc.data), len(want))
	}
	if f := [4]uint16{0, inc.h.SPort, inc.h.DPort}; f != m.flow || m.idx <= w.last[f] {
		w.fatalf("message %d of flow %v, place %d after %d of %v", id, m.flow, m.idx, w.last[f], f)
	}
	w.last[m.flow] = m.idx
	if m.got++; m.got > 1 || m.silent {
		w.fatalf("message %d arrived %d times, silent %v", id, m.got, m.silent)
	}
	if m.op {
		if m.badKey {
			w.fatalf("message %d of an operation without a key arrived", id)
		}
		w.placed(id, m)
		if inc.ext.RDMA != 1 || inc.ext.RDMAKeys[0] != uint32(w.cookie) {
			w.fatalf("message %d of an operation: extension headers %+v", id, inc.ext)
		}
	}
	if r := m.carrying; r != nil {
		if !inc.ext.HasDest || inc.ext.Dest != uint64(r.r.Cookie()) {
			w.fatalf("message %d carries a cookie: extension headers %+v", id, inc.ext)
		}
		w.saw["cookie"]++
		w.kernelSend(m.flow[2], m.flow[1], r)
	}
}

// placed checks that the data of a WRITE or READ is where it belongs.
func (w *kworld) placed(id uint64, m *kwmsg) {
	at, want := w.mem[w.cookie>>32+uint64(m.off):], kwContent(id+1<<40, m.n)
	if !m.write {
		at, want = w.buf.Bytes()[m.loc:], kwContent(id+2<<40, m.n)
	}
	if !bytes.Equal(at[:m.n], want) {
		w.fatalf("operation %d, write %v: its data is not in place", id, m.write)
	}
}

// kernelSend sends a message of the kernel, with an operation if r is not nil.
func (w *kworld) kernelSend(sport, dport uint16, r *kwregion) {
	id := uint64(len(w.in))
	m := &kwmsg{size: w.size()}
	if w.host != nil && r == nil && w.unread() > 1<<20 {
		return // else a process that waits for something is overrun
	}
	if r != nil {
		m.region, m.op, m.write = r, true, w.r.IntN(2) == 0
		m.kop = &kop{write: m.write, cookie: uint64(r.r.Cookie()), fence: !m.write, mem: kwContent(id+3<<40, kwRegion)}
		if w.bad && w.r.IntN(4) == 0 {
			m.badKey = true
			m.kop.off = 1
		}
		r.used = true
	}
	m.flow, m.idx = w.next(1, sport, dport)
	if !w.k.sendmsg(sport, dport, w.payload(id, m.size), 0, m.kop, id, func(acked bool) { m.ended, m.acked = true, acked }) {
		w.last[[4]uint16{1, sport, dport, 1}]--
		w.saw["kernel: ENOBUFS"]++
		return
	}
	w.in = append(w.in, m)
}

// receive reads and checks the messages of one of our sockets.
func (w *kworld) receive(s *rds.Socket) {
	msg := rds.Received{Payload: w.scr}
	for {
		err := s.Recv(rds.DontWait, &msg)
		if errors.Is(err, rds.ErrWouldBlock) {
			break
		}
		if err != nil {
			w.fatalf("receive: %v", err)
		}
		b := w.scr[:msg.N]
		if msg.Addr.Addr() != kwKernel || msg.Len != msg.N {
			w.fatalf("message of %v, %d bytes of %d", msg.Addr, msg.N, msg.Len)
		}
		if msg.Addr.Port() == 0 { // pong
			w.saw["pong"]++
			continue
		}
		id := binary.BigEndian.Uint64(b)
		m := w.in[id]
		if !bytes.Equal(b, w.payload(id, m.size)) {
			w.fatalf("message %d of the kernel is not what it sent", id)
		}
		if f := [4]uint16{1, msg.Addr.Port(), s.LocalAddrPort().Port()}; f != m.flow || m.idx <= w.last[f] {
			w.fatalf("message %d of the kernel, flow %v, place %d after %d of %v", id, m.flow, m.idx, w.last[f], f)
		}
		w.last[m.flow] = m.idx
		if m.got++; m.got > 1 {
			w.fatalf("message %d of the kernel arrived %d times", id, m.got)
		}
		if r := m.region; r != nil {
			at := w.buf.Bytes()[r.off:][:kwRegion]
			if m.badKey || m.write && !bytes.Equal(at, kwContent(id+3<<40, kwRegion)) {
				w.fatalf("message %d: its WRITE is not in place", id)
			}
			var err error
			w.wait(func() { err = r.r.Expose(context.Background(), msg.Addr) })
			if r.once != errors.Is(err, syscall.EINVAL) || !r.once && err != nil {
				w.fatalf("a region for one use %v, after its use: %v", r.once, err)
			}
			w.wait(func() { must(r.r.Release(context.Background())) })
			w.saw["released"]++
		}
	}
	var cs [16]rds.Completion
	for n := s.Completions(cs[:]); n > 0; n = s.Completions(cs[:]) {
		for _, c := range cs[:n] {
			w.settled(s, &c)
		}
	}
}

func (w *kworld) settled(s *rds.Socket, c *rds.Completion) {
	m := w.out[c.Token]
	if m.settled {
		w.fatalf("operation %d has two statuses, %v and %v", c.Token, m.status, c.Status)
	}
	m.settled, m.status = true, c.Status
	w.saw[c.Status.Error()]++
	switch c.Status {
	case rds.Success:
		w.placed(c.Token, m)
	case rds.RemoteError:
		if !m.badKey {
			w.fatalf("operation %d failed, and its key was good: errno %v", c.Token, c.Errno)
		}
	case rds.Dropped:
		if m.got > 0 {
			w.fatalf("operation %d is dropped, and its message has arrived", c.Token)
		}
	case rds.Unknown:
	default:
		w.fatalf("operation %d: %v", c.Token, c.Status)
	}
}
