package lab

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestLab boots two hosts and checks what the other tests rely on.
func TestLab(t *testing.T) {
	l := Boot(t, Config{Hosts: 2, Capture: true})
	t.Run("modules and link", func(t *testing.T) {
		outs := l.Each(t, time.Minute, `
			lab_load rdma_rxe rds_tcp rds_rdma rdma_ucm ib_uverbs sch_netem
			rdma link add rxe0 type rxe netdev eth0
			lab_sync loaded
			ping -c 1 -W 10 $PEER >/dev/null && ping -c 1 -W 10 $PEER6 >/dev/null && echo pong
			tc qdisc add dev eth0 root netem delay 1ms && tc qdisc del dev eth0 root && echo netem
			cat /sys/class/infiniband/rxe0/node_type
			rdma link del rxe0 && modprobe siw && rdma link add siw0 type siw netdev eth0
			cat /sys/class/infiniband/siw0/node_type
			ls /dev/infiniband/rdma_cm`)
		for _, out := range outs {
			if out != "pong\nnetem\n1: CA\n4: RNIC\n/dev/infiniband/rdma_cm\n" {
				t.Errorf("a host said %q", out)
			}
		}
	})
	t.Run("status, output, kill", func(t *testing.T) {
		if r := l.A.Start(t, "echo out; echo err >&2; exit 3").Wait(time.Minute); r.Status != 3 || r.Out != "out\nerr\n" {
			t.Errorf("%+v", r)
		}
		if r := l.B.Start(t, "echo begun; sleep 1000").Wait(2 * time.Second); r.Status != TimedOut {
			t.Errorf("%+v", r)
		}
		j := l.A.Start(t, "echo begun; sleep 1000")
		for j.Out() == "" {
			time.Sleep(10 * time.Millisecond)
		}
		j.Kill()
		if r := j.Wait(time.Minute); r.Status != 128+9 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("files and programs", func(t *testing.T) {
		l.Install(t, Build(t, "cmd/rdsctl"))
		if out := l.B.Run(t, time.Minute, "rdsctl help >/xfer/version; cat /xfer/version"); !strings.Contains(out, "rdsctl") {
			t.Errorf("rdsctl says %q", out)
		}
		if b, err := os.ReadFile(l.File("version")); err != nil || len(b) == 0 {
			t.Errorf("%q, %v", b, err)
		}
	})
	t.Run("capture", func(t *testing.T) {
		if info, err := os.Stat(l.File("link.pcap")); err != nil || info.Size() < 1000 {
			t.Errorf("%v, %v", info, err)
		}
	})
}
