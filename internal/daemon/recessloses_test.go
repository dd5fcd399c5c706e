package daemon

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
)

// TestRecessLoses: a recess comes to its end whatever a process does. The session that does not
// stand is lost, and its process is told. Others notice nothing.
func TestRecessLoses(t *testing.T) {
	d := startDaemon(t, nil)
	p, other := attached(t, d), attached(t, d)
	ended := make(chan error, 1)
	recess := func(breaks bool) {
		t.Helper()
		go func() { ended <- d.admission.recessFor(context.Background(), breaks, 20*time.Millisecond) }()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for range 5000 { // counted as the recess counts its time
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
				return
			case <-tick.C:
			}
		}
		t.Fatal("the recess has no end")
	}
	unblock := blockEngine(t, d)
	p.send(&ipc.SetRcvBuf{Sock: p.sock, Bytes: 1 << 20})
	takesRequest(t, d, &ipc.SetRcvBuf{})
	recess(false)
	if s := p.reason(); !strings.Contains(s, errNotStood.Error()) {
		t.Error(s)
	}
	d.admission.resume()
	unblock()
	d.has(t, 1)

	p = attached(t, d)
	for _, c := range d.connections() {
		d.admission.mu.Lock()
		if d.admission.open[c].nth == d.admission.arrived {
			c.answers.Add(1) // one that does not come to its end
		}
		d.admission.mu.Unlock()
	}
	recess(true)
	if s := p.reason(); !strings.Contains(s, errNotStood.Error()) {
		t.Error(s)
	}
	d.admission.resume()
	d.has(t, 1)
	other.call(&ipc.Addrs{})
	if err := other.ping(); err != nil {
		t.Error(err)
	}
}

// TestRecessEndsFirst: the engine lets go of a process whose session has ended in a recess before
// it stands still, while it serves others.
func TestRecessEndsFirst(t *testing.T) {
	d := startDaemon(t, nil)
	p, other := attached(t, d), attached(t, d)
	if err := d.admission.recess(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	d.admission.mu.Lock()
	for _, s := range d.admission.open {
		if s.nth == 1 {
			s.why.Store(&errNotStood) // and its goroutine is not done
		}
	}
	d.admission.mu.Unlock()
	halted, err := d.standStill(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if n := engine.Clients(d.engine); n != 1 {
		t.Errorf("%d processes are attached to an engine that stands still", n)
	}
	d.loop.goOn(halted)
	d.admission.resume()
	if err := other.ping(); err != nil {
		t.Error(err)
	}
	p.close()
	d.has(t, 1)
}

// TestRecessTooMuch: of processes that have more than may go over, that one is lost which has most,
// while the engine serves others.
func TestRecessTooMuch(t *testing.T) {
	d := startDaemon(t, nil)
	little, much := attached(t, d), attached(t, d)
	for p, n := range map[*proc]int{little: 2, much: 3} {
		for range n {
			p.call(&ipc.Alloc{Size: 1}).CloseFDs()
		}
	}
	all := 0
	for ; ; all++ {
		more := false
		if err := d.loop.ask(context.Background(), func() { more = len(d.engine.Excess(all)) > 0 }); err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
	}
	for left := 2; left > 0; left-- {
		d.mostHanded = all - 2 + left
		if err := d.admission.recess(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		halted, err := d.standStill(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		n := engine.Clients(d.engine)
		d.loop.goOn(halted)
		d.admission.resume()
		if n != left {
			t.Fatalf("%d processes are left with at most %d records of %d, want %d", n, d.mostHanded, all, left)
		}
	}
	if s := much.reason(); !strings.Contains(s, errTooMuch.Error()) {
		t.Error(s)
	}
	d.has(t, 1)
	if err := little.ping(); err != nil {
		t.Error(err)
	}
}

// TestRecessBreaksMemory: a recess does not wait for memory that is being made, nor for the turns
// of those who wait for theirs. All of it is there after the recess, and counts once.
func TestRecessBreaksMemory(t *testing.T) {
	d := startDaemon(t, nil)
	big, waits, comer, end := attached(t, d), attached(t, d), dialRaw(t, d), attached(t, d)
	big.send(&ipc.Alloc{Size: 1 << 30})
	eventually(t, "memory is being made", func() error {
		d.populator.mu.Lock()
		defer d.populator.mu.Unlock()
		if d.populator.bytes < 1<<30 {
			return errors.New("it is not")
		}
		return nil
	})
	made := func() uint64 {
		d.populator.mu.Lock()
		defer d.populator.mu.Unlock()
		return d.populator.made
	}
	before := made()
	waits.send(&ipc.GrowSend{})
	comer.send(&ipc.Hello{Role: ipc.RoleClient, Params: fewParams})
	end.send(&ipc.Alloc{Size: 1 << 20})
	all := []*proc{big, waits, comer, end}
	if err := d.admission.recess(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		p.hearsNothing()
	}
	if n := d.engine.Memory().Sum().Registered; n != 0 {
		t.Errorf("%d bytes count in the recess", n)
	}
	if n := made() - before; n != 0 {
		t.Errorf("memory was made %d times to its end, although its request was broken off", n)
	}
	d.admission.resume()
	big.hears(big.id, &ipc.AllocOK{})
	waits.hears(waits.id, &ipc.GrowSendOK{})
	comer.hears(comer.id, &ipc.HelloOK{})
	end.hears(end.id, &ipc.AllocOK{})
	for _, p := range all {
		p.hearsNothing()
	}
	if n := d.engine.Memory().Sum().Registered; n != 1<<30+1<<20 {
		t.Errorf("%d bytes count", n)
	}
	if n := d.admission.clientsOf()[config.UserAccount(uint32(os.Getuid()))]; n != len(all) {
		t.Errorf("%d processes count, there are %d", n, len(all))
	}
}
