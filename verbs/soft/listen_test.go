package soft

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListenOption: Options.Listen opens the listening sockets. Its errors are Listen's, and
// the device closes what it opened.
func TestListenOption(t *testing.T) {
	var l net.Listener
	fail := error(unix.EADDRINUSE)
	b := newHost(t, Options{Listen: func(ctx context.Context, at netip.AddrPort) (_ net.Listener, err error) {
		if fail != nil {
			return nil, fail
		}
		l, err = openTCP(ctx, at)
		return l, err
	}})
	if _, err := b.dev.Listen(loopback); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("the error of the option: %v", err)
	}
	fail = nil
	a := newHost(t, Options{})
	at := attrs()
	via := linkVia(t, a, b, at, at, func(p netip.AddrPort) netip.AddrPort { return p })
	if via.Addr() != addrOf(l.Addr()) {
		t.Errorf("listens at %v, opened was %v", via.Addr(), l.Addr())
	}
	b.dev.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("is not closed: %v", err)
	}
}
