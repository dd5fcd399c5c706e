package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

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

// TestRecessUnreadTool: an rdsctl that does not read its answers, as one whose output goes to a
// pager, loses its session in a recess, and is told why. It has broken no rule, unlike a process with
// sockets that does the same.
func TestRecessUnreadTool(t *testing.T) {
	d := startDaemon(t, nil)
	for want, p := range []*proc{rdsctlOf(t, d), attached(t, d)} {
		var m ipc.Request = &ipc.Addrs{}
		if want == 0 {
			m = ctlRequest(t, ctl.Request{Kind: ctl.KindStatus})
		}
		p.asksUnread(m)
		if err := d.admission.recess(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		d.admission.resume()
		if s := p.reason(); want == 0 && !strings.Contains(s, errReplaced.Error()) {
			t.Errorf("rdsctl is told %q", s)
		}
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

// waitsIn waits until a goroutine of this process is in the function of that name.
func waitsIn(t *testing.T, name string) {
	t.Helper()
	eventually(t, "a goroutine is in "+name, func() error {
		if !isIn("." + name + "(") {
			return errors.New("none is")
		}
		return nil
	})
}
