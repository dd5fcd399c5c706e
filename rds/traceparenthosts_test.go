package rds_test

import (
	"strings"
	"testing"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// TestTraceparentHosts: a traceparent goes from host to host, and within one. By RDS/TCP, which has
// no place for it, the message arrives without.
func TestTraceparentHosts(t *testing.T) {
	const text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, start := range map[string]func(testing.TB, int) []*rdstest.Daemon{"rdsd": rdstest.StartDaemons, "RDS/TCP": rdstest.StartRDSTCP} {
		d := start(t, 2)
		a, b := d[0].Bind(t, d[0].Open(t), 0), d[1].Bind(t, d[1].Open(t), 0)
		here := d[0].Bind(t, d[0].Open(t), 0)
		for _, to := range []*rds.Socket{b, here} {
			for _, n := range []int{0, 10, 9_000, 200_000} {
				m := rds.Message{Addr: to.LocalAddrPort(), Payload: []byte(strings.Repeat("x", n)), Traceparent: text}
				if _, err := a.Send(t.Context(), &m); err != nil {
					t.Fatal(err)
				}
				got := rds.Received{Payload: make([]byte, n)}
				if err := to.Recv(t.Context(), &got); err != nil {
					t.Fatal(err)
				}
				if want := name == "rdsd" || to == here; string(got.Payload) != string(m.Payload) || want != (got.Traceparent == text) || !want && got.Traceparent != "" {
					t.Errorf("%s: %d bytes with %q", name, got.Len, got.Traceparent)
				}
			}
		}
	}
}
