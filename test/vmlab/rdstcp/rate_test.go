package rdstcp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// TestRates measures kernel RDS/TCP and then rdsd between two network namespaces of one host. It
// measures rdsd twice: with the kernel's calls (package afrds), and with the calls of package rds
// that take and send all messages that are there. It logs round trips, and messages a second at
// depths 64 and 512, where each message is answered. It asserts nothing about the figures.
func TestRates(t *testing.T) {
	if testing.Short() {
		t.Skip("measures")
	}
	l := lab.Boot(t, lab.Config{Limit: 8 * time.Minute})
	l.Install(t, lab.Build(t, "cmd/rdsd"), lab.Build(t, "cmd/rdsctl"), lab.Build(t, "test/vmlab/krds"))
	namespaces(t, l)
	const inA, inB = "exec ip netns exec a ", "exec ip netns exec b "
	measure := func(name, viaA, viaB string) {
		echo := l.A.Start(t, inB+"krds "+viaB+" echo -at 10.8.0.2:4000 -size 1024 -limit 100s")
		defer func() { echo.Kill(); echo.Wait(time.Minute) }()
		for end := time.Now().Add(time.Minute); !strings.Contains(echo.Out(), "ready"); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no echo: %s", echo.Out())
			}
		}
		for _, size := range []int{64, 1024} {
			for _, what := range []string{"rtt", "rate -depth 64", "rate -depth 512"} {
				if strings.Contains(what, "512") && size > 64 {
					continue // with the kernel, echo and client would each wait for room in the other's buffer
				}
				verb, flags, _ := strings.Cut(what, " ")
				out := l.A.Run(t, time.Minute, fmt.Sprintf(inA+"krds %s %s -from 10.8.0.1 -to 10.8.0.2:4000 -size %d %s -for 3s", viaA, verb, size, flags))
				t.Logf("%s: %s", name, out)
			}
		}
	}
	l.A.Load(t, "rds", "rds_tcp")
	measure("kernel RDS/TCP", "-via kernel", "-via kernel")
	l.A.Run(t, time.Minute, "rmmod rds_tcp rds; true")
	daemons(t, l)
	measure("rdsd, the kernel's calls", "-via rdsd -rdsd /run/a", "-via rdsd -rdsd /run/b")
	measure("rdsd, package rds", "-via rds -rdsd /run/a", "-via rds -rdsd /run/b")
}

// namespaces makes two network namespaces of a host, a and b, joined by 10.8.0.0/24.
func namespaces(t *testing.T, l *lab.Lab) {
	t.Helper()
	l.A.Run(t, time.Minute, `
		set -e
		lab_load veth
		ip netns add a
		ip netns add b
		ip link add va netns a type veth peer name vb netns b
		ip -n a addr add 10.8.0.1/24 dev va
		ip -n b addr add 10.8.0.2/24 dev vb
		for n in a b; do ip -n $n link set lo up; ip -n $n link set v$n up; done`)
}

// daemons runs rdsd in both, with the control sockets /run/a and /run/b.
func daemons(t *testing.T, l *lab.Lab) {
	t.Helper()
	for i, n := range []string{"a", "b"} {
		l.A.Start(t, fmt.Sprintf("exec ip netns exec %[1]s rdsd -socket /run/%[1]s -listen 10.8.0.%[2]d -peers-allow 10.8.0.0/24 -tls-mode off", n, i+1))
		l.A.Run(t, time.Minute, "lab_wait 50 rdsctl --socket /run/"+n+" status")
	}
}
