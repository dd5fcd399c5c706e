package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/service"
	"golang.org/x/sys/unix"
)

// listeners are the daemon's listening sockets: for control connections, for peers, for
// RDS/TCP and for metrics. A socket that was passed is taken; others are opened. Nothing is
// accepted before open.
type listeners struct {
	gate    *gate
	control *gated[*ipc.Conn] // nil until openControl
	file    *ipc.Listener     // of control
	inode   uint64            // of the file that own makes this daemon's, 0 if there is none
	tcp     []*gated[net.Conn]
	passed  []passedSocket // nothing has taken them
	before  int            // process id of the daemon that passed them, 0 if none did
}

// passedSocket is a socket that was open when the daemon started.
type passedSocket struct {
	acceptor[net.Conn]
	supervised bool   // by the supervisor; else by the daemon before
	inode      uint64 // of the control socket's file, 0 if the daemon before does not own it
}

// newListeners returns the listeners of a daemon to which s was passed. s has no sockets
// afterwards.
func newListeners(s *service.Sockets) *listeners {
	ls := &listeners{gate: newGate()}
	if s == nil {
		return ls
	}
	if s.Control != nil {
		ls.passed = append(ls.passed, passedSocket{acceptor: s.Control, supervised: true})
	}
	for _, l := range s.Peers {
		ls.passed = append(ls.passed, passedSocket{acceptor: l, supervised: true})
	}
	s.Control, s.Peers = nil, nil
	return ls
}

// openControl takes the control socket at path, or opens it with the permissions mode.
func (ls *listeners) openControl(path string, mode fs.FileMode) (err error) {
	p := ls.take(&net.UnixAddr{Name: path, Net: "unixpacket"})
	if p == nil {
		ls.file, err = ipc.Listen(path, mode)
	} else if ls.file, err = ipc.Adopt(p.acceptor.(*net.UnixListener), path); err != nil {
		p.Close()
	}
	if err == nil {
		ls.control = newGated[*ipc.Conn](ls.gate, ls.file, p != nil && p.supervised)
	}
	if err == nil && p != nil {
		ls.inode = p.inode
	}
	return err
}

// listen takes the TCP socket at addr, or opens it.
func (ls *listeners) listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	p := ls.take(net.TCPAddrFromAddrPort(addr))
	if p == nil {
		l, err := openTCP(ctx, addr)
		if err != nil {
			return nil, err
		}
		p = &passedSocket{acceptor: l.(*net.TCPListener)}
	}
	l := newGated(ls.gate, p.acceptor, p.supervised)
	ls.tcp = append(ls.tcp, l)
	return l, nil
}

// openTCP opens a listening socket at addr. The host need not have the address yet: the
// connections begin to arrive when it has.
func openTCP(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // peers and Landlock know TCP alone
	l, err := lc.Listen(ctx, "tcp", addr.String())
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		lc.Control = freeBind
		l, err = lc.Listen(ctx, "tcp", addr.String())
	}
	return l, err
}

// take removes the passed socket at an address. It returns nil if there is none.
func (ls *listeners) take(at net.Addr) *passedSocket {
	for i, p := range ls.passed {
		if place(p.Addr()) == place(at) {
			ls.passed = slices.Delete(ls.passed, i, i+1)
			return &p
		}
	}
	return nil
}

// place is the text of a listening socket's address.
func place(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return "tcp " + netip.AddrPortFrom(p.Addr().Unmap(), p.Port()).String()
	}
	return a.Network() + " " + a.String()
}

// allTaken returns an error if the supervisor passed sockets that nothing has taken.
func (ls *listeners) allTaken() error {
	var left []string
	for _, p := range ls.passed {
		if p.supervised {
			left = append(left, p.Addr().String())
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("systemd passed sockets that the settings socket, listen and port do not name: %s", strings.Join(left, ", "))
	}
	return nil
}

// open has connections accepted. shut ends that, and open goes on with it.
func (ls *listeners) open() { ls.gate.open() }

// shut ends that connections are accepted: they wait. When it returns, no Accept returns a
// connection any more.
func (ls *listeners) shut() { ls.gate.shut() }

// close closes the control socket, removes its file if that is this daemon's, and closes
// what nothing has taken. The others are closed by those that listen on them.
func (ls *listeners) close() {
	if ls.control != nil {
		ls.control.Close()
	}
	for _, p := range ls.passed {
		p.Close()
	}
	ls.passed = nil
}
