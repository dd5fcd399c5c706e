package vmlab

import (
	"bytes"

	"github.com/rdsd/rdsd/verbs"
)

// sizes include those around the segments of siw (1450 bytes of ULPDU at an MTU of 1500) and of
// this side (64512 bytes).
var sizes = []int{0, 1, 3, 4, 17, 1431, 1433, 4097, 64512, 64513, 100003, 1 << 20}

// transfer moves data of each size in every way, one at a time and at odd offsets. For each
// size, either side does two SENDs, a WRITE and a READ.
func transfer(l *lab, siwInitiates bool, sizes []int) {
	l.connect(siwInitiates, "ping", "pong")
	const from, to = 101, 2<<20 + 33
	for i, n := range sizes {
		l.guest("fill %d %d %d", from, n, i)
		fill(l.mem[from:from+n], i+100)
		want := bytes.Clone(l.mem[from : from+n])
		arrived := make([]byte, n)
		fill(arrived, i)

		// SEND in both directions.
		l.recv(2, to, n+1)
		l.guest("send 3 %d %d 0", from, n)
		l.guestDone(3)
		if wc := l.done(2); wc.ByteLen != uint32(n) || wc.Op != verbs.WCRecv {
			l.Fatalf("SEND of %d: %+v", n, wc)
		}
		l.check("SEND to soft", to, arrived)
		l.guest("recv 4 %d %d", to, n+1)
		l.send(verbs.SendWR{WRID: 5, Op: verbs.OpSend, SGL: l.sge(from, n)})
		l.guestDone(4)
		l.checkGuest("SEND to siw", to, want)

		// WRITE in both directions. A SEND behind it says that the data is there.
		clear(l.mem[to-1 : to+n+1])
		l.recv(6, 0, 1)
		l.guest("write 7 %d %d %d %d", from, n, iova+to, l.mr.RKey())
		l.guest("send 8 0 0 0")
		l.done(6)
		l.guestDone(7)
		l.guestDone(8)
		l.check("WRITE to soft", to, arrived)
		l.guest("fill %d %d 7", to-1, n+2)
		l.guest("recv 9 0 1")
		l.post(verbs.SendWR{WRID: 10, Op: verbs.OpRDMAWrite, SGL: l.sge(from, n), RemoteAddr: l.raddr + to, RKey: l.rkey})
		l.post(verbs.SendWR{WRID: 11, Op: verbs.OpSend})
		l.done(10)
		l.done(11)
		l.guestDone(9)
		l.checkGuest("WRITE to siw", to, want)

		// READ in both directions.
		clear(l.mem[to-1 : to+n+1])
		l.send(verbs.SendWR{WRID: 12, Op: verbs.OpRDMARead, SGL: l.sge(to, n), RemoteAddr: l.raddr + from, RKey: l.rkey})
		l.check("READ from siw", to, arrived)
		l.guest("fill %d %d 7", to, n)
		l.guest("read 13 %d %d %d %d", to, n, iova+from, l.mr.RKey())
		l.guestDone(13)
		l.checkGuest("READ from soft", to, want)
	}
	l.disconnect(siwInitiates)
}

// check compares the host's memory at off with want. The bytes around it must be zero.
func (l *lab) check(what string, off int, want []byte) {
	l.Helper()
	n := len(want)
	if !bytes.Equal(l.mem[off:off+n], want) || l.mem[off-1] != 0 || l.mem[off+n] != 0 {
		l.Fatalf("%s of %d bytes: data differ", what, n)
	}
	clear(l.mem[off : off+n])
}

func (l *lab) checkGuest(what string, off int, want []byte) {
	l.Helper()
	if got := l.guest("sum %d %d", off, len(want)); got[0] != sum(want) {
		l.Fatalf("%s of %d bytes: data differ", what, len(want))
	}
}

// disconnect has the initiator close the connection.
func (l *lab) disconnect(siwInitiates bool) {
	l.Helper()
	if siwInitiates {
		l.guest("disconnect")
	} else {
		l.qp.Disconnect()
	}
	l.until("ERR", func() bool { return l.qp.State() == verbs.QPErr })
	if w := l.guest("event %d", guestMs); w[0] != "DISCONNECTED" {
		l.Fatalf("guest's event %v", w)
	}
}

// pipeline keeps several requests of all kinds in progress from the host while the guest does
// the same. Some READs have zero bytes, which siw answers with stale bytes: see stale.
func pipeline(l *lab, siwInitiates bool) {
	const n, count, area = 30001, 8, 1 << 16
	l.connect(siwInitiates, "", "")
	fill(l.mem[:n], 1)
	l.guest("fill 0 %d 2", n)
	for i := range count {
		l.recv(uint64(100+i), (40+i)*area, n)
		l.guest("recv %d %d %d", 100+i, (40+i)*area, n)
	}
	for i := range count {
		l.post(verbs.SendWR{WRID: 1, Op: verbs.OpRDMAWrite, SGL: l.sge(0, n), RemoteAddr: l.raddr + uint64((20+i)*area), RKey: l.rkey})
		l.post(verbs.SendWR{WRID: 2, Op: verbs.OpRDMARead, SGL: l.sge((10+i)*area, n), RemoteAddr: l.raddr, RKey: l.rkey})
		l.post(verbs.SendWR{WRID: 3, Op: verbs.OpRDMARead, RemoteAddr: l.raddr, RKey: l.rkey})
		l.post(verbs.SendWR{WRID: 4, Op: verbs.OpSend, SGL: l.sge(0, n)})
		l.guest("write 1 0 %d %d %d", n, iova+(20+i)*area, l.mr.RKey())
		l.guest("read 2 %d %d %d %d", (10+i)*area, n, iova, l.mr.RKey())
		l.guest("send 3 0 %d 0", n)
	}
	var got [4]int      // WRITE, READ, READ of zero bytes, SEND
	var gotGuest [3]int // siw completes them out of order
	l.until("all completions", func() bool { return len(l.wc) == 5*count })
	for i, sent := 0, 0; i < 5*count; i++ {
		switch wc := l.completion(); {
		case wc.Status != verbs.WCSuccess:
			l.Fatalf("completion %+v", wc)
		case wc.WRID < 100:
			if want := uint64(1 + sent%4); wc.WRID != want {
				l.Fatalf("send completion %d is of id %d, want %d", sent, wc.WRID, want)
			}
			got[wc.WRID-1]++
			sent++
		}
	}
	for range 4 * count {
		w := l.guest("poll %d", guestMs)
		if len(w) != 4 || w[1] != "0" {
			l.Fatalf("guest's completion %v", w)
		}
		if id := w[0]; len(id) == 1 {
			gotGuest[id[0]-'1']++
		}
	}
	if got != [4]int{count, count, count, count} || gotGuest != [3]int{count, count, count} {
		l.Fatalf("completions %v and %v, want %d of each", got, gotGuest, count)
	}
	guests, hosts := make([]byte, n), l.mem[:n]
	fill(guests, 2)
	for i := range count {
		for _, at := range []int{10, 20, 40} {
			off := (at + i) * area
			if !bytes.Equal(l.mem[off:off+n], guests) {
				l.Fatalf("host's memory at %d differs", off)
			}
			l.checkGuest("pipelined", off, hosts)
		}
	}
}
