package vmlab

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// reject has the accepting side reject a connection, with private data.
func reject(l *lab, siwInitiates bool) {
	const why = "not today"
	if siwInitiates {
		joined, req := l.guestConnects("please")
		if err := l.dev.Reject(req.Req, []byte(why)); err != nil {
			l.Fatal(err)
		}
		if a := l.await(joined); a.err != nil || a.words[0] != "REJECTED" || a.words[2] != toHex(why) {
			l.Fatalf("guest: %v %v, want REJECTED with %s", a.text, a.err, toHex(why))
		}
		return
	}
	l.hostConnects("please")
	l.guest("reject %s", toHex(why))
	if ev := l.event(verbs.CMRejected); string(ev.Private) != why {
		l.Fatalf("private data %q, want %q", ev.Private, why)
	}
}

// hostErrors has requests of the host break siw's rules.
func hostErrors(t *testing.T, m *machine, siwInitiates bool) {
	for _, c := range []struct {
		name   string
		op     verbs.Opcode
		n      int
		wrong  func(l *lab, wr *verbs.SendWR)
		status verbs.WCStatus // of a READ; other requests complete before siw has seen them
		term   iwarp.Code
	}{
		{"WRITE, invalid STag", verbs.OpRDMAWrite, 64, func(l *lab, wr *verbs.SendWR) { wr.RKey ^= 0x5500 }, 0, iwarp.TermTaggedSTag},
		{"WRITE, out of bounds", verbs.OpRDMAWrite, 64, func(l *lab, wr *verbs.SendWR) { wr.RemoteAddr += memSize - 63 }, 0, iwarp.TermTaggedBounds},
		{"WRITE, no right", verbs.OpRDMAWrite, 64, func(l *lab, wr *verbs.SendWR) { wr.RKey = l.guestRights(1 | 4) }, 0, iwarp.TermTaggedSTag},
		{"READ, invalid STag", verbs.OpRDMARead, 64, func(l *lab, wr *verbs.SendWR) { wr.RKey ^= 0x5500 }, verbs.WCRemAccessErr, iwarp.TermReadSTag},
		{"READ, out of bounds", verbs.OpRDMARead, 64, func(l *lab, wr *verbs.SendWR) { wr.RemoteAddr += memSize - 63 }, verbs.WCRemAccessErr, iwarp.TermReadBounds},
		// There is no case "READ, no right": siw checks no right to read before it answers.
		{"SEND, no receive", verbs.OpSend, 64, func(*lab, *verbs.SendWR) {}, 0, iwarp.TermNoBuffer},
		{"SEND, too long", verbs.OpSend, 65, func(l *lab, _ *verbs.SendWR) { l.guest("recv 50 0 64") }, 0, iwarp.TermNoBuffer},
	} {
		t.Run("soft: "+c.name, func(t *testing.T) {
			l := newLab(t, m, soft.Options{})
			l.connect(siwInitiates, "", "")
			wr := verbs.SendWR{WRID: 20, Op: c.op, SGL: l.sge(0, c.n), RemoteAddr: l.raddr, RKey: l.rkey}
			c.wrong(l, &wr)
			l.guest("fill 0 %d 9", memSize)
			before := l.guest("sum 0 %d", memSize)[0]
			l.post(wr)
			ev := l.event(verbs.CMDisconnected)
			if !errors.Is(ev.Err, c.term) {
				t.Errorf("host was told %v, want %v", ev.Err, c.term)
			}
			if wc := l.completion(); wc.WRID != 20 || wc.Status != c.status {
				t.Errorf("completion %+v, want status %d", wc, c.status)
			}
			if after := l.guest("sum 0 %d", memSize)[0]; c.op != verbs.OpSend && after != before {
				t.Error("the guest's memory changed")
			}
		})
	}
}

// guestRights gives the guest's memory other rights and returns its new key.
func (l *lab) guestRights(access int) uint32 {
	l.Helper()
	l.remote(l.guest("reg %d", access))
	return l.rkey
}

// guestErrors has requests of the guest break the host's rules. siw tells its user only that the
// connection has ended, and not why.
func guestErrors(t *testing.T, m *machine, siwInitiates bool) {
	for _, c := range []struct {
		name, op string
		off      int // distance from the end of the remote memory
		rights   verbs.Access
		badKey   bool
		term     iwarp.Code
	}{
		{"WRITE, invalid STag", "write", 0, rights, true, iwarp.TermTaggedSTag},
		{"WRITE, out of bounds", "write", memSize - 63, rights, false, iwarp.TermTaggedBounds},
		{"WRITE, no right", "write", 0, verbs.AccessLocalWrite | verbs.AccessRemoteRead, false, iwarp.TermAccess},
		{"READ, invalid STag", "read", 0, rights, true, iwarp.TermReadSTag},
		{"READ, out of bounds", "read", memSize - 63, rights, false, iwarp.TermReadBounds},
		{"READ, no right", "read", 0, verbs.AccessLocalWrite | verbs.AccessRemoteWrite, false, iwarp.TermAccess},
		{"SEND, too long", "send", 0, rights, false, iwarp.TermTooLong},
	} {
		t.Run("siw: "+c.name, func(t *testing.T) {
			l := newLab(t, m, soft.Options{})
			l.connect(siwInitiates, "", "")
			mr, err := l.pd.RegMR(l.mem, iova, c.rights)
			if err != nil {
				t.Fatal(err)
			}
			key := mr.RKey()
			if c.badKey {
				key ^= 0x550000
			}
			l.guest("fill 0 100 3")
			if c.op == "send" {
				l.recv(21, 0, 63)
				l.guest("send 20 0 64 0")
			} else {
				l.guest("%s 20 0 64 %d %d", c.op, iova+c.off, key)
			}
			if ev := l.event(verbs.CMDisconnected); !errors.Is(ev.Err, c.term) {
				t.Errorf("host says %v, want %v", ev.Err, c.term)
			}
			for _, b := range l.mem[5:] { // the first message had five bytes
				if b != 0 && c.op != "send" {
					t.Fatal("the host's memory changed")
				}
			}
			if w := l.guest("event %d", guestMs); w[0] != "DISCONNECTED" {
				t.Errorf("guest's event %v", w)
			}
			if w := l.guest("poll %d", guestMs); c.op == "read" && (len(w) != 4 || w[1] == "0") {
				t.Errorf("guest's READ completed with %v", w)
			}
		})
	}
}

// closing closes either side with requests outstanding.
func closing(t *testing.T, m *machine, siwInitiates bool) {
	t.Run("soft goes", func(t *testing.T) {
		l := newLab(t, m, soft.Options{CRC: verbs.CRCOff})
		l.connect(siwInitiates, "", "")
		for i := range 3 {
			l.guest("recv %d 0 64", 30+i)
		}
		for i := range 4 {
			l.post(verbs.SendWR{WRID: uint64(40 + i), Op: verbs.OpRDMAWrite, SGL: l.sge(0, 1<<20), RemoteAddr: l.raddr, RKey: l.rkey})
		}
		l.qp.ToError()
		for i := range 4 {
			if wc := l.completion(); wc.WRID != uint64(40+i) || wc.Status != verbs.WCSuccess && wc.Status != verbs.WCWRFlushErr {
				t.Errorf("completion %+v", wc)
			}
		}
		if w := l.guest("event %d", guestMs); w[0] != "DISCONNECTED" {
			t.Errorf("guest's event %v", w)
		}
		for i := range 3 {
			if w := l.guest("poll %d", guestMs); len(w) != 4 || w[0] != []string{"30", "31", "32"}[i] || w[1] != "5" {
				t.Errorf("guest's completion %v, want a flushed %d", w, 30+i)
			}
		}
	})
	t.Run("siw goes", func(t *testing.T) {
		l := newLab(t, m, soft.Options{CRC: verbs.CRCOff})
		l.connect(siwInitiates, "", "")
		for i := range 3 {
			l.recv(uint64(30+i), 0, 64)
		}
		l.guest("close")
		l.event(verbs.CMDisconnected)
		for i := range 3 {
			if wc := l.completion(); wc.WRID != uint64(30+i) || wc.Status != verbs.WCWRFlushErr {
				t.Errorf("completion %+v, want a flushed %d", wc, 30+i)
			}
		}
	})
	t.Run("siw goes, READ outstanding", func(t *testing.T) {
		l := newLab(t, m, soft.Options{CRC: verbs.CRCOff})
		l.connect(siwInitiates, "", "")
		for i := range 4 {
			l.post(verbs.SendWR{WRID: uint64(30 + i), Op: verbs.OpRDMARead, SGL: l.sge(0, 1<<20), RemoteAddr: l.raddr, RKey: l.rkey})
		}
		l.guest("close")
		l.event(verbs.CMDisconnected)
		bad := verbs.WCSuccess
		for i := range 4 {
			wc := l.completion()
			if wc.WRID != uint64(30+i) || bad != 0 && wc.Status != verbs.WCWRFlushErr {
				t.Errorf("completion %+v after one of status %d", wc, bad)
			}
			if bad = wc.Status; bad != 0 && bad != verbs.WCRetryExcErr && bad != verbs.WCWRFlushErr {
				t.Errorf("completion %+v", wc)
			}
		}
		if bad == 0 {
			t.Error("all READs succeeded: the connection was not cut in time")
		}
	})
}
