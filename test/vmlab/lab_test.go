package vmlab

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/pcapng"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

const (
	memSize = 4 << 20
	iova    = 0x1_0000_0000
	rights  = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
)

// lab is one connection between verbs/soft on the host and siw in the machine.
type lab struct {
	*testing.T
	m     *machine
	plain bool // the private data is only what the tests give
	dev   *soft.Device
	pd    verbs.PD
	cq    verbs.CQ
	qp    verbs.QP
	mr    verbs.MR
	mem   []byte
	wc    []verbs.WC
	ev    []verbs.CMEvent

	raddr uint64 // address of the guest's memory
	rkey  uint32

	told []verbs.CMEvent // all events so far
	had  []verbs.WC      // all completions so far

	cut   bool // connect through a relay
	relay *relay
	port  int // port of the host to which the guest connects
}

// newLab makes the host's side. The streams are recorded in a capture beside the machine's
// files.
func newLab(t *testing.T, m *machine, opt soft.Options) *lab {
	t.Helper()
	m.fresh(t)
	l := &lab{T: t, m: m, plain: opt.PlainMPA, mem: make([]byte, memSize)}
	f, err := os.CreateTemp(os.Getenv(dirVariable), filepath.Base(t.Name())+"-*.pcapng")
	if err != nil {
		t.Fatal(err)
	}
	tap, err := pcapng.NewTap(f, func() int64 { return time.Now().UnixNano() })
	if err != nil {
		t.Fatal(err)
	}
	opt.Tap = tap
	if l.dev, err = soft.New(opt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.dev.Close()
		f.Close()
		if !t.Failed() {
			os.Remove(f.Name())
		}
		m.after(t)
	})
	t.Cleanup(func() {
		if m.well() {
			l.guest("close")
		}
	})
	t.Cleanup(func() {
		if t.Failed() {
			l.evidence(f.Name())
		}
	})
	if l.pd, err = l.dev.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if l.cq, err = l.dev.CreateCQ(256); err != nil {
		t.Fatal(err)
	}
	if l.mr, err = l.pd.RegMR(l.mem, iova, rights); err != nil {
		t.Fatal(err)
	}
	l.useQP(verbs.AckLocal, 32)
	return l
}

// useQP replaces the connection's queue pair by one for depth work requests in each direction.
func (l *lab) useQP(ack verbs.AckMode, depth int) {
	l.Helper()
	if l.qp != nil {
		l.qp.Destroy()
	}
	var err error
	l.qp, err = l.pd.CreateQP(verbs.QPInitAttr{
		SendCQ: l.cq, RecvCQ: l.cq, Ack: ack, Access: rights,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 2, MaxRecvSGE: 2, ReadDepth: 4},
	})
	if err != nil {
		l.Fatal(err)
	}
}

// connect makes a connection, and sends one message from the initiator. After that both sides
// may send.
func (l *lab) connect(siwInitiates bool, request, reply string) {
	l.Helper()
	if siwInitiates {
		l.connectFromGuest(request, reply)
	} else {
		l.connectFromHost(request, reply)
	}
}

func (l *lab) connectFromGuest(request, reply string) {
	l.Helper()
	joined, req := l.guestConnects(request)
	if string(req.Private) != request {
		l.Fatalf("private data of the request: %q, want %q", req.Private, request)
	}
	l.recv(1, 0, 16)
	if err := l.dev.Accept(req.Req, l.qp, []byte(reply)); err != nil {
		l.Fatal(err)
	}
	l.event(verbs.CMEstablished)
	l.guestEstablished(joined, reply)
	l.guest("send 1 0 5 0")
	l.guestDone(1)
	if wc := l.completion(); wc.WRID != 1 || wc.Status != 0 || wc.ByteLen != 5 {
		l.Fatalf("first message: %+v", wc)
	}
}

// guestConnects has the guest connect, and waits for its request.
func (l *lab) guestConnects(private string) (<-chan answer, verbs.CMEvent) {
	l.Helper()
	ln, err := l.dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		l.Fatal(err)
	}
	defer ln.Close()
	l.port = l.via(int(ln.Addr().Port()))
	l.remote(l.guest("open %s %d", toHost, l.port))
	joined := l.m.start("connect 4 %s", toHex(private))
	return joined, l.event(verbs.CMConnectRequest)
}

func (l *lab) connectFromHost(request, reply string) {
	l.Helper()
	got := l.hostConnects(request)
	if want := toHex(request); request != "" && !strings.HasPrefix(got, want) || l.plain && got != want {
		l.Fatalf("private data of the request: %s, want %s", got, want)
	}
	l.guest("recv 1 0 16")
	joined := l.m.start("accept 4 %s", toHex(reply))
	if ev := l.event(verbs.CMEstablished); string(ev.Private) != reply {
		l.Fatalf("private data of the reply: %q, want %q", ev.Private, reply)
	}
	l.guestEstablished(joined, "")
	l.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend, SGL: l.sge(0, 5)})
	if w := l.guestDone(1); w[3] != "5" {
		l.Fatalf("first message: %v", w)
	}
}

// hostConnects connects, and waits until the guest has the request. It returns the private data
// that the guest got.
func (l *lab) hostConnects(private string) string {
	l.Helper()
	l.guest("listen %d", l.m.port)
	remote := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(l.via(l.m.forward[l.m.port])))
	if err := l.dev.Connect(l.qp, verbs.ConnectParam{Remote: remote, Private: []byte(private)}); err != nil {
		l.Fatal(err)
	}
	w := l.guest("request")
	l.remote(w)
	return w[2]
}

// via returns the port to connect to instead of port.
func (l *lab) via(port int) int {
	if !l.cut {
		return port
	}
	l.relay = newRelay(l.T, port)
	return l.relay.port
}

func (l *lab) guestEstablished(joined <-chan answer, private string) {
	l.Helper()
	a := l.await(joined)
	if a.err != nil || len(a.words) != 3 || a.words[0] != "ESTABLISHED" || a.words[2] != toHex(private) {
		l.Fatalf("guest: %v %v, want ESTABLISHED with %s", a.text, a.err, toHex(private))
	}
}

// remote takes the address and key of the guest's memory from an answer.
func (l *lab) remote(w []string) {
	l.Helper()
	var err1, err2 error
	var key uint64
	l.raddr, err1 = strconv.ParseUint(w[0], 10, 64)
	key, err2 = strconv.ParseUint(w[1], 10, 32)
	if err1 != nil || err2 != nil {
		l.Fatalf("address and key: %q", w)
	}
	l.rkey = uint32(key)
}

func toHex(s string) string {
	if s == "" {
		return "-"
	}
	return hex.EncodeToString([]byte(s))
}

// guest has the guest run a command, while the host's device makes progress. The command must
// succeed.
func (l *lab) guest(format string, args ...any) []string {
	l.Helper()
	a := l.await(l.m.start(format, args...))
	if a.err != nil {
		l.Fatal(a.err)
	}
	return a.words
}

func (l *lab) await(c <-chan answer) (a answer) {
	l.Helper()
	l.until("answer of the guest", func() bool {
		select {
		case a = <-c:
			return true
		default:
			return false
		}
	})
	return a
}

// until drives the device until done returns true.
func (l *lab) until(what string, done func() bool) {
	l.Helper()
	for end := time.Now().Add(limit); ; {
		did := l.dev.Progress()
		l.collect()
		if done() {
			return
		}
		if time.Now().After(end) {
			l.Fatalf("no %s within %v", what, limit)
		}
		if !did {
			unix.Poll([]unix.PollFd{{Fd: int32(l.dev.FD()), Events: unix.POLLIN}}, 1)
		}
	}
}

// collect takes all events and completions of the device.
func (l *lab) collect() {
	var ev [4]verbs.CMEvent
	n := l.dev.PollCM(ev[:])
	l.ev, l.told = append(l.ev, ev[:n]...), append(l.told, ev[:n]...)
	var wc [16]verbs.WC
	n = l.cq.Poll(wc[:])
	l.wc, l.had = append(l.wc, wc[:n]...), append(l.had, wc[:n]...)
}

// event takes the host's next connection event, which must be of type want.
func (l *lab) event(want verbs.CMEventType) verbs.CMEvent {
	l.Helper()
	l.until(fmt.Sprintf("connection event of type %d", want), func() bool { return len(l.ev) > 0 })
	ev := l.ev[0]
	l.ev = l.ev[1:]
	if ev.Type != want {
		l.Fatalf("event %+v, want type %d", ev, want)
	}
	return ev
}

// completion takes the host's next completion.
func (l *lab) completion() verbs.WC {
	l.Helper()
	l.until("completion", func() bool { return len(l.wc) > 0 })
	wc := l.wc[0]
	l.wc = l.wc[1:]
	return wc
}

// done takes the host's next completion, which must be good and have the id.
func (l *lab) done(id uint64) verbs.WC {
	l.Helper()
	wc := l.completion()
	if wc.WRID != id || wc.Status != verbs.WCSuccess {
		l.Fatalf("completion %+v, want id %d and success", wc, id)
	}
	return wc
}

// drain has the guest take n completions, which must be good.
func (l *lab) drain(n int) {
	l.Helper()
	if w, good := l.guest("drain %d %d", n, guestMs), strconv.Itoa(n); w[0] != good || w[2] != "0" {
		l.Fatalf("guest's completions: %v, want %s good", w, good)
	}
}

// guestDone takes the guest's next completion, which must be good and have the id. It returns
// id, status, opcode and bytes.
func (l *lab) guestDone(id uint64) []string {
	l.Helper()
	w := l.guest("poll %d", guestMs)
	if len(w) != 4 || w[0] != strconv.FormatUint(id, 10) || w[1] != "0" {
		l.Fatalf("guest's completion %v, want id %d and success", w, id)
	}
	return w
}

func (l *lab) sge(off, n int) []verbs.SGE {
	if n == 0 {
		return nil
	}
	return []verbs.SGE{{Addr: iova + uint64(off), Length: uint32(n), LKey: l.mr.LKey()}}
}

func (l *lab) recv(id uint64, off, n int) {
	l.Helper()
	if _, err := l.qp.PostRecv([]verbs.RecvWR{{WRID: id, SGL: l.sge(off, n)}}); err != nil {
		l.Fatal(err)
	}
}

// send posts a request and waits for its good completion.
func (l *lab) send(wr verbs.SendWR) {
	l.Helper()
	l.post(wr)
	l.done(wr.WRID)
}

func (l *lab) post(wr verbs.SendWR) {
	l.Helper()
	wr.Flags |= verbs.SendSignaled
	if _, err := l.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		l.Fatal(err)
	}
}

// fill does what the guest's "fill" does, and sum what its "sum" does.
func fill(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed)
	}
}

func sum(b []byte) string {
	h := fnv.New64a()
	h.Write(b)
	return strconv.FormatUint(h.Sum64(), 10)
}
