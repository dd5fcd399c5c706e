package ipc

import (
	"errors"
	"os"
	"testing"
)

// TestLastHasRoom: the reason for the end of a connection reaches a process whose queue was full.
func TestLastHasRoom(t *testing.T) {
	a, b := connPair(t)
	a.SetSendTimeout(-1)
	sent := 0
	var err error
	for ; err == nil; sent++ {
		err = a.Send(1, &Goodbye{Text: "one of many"})
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err := a.SendLast(&Goodbye{Text: "why"}); err != nil {
		t.Fatalf("the last of %d frames: %v", sent, err)
	}
	a.Close()
	var last string
	for {
		m, err := b.Recv()
		if err != nil {
			break
		}
		last = m.Body.(*Goodbye).Text
		sent--
	}
	if last != "why" || sent != 0 {
		t.Errorf("the last frame read is %q, %d are missing", last, sent)
	}
}
