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
	"github.com/rdsd/rdsd/internal/mutant"
	"golang.org/x/sys/unix"
)

const (
	tagListeners  = handover.TagDaemon + 8
	mostListeners = 1 << 12
	longestPlace  = 256
)

// encode writes the sockets for a daemon that takes over. They stay open here, and go on
// if that daemon gives up.
func (ls *listeners) encode(w *handover.Writer, f *outFiles) {
	w.Begin(tagListeners)
	w.Int(os.Getpid())
	w.Count(1 + len(ls.tcp))
	encodeListener(w, f, ls.control, ls.file.Inode())
	for _, l := range ls.tcp {
		encodeListener(w, f, l, 0)
	}
	w.End()
}

func encodeListener[C any](w *handover.Writer, f *outFiles, l *gated[C], inode uint64) {
	fd := -1
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(d uintptr) { fd = int(d) })
	}
	w.String(place(l.Addr()))
	w.U32(f.add(fd))
	w.Bool(l.supervised)
	w.U64(inode)
}

// adoptListeners returns the listeners of a daemon that takes over, with the sockets that
// encode wrote. After an error it returns nil, and the sockets are closed.
func adoptListeners(r *handover.Reader, f *inFiles) *listeners {
	ls := &listeners{gate: newGate()}
	r.Begin(tagListeners)
	ls.before = r.Int(math.MaxInt32)
	for range r.Count(mostListeners, 4+4+1+8) {
		at, fd := r.String(longestPlace), f.take(r, r.U32())
		p := passedSocket{supervised: r.Bool(), inode: r.U64()}
		if r.Err() != nil {
			_ = unix.Close(fd)
			break
		}
		var err error
		if p.acceptor, err = acceptorOf(fd); err != nil {
			r.Fail("%s: %v", at, err)
			break
		}
		if got := place(p.Addr()); got != at || ls.has(at) {
			r.Fail("%s is the socket %s, or twice", at, got)
		}
		ls.passed = append(ls.passed, p)
	}
	r.End()
	if r.Err() != nil {
		ls.close()
		return nil
	}
	return ls
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
	if !mutant.On(mutant.SocketFileTaken) {
		ls.file.Leave()
	}
	ls.close()
}
