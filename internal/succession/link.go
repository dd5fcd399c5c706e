package succession

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/handover"
	"golang.org/x/sys/unix"
)

// kind is the kind of a packet.
type kind uint16

const (
	kindHello   kind = 1 + iota // magic, u16 oldest, u16 newest, text: the program's version
	kindWelcome                 // u16 version
	kindParcel                  // u64 bytes, u32 files; one descriptor, of the bytes
	kindFiles                   // u32 the first one's place; up to batch descriptors
	kindGot                     // u32 how many descriptors have arrived
	kindReady
	kindAdopted
	kindGo
	kindGiveUp // text
	kindServes
	kindFault // u32 number of a session, text; others may follow, and then kindGiveUp. From version 3 of the state on

	// Between a daemon and its starter. Each begins with the u32 number of the daemon's
	// request, so that an answer that comes too late is not taken for that of another.

	kindStart      // text: the program; the successor's end of a connection
	kindStarted    // u32 process id
	kindNotStarted // text: why
	kindVerdict    // u8, and with verdictLeave the signals that the successor gets, u8 each
	kindEnded      // text: how the successor ended
	kinds
)

func (k kind) String() string {
	if k == 0 || k >= kinds {
		return fmt.Sprintf("packet %d", uint16(k))
	}
	return [kinds]string{"", "hello", "welcome", "parcel", "files", "got", "ready", "adopted", "go", "give up", "serves", "fault",
		"start", "started", "not started", "verdict", "ended"}[k]
}

const (
	magic     = "rdsdsucc"
	headSize  = 8
	maxPacket = headSize + 20 + unix.PathMax
	// batch is how many descriptors go with one packet (the kernel's SCM_MAX_FD). The next
	// batch goes when this one has arrived, so a parcel of any size has at most batch+1
	// descriptors on their way. The predecessor leaves room for as many below the kernel's
	// limit, whatever its clients do not receive (quota.UnreceivedWithin).
	batch = 253
)

var le = binary.LittleEndian

// Link is one end of the private connection, a pair of SOCK_SEQPACKET sockets that has no
// name. Only the two processes have it. One goroutine may use a Link.
type Link struct {
	c           *net.UnixConn
	buf         [maxPacket]byte
	oob         []byte
	part, pause time.Duration // PartTime, PauseTime
	peer        *Process      // the predecessor, if it has passed itself; see PeerIs
}

// NewPair makes a connection: the predecessor's end, and a file for the successor, which
// the caller closes when the successor has it.
func NewPair() (*Link, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("hand-over: %w", os.NewSyscallError("socketpair", err))
	}
	theirs := os.NewFile(uintptr(fds[1]), "hand-over")
	l, err := Open(os.NewFile(uintptr(fds[0]), "hand-over"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return l, theirs, nil
}

// Open makes a Link of f, which it closes.
func Open(f *os.File) (*Link, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok || u.LocalAddr().Network() != "unixpacket" {
		c.Close()
		return nil, fmt.Errorf("hand-over: descriptor %s is no SOCK_SEQPACKET unix socket: %w", f.Name(), unix.ENOTSOCK)
	}
	return &Link{c: u, oob: make([]byte, unix.CmsgSpace(batch*4)), part: failpoint.Limit(PartTime), pause: failpoint.Limit(PauseTime)}, nil
}

// Close ends the connection.
func (l *Link) Close() error { return l.c.Close() }

// limit bounds what follows.
func (l *Link) limit(d time.Duration) { _ = l.c.SetDeadline(time.Now().Add(d)) }

// send sends one packet. The descriptors stay the caller's.
func (l *Link) send(k kind, body []byte, fds ...int) error {
	b := le.AppendUint16(make([]byte, 0, headSize+len(body)), uint16(k))
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err := l.c.WriteMsgUnix(b, oob, nil)
	switch {
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return fmt.Errorf("send %v: %w", k, ErrGone)
	case errors.Is(err, unix.ETOOMANYREFS):
		return fmt.Errorf("send %v: %w: the user has as many descriptors on their way as it may have open; raise ulimit -n (LimitNOFILE=)", k, err)
	case err != nil:
		return fmt.Errorf("send %v: %w", k, err)
	}
	return nil
}

// packet is a received packet. Its body is valid until the next recv.
type packet struct {
	kind kind
	body []byte
	fds  []int
}

func (p *packet) closeFiles() { closeAll(p.fds) }

// recv receives a packet of kind want with so many descriptors. Another packet is an error,
// and the other side's reason to give up is one.
func (l *Link) recv(want kind, files int) (*packet, error) {
	p, err := l.next()
	if err != nil {
		return nil, fmt.Errorf("wait for %v: %w", want, err)
	}
	if err := p.is(want, files); err != nil {
		p.closeFiles()
		return nil, err
	}
	return p, nil
}

// next receives a packet of any kind.
func (l *Link) next() (*packet, error) {
	n, oobn, flags, _, err := l.c.ReadMsgUnix(l.buf[:], l.oob)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), err == nil && n == 0:
		return nil, ErrGone
	case err != nil:
		return nil, err
	}
	fds, err := rights(l.oob[:oobn])
	p := &packet{fds: fds}
	if err == nil {
		err = p.parse(l.buf[:n], flags)
	}
	if err != nil {
		p.closeFiles()
		return nil, err
	}
	return p, nil
}

func (p *packet) parse(b []byte, flags int) error {
	if flags&unix.MSG_CTRUNC != 0 {
		return fmt.Errorf("%w: no room for the descriptors; raise ulimit -n (LimitNOFILE=)", unix.EMFILE)
	}
	if len(b) < headSize || flags&unix.MSG_TRUNC != 0 || le.Uint16(b[2:]) != 0 || le.Uint32(b[4:]) != uint32(len(b)-headSize) {
		return fmt.Errorf("%w: malformed packet of %d bytes", ErrProtocol, len(b))
	}
	p.kind, p.body = kind(le.Uint16(b)), b[headSize:]
	return nil
}

// is returns an error unless p is a packet of kind want with so many descriptors.
func (p *packet) is(want kind, files int) error {
	switch {
	case p.kind == kindFault && len(p.body) >= 4:
		return &handover.Fault{Session: le.Uint32(p.body), Err: fmt.Errorf("%w: %.*s", ErrRefused, maxText, p.body[4:])}
	case p.kind == kindGiveUp:
		return fmt.Errorf("%w: %.*s", ErrRefused, maxText, p.body)
	case p.kind != want:
		return fmt.Errorf("%w: %v, not %v", ErrProtocol, p.kind, want)
	case len(p.fds) != files:
		return fmt.Errorf("%w: %v with %d descriptors, not %d", ErrProtocol, p.kind, len(p.fds), files)
	}
	return nil
}

// giveUp tells the other side why there will be no hand-over, if it is still there.
func (l *Link) giveUp(why error) {
	text := why.Error()
	l.limit(time.Second)
	_ = l.send(kindGiveUp, []byte(text[:min(len(text), maxText)]))
}

// refuse is giveUp of a successor that was handed a state of a version. From version 3 on the
// predecessor is told if why is about sessions alone.
func (l *Link) refuse(version uint16, why error) {
	if version >= 3 {
		l.limit(time.Second)
		for _, f := range handover.FaultsIn(why) {
			text := f.Err.Error()
			_ = l.send(kindFault, append(le.AppendUint32(nil, f.Session), text[:min(len(text), maxText)]...))
		}
	}
	l.giveUp(why)
}

// faults adds to err, a refusal, those that follow it. Another error is returned as it is.
func (l *Link) faults(err error) error {
	var all handover.Faults
	for f := (*handover.Fault)(nil); errors.As(err, &f) && len(all) < mostFaults; _, err = l.recv(kindGiveUp, 0) {
		all = append(all, f)
	}
	if len(all) == 0 {
		return err
	}
	return all
}

// rights collects the descriptors of all control messages.
func rights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	scms, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", ErrProtocol, err)
	}
	var fds []int
	for i := range scms {
		if more, err := unix.ParseUnixRights(&scms[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// PeerGone returns a function that reports whether the process that made the connection has
// ended. It waits for the end for at most PauseTime: a process that ends closes its
// descriptors before the kernel says so. forget has to be called when gone is needed no more.
func (l *Link) PeerGone() (gone func() bool, forget func(), err error) {
	p := l.peer
	if p == nil {
		if p, err = PeerProcess(l.c); err != nil { // it lives: it waits for this process's hello
			return nil, nil, err
		}
	}
	return func() bool { return p.EndsWithin(l.pause) }, p.Close, nil
}

// PeerIs says which process the predecessor is, which has passed its own pidfd: from another pid
// namespace an old kernel does not say. The Link takes p.
func (l *Link) PeerIs(p *Process) { l.peer = p }
