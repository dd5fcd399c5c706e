package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"slices"

	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

const (
	tagListeners  = handover.TagDaemon + 8
	mostListeners = 1 << 12
	longestPlace  = 256
)

// handOver has the sockets go over. In the daemon that hands over they stay open, and go on if the one
// that takes over gives up. The one that takes over has none, and closes what it was passed after an
// error of s.
func (ls *listeners) handOver(s *handover.State, f *handover.Files) {
	s.Begin(tagListeners)
	if !s.Reads() {
		ls.before = os.Getpid()
	}
	s.Int(&ls.before, math.MaxInt32)
	for i := range s.Count(1+len(ls.tcp), mostListeners, 4+4+1+8) {
		at, fd, p := "", -1, passedSocket{}
		switch {
		case s.Reads():
		case i == 0:
			at, fd, p.supervised = passing(ls.control)
			p.inode = ls.file.Inode()
		default:
			at, fd, p.supervised = passing(ls.tcp[i-1])
		}
		s.String(&at, longestPlace)
		f.FD(s, &fd)
		s.Bool(&p.supervised)
		s.U64(&p.inode)
		if s.Reads() && !ls.pass(s, at, fd, p) {
			break
		}
	}
	if s.End(); s.Reads() && s.Err() != nil {
		ls.close()
	}
}

// passing is what another daemon has to know of l.
func passing[C any](l *gated[C]) (at string, fd int, supervised bool) {
	fd = -1
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(d uintptr) { fd = int(d) })
	}
	return place(l.Addr()), fd, l.supervised
}

// pass takes over a socket that was passed. It returns false, and has closed fd, after an error of s.
func (ls *listeners) pass(s *handover.State, at string, fd int, p passedSocket) bool {
	if s.Err() != nil {
		_ = unix.Close(fd)
		return false
	}
	var err error
	if p.acceptor, err = acceptorOf(fd); err != nil {
		s.Fail("%s: %v", at, err)
		return false
	}
	if got := place(p.Addr()); got != at || ls.has(at) {
		s.Fail("%s is the socket %s, or twice", at, got)
	}
	ls.passed = append(ls.passed, p)
	return true
}

// has reports whether a socket at this place was passed.
func (ls *listeners) has(at string) bool {
	return slices.ContainsFunc(ls.passed, func(p passedSocket) bool { return place(p.Addr()) == at })
}

var errNotListening = errors.New("not a listening socket of a daemon")

// acceptorOf makes a listening socket of a descriptor, which it takes.
func acceptorOf(fd int) (acceptor[net.Conn], error) {
	// The daemon before has the same open file: it must not block there, at no time.
	_ = unix.SetNonblock(fd, true)
	file := os.NewFile(uintptr(fd), "listening socket")
	defer file.Close()
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
		return nil, errNotListening
	}
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotListening, err)
	}
	switch l := l.(type) {
	case *net.TCPListener:
		return l, nil
	case *net.UnixListener:
		if l.Addr().Network() == "unixpacket" {
			return l, nil
		}
	}
	l.Close()
	return nil, errNotListening
}

// own makes this daemon responsible for what the daemon before was responsible for: the
// control socket's file, which gets the permissions mode. It closes the sockets that the
// settings do not name any more. It is called once the daemon before has let go.
func (ls *listeners) own(mode fs.FileMode) (err error) {
	if ls.inode != 0 {
		err = ls.file.Own(ls.inode, mode)
	}
	ls.inode = 0
	for _, p := range ls.passed {
		u, ok := p.acceptor.(*net.UnixListener)
		if !ok {
			p.Close()
			continue
		}
		l, e := ipc.Adopt(u, u.Addr().String())
		if e == nil && p.inode != 0 {
			e = l.Own(p.inode, mode)
		}
		if e == nil {
			e = l.Close()
		}
		err = errors.Join(err, e)
	}
	ls.passed = nil
	return err
}

// leave closes the control socket and leaves its file to the daemon that took it over.
func (ls *listeners) leave() {
	ls.file.Leave()
	ls.close()
}
