package main

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// ask runs a verb against a daemon and parses its JSON.
func ask(t *testing.T, d *rdstest.Daemon, kind ctl.Kind, args ...string) *ctl.Response {
	t.Helper()
	code, stdout, stderr := runSocket(t, append(args, "-o", "json-v2", "-socket", d.Socket())...)
	r, err := ctl.Parse([]byte(stdout), kind)
	if code != exitOK || err != nil || stderr != "" {
		t.Fatalf("%v: status %d, %v, %q, %s", args, code, err, stderr, stdout)
	}
	return r
}

// until repeats ok until it is true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// The verbs that show single sockets, messages and regions, with real daemons.
func TestLookAtDaemons(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	a, b := ds[0].Open(t), ds[1].Open(t)
	from, to := ds[0].Bind(t, a, 4000), ds[1].Bind(t, b, 5000)
	dest := netip.AddrPortFrom(ds[1].Addr(), 5000)
	buf, err := b.Alloc(8192)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.Register(buf, 4096, 4096, rds.AllowRead|rds.AllowWrite); err != nil {
		t.Fatal(err)
	}
	keys := ask(t, ds[1], ctl.KindKeys, "keys").Keys
	if len(keys) != 1 || keys[0].Port != 5000 || keys[0].Offset != 4096 || keys[0].Length != 4096 || keys[0].Rights != "read+write" || keys[0].State != "live" {
		t.Errorf("keys %+v", keys)
	}

	// Nobody reads, so the receiver is congested, and the rest of the messages wait.
	payload := make([]byte, 16<<10)
	until(t, "the destination is congested", func() bool {
		_, err := from.Send(rds.DontWait, &rds.Message{Payload: payload, Addr: dest})
		return errors.Is(err, rds.ErrCongested)
	})
	until(t, "the receiver is congested", func() bool { return len(ask(t, ds[0], ctl.KindCongested, "cong").Congested) == 1 })
	c := ask(t, ds[0], ctl.KindCongested, "cong").Congested[0]
	if c.Where != "peer" || c.Addr != dest.Addr() || c.Port != 5000 || c.Senders != 1 || c.Owner != nil {
		t.Errorf("congested there: %+v", c)
	}
	here := ask(t, ds[1], ctl.KindCongested, "cong").Congested
	if len(here) != 1 || here[0].Where != "here" || here[0].Owner == nil || here[0].Since.IsZero() || here[0].Unread <= here[0].Limit {
		t.Errorf("congested here: %+v", here)
	}
	unread := ask(t, ds[1], ctl.KindQueues, "queues", "recv").Queues
	if len(unread) < 32 || unread[0].Bytes != 16<<10 || unread[0].Remote != ds[0].Addr() || unread[0].RemotePort != 4000 || unread[0].LocalPort != 5000 {
		t.Errorf("%d unread, the first %+v", len(unread), unread[:min(1, len(unread))])
	}
	backlog := ask(t, ds[1], ctl.KindBacklog, "backlog").Backlog
	if len(backlog) != 1 || backlog[0].Direction != "recv" || backlog[0].WaitsFor != ctl.WaitsForReader || int(backlog[0].UnreadMessages) < len(unread) ||
		backlog[0].UnreadBytes != here[0].Unread {
		t.Errorf("backlog of the receiver %+v", backlog)
	}
	if !ask(t, ds[1], ctl.KindQueues, "queues", "recv", "-limit", "3").Truncated {
		t.Error("three messages are not all")
	}

	// An unreachable peer: everything waits for a connection.
	nobody := netip.AddrPortFrom(netip.MustParseAddr("127.99.254.254"), 7)
	if _, err := from.SendTo([]byte("hello"), nobody); err != nil {
		t.Fatal(err)
	}
	until(t, "it waits", func() bool {
		return len(ask(t, ds[0], ctl.KindStalls, "stalls", "-filter", "remote="+nobody.Addr().String()).Stalls) == 1
	})
	s := ask(t, ds[0], ctl.KindStalls, "stalls", "-filter", "remote="+nobody.Addr().String()).Stalls[0]
	if s.WaitsFor != ctl.WaitsForConnection || s.QueuedMessages != 1 || s.OldestQueued <= 0 {
		t.Errorf("stall %+v", s)
	}
	q := ask(t, ds[0], ctl.KindQueues, "queues", "send", "-filter", "remote="+nobody.Addr().String()).Queues
	if len(q) != 1 || q[0].Bytes != 5 || q[0].RemotePort != 7 || q[0].Age <= 0 {
		t.Errorf("queue %+v", q)
	}
	until(t, "the failed connection is an error", func() bool {
		e := ask(t, ds[0], ctl.KindErrors, "errors", "-filter", "peer="+nobody.Addr().String()).Errors
		return len(e) > 0 && e[0].Count > 0 && e[0].Error != ""
	})
	if e := ask(t, ds[0], ctl.KindEvents, "events").Events; len(e) == 0 || e[0].Seq != 1 {
		t.Errorf("events %+v", e)
	}

	// Operations.
	if b := ask(t, ds[0], ctl.KindBarriers, "barriers").Barriers; len(b) != 0 {
		t.Errorf("barriers %+v", b)
	}
}

// A drain makes senders wait, reports when nothing is left, and ends.
func TestDrainDaemons(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	a, b := ds[0].Open(t), ds[1].Open(t)
	from, to := ds[0].Bind(t, a, 4000), ds[1].Bind(t, b, 5000)
	dest := netip.AddrPortFrom(ds[1].Addr(), 5000)
	exchange := func(text string) {
		t.Helper()
		if _, err := from.SendTo([]byte(text), dest); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 16)
		if n, _, err := to.RecvFrom(p); err != nil || string(p[:n]) != text {
			t.Fatalf("%q, %v", p[:n], err)
		}
	}
	exchange("before")
	peer := ds[1].Addr().String()
	for _, verb := range []string{"daemon", "peer"} {
		args := []string{verb, "drain"}
		resume := []string{verb, "resume"}
		if verb == "peer" {
			args, resume = append(args, peer), append(resume, peer)
		}
		if d := ask(t, ds[0], ctl.KindDrain, args...).Drain; !d.Done || d.Messages != 0 {
			t.Errorf("%s drain: %+v", verb, d)
		}
		if w := ask(t, ds[0], ctl.KindStatus, "status").Status.Warnings; !strings.Contains(strings.Join(w, "\n"), "drained") {
			t.Errorf("%s: the status does not warn: %q", verb, w)
		}
		_, err := from.Send(rds.DontWait, &rds.Message{Payload: []byte("no"), Addr: dest})
		if !errors.Is(err, rds.ErrCongested) {
			t.Errorf("%s drained, a message: %v", verb, err)
		}
		_, err = a.Bind(netip.AddrPortFrom(ds[0].Addr(), 0))
		if verb == "daemon" != errors.Is(err, syscall.ESHUTDOWN) {
			t.Errorf("%s drained, a socket: %v", verb, err)
		}
		if d := ask(t, ds[0], ctl.KindDrain, resume...).Drain; d.Drained {
			t.Errorf("%s resume: %+v", verb, d)
		}
		exchange("after")
	}
	if code, _, stderr := runSocket(t, "peer", "drain", "192.0.2.1", "-socket", ds[0].Socket()); code != exitNotFound || !strings.Contains(stderr, "192.0.2.1") {
		t.Errorf("a stranger: status %d, %q", code, stderr)
	}
}
