package rpc

import (
	"bytes"
	"context"
	"testing"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
	"golang.org/x/sys/unix"
)

// TestCookieOfOther: a caller cannot have a server read memory that another socket
// of its host has granted to the server.
func TestCookieOfOther(t *testing.T) {
	for _, hosts := range []int{1, 2} {
		ds := rdstest.StartDaemons(t, hosts)
		far := ds[hosts-1]
		s := ds[0].Bind(t, ds[0].Open(t), 0)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() {
			ended <- Serve(ctx, s, Methods{"read": func(_ context.Context, r *Request) ([]byte, error) { return r.Body, nil }}, ServerOptions{MaxRequest: 1000})
		}()
		c := far.Open(t)
		victim, caller := far.Bind(t, c, 0), far.Bind(t, far.Open(t), 0)
		memory, err := c.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		copy(memory.Bytes(), "secret...")
		region, err := victim.Register(memory, 0, 4096, rds.AllowRead|rds.AllowWrite)
		if err == nil {
			err = region.Expose(within(t), s.LocalAddrPort())
		}
		if err != nil {
			t.Fatal(err)
		}
		q := request{id: 5, method: []byte("read"), size: 9, cookie: uint64(region.Cookie())}
		if _, err := caller.SendTo(asked(&q), s.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
		m := rds.Received{Payload: make([]byte, 2000)}
		if err := caller.Recv(within(t), &m); err != nil {
			t.Fatal(err)
		}
		if a, err := parseAnswer(m.Payload[:m.N]); err != nil || a.id != q.id || a.status != statusFailed || !bytes.Contains(a.part, []byte(unix.EACCES.Error())) {
			t.Errorf("%d hosts: %+v, %v, want EACCES", hosts, a, err)
		}
		cancel()
		<-ended
	}
}
