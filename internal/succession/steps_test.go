package succession

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/handover"
	"golang.org/x/sys/unix"
)

// daemons is both sides of a hand-over, with what each did.
type daemons struct {
	opening, state       Parcel
	openErr, parkErr     error // of the predecessor
	openedErr, adoptErr  error // of the successor
	did                  []string
	gotOpening, gotState Parcel
	onAdopt              func()
}

func (d *daemons) Opening(uint16) (Parcel, error) { return d.opening, d.openErr }
func (d *daemons) Park(uint16) (Parcel, error) {
	if d.parkErr == nil {
		d.did = append(d.did, "park")
	}
	return d.state, d.parkErr
}
func (d *daemons) Resume() { d.did = append(d.did, "resume") }

// heir is the successor's side of daemons.
type heir struct{ *daemons }

func (h heir) Open(_ uint16, p Parcel) error { h.gotOpening = p; return h.openedErr }
func (h heir) Adopt(_ uint16, p Parcel) error {
	h.gotState = p
	if h.onAdopt != nil {
		h.onAdopt()
	}
	return h.adoptErr
}

// pair is a connection, both ends in this process.
func pair(t *testing.T) (old, next *Link) {
	t.Helper()
	old, theirs, err := NewPair()
	if err != nil {
		t.Fatal(err)
	}
	if next, err = Open(theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { old.Close(); next.Close() })
	return old, next
}

func lives() bool { return false }

// run does a hand-over and returns both errors.
func (d *daemons) run(old, next *Link, gone func() bool) (handed, taken error) {
	done := make(chan error)
	go func() {
		err := TakeOver(next, heir{d}, "v2", gone)
		next.Close()
		done <- err
	}()
	handed = HandOver(old, d)
	old.Close()
	return handed, <-done
}

// numbered are n descriptors of memory files, whose content is their number.
func numbered(t *testing.T, n int) (fds []int) {
	t.Helper()
	for i := range n {
		fd, err := unix.MemfdCreate("numbered", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Pwrite(fd, fmt.Append(nil, i), 0); err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	t.Cleanup(func() { closeAll(fds) })
	return fds
}

// TestHandOver: bytes and descriptors arrive in their order, however many there are.
func TestHandOver(t *testing.T) {
	for _, n := range []int{0, 1, batch - 1, batch, batch + 1, 3*batch + 7} {
		d := &daemons{opening: Parcel{State: []byte("opening"), Files: numbered(t, n)},
			state: Parcel{State: bytes.Repeat([]byte("state"), 100_000), Files: numbered(t, 2*n)}}
		old, next := pair(t)
		if handed, taken := d.run(old, next, lives); handed != nil || taken != nil {
			t.Fatalf("%d: %v, %v", n, handed, taken)
		}
		for _, p := range []struct{ got, want Parcel }{{d.gotOpening, d.opening}, {d.gotState, d.state}} {
			if !bytes.Equal(p.got.State, p.want.State) || len(p.got.Files) != len(p.want.Files) {
				t.Fatalf("%d: %d bytes and %d descriptors of %d and %d", n, len(p.got.State), len(p.got.Files), len(p.want.State), len(p.want.Files))
			}
			for i, fd := range p.got.Files {
				b := make([]byte, 10)
				k, err := unix.Pread(fd, b, 0)
				if err != nil || string(b[:k]) != fmt.Sprint(i) {
					t.Fatalf("descriptor %d is that of %q (%v)", i, b[:k], err)
				}
				if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
					t.Fatal("a descriptor stays open in programs that the successor starts")
				}
			}
			closeAll(p.got.Files)
		}
		if !slices.Equal(d.did, []string{"park"}) {
			t.Errorf("the predecessor did %v", d.did)
		}
	}
}

// TestFault: the predecessor learns of which session an error is, from version 3 of the state on.
func TestFault(t *testing.T) {
	fault := &handover.Fault{Session: 7, Err: errors.New("of a reason")}
	for v, want := range map[uint16]bool{1: false, 2: false, 3: true} {
		old, next := pair(t)
		next.refuse(v, at("adoption", fault))
		_, err := old.recv(kindAdopted, 0)
		var f *handover.Fault
		if errors.As(err, &f) != want || want && f.Session != 7 || !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "of a reason") {
			t.Errorf("version %d: %v", v, err)
		}
	}
	old, next := pair(t)
	next.refuse(3, at("adoption", handover.Faults{fault, {Session: 9, Err: errors.New("of another")}}))
	_, err := old.recv(kindAdopted, 0)
	if all := handover.FaultsIn(at("adoption", old.faults(err))); len(all) != 2 || all[0].Session != 7 || all[1].Session != 9 || !strings.Contains(all[1].Error(), "of another") {
		t.Errorf("%v", all)
	}
	d := &daemons{adoptErr: fault}
	old, next = pair(t)
	handed, _ := d.run(old, next, lives)
	var f *handover.Fault
	if !errors.As(handed, &f) || f.Session != 7 || strings.Join(d.did, " ") != "park resume" {
		t.Errorf("%v; the predecessor did %v", handed, d.did)
	}
}

// TestGivenUp: whoever gives up, and when, the predecessor goes on and both know why.
func TestGivenUp(t *testing.T) {
	why := errors.New("of a reason")
	for name, c := range map[string]struct {
		d    daemons
		did  string
		says string
	}{
		"no listening sockets": {daemons{openErr: why}, "", "listening sockets: of a reason"},
		"not opened":           {daemons{openedErr: why}, "", "start: refused: of a reason"},
		"not parked":           {daemons{parkErr: why}, "", "park: of a reason"},
		"not adopted":          {daemons{adoptErr: why}, "park resume", "adoption: refused: of a reason"},
		"too much state":       {daemons{state: Parcel{Files: make([]int, maxFiles+1)}}, "park resume", "at most"},
		"closed descriptor":    {daemons{state: Parcel{Files: []int{1 << 20}}}, "park resume", "bad file descriptor"},
	} {
		old, next := pair(t)
		handed, taken := c.d.run(old, next, lives)
		if handed == nil || taken == nil || !strings.Contains(handed.Error(), c.says) {
			t.Errorf("%s: %v, %v; want %q", name, handed, taken, c.says)
		}
		if got := strings.Join(c.d.did, " "); got != c.did {
			t.Errorf("%s: the predecessor did %q, not %q", name, got, c.did)
		}
	}
}

// TestVersions: the newest version that both know, or none.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		oldest, newest, want uint16
	}{{handover.Oldest, handover.Newest, handover.Newest}, {handover.Oldest, handover.Newest + 7, handover.Newest},
		{handover.Newest + 1, handover.Newest + 2, 0}, {0, handover.Oldest - 1, 0}, {handover.Newest, handover.Oldest - 1, 0}} {
		old, next := pair(t)
		hello := le.AppendUint16(le.AppendUint16([]byte(magic), c.oldest), c.newest)
		if err := next.send(kindHello, append(hello, "v9"...)); err != nil {
			t.Fatal(err)
		}
		got, err := old.welcome()
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%d to %d: %d, %v", c.oldest, c.newest, got, err)
		}
		if c.want == 0 && (!errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "v9")) {
			t.Errorf("%d to %d: %v", c.oldest, c.newest, err)
		}
		if _, err := next.recv(kindWelcome, 0); (err == nil) != (c.want != 0) {
			t.Errorf("the successor got %v", err)
		}
	}
}

// TestSuccessorEnds: the successor ends without a word, in each step; then at a step it is
// there and says nothing.
func TestSuccessorEnds(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for step, did := range []string{"", "", "park resume"} {
			d := &daemons{}
			old, next := pair(t)
			old.part, old.pause = 50*time.Millisecond, 50*time.Millisecond
			if !silent {
				old.part, old.pause = time.Minute, time.Minute
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				if step > 0 {
					_, _ = next.greet("v2")
					_, _ = next.recvParcel()
				}
				if step > 1 {
					_ = next.send(kindReady, nil)
					_, _ = next.recvParcel()
				}
				if !silent {
					next.Close()
				}
			}()
			err := HandOver(old, d)
			<-done
			if want := map[bool]error{false: ErrGone, true: os.ErrDeadlineExceeded}[silent]; !errors.Is(err, want) {
				t.Errorf("step %d: %v, want %v", step, err, want)
			}
			if got := strings.Join(d.did, " "); got != did {
				t.Errorf("step %d: the predecessor did %q, not %q", step, got, did)
			}
		}
	}
}

// TestPredecessorEnds: before the state is adopted nobody serves. After it the successor
// does, if the predecessor has really ended.
func TestPredecessorEnds(t *testing.T) {
	for _, c := range []struct {
		dead bool
		want error
	}{{true, nil}, {false, ErrGone}} {
		old, next := pair(t)
		d := &daemons{onAdopt: func() { old.Close() }}
		go func() { _ = HandOver(old, d) }()
		if err := TakeOver(next, heir{d}, "", func() bool { return c.dead }); !errors.Is(err, c.want) {
			t.Errorf("ended after the state, dead %v: %v", c.dead, err)
		}
	}
	old, next := pair(t)
	old.Close()
	if err := TakeOver(next, heir{&daemons{}}, "", func() bool { return true }); !errors.Is(err, ErrGone) {
		t.Errorf("ended before the state: %v", err)
	}
}

// TestOneOfThem: a successor that waits too long for "go" gives up so that no later "go"
// arrives: never do both serve, and never neither of them.
func TestOneOfThem(t *testing.T) {
	for i := range 200 {
		old, next := pair(t)
		next.pause = time.Duration(i) * 10 * time.Microsecond
		taken := make(chan error)
		go func() { taken <- next.awaitGo(lives) }()
		old.limit(time.Minute)
		if _, err := old.recv(kindAdopted, 0); err != nil {
			t.Fatal(err)
		}
		for range i * 20 { // some time passes
			_ = unix.Getpid()
		}
		handed := old.send(kindGo, nil)
		if err := <-taken; (handed == nil) != (err == nil) {
			t.Fatalf("go: %v, and the successor: %v", handed, err)
		}
	}
}

// TestMalformed: what is no packet of the step is refused, and its descriptors are closed.
func TestMalformed(t *testing.T) {
	head := func(k kind, n int) []byte {
		return le.AppendUint32(le.AppendUint16(le.AppendUint16(nil, uint16(k)), 0), uint32(n))
	}
	for name, c := range map[string]struct {
		b   []byte
		fds int
	}{
		"short":           {[]byte{1, 2, 3}, 0},
		"long":            {head(kindGo, 1<<20), 0},
		"too long":        {append(head(kindGo, maxPacket), make([]byte, maxPacket)...), 0},
		"another":         {head(kindReady, 0), 0},
		"unknown":         {head(kinds, 0), 0},
		"descriptors":     {head(kindGo, 0), 3},
		"reserved":        {append(le.AppendUint16(nil, uint16(kindGo)), 1, 0, 0, 0, 0, 0), 0},
		"too many rights": {head(kindGo, 0), batch},
	} {
		old, next := pair(t)
		files := numbered(t, c.fds)
		before := openFiles(t)
		if _, _, err := old.c.WriteMsgUnix(c.b, unix.UnixRights(files...), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := next.recv(kindGo, 0); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		if n := openFiles(t); n != before {
			t.Errorf("%s: %d descriptors are open, before it were %d", name, n, before)
		}
	}
}

// TestStateFile: bytes that somebody could still change are refused.
func TestStateFile(t *testing.T) {
	for name, c := range map[string]struct {
		seals int
		size  uint64
	}{"not sealed": {0, 5}, "half sealed": {unix.F_SEAL_SHRINK | unix.F_SEAL_GROW, 5}, "another size": {stateSeals, 6}, "enormous": {stateSeals, 1 << 40}} {
		old, next := pair(t)
		fd, err := unix.MemfdCreate("state", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = unix.Pwrite(fd, []byte("state"), 0)
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, c.seals); err != nil {
			t.Fatal(err)
		}
		if err := old.send(kindParcel, le.AppendUint32(le.AppendUint64(nil, c.size), 0), fd); err != nil {
			t.Fatal(err)
		}
		if _, err := next.recvParcel(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		unix.Close(fd)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

// TestKinds: each packet has a name.
func TestKinds(t *testing.T) {
	for k := kind(1); k < kinds; k++ {
		if k.String() == "" {
			t.Errorf("packet %d has none", uint16(k))
		}
	}
	if s := kindEnded.String(); s != "ended" {
		t.Errorf("%q, want ended", s)
	}
}
