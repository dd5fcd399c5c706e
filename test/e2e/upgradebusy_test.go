package e2e

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// rawConn is a connection to the daemon that does with the control protocol what it likes.
type rawConn struct {
	t *testing.T
	c *net.UnixConn
	*ipc.Conn
}

func dialRawConn(t *testing.T, h *host) *rawConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.sock, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ipc.NewConn(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &rawConn{t, c, conn}
}

// hears waits for an answer of the type of want.
func (r *rawConn) hears(want ipc.Body) {
	r.t.Helper()
	r.SetReadDeadline(time.Now().Add(patience))
	m, err := r.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	m.CloseFDs()
	if m.Body.Type() != want.Type() {
		r.t.Fatalf("%+v, not %v", m.Body, want.Type())
	}
}

// asks sends a request.
func (r *rawConn) asks(m ipc.Request) {
	r.t.Helper()
	if err := r.Send(1, m); err != nil {
		r.t.Fatal(err)
	}
}

// floods sends a request until neither side's queue has room, because it reads no answer. The daemon
// may be slow, so there is no room only if it has taken nothing between two looks.
func (r *rawConn) floods(m ipc.Request) {
	r.t.Helper()
	frame, last := ipc.AppendFrame(nil, 1, m), -1
	for {
		r.c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		_, err := r.c.Write(frame)
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			r.t.Fatal(err)
		}
		now := r.untaken()
		if now == last {
			return
		}
		last = now
	}
}

// untaken is how much the daemon has not taken of what was sent.
func (r *rawConn) untaken() (n int) {
	r.t.Helper()
	raw, err := r.c.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// TestUpgradeBusy: nothing that processes leave on their control connections keeps a daemon from
// being replaced. Requests for much memory are carried out by the new one. Who reads no answers
// loses its session, alone.
func TestUpgradeBusy(t *testing.T) {
	isolated(t, func(t *testing.T) {
		here, there := newHost(t), newHost(t)
		here.expected = append(here.expected, "frame of 3 bytes", "said nothing", "lost in a planned restart", "does not read what the daemon sends")
		b := startBystanders(t, here, there)
		small := shm.Params{SubEntries: 256, EventEntries: 256, MaxMsgs: 256, MaxRx: 256, Slots: 64, Cells: 64, SendWindows: 1, RecvWindows: 1}
		attached := func() *rawConn {
			t.Helper()
			r := dialRawConn(t, here)
			r.asks(&ipc.Hello{Role: ipc.RoleClient, Name: "busy", Params: small})
			r.hears(&ipc.HelloOK{})
			return r
		}
		dialRawConn(t, here) // says nothing
		unread, bad := attached(), attached()
		unread.floods(&ipc.Addrs{})
		if _, err := bad.c.Write([]byte{1, 2, 3}); err != nil { // half a frame
			t.Fatal(err)
		}
		tool := dialRawConn(t, here)
		tool.asks(&ipc.Hello{Role: ipc.RoleCtl})
		tool.hears(&ipc.HelloOK{})
		question, err := json.Marshal(ctl.Request{Schema: ctl.Schema, Kind: ctl.KindStatus})
		if err != nil {
			t.Fatal(err)
		}
		tool.floods(&ipc.Ctl{JSON: question})
		few := attached()
		few.asks(&ipc.Addrs{}) // an answer that is read later
		var allocs, hellos []*rawConn
		for range 2 {
			allocs = append(allocs, attached())
		}
		for _, r := range allocs {
			r.asks(&ipc.Alloc{Size: 512 << 20})
		}
		big := small
		big.SendWindows, big.RecvWindows = 8, 8
		for range 8 {
			r := dialRawConn(t, here)
			r.asks(&ipc.Hello{Role: ipc.RoleClient, Name: "comer", Params: big})
			hellos = append(hellos, r)
		}
		here.upgradeWithin()
		b.progress()
		few.hears(&ipc.AddrsOK{})
		for _, r := range allocs {
			r.hears(&ipc.AllocOK{})
		}
		for _, r := range hellos {
			r.hears(&ipc.HelloOK{})
		}
		for _, r := range []*rawConn{unread, bad, tool} { // their sessions have ended
			r.SetReadDeadline(time.Now().Add(patience))
			for err := error(nil); err == nil; {
				if _, err = r.Recv(); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("a session goes on")
				}
			}
		}
		few.asks(&ipc.Addrs{})
		few.hears(&ipc.AddrsOK{})
		b.finish()
	})
}
