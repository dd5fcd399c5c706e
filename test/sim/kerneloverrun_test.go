package sim

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/rds"
)

// TestKernelOverrun has a kernel go on sending to a socket that nobody reads, until the messages
// fill the user's quota of the daemon's memory. The socket ends and reports that behind the
// messages it had received. Other sockets lose nothing.
func TestKernelOverrun(t *testing.T) {
	w := newKworld(1, 256<<10)
	deaf := w.socks[0]
	user := w.attach(1000)
	other, err := user.Bind(netip.AddrPortFrom(kwOurs, 102))
	must(err)
	const n = 400
	for i := range n {
		w.k.remote.Reset() // as if our map had not reached the kernel
		w.kernelSend(200, 100, nil)
		if i%40 == 0 {
			w.kernelSend(201, 102, nil)
		}
		for range 10 {
			w.step()
		}
	}
	for range 20_000 {
		w.receive(other)
		w.step()
	}
	got := 0
	for {
		m := rds.Received{Payload: w.scr}
		err := deaf.Recv(rds.DontWait, &m)
		if errors.Is(err, rds.ErrWouldBlock) { // the daemon has messages that are not in the process's memory yet
			w.step()
			continue
		}
		if err != nil {
			if !errors.Is(err, rds.ErrOverrun) {
				t.Fatal(err)
			}
			break
		}
		got++
	}
	if got < 10 || got >= n {
		t.Errorf("%d of %d messages before the end", got, n)
	}
	if w.saw["socket at port 100 closed: its owner does not read what this peer, a kernel, sends"] != 1 {
		t.Errorf("the operator was not told: %v", w.saw)
	}
	if _, err := deaf.SendTo([]byte("x"), w.to(200)); !errors.Is(err, rds.ErrOverrun) {
		t.Errorf("send: %v", err)
	}
	again, err := w.c.Bind(netip.AddrPortFrom(kwOurs, 100))
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	must(deaf.Close())
	w.kernelSend(200, 100, nil)
	for i := 0; ; i++ {
		m := rds.Received{Payload: w.scr}
		if err := again.Recv(rds.DontWait, &m); err == nil {
			break
		} else if !errors.Is(err, rds.ErrWouldBlock) || i > 100_000 {
			t.Fatalf("the port's next socket: %v", err)
		}
		w.step()
	}
	for i, m := range w.in {
		if m.flow[2] == 102 && m.got != 1 {
			t.Errorf("message %d to the other socket arrived %d times", i, m.got)
		}
	}
	must(again.Close())
	must(user.Close())
	must(w.c.Close())
	if i := engine.Conns(w.e)[0]; i.Stats.ConnReset != 0 || i.Stats.RecvRefused != 0 {
		t.Errorf("%+v", i.Stats)
	}
}

// TestKernelKeepsRules has a kernel stop when it has our congestion map. The daemon keeps what
// the kernel's sockets had sent by then, even above the receive buffer and the hard cap. So a
// socket that is read late does not end, and gets everything.
func TestKernelKeepsRules(t *testing.T) {
	full := 0
	for seed := range uint64(4) {
		w := newKworld(seed, 64<<20)
		deaf := w.socks[0]
		last := make([]*kwmsg, 8) // the last message of each sending socket; a send buffer takes one message
		for range 400 {
			for i := range last {
				if n := len(w.in); last[i] == nil || last[i].ended {
					if w.kernelSend(200+uint16(i), 100, nil); len(w.in) > n {
						last[i] = w.in[n]
					}
				}
			}
			w.step()
		}
		for range 5_000 {
			w.step()
		}
		for range 20_000 {
			w.receive(deaf)
			w.step()
		}
		full += w.saw["kernel: ENOBUFS"]
		for i, m := range w.in {
			if m.got != 1 {
				t.Errorf("seed %d: message %d of %d arrived %d times", seed, i, len(w.in), m.got)
			}
		}
		must(w.c.Close())
	}
	if full == 0 {
		t.Error("the socket was never full")
	}
}
