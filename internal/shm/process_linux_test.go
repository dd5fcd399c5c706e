package shm

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Two processes over mapped memory. The child is the client: it sends messages of random
// length and content, with their checksum as the cookie. The parent is the daemon: it
// returns each message as an event through the other arena. Both sleep by the protocol.

const (
	childEnv      = "RDSD_SHM_TEST_CHILD" // the number of messages
	childMessages = 60_000
)

var processParams = Params{SubEntries: 64, EventEntries: 64, MaxMsgs: 256, MaxRx: 256, Slots: 1, Cells: 1, SendWindows: 1, RecvWindows: 1}

func TestMain(m *testing.M) {
	if n := os.Getenv(childEnv); n != "" {
		if err := child(n); err != nil {
			fmt.Fprintln(os.Stderr, "client process:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTwoProcesses(t *testing.T) {
	n := childMessages
	if testing.Short() {
		n /= 10
	}
	before := openFDs(t)
	var maps []*Mapping
	memfd := func(m *Mapping, err error) *Mapping {
		if err != nil {
			t.Fatal(err)
		}
		maps = append(maps, m)
		return m
	}
	seg := memfd(CreateMemfd("rdsd-segment", SegmentSize(processParams)))
	send := memfd(CreateMemfd("rdsd-send", WindowSize))
	recv := memfd(CreateMemfdReadOnly("rdsd-recv", WindowSize))
	own, bell := newTestDoorbell(t), newTestDoorbell(t)
	s, err := NewSegment(seg.Mem, processParams)
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	for _, fd := range []int{seg.Give(), send.Give(), recv.Give(), own.Send, bell.Recv} {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(dup), "")
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	w, err := NewFDWaiter(own.Recv, nil)
	if err != nil {
		t.Fatal(err)
	}
	own.Recv = -1
	go func() { exited <- cmd.Wait(); w.Ring() }()

	e := echo{s: s, send: send.Mem, recv: NewArena(), bell: bell.Send}
	e.recv.AddWindow(recv.Mem)
	stop := time.AfterFunc(60*time.Second, func() { cmd.Process.Kill() })
	defer stop.Stop()
	for done := false; !done; {
		if e.turn() {
			continue
		}
		s.DaemonAsleep().Store(1)
		if s.SubConsumer().Empty() && s.RecvRetConsumer().Empty() {
			w.Wait(0)
		}
		s.DaemonAsleep().Store(0)
		select {
		case err := <-exited:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		default:
		}
	}
	for e.turn() {
	}
	if e.err != nil || e.messages != n || e.recv.InUse() != 0 {
		t.Errorf("%d messages of %d, %d bytes of the receive arena in use, error %v", e.messages, n, e.recv.InUse(), e.err)
	}
	for _, m := range maps {
		m.Close()
	}
	w.Close()
	own.Close()
	bell.Close()
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

// echo is the daemon of the test.
type echo struct {
	s        *Segment
	send     []byte
	recv     *Arena
	bell     int
	messages int
	rx       [256]struct{ chunk, n uint32 }
	rxFree   []uint32
	err      error
}

// turn handles what has arrived and reports whether there was anything.
func (e *echo) turn() (work bool) {
	if e.rxFree == nil {
		for i := range e.rx {
			e.rxFree = append(e.rxFree, uint32(i))
		}
	}
	sub, ev := e.s.SubConsumer(), e.s.EventProducer()
	ids, back := e.s.RecvRetConsumer(), e.s.SendRetProducer()
	for {
		id, ok := ids.Take()
		if !ok {
			break
		}
		e.recv.Free(e.rx[id].chunk, int(e.rx[id].n))
		e.rxFree = append(e.rxFree, id)
		work = true
	}
	ids.Release()
	var d Entry
	for ev.Free() > 0 && len(e.rxFree) > 0 && sub.Next(&d) {
		m := d.Sub()
		chunk, ok := e.recv.Alloc(int(m.Len))
		if !ok {
			e.err = fmt.Errorf("no room for %d bytes with %d in use", m.Len, e.recv.InUse())
		} else {
			copy(e.recv.Bytes(chunk, int(m.Len)), e.send[m.Chunk*Unit:])
		}
		rx := e.rxFree[len(e.rxFree)-1]
		e.rxFree = e.rxFree[:len(e.rxFree)-1]
		e.rx[rx].chunk, e.rx[rx].n = chunk, m.Len
		*ev.Reserve().Event() = Event{Kind: EvData, RxID: rx, Chunk: chunk, Len: m.Len, Cookie: m.Cookie}
		back.Put(m.MsgID)
		e.messages++
		work = true
	}
	sub.Release()
	ev.Publish()
	back.Publish()
	if WakeNeeded(e.s.ClientAsleep()) {
		Ring(e.bell)
	}
	return work
}

// child is the client process.
func child(count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	seg, err := MapFD(3, SegmentSize(processParams), true)
	if err != nil {
		return err
	}
	send, err := MapFD(4, WindowSize, true)
	if err != nil {
		return err
	}
	recv, err := MapFD(5, WindowSize, false)
	if err != nil {
		return err
	}
	s, err := OpenSegment(seg.Mem)
	if err != nil {
		return err
	}
	w, err := NewFDWaiter(7, nil)
	if err != nil {
		return err
	}
	out, in := NewArena(), NewArena()
	out.AddWindow(send.Mem)
	in.AddWindow(recv.Mem)

	rng := rand.New(rand.NewPCG(1, 2))
	type chunk struct {
		at uint32
		n  int
	}
	var msgs [256]chunk
	var free []uint32
	for i := range msgs {
		free = append(free, uint32(i))
	}
	sub, ev := s.SubProducer(), s.EventConsumer()
	ids, back := s.SendRetConsumer(), s.RecvRetProducer()
	sent, got, returned := 0, 0, 0
	for got < n || returned < n {
		work := false
		for sent < n && len(free) > 0 && sub.Free() > 0 {
			size := 1 + rng.IntN(3000)
			at, ok := out.Alloc(size)
			if !ok {
				break
			}
			b := out.Bytes(at, size)
			for i := range b {
				b[i] = byte(sent + i*7)
			}
			id := free[len(free)-1]
			free = free[:len(free)-1]
			msgs[id] = chunk{at, size}
			*sub.Reserve().Sub() = Sub{Kind: KindSend, MsgID: id, Chunk: at, Len: uint32(size),
				Cookie: uint64(sent)<<32 | uint64(crc32.ChecksumIEEE(b))}
			sent++
			work = true
		}
		sub.Publish()
		for {
			id, ok := ids.Take()
			if !ok {
				break
			}
			out.Free(msgs[id].at, msgs[id].n)
			free = append(free, id)
			returned++
			work = true
		}
		ids.Release()
		var e Entry
		for ev.Next(&e) {
			d := e.Event()
			if !in.Valid(d.Chunk, int(d.Len)) {
				return fmt.Errorf("event %d: chunk %d of %d bytes", got, d.Chunk, d.Len)
			}
			if sum := crc32.ChecksumIEEE(in.Bytes(d.Chunk, int(d.Len))); d.Cookie != uint64(got)<<32|uint64(sum) {
				return fmt.Errorf("event %d: cookie %#x, checksum %#x", got, d.Cookie, sum)
			}
			got++
			if !back.Put(d.RxID) {
				return fmt.Errorf("event %d: return ring full", got)
			}
			work = true
		}
		ev.Release()
		back.Publish()
		if WakeNeeded(s.DaemonAsleep()) {
			Ring(6)
		}
		if work {
			continue
		}
		s.ClientAsleep().Store(1)
		if ids.Empty() && ev.Empty() {
			w.Wait(0)
		}
		s.ClientAsleep().Store(0)
	}
	if out.InUse() != 0 {
		return fmt.Errorf("%d bytes of the send arena in use at the end", out.InUse())
	}
	for _, p := range []interface{ Err() error }{sub, ev, ids, back} {
		if err := p.Err(); err != nil {
			return err
		}
	}
	return nil
}
