package soft

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

var sizes = []int{0, 1, 3, 4, 13, 4096, 8192, 8193, 20000, 64511, 64512, 64513, 70000, 300000, 1 << 20}

func crcModes(t *testing.T, f func(t *testing.T, a verbs.QPInitAttr)) {
	for _, m := range []verbs.CRCMode{verbs.CRCOff, verbs.CRCOn} {
		t.Run(fmt.Sprintf("crc%v", m == verbs.CRCOn), func(t *testing.T) {
			a := attrs()
			a.CRC = m
			f(t, a)
		})
	}
}

func TestSendSizes(t *testing.T) {
	crcModes(t, func(t *testing.T, at verbs.QPInitAttr) {
		a, b := pair(t, at, at)
		for i, n := range sizes {
			fill(a.mem[:n], i)
			clear(b.mem)
			b.recv(verbs.RecvWR{WRID: 100, SGL: b.sge(64, 1<<20)})
			a.send(verbs.SendWR{WRID: 5, Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, n)})
			s := a.take(1, b)[0]
			r := b.take(1, a)[0]
			if s.WRID != 5 || s.Status != 0 || s.Op != verbs.WCSend || s.QPNum != a.qp.Num() {
				t.Fatalf("size %d: send %+v", n, s)
			}
			if r.WRID != 100 || r.Status != 0 || r.Op != verbs.WCRecv || r.ByteLen != uint32(n) {
				t.Fatalf("size %d: recv %+v", n, r)
			}
			if !bytes.Equal(b.mem[64:64+n], a.mem[:n]) || b.mem[63] != 0 || b.mem[64+n] != 0 {
				t.Fatalf("size %d: data differ", n)
			}
		}
	})
}

func TestWriteThenSend(t *testing.T) {
	crcModes(t, func(t *testing.T, at verbs.QPInitAttr) {
		a, b := pair(t, at, at)
		for i, n := range sizes {
			fill(a.mem[:n], i)
			clear(b.mem)
			b.recv(verbs.RecvWR{WRID: 9})
			a.send(
				verbs.SendWR{WRID: 1, Op: verbs.OpRDMAWrite, SGL: a.sge(0, n), RKey: b.mr.RKey(), RemoteAddr: testIOVA + 4096},
				verbs.SendWR{WRID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled})
			if r := b.take(1, a)[0]; r.WRID != 9 || r.Status != 0 {
				t.Fatalf("recv %+v", r)
			}
			if !bytes.Equal(b.mem[4096:4096+n], a.mem[:n]) || b.mem[4095] != 0 || b.mem[4096+n] != 0 {
				t.Fatalf("size %d: data differ", n)
			}
			if s := a.take(1, b)[0]; s.WRID != 2 || s.Status != 0 {
				t.Fatalf("send %+v", s)
			}
		}
		if len(a.wc) != 0 {
			t.Fatalf("unsignaled writes completed: %+v", a.wc)
		}
	})
}

func TestRead(t *testing.T) {
	crcModes(t, func(t *testing.T, at verbs.QPInitAttr) {
		a, b := pair(t, at, at)
		for _, dir := range [2][2]*host{{a, b}, {b, a}} {
			from, to := dir[0], dir[1]
			for i, n := range sizes {
				fill(to.mem[:n], i)
				clear(from.mem)
				sgl := from.sge(100, n)
				if n > 10 { // scattered
					sgl = append(from.sge(100, 7), from.sge(107, n-7)...)
				}
				from.send(verbs.SendWR{WRID: 3, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: sgl, RKey: to.mr.RKey(), RemoteAddr: testIOVA})
				c := from.take(1, to)[0]
				if c.WRID != 3 || c.Status != 0 || c.Op != verbs.WCRDMARead || c.ByteLen != uint32(n) {
					t.Fatalf("size %d: %+v", n, c)
				}
				if !bytes.Equal(from.mem[100:100+n], to.mem[:n]) || from.mem[99] != 0 || from.mem[100+n] != 0 {
					t.Fatalf("size %d: data differ", n)
				}
			}
		}
	})
}
