package daemon

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/ipc"
)

// TestUnreadReleases: a process that reads no answers to its requests costs one goroutine, and its session ends when
// many are due. One that reads late gets all.
func TestUnreadReleases(t *testing.T) {
	d, _ := usersDaemon(t, nil)
	for _, n := range []uint32{mostLate / 2, 2 * mostLate} {
		p := attached(t, d)
		b := p.call(&ipc.Alloc{Size: 4096})
		b.CloseFDs()
		buffer := b.Body.(*ipc.AllocOK).Buffer
		var regions []uint32
		for range n {
			r := p.call(&ipc.Register{Sock: p.sock, Buffer: buffer, Len: 4096, Access: 1}).Body.(*ipc.RegisterOK)
			regions = append(regions, r.Region)
		}
		d.tiresIn(2 * patience) // not what ends it
		before, most := runtime.NumGoroutine(), 0
		for i, r := range regions {
			p.write(ipc.AppendFrame(nil, 1<<20+uint32(i), &ipc.Release{Region: r}))
			most = max(most, runtime.NumGoroutine())
		}
		if most > before+32 {
			t.Errorf("%d answers: %d goroutines, %d before", n, most, before)
		}
		if n > mostLate {
			eventually(t, "the session's end", func() error {
				if n := d.answersDue(); n > mostLate {
					t.Fatalf("%d answers are due", n)
				}
				if !p.polled(unix.POLLRDHUP) {
					return errors.New("it goes on")
				}
				return nil
			})
			continue
		}
		got := map[uint32]bool{}
		for range n {
			m, err := p.ctl.Recv()
			if err != nil {
				t.Fatal(err)
			}
			got[m.ID] = m.Body.Type() == (&ipc.OK{}).Type()
		}
		for i := range n {
			if !got[1<<20+i] {
				t.Fatalf("no answer to request %d", i)
			}
		}
	}
}

// answersDue is how many answers processes have left the daemon with.
func (d *Daemon) answersDue() (n int) {
	d.admission.mu.Lock()
	defer d.admission.mu.Unlock()
	for c := range d.admission.open {
		n += int(c.answers.Load())
	}
	return n
}
