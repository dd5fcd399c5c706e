package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/succession"
	"golang.org/x/sys/unix"
)

// standing is a daemon that stands still to hand over, with what its processes share with it.
type standing struct {
	t       testing.TB
	d       *Daemon
	p       *predecessor
	opening succession.Parcel
	state   succession.Parcel
	before  uint32 // of the shared memory
	strange []int  // descriptors of the wrong kind
}

// stand has a daemon with processes of all kinds stand still until the test ends.
func stand(t testing.TB) *standing {
	t.Helper()
	d := startDaemon(t, nil)
	a, imp := attached(t, d), importing(t, d)
	tool := dialRaw(t, d)
	tool.call(&ipc.Hello{Role: ipc.RoleCtl})
	dialRaw(t, d) // and one that has said nothing
	buf := a.call(&ipc.Alloc{Size: 1 << 16}).Body.(*ipc.AllocOK).Buffer
	a.call(&ipc.Register{Sock: a.sock, Buffer: buf, Len: 1 << 16, Access: abi.RightRead})
	a.send(&ipc.Free{Buffer: buf, Wait: 1}) // a request that waits
	a.call(&ipc.Addrs{})
	imp.send(&ipc.Import{Len: 1 << 16, Off: 1 << 16}, filledMemory(t, 1<<20, unix.F_SEAL_SHRINK))
	imp.hears(imp.id, &ipc.ImportOK{})
	if err := a.ping(); err != nil {
		t.Fatal(err)
	}
	takesTurn(t, d, uint32(os.Getuid())) // so that a request is broken off
	imp.send(&ipc.Import{Len: 1 << 16}, filledMemory(t, 1<<20, unix.F_SEAL_SHRINK))
	eventually(t, "the import waits", func() error {
		d.populator.mu.Lock()
		defer d.populator.mu.Unlock()
		if d.populator.here[config.UserAccount(uint32(os.Getuid()))] < 2 {
			return errors.New("it does not")
		}
		return nil
	})
	d.has(t, 4)
	s := &standing{t: t, d: d, p: &predecessor{Daemon: d}}
	if err := d.upgrades.begin(""); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.opening, err = s.p.Opening(handover.Newest); err != nil {
		t.Fatal(err)
	}
	if s.state, err = s.p.Park(handover.Newest); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.p.Resume)
	s.before = s.shared()
	s.strange = strangers(t)
	return s
}

// strangers are descriptors of kinds that a state has, none of them in the right place: a
// memory file that is not sealed and one of another size, both ends of a pipe, sockets, an
// eventfd, a file that can only be read.
func strangers(t testing.TB) (fds []int) {
	t.Helper()
	memory, err := unix.MemfdCreate("strange", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	small := ownMemory(t, 4096, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	var pipe [2]int
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	event, e := unix.Eventfd(0, unix.EFD_CLOEXEC)
	null, e2 := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err := errors.Join(err, e, e2, unix.Pipe2(pipe[:], unix.O_CLOEXEC), unix.Ftruncate(memory, 1<<16)); err != nil {
		t.Fatal(err)
	}
	return []int{memory, small, pipe[0], pipe[1], pair[0], event, null}
}

// shared is a sum of everything that processes share with the daemon but windows, of which it
// takes the first page.
func (s *standing) shared() uint32 {
	h := crc32.NewIEEE()
	s.d.admission.mu.Lock()
	defer s.d.admission.mu.Unlock()
	var all []*session
	for _, x := range s.d.admission.open {
		all = append(all, x)
	}
	for nth := uint64(0); nth <= s.d.admission.arrived; nth++ {
		for _, x := range all {
			if x.nth != nth {
				continue
			}
			for _, m := range x.memory.files() {
				h.Write(m.Mem[:min(len(m.Mem), 1<<20)])
			}
			for _, b := range x.memory.buffers {
				h.Write(b.mem()[:4096])
			}
		}
	}
	return h.Sum32()
}

// pass returns a parcel as a successor gets it. Each byte of change has one descriptor be
// another: none, that of another place, or a strange one.
func (s *standing) pass(state []byte, of []int, change []byte) succession.Parcel {
	fds := append([]int(nil), of...)
	for len(change) >= 2 && len(fds) > 0 {
		at, to := int(change[0])%len(fds), int(change[1])
		switch {
		case to == 0:
			fds = append(fds[:at], fds[at+1:]...)
		case to == 1:
			fds = append(fds, fds[at])
		case to < 128:
			fds[at] = fds[to%len(fds)]
		default:
			fds[at] = s.strange[to%len(s.strange)]
		}
		change = change[2:]
	}
	p := succession.Parcel{State: state}
	for _, fd := range fds {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			s.t.Fatal(err)
		}
		p.Files = append(p.Files, own)
	}
	return p
}

// successor is a daemon that opens what the state says, with the configuration of d.
func (s *standing) successor() *Successor {
	return &Successor{Config: *s.d.config(), Log: slog.New(slog.DiscardHandler), Confine: func(*Daemon) {}, Asked: func() error { return nil }}
}

// open returns how many descriptors this process has open.
func open(t testing.TB) int {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// unchanged checks that neither the processes nor this one notice anything of an attempt.
func (s *standing) unchanged(t testing.TB, descriptors int) {
	t.Helper()
	eventually(t, "descriptors", func() error {
		if n := open(t); n > descriptors {
			return fmt.Errorf("%d are open, before it were %d", n, descriptors)
		}
		return nil
	})
	if now := s.shared(); now != s.before {
		t.Errorf("shared memory has changed: %#x, was %#x", now, s.before)
	}
}

// FuzzOpen: whatever the first parcel says, a daemon opens everything or nothing.
func FuzzOpen(f *testing.F) {
	s := stand(f)
	seeds(f, s.opening.State, len(s.opening.Files))
	f.Fuzz(func(t *testing.T, state, change []byte) {
		before := open(t)
		x := s.successor()
		if err := x.Open(handover.Newest, s.pass(state, s.opening.Files, change)); err == nil {
			x.daemon.closeAll()
		}
		s.unchanged(t, before)
	})
}

// FuzzTakeOver: whatever the second parcel says, a daemon refuses it or adopts it, and changes
// nothing that the processes share with it. What it adopts it can hand over.
func FuzzTakeOver(f *testing.F) {
	s := stand(f)
	seeds(f, s.state.State, len(s.state.Files))
	f.Fuzz(func(t *testing.T, state, change []byte) {
		before := open(t)
		x := s.successor()
		if err := x.Open(handover.Newest, s.pass(s.opening.State, s.opening.Files, nil)); err != nil {
			t.Fatal(err)
		}
		same := len(change) == 0 && bytes.Equal(state, s.state.State)
		if err := x.Adopt(handover.Newest, s.pass(state, s.state.Files, change)); err == nil {
			s.again(t, x.daemon, same)
			x.daemon.inherited.heirs.leave()
		} else if same || !errors.Is(err, handover.ErrFormat) {
			t.Fatal(err)
		}
		x.daemon.closeAll()
		s.unchanged(t, before)
	})
}

// again checks that a daemon that has adopted a state can hand it over. If nothing was changed,
// that is the same state.
func (s *standing) again(t *testing.T, d *Daemon, same bool) {
	t.Helper()
	w, files := handover.Write(handover.Newest), &handover.Files{}
	h := d.sessionsToHand()
	h.handOver(w, files)
	d.handOverStats(w, d.info)
	if err := d.engine.Encode(w, h.number()); err != nil {
		t.Errorf("adopted, and not handed over: %v", err)
	}
	if same && len(files.All) != len(s.state.Files) {
		t.Errorf("%d descriptors, not %d", len(files.All), len(s.state.Files))
	}
}

// seeds are a good state, and the same with other descriptors.
func seeds(f *testing.F, state []byte, files int) {
	f.Helper()
	f.Add(state, []byte{})
	for i := range files {
		for _, to := range []byte{0, 1, byte(2 + (i+1)%files), 128, 131, 133, 134, 250} {
			f.Add(state, []byte{byte(i), to})
		}
	}
	for n := 1; n < len(state); n += 1 + n/4 {
		f.Add(state[:n], []byte{})
		flipped := bytes.Clone(state)
		flipped[n] ^= 1 << (n % 8)
		f.Add(flipped, []byte{})
	}
}
