package daemon

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
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
