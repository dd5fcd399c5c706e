package soft

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// TestMaxSegment: a connection that is made with a limit of its segments has it in both directions, and the
// side that is asked learns how large they are.
func TestMaxSegment(t *testing.T) {
	for _, most := range []int{0, 1220, 536} {
		a, b := newHost(t, Options{}), newHost(t, Options{})
		l, err := b.dev.Listen(loopback)
		if err != nil {
			t.Fatal(err)
		}
		qa, qb := a.newQP(attrs()), b.newQP(attrs())
		if err := a.dev.Connect(qa, verbs.ConnectParam{Remote: l.Addr(), MaxSegment: most}); err != nil {
			t.Fatal(err)
		}
		req := b.event(a)
		if err := b.dev.Accept(req.Req, qb, nil); err != nil {
			t.Fatal(err)
		}
		a.event(b)
		b.event(a)
		for name, got := range map[string]int{"of the request": req.Segment, "here": segmentOf(qa.(*qp).fd), "there": segmentOf(qb.(*qp).fd)} {
			if limited := got > 0 && got <= most; limited != (most > 0) || got == 0 {
				t.Errorf("segments %s have %d bytes, the limit is %d", name, got, most)
			}
		}
		if p := qa.(verbs.OverTCP).Path(); p.Stuck || p.Passes {
			t.Errorf("path %+v", p)
		}
		qa.ToError()
		if p := qa.(verbs.OverTCP).Path(); p != (verbs.Path{}) {
			t.Errorf("path %+v of a connection that is gone", p)
		}
	}
}

// TestBlamed: a set-up that only took long is not blamed on large packets.
func TestBlamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if no, err := noEnd(c, io.EOF); no || err != io.EOF {
		t.Error(no, err)
	}
	if err := blamed(c, os.ErrDeadlineExceeded); err != os.ErrDeadlineExceeded || errors.Is(err, verbs.ErrLarge) {
		t.Error(err)
	}
}

// TestBlamedAtEnd: large packets are blamed although it is the peer that ends the set-up.
func TestBlamedAtEnd(t *testing.T) {
	const most = 1300 // bytes of a packet that the peer gets
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return dropLarge(c, most) }}
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return limitSegment(c, most) }}
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, 3*most)); err != nil {
		t.Fatal(err)
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for stuck := false; !stuck; runtime.Gosched() {
		if err := raw.Control(func(fd uintptr) { p, _ := pathOf(int(fd)); stuck = p.Stuck }); err != nil {
			t.Fatal(err)
		}
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	_, err = c.Read(make([]byte, 1))
	if no, why := noEnd(c, err); err != io.EOF || !no || !errors.Is(why, verbs.ErrLarge) {
		t.Errorf("%v: %v, %v", err, no, why)
	}
}

// dropLarge has a socket, and those it accepts, not get packets of more than n bytes.
func dropLarge(c syscall.RawConn, n uint32) error {
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_LEN},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: n, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 18},
	}
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
	}); e != nil {
		return e
	}
	return err
}
