package main

import (
	"encoding/binary"
	"net"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// relay takes the daemon's place on the bare path: one thread, one host, one connection.
type relay struct {
	h       *floorHost
	sub     *shm.Consumer
	sendRet *shm.IDProducer
	rx      *receiver
	fd      int

	stage []byte // headers and small payload of the batch
	iov   iovec  // the batch
	left  iovec  // the part of the batch that is not written yet
	held  []uint32

	in   []byte // bytes read ahead
	pos  int    // in up to here is delivered
	n    int    // in up to here is read
	open bool   // a frame has begun whose payload is not complete;
	dst  []byte // the place of the missing payload
	cur  frame
	full bool // there is no room for the next frame
	vec  iovec
}

type frame struct {
	n, kind uint32
	off     uint64
}

const (
	frameMessage = iota
	frameBulk    // to the region
)

func newRelay(h *floorHost, fd int) *relay {
	return &relay{h: h, fd: fd, sub: h.seg.SubConsumer(), sendRet: h.seg.SendRetProducer(), rx: newReceiver(h),
		stage: make([]byte, 0, floorBatch+floorStaged+floorHeader), in: make([]byte, floorBatch)}
}

// turn moves what can be moved, and reports whether it moved anything.
func (r *relay) turn() (work bool, err error) {
	if len(r.left) == 0 {
		r.gather()
	}
	if len(r.left) > 0 {
		n, err := r.left.sendTo(r.fd)
		if err != nil {
			return false, err
		}
		work = n > 0
		if r.left = r.left.skip(n); len(r.left) == 0 && len(r.held) > 0 {
			for _, id := range r.held {
				r.sendRet.Put(id)
			}
			r.held = r.held[:0]
			r.h.returned(r.sendRet)
		}
	}
	if r.rx.takeBack() {
		work, r.full = true, false
	}
	got, err := r.receive()
	return work || got, err
}

// gather makes the next batch. Headers and small payload are in the stage, large payload is
// where it was.
func (r *relay) gather() {
	r.stage, r.iov = r.stage[:0], r.iov[:0]
	var e shm.Entry
	staged, taken, returns := 0, 0, false // staged: bytes of the stage that are in iov
	for bytes := 0; bytes < floorBatch && taken < floorDescs && r.sub.Next(&e); taken++ {
		s := e.Sub()
		n := int(s.Len)
		f := frame{n: s.Len}
		var payload []byte
		if s.Flags&shm.SubFromBuf != 0 {
			f.kind, f.off = frameBulk, s.Off
			payload = r.h.region[s.Off : s.Off+uint64(n)]
		} else if n > 0 {
			payload = window(r.h.send, s.Chunk, n)
		}
		r.stage = binary.LittleEndian.AppendUint32(r.stage, f.n)
		r.stage = binary.LittleEndian.AppendUint32(r.stage, f.kind)
		r.stage = binary.LittleEndian.AppendUint64(r.stage, f.off)
		if n <= floorStaged {
			r.stage = append(r.stage, payload...)
			r.sendRet.Put(s.MsgID)
			returns = true
		} else {
			r.iov.add(r.stage[staged:])
			r.iov.add(payload)
			staged = len(r.stage)
			r.held = append(r.held, s.MsgID)
		}
		bytes += floorHeader + n
	}
	if taken == 0 {
		return
	}
	r.sub.Release()
	r.iov.add(r.stage[staged:])
	r.left = r.iov
	if returns {
		r.h.returned(r.sendRet)
	}
}

// read reads once. Large payload goes directly to its place.
func (r *relay) read() (n int, err error) {
	if r.pos == r.n || len(r.in)-r.n < floorDirect {
		r.n = copy(r.in, r.in[r.pos:r.n])
		r.pos = 0
	}
	r.vec = r.vec[:0]
	direct := 0
	if len(r.dst) >= floorDirect {
		direct = len(r.dst)
		r.vec.add(r.dst)
	}
	r.vec.add(r.in[r.n:])
	if len(r.vec) == 0 {
		return 0, nil
	}
	if n, err = r.vec.recvFrom(r.fd); err != nil {
		return 0, err
	}
	placed := min(n, direct)
	r.dst = r.dst[placed:]
	r.n += n - placed
	return n, nil
}

// receive delivers the complete frames that were read. It reads more unless there was no room.
func (r *relay) receive() (work bool, err error) {
	if !r.full {
		n, err := r.read()
		if err != nil {
			return false, err
		}
		work = n > 0
	}
	for {
		if r.open {
			k := copy(r.dst, r.in[r.pos:r.n])
			r.pos += k
			if r.dst = r.dst[k:]; len(r.dst) > 0 {
				break
			}
			r.open = false
			r.rx.deliver(r.cur)
			work = true
		}
		if r.n-r.pos < floorHeader {
			break
		}
		b := r.in[r.pos:r.n]
		r.cur = frame{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])}
		if r.dst, r.open = r.rx.begin(r.cur); !r.open {
			r.full = true
			break
		}
		r.full = false
		r.pos += floorHeader
	}
	r.rx.publish()
	return work, nil
}

// idle reports whether there is nothing to do. The relay calls it after it has announced sleep.
func (r *relay) idle() bool { return (len(r.left) > 0 || r.sub.Empty()) && r.rx.ret.Empty() }

func (r *relay) wants() []unix.PollFd {
	var tcp int16
	if !r.full {
		tcp = unix.POLLIN
	}
	if len(r.left) > 0 {
		tcp |= unix.POLLOUT
	}
	return []unix.PollFd{{Fd: int32(r.h.relayRecv), Events: unix.POLLIN}, {Fd: int32(r.fd), Events: tcp}}
}

// receiver delivers to one host's application.
type receiver struct {
	h    *floorHost
	ids  *ids
	ev   *shm.Producer
	ret  *shm.IDConsumer
	id   uint32
	news bool
}

func newReceiver(h *floorHost) *receiver {
	return &receiver{h: h, ids: newIDs(h.recv, floorParams().MaxRx), ev: h.seg.EventProducer(), ret: h.seg.RecvRetConsumer()}
}

// begin returns the place for the payload of f. ok is false if there is no room now.
func (d *receiver) begin(f frame) (dst []byte, ok bool) {
	if d.ev.Free() == 0 {
		return nil, false
	}
	if f.kind == frameBulk {
		return d.h.region[f.off : f.off+uint64(f.n)], true
	}
	d.id, dst, ok = d.ids.take(int(f.n))
	return dst, ok
}

// deliver announces the frame that begin made room for.
func (d *receiver) deliver(f frame) {
	e := d.ev.Reserve().Event()
	e.Kind, e.Len = shm.EvData, f.n
	if f.kind == frameBulk {
		e.Flags = frameBulk
	} else {
		e.Flags, e.RxID, e.Chunk = frameMessage, d.id, d.ids.refs[d.id].chunk
	}
	d.news = true
}

func (d *receiver) publish() {
	if !d.news {
		return
	}
	d.news = false
	d.ev.Publish()
	if shm.WakeNeeded(d.h.seg.ClientAsleep()) {
		shm.Ring(d.h.appSend)
	}
}

// takeBack frees the memory of messages that the application has copied.
func (d *receiver) takeBack() (work bool) {
	for {
		id, ok := d.ret.Take()
		if !ok {
			break
		}
		d.ids.giveBack(id)
		work = true
	}
	if work {
		d.ret.Release()
	}
	return work
}

// mover is a relay of either kind.
type mover interface {
	turn() (work bool, err error)
	idle() bool
	wants() []unix.PollFd
}

// drive runs m on this thread. Without work it yields for spin, then announces sleep to hosts
// and blocks.
func drive(m mover, spin time.Duration, hosts ...*floorHost) error {
	runtime.LockOSThread()
	start := time.Now()
	var last time.Duration
	for {
		work, err := m.turn()
		if err != nil {
			return err
		}
		now := time.Since(start)
		if work {
			last = now
			continue
		}
		if now-last < spin {
			yield()
			continue
		}
		for _, h := range hosts {
			h.seg.DaemonAsleep().Store(1)
		}
		if m.idle() {
			fds := m.wants()
			if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
				return err
			}
			for _, f := range fds {
				if f.Revents != 0 && slices.ContainsFunc(hosts, func(h *floorHost) bool { return int(f.Fd) == h.relayRecv }) {
					shm.ClearBell(int(f.Fd))
				}
			}
		}
		for _, h := range hosts {
			h.seg.DaemonAsleep().Store(0)
		}
		last = time.Since(start)
	}
}

// floorRelay is the process of a relay. The first of two relays listens, the second connects.
func floorRelay(w *worker.Worker) error {
	h, err := inheritHost(0, w.Int("region"), true)
	if err != nil {
		return err
	}
	c, err := relayConn(w)
	if err != nil {
		return err
	}
	tune(c)
	f, err := c.(*net.TCPConn).File()
	c.Close() // otherwise the runtime would poll the connection, too
	if err != nil {
		return err
	}
	defer f.Close()
	return relayServe(w, newRelay(h, int(f.Fd())), h)
}

// relayConn makes the connection between two relays. Both say that they are ready when it can be
// made.
func relayConn(w *worker.Worker) (net.Conn, error) {
	if a := w.Get("addr"); a != "" {
		if err := w.Ready("-"); err != nil {
			return nil, err
		}
		return net.Dial("tcp", a)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	if err := w.Ready(ln.Addr().String()); err != nil {
		return nil, err
	}
	return ln.Accept()
}

func relayServe(w *worker.Worker, m mover, hosts ...*floorHost) error {
	return w.Serve(func() error { return drive(m, w.Duration("spin"), hosts...) })
}
