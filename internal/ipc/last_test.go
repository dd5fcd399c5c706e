package ipc

import "testing"

// TestLastHasRoom: the reason for the end of a connection reaches a process whose queue was full.
func TestLastHasRoom(t *testing.T) {
	a, b := connPair(t)
	a.SetSendTimeout(-1)
	sent := a.fillUp(t)
	if err := a.SendLast(&Goodbye{Text: "why"}); err != nil {
		t.Fatalf("the last of %d frames: %v", sent, err)
	}
	a.Close()
	last, read := "", uint32(0)
	for {
		m, err := b.Recv()
		if err != nil {
			break
		}
		last = m.Body.(*Goodbye).Text
		read++
	}
	if last != "why" || read != sent+1 {
		t.Errorf("the last of %d frames read is %q, %d were sent before it", read, last, sent)
	}
}
