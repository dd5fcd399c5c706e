package ibv

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// TestDaemons has two rdsd on two hosts, over soft-RoCE and then over soft-iWARP. Blocks are
// read by RDMA, before and after a reset of the connection.
func TestDaemons(t *testing.T) {
	l := lab.Boot(t, lab.Config{Hosts: 2})
	l.Install(t, lab.Build(t, "cmd/rdsd", "-tags=ibv"), lab.Build(t, "cmd/rdsctl"), lab.Build(t, "examples/blockstore"))
	for _, driver := range []string{"rxe", "siw"} {
		if testing.Short() && driver != "rxe" {
			continue
		}
		t.Run(driver, func(t *testing.T) { daemons(t, l, driver) })
	}
}

func daemons(t *testing.T, l *lab.Lab, driver string) {
	daemon := fmt.Sprintf(`
		set -e
		lab_load %[2]s rdma_ucm ib_uverbs
		rdma link add %[1]s0 type %[1]s netdev eth0
		trap 'rdma link del %[1]s0' EXIT
		export RDSD_SOCKET=/run/%[1]s.sock
		rdsd -transport verbs -listen $ME -peers-allow 10.9.0.0/24 -tls-mode off 2>/xfer/rdsd.%[1]s.$HOST &
		echo $! >/run/%[1]s.pid
		wait`, driver, modules[driver])
	var jobs []*lab.Job
	for _, h := range l.Hosts() {
		jobs = append(jobs, h.Start(t, daemon))
	}
	const long = 90 * time.Second
	for _, h := range l.Hosts() {
		h.Run(t, long, fmt.Sprintf("lab_wait 60 rdsctl -socket /run/%s.sock status", driver))
	}
	server := l.A.Start(t, fmt.Sprintf("head -c 2000000 /dev/urandom >/xfer/file; exec blockstore serve -socket /run/%[1]s.sock -bind $ME:4000 /xfer/file >/xfer/serve.%[1]s 2>&1", driver))
	copyOut := fmt.Sprintf(`
		set -e
		export RDSD_SOCKET=/run/%[1]s.sock
		lab_wait 30 grep serving /xfer/serve.%[1]s
		blockstore copy-out -give-up 60s -bind $ME $PEER /tmp/copy
		cmp /xfer/file /tmp/copy
		rdsctl peers -o json-v2`, driver)
	for round := range 2 {
		out := l.B.Run(t, long, copyOut)
		t.Logf("round %d: %.500s", round, out)
		l.B.Run(t, long, fmt.Sprintf("rdsctl -socket /run/%s.sock peer reset $PEER", driver))
	}
	out := l.B.Run(t, long, copyOut)
	t.Logf("after the resets: %.500s", out)
	server.Kill()
	server.Wait(long)
	for i, h := range l.Hosts() {
		h.Run(t, long, fmt.Sprintf("kill $(cat /run/%s.pid)", driver))
		if r := jobs[i].Wait(long); r.Err() != nil {
			t.Errorf("host %s: %v", h.Name(), r.Err())
		}
	}
	if logs, err := filepath.Glob(l.File("rdsd." + driver + ".*")); len(logs) != 2 || err != nil {
		t.Errorf("logs of the daemons: %v, %v", logs, err)
	}
}
