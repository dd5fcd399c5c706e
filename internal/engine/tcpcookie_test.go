package engine

import (
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/internal/rdstcp"
	"github.com/rdsd/rdsd/internal/shm"
)

// A destination that is reached by RDS/TCP says that it takes no cookies. A client
// that sends one all the same is told that the message did not go.
func TestCookieOverTCP(t *testing.T) {
	w := newWorld(t, 1, Config{})
	n, err := rdstcp.New(rdstcp.Options{Port: 1}) // nobody listens there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	w.es[0].UseTCP(n, func(_, peer netip.Addr) bool { return peer != hostAddr(2) }, 1)
	r := w.attach(0, smallParams())
	s := r.bind(10)
	for i, want := range []shm.SlotLimits{0, shm.SlotNoRDMA, 0} { // itself, by RDS/TCP, not
		r.open(s, uint32(i), uint32(i), hostAddr(i), 20)
		w.run()
		if got := r.cl.table.Slot(uint32(i)).LoadLimits(); got != want {
			t.Errorf("host %d: limits %d, want %d", i, got, want)
		}
	}
	r.put(func(e *shm.Entry) {
		*e.Sub() = shm.Sub{Kind: shm.KindSend, Sock: s, Slot: 1, MsgID: 7, Cookie: 1 << 32}
	})
	w.run()
	ev := r.seg.EventConsumer()
	var e shm.Entry
	for refused := false; !refused; {
		if !ev.Next(&e) {
			t.Fatal("no notice")
		}
		refused = e.Kind() == uint8(shm.EvNotice) && e.Notice().Notice == shm.NoticeNotGranted && e.Notice().Slot == 1
	}
	if id, ok := r.seg.SendRetConsumer().Take(); !ok || id != 7 {
		t.Errorf("returned %d, %v", id, ok)
	}
	w.clean(r)
}
