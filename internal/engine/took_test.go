package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// asked is what rdsctl is told of the sockets and peers of e.
func asked(t *testing.T, e *Engine) ([]ctl.SocketInfo, []Peer) {
	t.Helper()
	i := e.Inspect(func(f func()) error { f(); return nil })
	socks, err := i.Sockets()
	if err != nil {
		t.Fatal(err)
	}
	peers, err := i.Peers()
	if err != nil {
		t.Fatal(err)
	}
	return socks, peers
}

// TestTook: each acked datagram and each settled operation is counted once, at its socket,
// its peer and the daemon, with the time that it took.
func TestTook(t *testing.T) {
	for _, hosts := range []int{1, 2} {
		w, a, b := opPair(t, hosts)
		e := w.es[0]
		r := b.expose(0, 200, abi.RightWrite, a)
		w.run()
		a.submit(shm.Sub{Len: 10})
		a.submitRun(100, 0, 64)
		w.run()
		a.submit(shm.Sub{Len: 5}, a.op(abi.OpWrite, r.Cookie, 100))
		w.run()
		e.watch.countAcked()
		if n := e.st.Messages.Count(); n != 5 {
			t.Errorf("%d hosts: %d messages were counted, want 5", hosts, n)
		}
		if n := e.st.Operations.Count(); n != 1 {
			t.Errorf("%d hosts: %d operations were counted, want 1", hosts, n)
		}
		socks, peers := asked(t, e)
		var msgs, ops, sent, bytes uint64
		for _, s := range socks {
			msgs, ops, sent, bytes = msgs+s.MessageTime.Count, ops+s.OperationTime.Count, sent+s.Sent, bytes+s.SentBytes
		}
		if msgs != e.st.Messages.Count() || ops != 1 || sent != e.st.C[stats.SendQueued] || bytes != e.st.C[stats.SendBytes] {
			t.Errorf("%d hosts: the sockets have %d messages, %d operations, %d sent of %d bytes", hosts, msgs, ops, sent, bytes)
		}
		if hosts == 1 {
			continue
		}
		p := peers[0]
		if p.MessageTime.Count != msgs || p.OperationTime.Count != 1 || p.MessageTime.Sum == 0 || p.OperationTime.Sum == 0 {
			t.Errorf("the peer has %+v and %+v", p.MessageTime, p.OperationTime)
		}
		if p.RTT <= 0 || p.RTTMin <= 0 || p.RTT > p.MessageTime.Sum || p.RTTAt.IsZero() {
			t.Errorf("round trip %v, least %v, at %v", p.RTT, p.RTTMin, p.RTTAt)
		}
		if p.Sent == 0 || p.SentBytes == 0 {
			t.Errorf("sent %d messages, %d bytes", p.Sent, p.SentBytes)
		}
	}
}
