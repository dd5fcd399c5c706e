package ipc

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// attached returns a client and the daemon's end of its connection.
func attached(t *testing.T) (*Client, *Conn) {
	t.Helper()
	a, b := rawPair(t)
	conn, err := NewConn(a)
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(conn)
	t.Cleanup(func() { c.Close() })
	return c, wrap(t, b)
}

func recv(t *testing.T, c *Conn) *Message {
	m, err := c.Recv()
	if err != nil {
		t.Error(err)
		return &Message{Body: &OK{}}
	}
	return m
}

func TestCall(t *testing.T) {
	c, d := attached(t)
	r, _ := pipeFD(t)
	before := openFDs(t)
	go func() {
		m := recv(t, d)
		if b, is := m.Body.(*Alloc); !is || b.Size != 77 || m.ID == 0 {
			t.Errorf("request %+v", m)
		}
		d.Send(m.ID, &AllocOK{Buffer: 5, Size: 4096}, r)
	}()
	resp, fds, err := c.Call(&Alloc{Size: 77}, nil)
	if err != nil || *resp.(*AllocOK) != (AllocOK{Buffer: 5, Size: 4096}) || len(fds) != 1 {
		t.Fatal(resp, fds, err)
	}
	unix.Close(fds[0])

	go func() { d.Send(recv(t, d).ID, &Err{Errno: uint32(syscall.EBUSY), Text: "busy: 2 regions"}) }()
	resp, fds, err = c.Call(&Free{Buffer: 5}, nil)
	var e *Err
	if resp != nil || fds != nil || !errors.As(err, &e) || !errors.Is(err, syscall.EBUSY) || err.Error() != "busy: 2 regions" {
		t.Error(resp, fds, err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
	select {
	case <-c.Gone():
		t.Error("an error answer ended the session:", c.Reason())
	default:
	}
}

// Answers reach their callers although they come in another order than the requests.
func TestCallsConcurrent(t *testing.T) {
	c, d := attached(t)
	const n = 200
	go func() {
		var held []*Message
		for range n {
			held = append(held, recv(t, d))
			if len(held) == 10 {
				for i := len(held) - 1; i >= 0; i-- {
					d.Send(held[i].ID, &AllocOK{Buffer: uint32(held[i].Body.(*Alloc).Size)})
				}
				held = nil
			}
		}
	}()
	var wg sync.WaitGroup
	for g := range 10 {
		wg.Go(func() {
			for i := range n / 10 {
				sock := uint32(g*1000 + i)
				resp, _, err := c.Call(&Alloc{Size: uint64(sock)}, nil)
				if err != nil || resp.(*AllocOK).Buffer != sock {
					t.Errorf("socket %d: %+v, %v", sock, resp, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestCallJSON(t *testing.T) {
	c, d := attached(t)
	for _, size := range []int{0, 1, maxCtlPart, maxCtlPart + 1, 5*maxCtlPart + 100} {
		want := bytes.Repeat([]byte("x"), size)
		go func() {
			m := recv(t, d)
			if string(m.Body.(*Ctl).JSON) != `{"kind":"peers"}` {
				t.Errorf("request %s", m.Body.(*Ctl).JSON)
			}
			d.SendJSON(m.ID, want)
		}()
		got, err := c.CallJSON([]byte(`{"kind":"peers"}`))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("answer of %d bytes: got %d, %v", size, len(got), err)
		}
	}
	go func() { d.SendErr(recv(t, d).ID, syscall.EACCES) }()
	if _, err := c.CallJSON(nil); !errors.Is(err, syscall.EACCES) {
		t.Errorf("refused: %v", err)
	}
}

// However the session ends, waiting and later calls fail with the reason, Gone closes, and
// nothing is left.
func TestSessionEnd(t *testing.T) {
	r, _ := pipeFD(t)
	for name, tc := range map[string]struct {
		daemon func(d *Conn, id uint32) // has received one request
		call   []error                  // what the call fails with
		says   string
		reason error // nil: none
	}{
		"daemon dies": {func(d *Conn, id uint32) { d.Close() }, []error{ErrGone, syscall.ECONNRESET}, "", nil},
		"goodbye": {func(d *Conn, id uint32) { d.Send(0, &Goodbye{Text: "socket 4 is not yours"}); d.Close() },
			[]error{syscall.ECONNABORTED}, "socket 4 is not yours", syscall.ECONNABORTED},
		"goodbye of a daemon that ends": {func(d *Conn, id uint32) { d.Send(0, &Goodbye{Text: "shutting down", Ends: true}); d.Close() },
			[]error{ErrGone, syscall.ECONNRESET}, "shutting down", ErrGone},
		"goodbye and silence": {func(d *Conn, id uint32) { d.Send(0, &Goodbye{Text: "bye"}) },
			[]error{syscall.ECONNABORTED}, "bye", syscall.ECONNABORTED},
		"refused": {func(d *Conn, id uint32) { d.Send(0, &Err{Errno: uint32(syscall.EUSERS), Text: "full"}); d.Close() },
			[]error{syscall.EUSERS}, "full", syscall.EUSERS},
		"answer to nobody": {func(d *Conn, id uint32) { d.Send(id+1, &OK{}) },
			[]error{ErrProtocol}, "request 2, which is not there", ErrProtocol},
		"answer with descriptors to nobody": {func(d *Conn, id uint32) { d.Send(id+1, &AllocOK{}, r) },
			[]error{ErrProtocol}, "which is not there", ErrProtocol},
		"a request": {func(d *Conn, id uint32) { d.Send(id, &Bind{}) },
			[]error{ErrProtocol}, "Bind in answer to GrowSend", ErrProtocol},
		"the answer to another request": {func(d *Conn, id uint32) { d.Send(id, &AllocOK{}, r) },
			[]error{ErrProtocol}, "AllocOK in answer to GrowSend", ErrProtocol},
		"unwanted descriptors": {func(d *Conn, id uint32) { d.Send(id, &OK{}, r) },
			[]error{ErrProtocol}, "OK with 1 descriptors", ErrProtocol},
		"garbage": {func(d *Conn, id uint32) { d.c.Write([]byte("hello world")) },
			[]error{ErrProtocol}, "unknown frame", ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			before := openFDs(t)
			c, d := attached(t)
			said := make(chan struct{})
			go func() {
				defer close(said)
				tc.daemon(d, recv(t, d).ID)
			}()
			resp, fds, err := c.Call(&GrowSend{}, nil)
			for _, is := range tc.call {
				if !errors.Is(err, is) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("call: %v, %v, %v; want %v with %q", resp, fds, err, is, tc.says)
				}
			}
			<-c.Gone()
			if reason := c.Reason(); (reason == nil) != (tc.reason == nil) || !errors.Is(reason, tc.reason) {
				t.Errorf("reason %v, want %v", reason, tc.reason)
			}
			if _, _, again := c.Call(&GrowSend{}, nil); again == nil || again.Error() != err.Error() {
				t.Errorf("a later call: %v, want %v", again, err)
			}
			c.Close()
			<-said // a second Close does not wait for the first
			d.Close()
			if after := openFDs(t); after != before {
				t.Errorf("%d descriptors open, %d before", after, before)
			}
		})
	}
}

// A caller whose call failed because the session ended finds Gone closed.
func TestGoneBeforeError(t *testing.T) {
	ended := func(c *Client) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.ended // register checks the same
	}
	for range 300 {
		c, d := attached(t)
		go d.Close()
		for !ended(c) {
		}
		select {
		case <-c.Gone():
		default:
			t.Fatal("the session has ended, and Gone is open")
		}
		c.Close()
	}
}

func TestRefusedBeforeHello(t *testing.T) {
	// The daemon sends a reason and closes without reading. The client gets the reason
	// whether it sends Hello before or after that.
	for i := range 50 {
		c, d := attached(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.Send(0, &Err{Errno: uint32(syscall.EUSERS), Text: "full"})
			d.Close()
		}()
		if i%2 == 0 {
			<-done
		}
		if _, _, err := c.Call(&Hello{Role: RoleClient}, nil); !errors.Is(err, syscall.EUSERS) {
			t.Fatalf("round %d: %v", i, err)
		}
		<-done
		c.Close()
	}
}

func TestClientOfAnotherVersion(t *testing.T) {
	c, d := attached(t)
	go func() {
		m := recv(t, d)
		d.SendErr(m.ID, m.Body.(*Hello).Check())
	}()
	_, _, err := c.Call(&Hello{Version: 9}, nil)
	if !errors.Is(err, syscall.EPROTONOSUPPORT) || !strings.Contains(err.Error(), "version 9") || !strings.Contains(err.Error(), "version 3") {
		t.Errorf("client of version 9: %v", err)
	}
}

func TestDaemonOfAnotherVersion(t *testing.T) {
	c, d := attached(t)
	r, _ := pipeFD(t)
	before := openFDs(t)
	go func() { d.Send(recv(t, d).ID, &HelloOK{Version: 9}, r) }()
	_, _, err := c.Call(&Hello{}, nil)
	if !errors.Is(err, syscall.EPROTONOSUPPORT) || !strings.Contains(err.Error(), "daemon version 9") {
		t.Errorf("daemon of version 9: %v", err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func TestCloseEndsCalls(t *testing.T) {
	c, d := attached(t)
	errs := make(chan error)
	for range 5 {
		go func() {
			_, _, err := c.Call(&Release{}, nil)
			errs <- err
		}()
	}
	for range 5 {
		recv(t, d)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { c.Close() })
	}
	for range 5 {
		if err := <-errs; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	wg.Wait()
	if _, _, err := c.Call(&Release{}, nil); !errors.Is(err, net.ErrClosed) || !errors.Is(c.Reason(), net.ErrClosed) {
		t.Error(err, c.Reason())
	}
	if _, err := d.Recv(); !isGone(err) {
		t.Errorf("the daemon sees %v", err)
	}
}

// A request that cannot be sent fails, and the session goes on.
func TestCallTooLarge(t *testing.T) {
	c, d := attached(t)
	if _, err := c.CallJSON(make([]byte, MaxFrame)); !errors.Is(err, syscall.EMSGSIZE) {
		t.Error(err)
	}
	go func() { d.Send(recv(t, d).ID, &OK{}) }()
	if _, _, err := c.Call(&CloseSock{}, nil); err != nil {
		t.Error("the session did not survive:", err)
	}
}

// Answers that a call does not take any more are dropped.
func TestTooManyAnswers(t *testing.T) {
	r, _ := pipeFD(t)
	before := openFDs(t)
	c, d := attached(t)
	go func() {
		id := recv(t, d).ID
		for range 3 {
			d.Send(id, &AllocOK{}, r)
		}
	}()
	_, fds, err := c.Call(&Alloc{}, nil)
	if err == nil {
		closeFDs(fds)
	} else if !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
	<-c.Gone()
	if !errors.Is(c.Reason(), ErrProtocol) {
		t.Error(c.Reason())
	}
	c.Close()
	d.Close()
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func TestTypeString(t *testing.T) {
	if s := fmt.Sprint(TypeHelloOK, TypeErr, Type(77)); s != "HelloOK Err type 77" {
		t.Error(s)
	}
}
