package rds

import (
	"bytes"
	"errors"
	"testing"
)

func TestSendRecv(t *testing.T) {
	_, a, b := pair(t, Options{})
	buf := make([]byte, MaxMessage)
	if err := a.SetSndBuf(MaxMessage); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 63, 64, 65, 4096, inlineCopy, inlineCopy + 1, 100000, MaxMessage} {
		p := bytes.Repeat([]byte{byte(n)}, n)
		if k, err := a.SendTo(p, b.LocalAddrPort()); k != n || err != nil {
			t.Fatalf("SendTo(%d bytes) = %d, %v", n, k, err)
		}
		k, from, err := b.RecvFrom(buf)
		if err != nil || from != a.LocalAddrPort() || !bytes.Equal(buf[:k], p) {
			t.Fatalf("RecvFrom of %d bytes = %d from %v, %v", n, k, from, err)
		}
	}
	if _, err := a.SendTo(make([]byte, MaxMessage+1), b.LocalAddrPort()); !errors.Is(err, ErrMessageTooLong) {
		t.Fatalf("SendTo of more than MaxMessage: %v", err)
	}
}
