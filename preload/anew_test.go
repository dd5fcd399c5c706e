package preload

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
	"golang.org/x/sys/unix"
)

// anew is a program that sends a message to another host's port when it is told to.
func anew(t *testing.T, socket string, at netip.Addr, to netip.AddrPort) *talk {
	t.Helper()
	prog := filepath.Join(built(t, ""), "pre-anew")
	return startTalk(t, preloadedAt(t, socket, "", prog, at.String(), to.Addr().String(), fmt.Sprint(to.Port())))
}

// send has the program send n messages.
func (k *talk) send(n int) {
	k.t.Helper()
	for range n {
		k.next()
		k.ready()
	}
}

// TestBoundAnew: a program's message to another host goes to whichever socket is bound there when it arrives.
func TestBoundAnew(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	c := ds[1].Open(t)
	s := ds[1].Bind(t, c, 0)
	at := s.LocalAddrPort()
	k := anew(t, ds[0].Socket(), ds[0].Addr(), at)
	for n := range 20 {
		k.send(1)
		if _, err := s.Wait(t.Context(), rds.WaitSet{Message: true}); err != nil {
			t.Fatalf("socket %d: %v", n, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = ds[1].Bind(t, c, at.Port())
	}
	k.in.Close()
	k.finish()
}

// TestBoundAnewOlder: with a daemon that is too old for that a destination meets a socket, and forgets it once a message
// has come back. The program sees no error.
func TestBoundAnewOlder(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	c := ds[1].Open(t)
	s := ds[1].Bind(t, c, 0)
	at := s.LocalAddrPort()
	k := anew(t, older(t, ds[0].Socket()), ds[0].Addr(), at)
	k.send(1)
	if _, err := s.Wait(t.Context(), rds.WaitSet{Message: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = ds[1].Bind(t, c, at.Port())
	came := make(chan error, 1)
	go func() {
		_, err := s.Wait(t.Context(), rds.WaitSet{Message: true})
		came <- err
	}()
	for n := 1; ; n++ {
		k.send(1)
		select {
		case err := <-came:
			if err != nil || n == 1 {
				t.Errorf("message %d: %v; the first is for the socket that was met", n, err)
			}
			k.in.Close()
			k.finish()
			return
		default:
		}
	}
}

// older is a control socket before that of a daemon, at which programs find it to be of a version that does not know
// ipc.FeatureAnybody.
func older(t *testing.T, socket string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "older.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.AcceptUnix()
			if err != nil {
				return
			}
			to, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
			if err != nil {
				t.Error(err)
				from.Close()
				return
			}
			go pass(from, to, true)
			go pass(to, from, false)
		}
	}()
	return path
}

// pass passes frames and descriptors on, but for the feature in the first one.
func pass(from, to *net.UnixConn, hello bool) {
	defer from.Close()
	defer to.Close()
	const features = 16 // of Hello: behind the frame's header, magic and version
	b, oob := make([]byte, 1<<16), make([]byte, 1<<12)
	for {
		n, noob, _, _, err := from.ReadMsgUnix(b, oob)
		if err != nil || n == 0 {
			return
		}
		if hello {
			binary.LittleEndian.PutUint64(b[features:], binary.LittleEndian.Uint64(b[features:])&^ipc.FeatureAnybody)
			hello = false
		}
		if _, _, err := to.WriteMsgUnix(b[:n], oob[:noob], nil); err != nil {
			return
		}
		closeAll(oob[:noob])
	}
}

// closeAll closes the descriptors of control messages.
func closeAll(oob []byte) {
	messages, _ := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
}
