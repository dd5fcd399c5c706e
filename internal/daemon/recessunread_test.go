package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stats"
)

// TestRecessUnreadDescriptor: a process that has not read an answer with a descriptor when a recess
// begins, and has asked for another one, keeps its session. The request is carried out after the
// recess, and its memory counts once.
func TestRecessUnreadDescriptor(t *testing.T) {
	alloc, grow := &ipc.Alloc{Size: 1 << 20}, &ipc.GrowSend{}
	for _, c := range []struct {
		first, second ipc.Request
		answers       [2]ipc.Body
	}{
		{alloc, grow, [2]ipc.Body{&ipc.AllocOK{}, &ipc.GrowSendOK{}}},
		{grow, alloc, [2]ipc.Body{&ipc.GrowSendOK{}, &ipc.AllocOK{}}},
	} {
		d := startDaemon(t, nil)
		p := attached(t, d)
		p.send(c.first)
		p.send(c.second)
		takesRequest(t, d, c.second)
		waitsIn(t, "awaitReceived")
		if err := d.admission.recess(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		d.admission.resume()
		p.hears(p.id-1, c.answers[0])
		p.hears(p.id, c.answers[1])
		p.hearsNothing()
		d.has(t, 1)
		if n := d.engine.Memory().Sum().Registered; n != 1<<20 {
			t.Errorf("%d bytes count", n)
		}
	}
}

// TestRecessUnreadTool: an rdsctl that does not read its answers loses its session in a recess. It
// has broken no rule, unlike a process with sockets that does the same.
func TestRecessUnreadTool(t *testing.T) {
	d := startDaemon(t, nil)
	for want, p := range []*proc{rdsctlOf(t, d), attached(t, d)} {
		var m ipc.Request = &ipc.Addrs{}
		if want == 0 {
			m = ctlRequest(t, ctl.Request{Kind: ctl.KindStatus})
		}
		p.floods(m)
		if err := d.admission.recess(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		d.admission.resume()
		d.has(t, 1-want)
		var end ctl.EventInfo
		eventually(t, "the end is an event", func() error {
			all, _ := d.summed.journal.events(viewOf(0, true, ctl.MaxLimit), 0)
			if len(all) <= want {
				return fmt.Errorf("%+v", all)
			}
			end = all[want]
			return nil
		})
		if event := []string{"rdsctl ended", "client ended: session"}[want]; end.Event != event || end.Error != errAnswersUnread.Error() {
			t.Fatalf("%+v", end)
		}
		eventually(t, "violations", func() error {
			if n := d.statistics.Snapshot().Values[stats.ClientViolations].Value; n != uint64(want) {
				return fmt.Errorf("%d, not %d", n, want)
			}
			return nil
		})
	}
}

// floods sends a request until neither side's queue has room, because the process reads nothing.
func (p *proc) floods(m ipc.Request) {
	p.t.Helper()
	for frame, err := ipc.AppendFrame(nil, 1, m), error(nil); !errors.Is(err, os.ErrDeadlineExceeded); {
		if err != nil {
			p.t.Fatal(err)
		}
		_ = p.c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = p.c.Write(frame)
	}
}

// waitsIn waits until a goroutine of this process is in the function of that name.
func waitsIn(t *testing.T, name string) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	eventually(t, "a goroutine is in "+name, func() error {
		if n := runtime.Stack(stacks, true); !bytes.Contains(stacks[:n], []byte("."+name+"(")) {
			return errors.New("none is")
		}
		return nil
	})
}
