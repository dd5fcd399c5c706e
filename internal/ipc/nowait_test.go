package ipc

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// fillUp sends frames with ids from 1 on until the other side's queue is full, and returns how many.
// No Send of c may wait.
func (c *Conn) fillUp(t *testing.T) (sent uint32) {
	t.Helper()
	for {
		if err := c.Send(sent+1, &Goodbye{Text: "x"}); errors.Is(err, os.ErrDeadlineExceeded) {
			return sent
		} else if err != nil {
			t.Fatal(err)
		}
		sent++
	}
}

// TestConnNoWait: a Send that may not wait fails if the queue is full, and works while it is not.
func TestConnNoWait(t *testing.T) {
	a, b := connPair(t)
	a.SetSendTimeout(-1)
	sent := a.fillUp(t)
	for i := range sent {
		if m, err := b.Recv(); err != nil || m.ID != i+1 {
			t.Fatalf("frame %d of %d: %+v, %v", i+1, sent, m, err)
		}
	}
	if err := a.Send(9, &ImportOK{Buffer: 1}); err != nil {
		t.Error(err)
	}
	if m, err := b.Recv(); err != nil || m.ID != 9 {
		t.Errorf("%+v, %v", m, err)
	}
	b.Close()
	if err := a.Send(10, &ImportOK{Buffer: 1}); !errors.Is(err, unix.EPIPE) {
		t.Errorf("to nobody: %v", err)
	}
}

// TestTrySend: TrySend sends while there is room, beside a Send that waits for room, and never waits itself.
func TestTrySend(t *testing.T) {
	a, b := connPair(t)
	if !a.TrySend(1, &OK{}) {
		t.Fatal("not sent")
	}
	if m, err := b.Recv(); err != nil || m.ID != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	sent := uint32(1)
	for a.TrySend(sent+1, &OK{}) {
		sent++
	}
	waits := make(chan error, 1)
	go func() { waits <- a.Send(sent+1, &OK{}) }()
	for i := range sent {
		if m, err := b.Recv(); err != nil || m.ID != i+2 {
			t.Fatalf("frame %d of %d: %+v, %v", i+2, sent, m, err)
		}
	}
	if err := <-waits; err != nil || !a.TrySend(sent+2, &OK{}) {
		t.Errorf("with room again: %v", err)
	}
	b.Close()
	if a.TrySend(sent+3, &OK{}) {
		t.Error("sent to nobody")
	}
}
