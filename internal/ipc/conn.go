package ipc

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sendTimeout bounds a Send to a process that does not read its socket.
const sendTimeout = 10 * time.Second

// Message is a received frame.
type Message struct {
	ID   uint32
	Body Body
	FDs  []int // the receiver has to close them

	// Refused is why the descriptor of an Import was not taken. It is nil otherwise.
	Refused error
}

// CloseFDs closes the descriptors that nobody has taken. Taken ones are -1.
func (m *Message) CloseFDs() { closeFDs(m.FDs) }

func closeFDs(fds []int) {
	for i, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
			fds[i] = -1
		}
	}
}

// Cred is the process at the other end, as the kernel recorded it when the connection was
// made.
type Cred struct {
	PID      int
	UID, GID uint32
	Label    string // of the cgroup that the process was in, see config.Policy.Label; "": none
}

// Conn is one control connection. One goroutine may receive, any may send.
type Conn struct {
	c      *net.UnixConn
	peer   Cred
	counts any // whom its threads count for
	buf    []byte
	oob    []byte
	closer *closer // set at the daemon's end
	taker  *taker  // set at the daemon's end, which takes descriptors with Import alone
	takes  bool    // TakeImports was called

	gave         atomic.Bool   // descriptors were sent, and some may be unread
	received     chan struct{} // see Received; nil but at the daemon's end
	receivedOnce sync.Once

	holding sync.Mutex
	held    bool // see Hold; guarded by holding
	due     bool // to be released when it is not held any more; guarded by holding

	sending     sync.Mutex
	sendTimeout time.Duration // set by SetSendTimeout; 0: sendTimeout, below 0: no wait. Guarded by sending
}

// NewConn takes over c, a connected SOCK_SEQPACKET socket.
func NewConn(c *net.UnixConn) (*Conn, error) {
	cred, err := peerCred(c)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Conn{c: c, peer: cred, counts: cred.UID, buf: make([]byte, MaxFrame), oob: make([]byte, unix.CmsgSpace(MaxFDs*4))}, nil
}

func peerCred(c *net.UnixConn) (Cred, error) {
	u, err := option(c, func(fd int) (*unix.Ucred, error) { return unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil {
		return Cred{}, os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	return Cred{PID: int(u.Pid), UID: u.Uid, GID: u.Gid}, nil
}

// option returns what get returns of the descriptor of c.
func option[T any](c *net.UnixConn, get func(fd int) (T, error)) (v T, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return v, err
	}
	var got error
	if err := raw.Control(func(fd uintptr) { v, got = get(int(fd)) }); err != nil {
		return v, err
	}
	return v, got
}

// Peer is the process at the other end.
func (c *Conn) Peer() Cred { return c.peer }

// CountFor says which account the connection counts for. The connections of one account share the
// threads that it may have. The account is of any comparable type.
func (c *Conn) CountFor(account any) { c.counts = account }

// Close closes the connection. A Recv that waits fails with net.ErrClosed or io.EOF. Close
// does not block, whatever the other side has sent. At the daemon's end it keeps the
// descriptor while the other side has not received descriptors that were sent to it: see
// Received.
func (c *Conn) Close() error {
	if c.closer == nil {
		return c.c.Close()
	}
	raw, err := c.c.SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Control(func(f uintptr) { _ = unix.Shutdown(int(f), unix.SHUT_RDWR) }); err != nil {
		return err
	}
	return c.linger()
}

// HungUp reports whether the other side has closed the connection or its direction. Frames
// of the other side may still be unread then.
func (c *Conn) HungUp() bool {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return true
	}
	up := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		up = err != nil || n == 0
	})
	return err != nil || !up
}

// SetReadDeadline bounds Recv, also one in progress. After the deadline Recv fails with
// os.ErrDeadlineExceeded and has read nothing. The zero time is no bound.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.c.SetReadDeadline(t) }

// SetSendTimeout bounds every Send by d from now on, also one in progress. 0 is sendTimeout. If d is
// below 0, no Send waits that begins from now on: it fails if the other side's queue is full.
func (c *Conn) SetSendTimeout(d time.Duration) {
	c.sending.Lock()
	c.sendTimeout = d
	c.sending.Unlock()
	_ = c.limitSend()
}

// limitSend gives a Send its time.
func (c *Conn) limitSend() error {
	c.sending.Lock()
	defer c.sending.Unlock()
	d := c.sendTimeout
	switch {
	case d < 0:
		return nil
	case d == 0:
		d = sendTimeout
	}
	return c.c.SetWriteDeadline(time.Now().Add(d))
}

// Send sends one frame. The descriptors stay the caller's. It blocks while the other side's
// queue is full, for at most sendTimeout or what SetSendTimeout says
// (os.ErrDeadlineExceeded). EPIPE means that the other side has closed.
func (c *Conn) Send(id uint32, m Body, fds ...int) error {
	if err := c.limitSend(); err != nil {
		return err
	}
	if len(fds) > 0 {
		c.gave.Store(true)
	} else if c.gave.Load() && !c.Unread() {
		c.gave.Store(false)
	}
	b, oob, err := packed(id, m, fds)
	if err != nil {
		return err
	}
	err = c.sendIn(b, oob)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return c.sendNow(b, oob) // the time may have passed before the first attempt, if this thread did not run
	}
	return err
}

// TrySend is Send of a frame without descriptors that never waits. It reports whether the frame was sent. If not, the
// other side's queue is full or the connection has ended: Send waits, or says so.
func (c *Conn) TrySend(id uint32, m Body) bool {
	b, _, err := packed(id, m, nil)
	return err == nil && c.sendNow(b, nil) == nil
}

// packed is a frame and the control message with its descriptors.
func packed(id uint32, m Body, fds []int) (b, oob []byte, err error) {
	if len(fds) > MaxFDs {
		return nil, nil, fmt.Errorf("%v with %d descriptors, %d go with one frame: %w", m.Type(), len(fds), MaxFDs, unix.E2BIG)
	}
	if b = AppendFrame(nil, id, m); len(b) > MaxFrame {
		return nil, nil, fmt.Errorf("%v of %d bytes, a frame has %d: %w", m.Type(), len(b), MaxFrame, unix.EMSGSIZE)
	}
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	return b, oob, nil
}

// sendIn sends a frame within the time that limitSend gave.
func (c *Conn) sendIn(b, oob []byte) error {
	if !c.mayWait() {
		return c.sendNow(b, oob)
	}
	_, _, err := c.c.WriteMsgUnix(b, oob, nil)
	return err
}

func (c *Conn) mayWait() bool {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.sendTimeout >= 0
}

// sendNow sends a frame if the other side's queue has room for it. The error is
// os.ErrDeadlineExceeded otherwise.
func (c *Conn) sendNow(b, oob []byte) error {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) {
		for sent = unix.EINTR; sent == unix.EINTR; {
			_, sent = unix.SendmsgN(int(fd), b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}
	}); err != nil {
		return err
	}
	if sent == unix.EAGAIN {
		return os.ErrDeadlineExceeded
	}
	return sent
}

// Recv receives one frame. io.EOF means that the other side has closed. ErrProtocol means
// that it sent something that is not allowed; descriptors that came along are closed. After
// any error but os.ErrDeadlineExceeded the caller should close the connection.
func (c *Conn) Recv() (*Message, error) {
	if c.closer != nil {
		if with, err := c.peek(); err != nil {
			return nil, err
		} else if with {
			return c.take()
		}
	}
	n, oobn, flags, _, err := c.c.ReadMsgUnix(c.buf, c.oob)
	if errors.Is(err, unix.ECONNRESET) {
		// The other side closed without having read everything. The frames that it sent
		// before are still here, and may say why.
		n, oobn, flags, _, err = c.c.ReadMsgUnix(c.buf, c.oob)
	}
	if err != nil {
		return nil, err
	}
	fds, err := parseFDs(c.oob[:oobn])
	if err != nil {
		return nil, err
	}
	m, err := c.check(n, flags, fds)
	if err != nil {
		closeFDs(fds)
	}
	return m, err
}

// peek waits for a frame. It reports whether the frame is an Import with a descriptor. Any
// other frame with descriptors is an error and stays unread, because reading it would close
// them and that may take long (see closer).
func (c *Conn) peek() (with bool, err error) {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return false, err
	}
	var flags int
	var head [headerSize]byte
	var got error
	if err := raw.Read(func(fd uintptr) bool {
		_, _, flags, _, got = unix.Recvmsg(int(fd), head[:], nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return got != unix.EAGAIN && got != unix.EINTR
	}); err != nil {
		return false, err
	}
	if got != nil || flags&unix.MSG_CTRUNC == 0 {
		return false, nil // Recv gets the same error
	}
	if c.takes && Type(le.Uint16(head[:])) == TypeImport {
		return true, nil
	}
	return false, protocolError("a frame with descriptors; no request but Import has one")
}

// check parses the frame in buf. It compares the descriptors that came along with those
// that the type may have.
func (c *Conn) check(n, flags int, fds []int) (*Message, error) {
	switch {
	case n == 0:
		return nil, io.EOF
	case flags&unix.MSG_TRUNC != 0:
		return nil, protocolError("frame longer than %d bytes", MaxFrame)
	}
	id, body, err := ParseFrame(c.buf[:n])
	switch {
	case err != nil:
		return nil, err
	case id == 0 && c.closer != nil:
		return nil, protocolError("%v with id 0, which is the daemon's own", body.Type())
	case len(fds) > body.Type().maxFDs():
		return nil, protocolError("%v with %d descriptors", body.Type(), len(fds))
	case flags&unix.MSG_CTRUNC != 0:
		// The kernel drops descriptors for which the process has no room.
		return nil, fmt.Errorf("%v lost descriptors on the way: %w: raise ulimit -n (LimitNOFILE=)", body.Type(), unix.EMFILE)
	}
	return &Message{ID: id, Body: body, FDs: fds}, nil
}

// parseFDs collects the descriptors of all control messages.
func parseFDs(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	scms, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, protocolError("control message: %v", err)
	}
	var fds []int
	for i := range scms {
		if more, err := unix.ParseUnixRights(&scms[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	return fds, nil
}

// SendErr answers request id with the text of err and the errno in it, or EIO.
func (c *Conn) SendErr(id uint32, err error) error {
	return c.Send(id, &Err{Errno: uint32(errnoOf(err)), Text: err.Error()})
}

// SendJSON answers the Ctl request id, in parts. All of them have the time of one Send. Its
// error is EMSGSIZE above MaxCtl.
func (c *Conn) SendJSON(id uint32, json []byte) error {
	if len(json) > MaxCtl {
		return fmt.Errorf("answer of %d bytes, at most %d: %w", len(json), MaxCtl, unix.EMSGSIZE)
	}
	if err := c.limitSend(); err != nil {
		return err
	}
	for len(json) > maxCtlPart {
		if err := c.sendPart(id, &CtlPart{JSON: json[:maxCtlPart]}); err != nil {
			return err
		}
		json = json[maxCtlPart:]
	}
	return c.sendPart(id, &CtlPart{Last: true, JSON: json})
}

// sendPart sends a part of an answer within the time that limitSend gave the whole.
func (c *Conn) sendPart(id uint32, part *CtlPart) error {
	b, oob, err := packed(id, part, nil)
	if err != nil {
		return err
	}
	return c.sendIn(b, oob)
}

// isGone reports whether err of Send or Recv means that the other side closed.
func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
