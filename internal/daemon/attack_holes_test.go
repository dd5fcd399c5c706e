package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

func punch(t *testing.T, fd int, off, n int64) {
	t.Helper()
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n); err != nil {
		t.Fatal(err)
	}
}

// longTurn has the engine turn for longer than longNs, and the daemon look for holes.
func longTurn(t *testing.T, d *Daemon) {
	t.Helper()
	if err := d.loop.ask(t.Context(), func() {
		for from := time.Now(); time.Since(from) <= 2*longNs; {
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestHoles: after a long turn the sessions end whose processes have taken away pages that the
// daemon has mapped, whatever these belong to. Their user waits before its processes
// come back. Holes in what the daemon has not mapped, or has let go of, are nobody's affair.
func TestHoles(t *testing.T) {
	const page, size = 4096, 1 << 20
	for _, tc := range []struct {
		name  string
		punch func(t *testing.T, p *proc)
	}{
		{"rings", func(t *testing.T, p *proc) { punch(t, p.fds[0], int64(shm.SegmentSize(p.p))-page, page) }},
		{"send window", func(t *testing.T, p *proc) { punch(t, p.fds[4], shm.WindowSize-page, page) }},
		{"buffer", func(t *testing.T, p *proc) {
			m := p.call(&ipc.Alloc{Size: size})
			defer m.CloseFDs()
			punch(t, m.FDs[0], size/2, page)
		}},
		{"import", func(t *testing.T, p *proc) {
			mem := ownMemory(t, 4*size, unix.F_SEAL_SHRINK)
			fill(t, mem, size, size)
			if ok, is := p.imports(size, size, mem).(*ipc.ImportOK); !is {
				t.Fatalf("%+v", ok)
			}
			// As many pages as before, in all.
			if err := unix.Fallocate(mem, unix.FALLOC_FL_KEEP_SIZE, 3*size, size); err != nil {
				t.Fatal(err)
			}
			punch(t, mem, 2*size-page, page)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, uid := usersDaemon(t, nil)
			uid.Store(1001)
			innocent := importing(t, d)
			mem := ownMemory(t, 4*size, unix.F_SEAL_SHRINK)
			fill(t, mem, size, 3*size)
			if ok, is := innocent.imports(size, size, mem).(*ipc.ImportOK); !is {
				t.Fatalf("%+v", ok)
			}
			punch(t, mem, 2*size, size)
			freed := innocent.imports(3*size, size-1, mem).(*ipc.ImportOK)
			if got := innocent.call(&ipc.Free{Buffer: freed.Buffer}); got.Body.Type() != ipc.TypeOK {
				t.Fatalf("%+v", got.Body)
			}
			punch(t, mem, 3*size, size)

			uid.Store(1000)
			another, p := attached(t, d), attached(t, d)
			if tc.name == "import" {
				p = importing(t, d)
				m := p.call(&ipc.Alloc{Size: size})
				m.CloseFDs()
			}
			tc.punch(t, p)
			longTurn(t, d)
			if why := p.reason(); !strings.Contains(why, shm.ErrHoles.Error()) {
				t.Fatal(why)
			}
			again := dialRaw(t, d).call(&ipc.Hello{Role: ipc.RoleClient, Params: fewParams})
			if e, is := again.Body.(*ipc.Err); !is || e.Errno != uint32(unix.EUSERS) || !strings.Contains(e.Text, "admitted again in") {
				t.Errorf("the user's next process: %+v", again.Body)
			}
			d.endHoled()
			if err := another.ping(); err != nil {
				t.Errorf("another process of the user: %v", err)
			}
			if got := innocent.call(&ipc.Alloc{Size: page}); got.Body.Type() != ipc.TypeAllocOK {
				t.Errorf("another user: %+v", got.Body)
			}
			uid.Store(1001)
			attached(t, d)
		})
	}
}

// punched attaches a process and punches a hole into memory that it shares with d.
func punched(t *testing.T, d *Daemon) *proc {
	t.Helper()
	p := attached(t, d)
	punch(t, p.fds[4], shm.WindowSize-4096, 4096)
	return p
}

// searchesAlone keeps the daemon from searching by itself, which it does after each turn that other programs
// have made long, until goOn is called or the test ends.
func searchesAlone(t *testing.T, d *Daemon) (goOn func()) {
	d.searching.Lock()
	goOn = sync.OnceFunc(d.searching.Unlock)
	t.Cleanup(goOn)
	return goOn
}

// TestHolesAgain: a user whose processes have holes one after the other loses all sessions of processes with the
// second. Two that are found in one search are one. Other users lose none, nor do trusted ones.
func TestHolesAgain(t *testing.T) {
	d, uid := usersDaemon(t, nil)
	searchesAlone(t, d)
	uid.Store(1001)
	innocent := attached(t, d)
	uid.Store(0)
	root := attached(t, d)
	ended := func(p *proc) {
		t.Helper()
		if why := p.reason(); !strings.Contains(why, shm.ErrHoles.Error()) {
			t.Error(why)
		}
	}
	for range 2 {
		p := punched(t, d)
		d.endHoled()
		ended(p)
	}
	uid.Store(1000)
	tool := rdsctlOf(t, d)
	another, later := attached(t, d), attached(t, d)
	first, second := punched(t, d), punched(t, d)
	d.endHoled()
	ended(first)
	ended(second)
	if err := another.ping(); err != nil {
		t.Errorf("another process of the user: %v", err)
	}
	punch(t, later.fds[4], 0, 4096)
	d.endHoled()
	ended(later)
	for _, s := range d.admission.clientsLike(&session{connection: &connection{user: quota.User{Account: config.UserAccount(1000)}}}) {
		if s.why.Load() == nil {
			t.Fatalf("process %d of the user goes on", s.id.PID)
		}
	}
	if why := another.reason(); !strings.Contains(why, "another process of the user has had "+shm.ErrHoles.Error()) {
		t.Error(why)
	}
	for _, p := range []*proc{innocent, root} {
		if err := p.ping(); err != nil {
			t.Error(err)
		}
	}
	tool.send(ctlRequest(t, ctl.Request{Kind: ctl.KindSockets}))
	tool.hears(tool.id, &ipc.CtlPart{})
}

// TestHolesInHello: a process of such a user that is in the middle of its Hello does not get in.
func TestHolesInHello(t *testing.T) {
	d, _ := usersDaemon(t, nil)
	searchesAlone(t, d)
	first, second, comer := attached(t, d), attached(t, d), dialRaw(t, d)
	leave := takesTurn(t, d, 1000)
	comer.send(&ipc.Hello{Role: ipc.RoleClient, Params: fewParams})
	eventually(t, "the Hello waits for memory", func() error {
		if n := d.admission.clientsOf()[config.UserAccount(1000)]; n != 3 {
			return fmt.Errorf("%d processes", n)
		}
		return nil
	})
	for _, p := range []*proc{first, second} {
		punch(t, p.fds[4], 0, 4096)
		if rest := restAfter(time.Hour, d.endHoled()); rest != 0 {
			t.Errorf("the next search waits %v", rest)
		}
	}
	if rest := restAfter(time.Hour, d.endHoled()); rest != looksRest*time.Hour {
		t.Errorf("after a search that found nothing the next one waits %v", rest)
	}
	if why := comer.reason(); !strings.Contains(why, shm.ErrHoles.Error()) {
		t.Error(why)
	}
	leave()
}

// TestHolesOfGone: holes of a session that ends because of them are not found twice. A process that has closed
// its connection may have taken back memory of its own: two such processes do not end their user's other
// sessions, three do.
func TestHolesOfGone(t *testing.T) {
	d, uid := usersDaemon(t, nil)
	searchesAlone(t, d)
	first := punched(t, d)
	ending, why := d.admission.sessions()[0], shm.ErrHoles
	ending.why.Store(&why)
	if d.endIfHoled(ending, time.Now()) {
		t.Error("holes of a session that ends")
	}
	ending.why.Store(nil)
	if !d.endHoled() {
		t.Error("no holes")
	}
	_ = first.reason()
	uid.Store(1001)
	closing, stays := []*proc{attached(t, d), attached(t, d), attached(t, d)}, attached(t, d)
	last := slices.MaxFunc(d.admission.sessions(), func(a, b *session) int { return cmp.Compare(a.nth, b.nth) })
	if err := d.admission.recess(t.Context(), true); err != nil { // so that the ends are not noticed
		t.Fatal(err)
	}
	for i, p := range closing {
		punch(t, p.fds[4], 0, 4096)
		p.close()
		if !d.endHoled() {
			t.Error("no holes")
		}
		if ended := last.why.Load() != nil; ended != (i == 2) {
			t.Errorf("%d processes closed: another one's session has ended: %v", i+1, ended)
		}
	}
	d.admission.resume()
	if why := stays.reason(); !strings.Contains(why, shm.ErrHoles.Error()) {
		t.Error(why)
	}
}

// TestHolesHandedOver: a user who is to wait because of holes waits in a successor, too. Holes that the
// predecessor had no time to look for are found there, without a long turn. Others go on.
func TestHolesHandedOver(t *testing.T) {
	d, uid := usersDaemon(t, nil)
	goOn := searchesAlone(t, d)
	uid.Store(1001)
	innocent := attached(t, d)
	uid.Store(1000)
	p := punched(t, d)
	d.endHoled()
	_ = p.reason()
	uid.Store(1002)
	other := punched(t, d)
	goOn()
	next, handed, taken := succeed(t, d, nil)
	if handed != nil || taken != nil {
		t.Fatal(handed, taken)
	}
	next.admission.mu.Lock()
	left := time.Until(next.admission.holed[config.UserAccount(1000)].until)
	marks := next.admission.holed[config.UserAccount(1000)].marks
	next.admission.mu.Unlock()
	if left < holedFor/2 || left > holedFor || marks != heldMarks {
		t.Errorf("processes of the user are admitted in %v, and it has %d marks", left, marks)
	}
	if why := other.reason(); !strings.Contains(why, shm.ErrHoles.Error()) {
		t.Error(why)
	}
	if err := innocent.ping(); err != nil {
		t.Error(err)
	}
}

// TestHoledState: of a state no user waits longer than holedFor from now, and one who need not wait is not in it.
func TestHoledState(t *testing.T) {
	var a, b admission
	now := time.Now()
	pod := config.Account{Label: "pod7"}
	a.holed = map[config.Account]holed{config.UserAccount(999): {now, 1}, config.UserAccount(1000): {now.Add(holedFor / 2), 1}, config.UserAccount(1001): {now.Add(time.Hour), 3}, pod: {now.Add(holedFor), 2}}
	w := handover.Write(handover.Newest)
	w.Begin(tagSessions)
	a.handOverHoled(w)
	w.End()
	r, err := handover.Read(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	r.Begin(tagSessions)
	b.handOverHoled(r)
	r.End()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	half, whole := b.holed[config.UserAccount(1000)].until.Sub(now), b.holed[config.UserAccount(1001)].until.Sub(now)
	if len(b.holed) != 3 || b.holed[pod].marks != 2 || half < holedFor/2-time.Second || half >= whole || whole < holedFor || whole > time.Since(now)+holedFor {
		t.Errorf("%v and %v of %d", half, whole, len(b.holed))
	}
	if b.holed[config.UserAccount(1000)].marks != 1 || b.holed[config.UserAccount(1001)].marks != 3 {
		t.Errorf("%+v", b.holed)
	}
}
