package vmlab

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

// abrupt ends connections without notice while both sides have requests outstanding. The other
// side must be notified, nothing may hang, and the next connection must work.
func abrupt(t *testing.T, m *machine, siwInitiates bool) {
	t.Run("reset", func(t *testing.T) {
		l := newLab(t, m, soft.Options{})
		l.cut = true
		l.busy(siwInitiates, true)
		l.relay.reset()
		if err := l.flushed(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("host was told %v, want a reset", err)
		}
		l.guestFlushed()
		l.again(siwInitiates)
	})
	// qemu ends a reset connection with a FIN on the machine's side. So a packet filter in the
	// machine answers packets from siw with an RST. Packets that the machine itself sends when
	// siw's connection has ended must pass. Otherwise qemu learns of the end only from the first
	// packet after the filter is removed, which may be much later.
	t.Run("siw is reset", func(t *testing.T) {
		l := newLab(t, m, soft.Options{})
		l.busy(siwInitiates, true)
		const table = "table ip lab { chain out { type filter hook output priority 0; ip daddr %s tcp %s tcp flags & rst == 0 counter reject with tcp reset; }; }"
		l.shell("nft '"+table+"'", toHost, l.theirs(siwInitiates))
		l.guestFlushed()
		if out := l.shell("nft list table ip lab; nft delete table ip lab"); !regexp.MustCompile(`packets [1-9]`).MatchString(out) {
			t.Errorf("siw got no RST: %s", out)
		}
		l.flushed()
		l.again(siwInitiates)
	})
	t.Run("siw resets", func(t *testing.T) {
		l, from := newLab(t, m, soft.Options{}), m.mark(t)
		l.busy(siwInitiates, true)
		l.shell("ss -K -n state established '( dst %s and %s )'", toHost, strings.ReplaceAll(l.theirs(siwInitiates), "port ", "port = :"))
		l.flushed()
		l.guestFlushed()
		if n := m.resets(t, from, toGuest); n == 0 {
			t.Error("siw sent no RST")
		}
		l.again(siwInitiates)
	})
	t.Run("siw's program killed", func(t *testing.T) {
		l := newLab(t, m, soft.Options{})
		l.m = m.second(t)
		l.busy(siwInitiates, true)
		l.m = m
		l.guest("kill")
		l.flushed()
		l.again(siwInitiates)
	})
}

// shell runs a command in the machine, which must succeed, and returns its output.
func (l *lab) shell(format string, args ...any) string {
	l.Helper()
	l.guest("spawn "+format, args...)
	a := l.await(l.m.start("wait"))
	status, out, _ := strings.Cut(a.text, " ")
	if a.err != nil || status != "0" {
		l.Fatalf("%s: %v %v", fmt.Sprintf(format, args...), a.text, a.err)
	}
	return out
}

// theirs returns a filter that matches the guest's side of the connection, by a port.
func (l *lab) theirs(siwInitiates bool) string {
	if siwInitiates {
		return fmt.Sprintf("dport %d", l.port)
	}
	return fmt.Sprintf("sport %d", l.m.port)
}

const (
	receives = 4 // outstanding on either side
	reads    = 16
	readSize = 2 << 20
)

// busy connects. Then siw reads much of the host's memory and the host reads much of siw's, with
// receives posted on both sides.
func (l *lab) busy(siwInitiates, hostReads bool) {
	l.Helper()
	l.connect(siwInitiates, "", "")
	for i := range receives {
		l.recv(uint64(30+i), 0, 64)
	}
	l.guest("times %d recv 30 0 64", receives)
	l.guest("times %d read 40 %d %d %d %d", reads, 1<<20, readSize, iova, l.mr.RKey())
	for i := range reads {
		if hostReads {
			l.post(verbs.SendWR{WRID: uint64(40 + i), Op: verbs.OpRDMARead, SGL: l.sge(1<<20, readSize), RemoteAddr: l.raddr, RKey: l.rkey})
		}
	}
}

// flushed checks that the host loses the connection. The READ in progress fails. Later requests
// and the receives are flushed. It returns the error of the connection's end.
func (l *lab) flushed() error {
	l.Helper()
	err := l.event(verbs.CMDisconnected).Err
	var status [2][]verbs.WCStatus // of the receives and of the READs
	for range receives + reads {
		wc, q := l.completion(), 0
		if wc.WRID >= 40 {
			q = 1
		}
		if int(wc.WRID) != 30+10*q+len(status[q]) {
			l.Fatalf("completion %+v after %v", wc, status)
		}
		status[q] = append(status[q], wc.Status)
	}
	want := verbs.WCRetryExcErr
	for _, s := range status[1] {
		if s == verbs.WCSuccess && want == verbs.WCRetryExcErr {
			continue
		}
		if s != want {
			l.Errorf("READs completed with %v, want successes, RETRY_EXC, flushes", status[1])
		}
		want = verbs.WCWRFlushErr
	}
	if want == verbs.WCRetryExcErr {
		l.Error("all READs succeeded: the connection was not cut in time")
	}
	for _, s := range status[0] {
		if s != verbs.WCWRFlushErr {
			l.Errorf("receives completed with %v, want flushes", status[0])
		}
	}
	return err
}

// guestFlushed checks that siw loses the connection and completes everything.
func (l *lab) guestFlushed() {
	l.Helper()
	if w := l.guest("event %d", guestMs); w[0] != "DISCONNECTED" {
		l.Errorf("guest's event %v", w)
	}
	flushed := 0
	for i := range receives + reads {
		w := l.guest("poll %d", guestMs)
		if len(w) != 4 || w[0] != "30" && w[0] != "40" || w[0] == "30" && w[1] != "5" {
			l.Fatalf("guest's completion %d: %v", i, w)
		}
		if w[1] != "0" {
			flushed++
		}
	}
	if flushed <= receives {
		l.Error("all of the guest's READs succeeded: the connection was not cut in time")
	}
}

// again makes the next connection.
func (l *lab) again(siwInitiates bool) {
	l.Helper()
	l.guest("close")
	next := newLab(l.T, l.m, soft.Options{})
	next.connect(siwInitiates, "", "")
}

// killed kills the host's program in the middle of rping's pings.
func killed(t *testing.T, m *machine) {
	m.begin(t)
	ours := build(t, "rping")
	port := freePort(t)
	server := newCommand(t, ours, "-s", "-p", fmt.Sprint(port))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	waitListening(t, port)
	defer say(t, m, "kill")
	from := m.mark(t)
	say(t, m, "spawn rping -c -a %s -p %d -C 1000000 -V", toHost, port)
	for end := time.Now().Add(limit); m.mark(t) < from+20000; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no pings")
		}
	}
	server.Process.Kill()
	server.Wait()
	if out := say(t, m, "wait"); !strings.Contains(out, "DISCONNECT EVENT") {
		t.Errorf("theirs: %.300q", out)
	}
}

// resets counts the RSTs from an address that the machine's network card has seen since from.
func (m *machine) resets(t *testing.T, from int64, addr string) int {
	t.Helper()
	out, err := exec.Command("tshark", "-r", m.since(t, from), "-n", "-Y", "tcp.flags.reset == 1 && ip.src == "+addr).Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	return strings.Count(string(out), "\n")
}
