package rds

import (
	"errors"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestBadEvent: a daemon that names memory outside the arena ends the client,
// not the process.
func TestBadEvent(t *testing.T) {
	for _, e := range []shm.Event{{Chunk: 1 << 30, Len: 1}, {Len: 1 << 31}, {Chunk: shm.WindowSize/shm.Unit - 1, Len: 65}, {Len: 1, RxID: 1 << 20}} {
		d, a, _ := pair(t, Options{})
		e.Kind = shm.EvData
		d.do(func() { d.event(*(*shm.Entry)(unsafe.Pointer(&e))) })
		if _, _, err := a.RecvFrom(make([]byte, 100)); !errors.Is(err, ErrSession) || !errors.Is(a.c.Err(), ErrSession) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

// TestEarlyEvents: a message may come before the answer to Bind does.
func TestEarlyEvents(t *testing.T) {
	c, d := openFake(t, noSpin)
	busy := bindFake(t, c, "127.0.0.1:4000")
	early := shm.Event{Kind: shm.EvData, Sock: 1, SrcAddr: d.local.As16(), SrcPort: 9}
	d.callHook = func(req any) error {
		if _, is := req.(*ipc.Bind); is {
			d.do(func() {
				for _, sock := range []uint32{1, 7} { // 7: nobody, ever
					early.Sock, early.RxID = sock, d.rxFree[len(d.rxFree)-1]
					d.rxFree = d.rxFree[:len(d.rxFree)-1]
					d.rx[early.RxID] = fakeRx{sock: d.socks[0]}
					d.event(*(*shm.Entry)(unsafe.Pointer(&early)))
				}
			})
			_, _, _ = tryRecv(busy, nil) // drains the ring meanwhile
		}
		return nil
	}
	s := bindFake(t, c, "127.0.0.1:4001")
	if s.handle != 1 {
		t.Fatal(s.handle)
	}
	if _, from, err := s.RecvFrom(nil); err != nil || from.Port() != 9 {
		t.Fatal(from, err)
	}
	d.callHook = nil
	d.do(func() {
		if len(d.rxFree) != len(d.rx) {
			t.Error("the event for nobody was not given back")
		}
	})
}

// TestLateEvents: what the daemon publishes after a socket was closed, and
// another one was bound with its index, reaches nobody: neither a message nor a
// status, a notice or the end of a barrier, whether it comes during the bind or
// after it.
func TestLateEvents(t *testing.T) {
	for _, during := range []bool{true, false} {
		c, d := openFake(t, noSpin)
		old := bindFake(t, c, "127.0.0.1:4000")
		old.Close()
		late := func() {
			id := d.rxFree[len(d.rxFree)-1]
			d.rxFree = d.rxFree[:len(d.rxFree)-1]
			d.rx[id] = fakeRx{sock: d.socks[0]}
			for _, e := range []any{
				&shm.Event{Kind: shm.EvData, Sock: old.handle, RxID: id, SrcAddr: d.local.As16(), SrcPort: 9},
				&shm.EventStatus{Kind: shm.EvStatus, Sock: old.handle, OpID: 1},
				&shm.EventNotice{Kind: shm.EvNotice, Notice: shm.NoticeNoSocket, Sock: old.handle, Count: 1},
				&shm.EventNotice{Kind: shm.EvOverrun, Sock: old.handle},
			} {
				switch e := e.(type) {
				case *shm.Event:
					d.event(*(*shm.Entry)(unsafe.Pointer(e)))
				case *shm.EventStatus:
					d.event(*(*shm.Entry)(unsafe.Pointer(e)))
				case *shm.EventNotice:
					d.event(*(*shm.Entry)(unsafe.Pointer(e)))
				}
			}
		}
		if during {
			d.callHook = func(req any) error {
				if _, is := req.(*ipc.Bind); is {
					d.do(late)
				}
				return nil
			}
		}
		s := bindFake(t, c, "127.0.0.1:4001")
		if d.callHook = nil; !during {
			d.do(late)
		}
		if shm.SockIndex(s.handle) != shm.SockIndex(old.handle) {
			t.Fatalf("handle %#x behind %#x, want the same index", s.handle, old.handle)
		}
		if _, from, err := tryRecv(s, nil); !errors.Is(err, ErrWouldBlock) {
			t.Errorf("during the bind %v: received from %v, %v", during, from, err)
		}
		if n := s.Completions(make([]Completion, 4)) + s.Notices(make([]Notice, 4)); n != 0 || c.Err() != nil {
			t.Errorf("during the bind %v: %d completions and notices, %v", during, n, c.Err())
		}
		d.do(func() {
			if len(d.rxFree) != len(d.rx) {
				t.Errorf("during the bind %v: the message for nobody was not given back", during)
			}
		})
	}
}

func TestNotices(t *testing.T) {
	s := &Socket{}
	at := func(i int) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(i)) }
	for range 3 {
		s.addNotice(Notice{Kind: Lost, To: at(1), Count: 2})
		s.addNotice(Notice{Kind: PeerDown, To: at(1)})
		s.addNotice(Notice{Kind: PeerUp, To: at(1)})
	}
	if n := *s.notices.at(0); s.notices.len() != 7 || n != (Notice{Lost, at(1), 6, 0}) {
		t.Fatalf("%d notices, the first %+v", s.notices.len(), n)
	}
	for i := range 3 * maxNotices {
		s.addNotice(Notice{Kind: NoSocket, To: at(i), Count: 1})
		s.addNotice(Notice{Kind: PeerUp, To: at(i)})
	}
	if n := s.notices.len(); n > maxNotices+2 {
		t.Fatalf("%d notices", n)
	}
	total := uint64(0)
	for s.notices.len() > 0 {
		if n := s.notices.pop(); n.Kind == NoSocket {
			total += n.Count
		}
	}
	if total != 3*maxNotices {
		t.Fatalf("%d messages in the notices, want %d", total, 3*maxNotices)
	}
}
