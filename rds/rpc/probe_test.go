package rpc

import (
	"bytes"
	"context"
	"runtime"
	"testing"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// TestProbeBehindRequest: a call is not asked for before its request was sent, even if that
// takes long. The server would not know it.
func TestProbeBehindRequest(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := NewCaller(d.Bind(t, d.Open(t), 0), CallerOptions{})
	t.Cleanup(func() { _ = c.Close() })
	server := d.Bind(t, d.Open(t), 0)
	p := &pending{to: server.LocalAddrPort(), done: make(chan struct{}, 1)}

	c.sends.RLock()
	if err := c.register(p); err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		c.ask(0)
	}()
	for range 1000 { // time enough for a probe that does not wait for the request
		runtime.Gosched()
	}
	request := []byte("the request")
	if _, err := c.s.Send(context.Background(), &rds.Message{Addr: p.to, Payload: request}); err != nil {
		t.Fatal(err)
	}
	c.sends.RUnlock()
	<-asked
	for i, want := range [][]byte{request, newIDs(kindProbe, 0, []uint64{p.id})} {
		b := make([]byte, 100)
		n, _, err := server.RecvFrom(b)
		if err != nil || !bytes.Equal(b[:n], want) {
			t.Fatalf("message %d: %q, %v, want %q", i, b[:n], err, want)
		}
	}
}
