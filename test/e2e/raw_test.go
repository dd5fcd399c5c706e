package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// raw is a client without the library. It may do what the library never does.
type raw struct {
	t    *testing.T
	c    *ipc.Client
	p    shm.Params
	fds  []int
	maps []*shm.Mapping
	mem  []byte // the segment
	seg  *shm.Segment
	tab  *shm.Table
	send [][]byte // windows
	sock uint32
	at   addrPort
	back uint64 // message ids that have come back
}

// Offsets of ring indices in the segment.
const (
	offSubTail     = 3 * 128
	offEventHead   = 6 * 128
	offSendRetHead = 8 * 128
	offRecvRetTail = 9 * 128
)

func (h *host) raw() *raw {
	t := h.t
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := ipc.Dial(ctx, h.sock)
	if err != nil {
		t.Fatal(err)
	}
	resp, fds, err := c.Call(&ipc.Hello{Version: ipc.Version, Role: ipc.RoleClient, Name: "hostile"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &raw{t: t, c: c, p: resp.(*ipc.HelloOK).Params, fds: fds}
	t.Cleanup(r.close)
	r.mem = r.mapFD(0, shm.SegmentSize(r.p), true)
	if r.seg, err = shm.OpenSegment(r.mem); err != nil {
		t.Fatal(err)
	}
	r.tab = shm.NewTable(r.mapFD(1, shm.TableSize(r.p.Slots, r.p.Cells), false), r.p.Slots, r.p.Cells)
	for i := range int(r.p.SendWindows) {
		r.send = append(r.send, r.mapFD(4+i, shm.WindowSize, true))
	}
	resp, _, err = c.Call(&ipc.Bind{Addr: h.addr()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ok := resp.(*ipc.BindOK)
	r.sock, r.at = ok.Sock, h.at(ok.Port)
	return r
}

func (r *raw) mapFD(i, size int, write bool) []byte {
	r.t.Helper()
	m, err := shm.MapFD(r.fds[i], size, write)
	if err != nil {
		r.t.Fatal(err)
	}
	r.maps = append(r.maps, m)
	return m.Mem
}

func (r *raw) close() {
	r.c.Close()
	for _, m := range r.maps {
		m.Close()
	}
	for _, fd := range r.fds {
		unix.Close(fd)
	}
	r.maps, r.fds = nil, nil
}

func (r *raw) index(off int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r.mem[off])) }

func (r *raw) ring() { shm.Ring(r.fds[2]) }

// submit puts entries into the submission ring and wakes the daemon.
func (r *raw) submit(entries ...any) {
	r.t.Helper()
	for _, e := range entries {
		x := r.seg.SubProducer().Reserve()
		if x == nil {
			r.t.Fatal("submission ring full")
		}
		switch e := e.(type) {
		case shm.Sub:
			*x.Sub() = e
		case shm.SubOp:
			*x.SubOp() = e
		case shm.SubDest:
			*x.SubDest() = e
		}
	}
	r.seg.SubProducer().Publish()
	r.ring()
}

// dest returns the descriptor that opens slot 0 and cell 0 to an address.
func (r *raw) dest(to addrPort) shm.SubDest {
	return shm.SubDest{Kind: shm.KindOpenDest, Sock: r.sock, Port: to.Port(), Addr: to.Addr().As16(), Gen: 1}
}

// run writes a run of datagrams of these sizes into a chunk of the first window, and
// returns the descriptor that submits it.
func (r *raw) run(chunk uint32, sizes ...int) shm.Sub {
	mem := r.send[0][chunk*shm.Unit:]
	s := shm.RunState(0)
	for _, n := range sizes {
		frames.Put(mem[shm.RunHead+s.Len():], make([]byte, n))
		s = s.Append(n)
	}
	shm.RunWord(mem).Open(s)
	return shm.Sub{Kind: shm.KindRun, Sock: r.sock, Chunk: chunk, Len: uint32(shm.RunHead + s.Len())}
}

// event waits for the next event.
func (r *raw) event() (e shm.Entry) {
	r.t.Helper()
	eventually(r.t, "event", func() error {
		if !r.seg.EventConsumer().Next(&e) {
			return errors.New("none")
		}
		return nil
	})
	r.seg.EventConsumer().Release()
	return e
}

// endedBecause waits for the end of the session and returns its reason.
func (r *raw) endedBecause() string {
	r.t.Helper()
	select {
	case <-r.c.Gone():
		if err := r.c.Reason(); err != nil {
			return err.Error()
		}
		return "no reason"
	case <-time.After(patience):
		r.t.Error("the session goes on")
		return ""
	}
}

// frame returns a control frame.
func frame(typ uint16, id uint32, body []byte) []byte {
	b := binary.LittleEndian.AppendUint16(nil, typ)
	b = binary.LittleEndian.AppendUint16(b, 0)
	return append(binary.LittleEndian.AppendUint32(b, id), body...)
}

// hugeParams returns larger parameters than any daemon grants.
func hugeParams() shm.Params {
	p := shm.DefaultParams()
	p.SendWindows = 1 << 30
	return p
}
