package afrds_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rdstest"
)

// TestBoundAnew: a message goes to whichever socket is bound at its port when it arrives, as in the kernel, though the
// sender has sent to the port's former socket and heard nothing of its end.
func TestBoundAnew(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	for what, there := range map[string]*rdstest.Daemon{"one host": ds[0], "two hosts": ds[1]} {
		t.Run(what, func(t *testing.T) {
			from, k := bound(t, ds[0]), afrds.New(there.Open(t))
			first := bound(t, there)
			name, err := first.Getsockname()
			if err != nil {
				t.Fatal(err)
			}
			for to, n := first, 0; ; n++ {
				b := make([]byte, 8)
				if _, err := from.Sendmsg([]byte{byte(n)}, name, nil, 0); err != nil {
					t.Fatal(err)
				}
				if _, err := to.Poll(afrds.PollIn, 10*time.Second); err != nil {
					t.Fatal(err)
				}
				if r, err := to.Recvmsg(b, nil, nil, syscall.MSG_DONTWAIT); err != nil || r.N != 1 || b[0] != byte(n) {
					t.Fatalf("socket %d: %d bytes, %d, %v", n, r.N, b[0], err)
				}
				if err := to.Close(); err != nil {
					t.Fatal(err)
				}
				if n == 20 {
					break
				}
				if to, err = k.Socket(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 0); err == nil {
					err = to.Bind(name)
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = to.Close() })
			}
		})
	}
}
