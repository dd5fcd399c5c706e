package librds

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// spoil breaks a rule of the answer to Hello and returns the descriptors for it.
func (h *hostile) spoil(s step, ok *ipc.HelloOK, fds []int, id uint32) ([]int, error) {
	i := 0
	if len(fds) > 0 {
		i = int(s.at) % len(fds)
	}
	switch s.op {
	case badSize, badUnsealed:
		pages := 1 + s.v%2048
		fd, err := h.memory(int64(pages)*4096, s.op == badSize, s.at%2 == 0)
		if err != nil || len(fds) == 0 {
			return fds, err
		}
		fds[i] = fd
	case badCount:
		fds = fds[:i]
	case badKind:
		if len(fds) > 0 {
			fds[i] = []int{h.bell.recv, h.own.send, h.maps[0].Give(), h.maps[3].Give()}[s.v%4]
		}
	case badParams:
		p := &ok.Params
		*[]*uint32{&p.SubEntries, &p.EventEntries, &p.MaxMsgs, &p.MaxRx, &p.Slots, &p.Cells, &p.SendWindows, &p.RecvWindows}[s.at%8] = s.v
	case badVersion:
		switch s.at % 3 {
		case 0:
			ok.Version = s.v
		case 1:
			ok.Features = uint64(s.v)
		default:
			ok.SpinNs = uint64(s.v) << (s.at % 32)
		}
	case badSegment:
		atomic.StoreUint32(word(h.mem[:4096], 4*int(s.at%1024)), s.v)
	case badFirstWord:
		h.garbage(s, id)
	}
	return fds, nil
}

// memory makes memory that is not what was announced.
func (h *hostile) memory(size int64, sealed, truncated bool) (int, error) {
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, err
	}
	h.fds = append(h.fds, fd)
	if err := unix.Ftruncate(fd, size); err != nil {
		return -1, err
	}
	if sealed {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	} else if truncated {
		err = unix.Ftruncate(fd, 0)
	}
	return fd, err
}

// garbage sends something that is no answer.
func (h *hostile) garbage(s step, id uint32) {
	b := slices.Clone(s.bytes)
	if len(b) >= 8 && s.v%4 > 0 { // with a header that makes sense
		binary.LittleEndian.PutUint16(b, binary.LittleEndian.Uint16(b)%26)
		binary.LittleEndian.PutUint16(b[2:], binary.LittleEndian.Uint16(b[2:])%2)
		binary.LittleEndian.PutUint32(b[4:], []uint32{0, id, id + 1, id}[s.v>>2%4])
	}
	var oob []byte
	if s.v>>8%3 == 0 {
		oob = unix.UnixRights(h.bell.recv, h.bell.recv)
	}
	_, _, _ = h.raw.WriteMsgUnix(b, oob, nil)
}

// wrong changes the numbers of an answer.
func wrong(r ipc.Response, s step) {
	switch b := r.(type) {
	case *ipc.BindOK:
		switch s.at % 4 {
		case 0:
			b.Sock = s.v
		case 1:
			b.Addr = netip.Addr{}
		case 2:
			b.Port = uint16(s.v)
		default:
			b.Inc = s.v
		}
	case *ipc.AllocOK:
		b.Buffer = s.v
	case *ipc.RegisterOK:
		b.Region, b.Cookie = s.v, uint64(s.v)<<(s.at%64)
	case *ipc.ImportOK:
		b.Buffer = s.v
	}
}

// misanswer breaks a rule of an answer. It returns what to send, nothing if that was done, and
// whether the session goes on.
func (h *hostile) misanswer(s step, id uint32, resp ipc.Response, fds []int) (ipc.Response, []int, bool) {
	switch s.op {
	case badAnswer:
		h.garbage(s, id)
	case badErrno:
		return &ipc.Err{Errno: s.v, Text: strings.Repeat("x", int(s.at)%ipc.MaxText)}, nil, true
	case badSilence:
		return nil, nil, true
	case badGoodbye:
		_ = h.conn.Send(0, &ipc.Goodbye{Text: strings.Repeat("y", int(s.at)%ipc.MaxText), Ends: s.v%2 == 0})
	case badTwice:
		_ = h.conn.Send(id, resp, fds...)
	case badNumbers:
		wrong(resp, s)
	case badFDs:
		for range s.at % 8 {
			fds = append(fds, h.bell.recv)
		}
	case badType:
		return []ipc.Response{&ipc.OK{}, &ipc.GrowSendOK{Windows: s.v}, &ipc.ImportOK{Buffer: s.v}, &ipc.AddrsOK{}, &ipc.HelloOK{}}[s.at%5], nil, true
	case badBuffer:
		if b, ok := resp.(*ipc.AllocOK); ok {
			fd, err := h.memory(int64(1+s.v%8)*4096, s.at%2 == 0, true)
			if err == nil {
				fds = []int{fd}
			}
			b.Size = uint64(1+s.v%8) * 4096 << (s.at >> 8 % 2)
		}
	default:
		return nil, nil, false
	}
	return resp, fds, true
}

// word is 4 bytes of mem as the client may read them at the same time.
func word(mem []byte, at int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[at%len(mem)&^3])) }

// scribble writes into the shared memory what no daemon writes.
func (h *hostile) scribble(s step) {
	at := int(s.at)
	switch s.op {
	case badWord:
		atomic.StoreUint32(word(h.mem, 4*at), s.v)
	case badIndex:
		atomic.StoreUint32(word(h.mem, (1+at%10)*128+4*(at>>8%2)), s.v)
	case badTable:
		atomic.StoreUint32(word(h.table, 4*at), s.v)
	case badReceive:
		atomic.StoreUint32(word(h.recv, 4*at), s.v)
	case badMessage:
		atomic.StoreUint32(word(h.recv, 4096+at%4096), s.v)
	case badSend:
		atomic.StoreUint32(word(h.send, at), s.v)
	case badReturn:
		h.seg.SendRetProducer().Put(s.v)
		h.seg.SendRetProducer().Publish()
	case badEvent, badField:
		h.wild(s)
	case badBell:
		h.misring(s)
	case badRun:
		h.data(1+s.v%4, shm.EventRun, s.at%8)
	}
}

// wild publishes an event of any bytes.
func (h *hostile) wild(s step) {
	e := h.seg.EventProducer().Reserve()
	if e == nil {
		return
	}
	var b [shm.EntrySize]byte
	copy(b[:], s.bytes)
	for i := range e {
		e[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	if s.op == badField {
		kinds := []shm.EvKind{shm.EvData, shm.EvNotice, shm.EvBarrier, shm.EvRelief, shm.EvCrowded, shm.EvStatus, shm.EvOverrun}
		e.Event().Kind, e.Event().Sock = kinds[int(s.at)%len(kinds)], 1+s.v%4
	}
	h.seg.EventProducer().Publish()
}

// misring does to the doorbells what no daemon does.
func (h *hostile) misring(s step) {
	switch s.at % 4 {
	case 0:
		if h.bell.send >= 0 {
			unix.Close(h.bell.send)
			h.bell.send = -1
		}
	case 1:
		for range 8192 {
			shm.Ring(h.bell.send)
		}
	case 2: // the client's end is the same open file
		for _, size := range []int{1 << 16, 1} {
			for n := 1; n > 0; {
				n, _ = unix.Write(h.own.send, make([]byte, size))
			}
		}
		_ = unix.SetNonblock(h.own.send, false)
	default:
		_ = unix.SetNonblock(h.bell.recv, false)
	}
}
