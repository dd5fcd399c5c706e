package engine

import (
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/verbs"
)

// dialed notes how long each attempt to connect may take.
type dialed struct {
	verbs.Device
	limits []int64
}

func (d *dialed) Connect(q verbs.QP, p verbs.ConnectParam) error {
	d.limits = append(d.limits, p.TimeoutNs)
	return d.Device.Connect(q, p)
}

// TestDialsSpread: hosts that are all away are asked again without a pause, so that each is heard soon
// after it is back, but not all at the same times.
func TestDialsSpread(t *testing.T) {
	const n, spell = 32, 60_000_000_000
	w := newWorld(t, 1, Config{})
	w.net.Faults.Lost = 1e6
	dev := &dialed{Device: w.net.Device(hostAddr(1))}
	w.es[0] = w.bootOn(dev, 1, 1, Config{})
	r := w.attach(0, smallParams())
	b := r.must(&ipc.Bind{Addr: hostAddr(1), Port: 10}).(*ipc.BindOK)
	for i := range uint32(n) {
		r.open(b.Sock, i, i, hostAddr(100+int(i)), 20)
		r.sendMsg(b.Sock, i, i, 10)
	}
	w.run()
	w.wait(spell)
	distinct := map[int64]bool{}
	for _, ns := range dev.limits {
		if distinct[ns] = true; ns > dialNs || ns < dialNs-dialJitterNs {
			t.Fatalf("an attempt may take %d ns", ns)
		}
	}
	if got, least := len(dev.limits), n*spell/dialNs; got < least || len(distinct) < got*9/10 {
		t.Errorf("%d attempts, %d of distinct lengths; want %d or more", got, len(distinct), least)
	}
}
