package daemon

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// TestRequestsHandedOver: requests of all kinds that were broken off are carried out by the daemon
// that takes over, once, before what their processes have sent since. That holds if they are
// broken off again.
func TestRequestsHandedOver(t *testing.T) {
	d := startDaemon(t, nil)
	uid := uint32(os.Getuid())
	alloc, grow, imp := attached(t, d), attached(t, d), importing(t, d)
	var comers []*proc
	leave := takesTurn(t, d, uid)
	alloc.send(&ipc.Alloc{Size: 1 << 16})
	grow.send(&ipc.GrowSend{})
	imp.send(&ipc.Import{Len: 1 << 16, Off: 1 << 16}, filledMemory(t, 1<<20, unix.F_SEAL_SHRINK))
	for range 8 {
		c := dialRaw(t, d)
		c.send(&ipc.Hello{Role: ipc.RoleClient, Name: "comer", Params: fewParams})
		comers = append(comers, c)
	}
	all := append([]*proc{alloc, grow, imp}, comers...)
	waiting := func() {
		t.Helper()
		eventually(t, "all of them wait for memory", func() error {
			d.populator.mu.Lock()
			defer d.populator.mu.Unlock()
			if n := d.populator.here[config.UserAccount(uid)]; n != len(all)+1 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
	}
	for round := range 2 {
		waiting()
		x := part(t, d)
		before := d.engine.Memory().Sum()
		d = x.succeedWith(func(next *Daemon) {
			if now := next.engine.Memory().Sum(); now != before {
				t.Errorf("%+v counts, before %+v", now, before)
			}
			if has := next.brokenOff(); has != len(all) {
				t.Errorf("the next daemon has %d requests that were broken off, there are %d", has, len(all))
			}
			if round == 0 {
				leave()
				leave = takesTurn(t, next, uid)
			}
		})
		if t.Failed() {
			t.FailNow() // the processes would wait for answers for ever
		}
		if round == 0 {
			alloc.send(&ipc.Addrs{})
		}
	}
	leave()
	alloc.hears(alloc.id-1, &ipc.AllocOK{})
	alloc.hears(alloc.id, &ipc.AddrsOK{})
	grow.hears(grow.id, &ipc.GrowSendOK{})
	imp.hears(imp.id, &ipc.ImportOK{})
	for _, c := range comers {
		c.hears(c.id, &ipc.HelloOK{})
	}
	for _, p := range all {
		p.hearsNothing()
	}
	if n := d.admission.clientsOf()[config.UserAccount(uid)]; n != len(all) {
		t.Errorf("%d processes count, there are %d", n, len(all))
	}
	if err := alloc.ping(); err != nil {
		t.Error(err)
	}
}

// TestOlderSuccessor: a successor that does not know of requests that are broken off is waited for
// until they have ended.
func TestOlderSuccessor(t *testing.T) {
	d := startDaemon(t, nil)
	p := attached(t, d)
	leave := takesTurn(t, d, uint32(os.Getuid()))
	p.send(&ipc.Alloc{Size: 1 << 16})
	takesRequest(t, d, &ipc.Alloc{})
	parts := &predecessor{Daemon: d}
	if err := d.upgrades.begin(""); err != nil {
		t.Fatal(err)
	}
	parked := make(chan error)
	go func() {
		_, err := parts.Park(2)
		parked <- err
	}()
	eventually(t, "a recess begins", func() error {
		d.admission.mu.Lock()
		defer d.admission.mu.Unlock()
		if d.admission.inRecess == nil {
			return errors.New("none has")
		}
		return nil
	})
	leave()
	if err := <-parked; err != nil {
		t.Fatal(err)
	}
	p.hears(p.id, &ipc.AllocOK{})
	parts.Resume()
	if err := p.ping(); err != nil {
		t.Error(err)
	}
}

// TestRequestRefused: a request that no session can have broken off is refused.
func TestRequestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		role ipc.Role
		m    ipc.Message
	}{
		"of rdsctl":                 {ipc.RoleCtl, ipc.Message{ID: 1, Body: &ipc.Alloc{Size: 1}}},
		"a question of rdsctl":      {ipc.RoleClient, ipc.Message{ID: 1, Body: &ipc.Ctl{JSON: []byte("{}")}}},
		"an answer":                 {ipc.RoleClient, ipc.Message{ID: 1, Body: &ipc.OK{}}},
		"without an id":             {ipc.RoleClient, ipc.Message{Body: &ipc.Alloc{Size: 1}}},
		"Alloc before Hello":        {0, ipc.Message{ID: 1, Body: &ipc.Alloc{Size: 1}}},
		"a second Hello":            {ipc.RoleClient, ipc.Message{ID: 1, Body: &ipc.Hello{Role: ipc.RoleClient, Params: fewParams}}},
		"Import without descriptor": {ipc.RoleClient, ipc.Message{ID: 1, Body: &ipc.Import{Len: 1}}},
		"Alloc with a descriptor":   {ipc.RoleClient, ipc.Message{ID: 1, Body: &ipc.Alloc{Size: 1}, FDs: []int{0}}},
		"nothing":                   {ipc.RoleClient, ipc.Message{ID: 1, Body: &ipc.Alloc{Size: 1}}},
	} {
		var out handover.Files
		w := handover.Write(handover.Newest)
		broken := &c.m
		handOverRequest(w, &out, c.role, &broken)
		state := w.Bytes()
		if name == "nothing" {
			state = state[:len(state)-5]
		}
		r, err := handover.Read(state)
		if err != nil {
			t.Fatal(err)
		}
		var m *ipc.Message
		if handOverRequest(r, &handover.Files{All: []int{-1}}, c.role, &m); m != nil || r.Err() == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}
