package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// TestExactOutcomes sends every kind of message and does every kind of harm at every step of its
// life. Each case has exactly one right outcome, which follows from what the initiator can have
// learnt from the instance that it sent to. -v prints the table.
func TestExactOutcomes(t *testing.T) {
	if raceEnabled {
		t.Skip("every case on one goroutine: the race detector has seen them all in the scenarios")
	}
	var table strings.Builder
	for _, harm := range []exactHarm{breaks, breaksLong, restarts} {
		fmt.Fprintf(&table, "\n%v\n%-36s", harm, "")
		for _, k := range exactKinds {
			fmt.Fprintf(&table, "%-17s", k.name)
		}
		for i := range exactSteps {
			step := &exactSteps[i]
			fmt.Fprintf(&table, "\n%-36s", step.name)
			for _, k := range exactKinds {
				if step.with != nil && !step.with(k) {
					fmt.Fprintf(&table, "%-17s", "-")
					continue
				}
				t.Run(fmt.Sprintf("%v/%s/%s", harm, step.name, k.name), func(t *testing.T) {
					x := newExact(t, k, harm, step)
					defer x.explain()
					x.play()
					got, want := x.got(), x.want()
					cell := got.String()
					if got != want {
						cell = "FAIL " + cell
						t.Errorf("got %v, want %v\n%s", got, want, x.hist.String())
					}
					fmt.Fprintf(&table, "%-17s", cell)
				})
			}
		}
		table.WriteByte('\n')
	}
	t.Logf("step, kind: the outcome, and whether the receiver got the message%s", table.String())
}

// exactHarm is the harm that is done at a step.
type exactHarm int

const (
	breaks     exactHarm = iota // the connection breaks
	breaksLong                  // ... and stays broken for longer than a status waits
	restarts                    // the peer's daemon is killed and starts again
)

func (h exactHarm) String() string {
	return [...]string{"the connection breaks", "the connection breaks for longer than the settle time", "the peer restarts"}[h]
}

// exact is one run: a socket of host a sends one message to a socket of host b.
type exact struct {
	*script
	kind exactKind
	harm exactHarm
	step *exactStep

	a, b     *host
	from, to netip.AddrPort
	sock     *rds.Socket
	peer     *rds.Socket // socket of b's present life
	life     int

	local  []byte // the write's source, the read's destination, the atomic's old value
	target []byte // memory of b's first life
	cookie rds.Cookie

	spoiled bool // the target was overwritten when the outcome was known

	armed func(*exact, sim.Point) bool
	hit   bool
	watch bool // count the operations that run
	ran   int  // how many operations ran at the peer
	// After the first harm: met says that the peer's HELLO came before the second harm, hello
	// that HELLO counts now, second that the second harm is the next.
	met, hello, second bool

	rose     bool // the mark rose while there was no connection
	statuses []rds.Status
	lost     uint64
	got1     []string // messages that b's first life got
	got2     []string // messages that b's later lives got
}

const (
	exactWord  = 64 // offset of the atomic's word in target and local
	underTest  = "under test"
	afterwards = "afterwards"
)

func newExact(t *testing.T, k exactKind, harm exactHarm, step *exactStep) *exact {
	o := options{
		hosts: 2, clients: 1, timing: sim.DefaultTiming(), maxSend: 32 << 10, sendBufs: 64, recvBufs: 256, credits: 64,
		hardCap: 1 << 20, overflow: 1 << 20, revokeTimeout: 5e9, settleTimeout: 30e9,
		params: rds.Params{SubEntries: 64, EventEntries: 64, MaxMsgs: 64, MaxRx: 64, Slots: 16, Cells: 16, SendWindows: 1, RecvWindows: 1},
	}
	x := &exact{script: &script{world: build(1, &o), t: t}, kind: k, harm: harm, step: step}
	if k.device {
		x.net.Attr.Caps &^= verbs.CapGlobalAtomics
	}
	x.boot()
	x.a, x.b = x.hosts[0], x.hosts[1]
	x.from, x.to = netip.AddrPortFrom(x.a.addr, 10), netip.AddrPortFrom(x.b.addr, 20)
	x.sock = bindAt(x.a, x.from)
	x.bindPeer()

	mem, err := x.a.clients[0].c.Alloc(128)
	must(err)
	x.local = mem.Bytes()
	theirs, err := x.b.clients[0].c.Alloc(128)
	must(err)
	x.target = theirs.Bytes()
	r, err := x.peer.Register(theirs, 0, 128, rds.AllowRead|rds.AllowWrite|rds.AllowAtomic)
	must(err)
	must(r.Expose(context.Background(), x.from))
	x.cookie = r.Cookie()
	x.send("hello", nil)
	x.flow(1e9)
	x.got1 = nil
	x.net.Hook = x.strike
	return x
}

func bindAt(h *host, ap netip.AddrPort) *rds.Socket {
	s, err := h.clients[0].c.Bind(ap)
	must(err)
	return s
}

// bindPeer binds the peer's port as soon as a life of b has begun, before anybody can have
// connected.
func (x *exact) bindPeer() {
	if x.b.up && x.life != x.b.life {
		x.life = x.b.life
		x.peer = bindAt(x.b, x.to)
	}
}

func (x *exact) strike(p sim.Point) sim.Action {
	switch p.Kind {
	case sim.AfterWritePlaced, sim.AfterReadSampled, sim.AfterAtomic:
		if x.watch {
			x.ran++
		}
	case sim.AfterSendDelivered:
		x.met = x.met || x.hello && p.Host == x.a.addr
	}
	if x.armed == nil || !x.armed(x, p) {
		return sim.Pass
	}
	x.armed, x.hit = nil, true
	x.hello = false
	x.cut()
	return sim.Break
}

// next runs one event, then takes what the sockets have.
func (x *exact) next() bool {
	hit := x.hit
	if !x.world.step() {
		return false
	}
	if x.hit && !hit && x.harm == restarts && (x.step.again == nil || x.second) {
		x.b.crash()
	}
	x.bindPeer()
	x.look()
	x.bound()
	return true
}

// flow lets d nanoseconds pass.
func (x *exact) flow(d int64) {
	end := x.now() + d
	x.net.At(end, func() {})
	for x.now() < end && x.next() {
	}
}

// until runs until the fault that at describes has struck.
func (x *exact) until(at func(*exact, sim.Point) bool) {
	x.armed, x.hit = at, false
	for end := x.now() + 5e9; !x.hit && x.now() < end && x.next(); {
	}
	if !x.hit {
		x.t.Fatal("the point was never passed")
	}
}

// look takes messages, statuses and notices.
func (x *exact) look() {
	var buf [64]byte
	for x.b.up {
		m := rds.Received{Payload: buf[:]}
		if err := x.peer.Recv(rds.DontWait, &m); err != nil {
			break
		}
		got := &x.got1
		if x.life > 1 {
			got = &x.got2
		}
		*got = append(*got, string(buf[:m.N]))
		if string(buf[:m.N]) == underTest {
			x.settled(true)
		}
		x.b.kick()
	}
	var c [4]rds.Completion
	for n := x.sock.Completions(c[:]); n > 0; n = x.sock.Completions(c[:]) {
		for i := range n {
			if want := x.refusal(&c[i]); c[i].Errno != want {
				x.t.Errorf("%v with %v, want %v", c[i].Status, c[i].Errno, want)
			}
			x.statuses = append(x.statuses, c[i].Status)
			x.settled(c[i].Status == rds.Success)
			if c[i].Status == rds.Success && !x.rose {
				x.fetched()
			}
		}
		x.a.kick()
	}
	var n [4]rds.Notice
	for k := x.sock.Notices(n[:]); k > 0; k = x.sock.Notices(n[:]) {
		for i := range k {
			if n[i].Kind == rds.Lost || n[i].Kind == rds.NoSocket || n[i].Kind == rds.GaveUp {
				x.lost += n[i].Count
			}
		}
	}
}

// refusal returns the errno that belongs to a status.
func (x *exact) refusal(c *rds.Completion) syscall.Errno {
	if c.Status == rds.RemoteError {
		return syscall.EINVAL
	}
	return 0
}

// settled is called when the outcome is known. With success it checks the data in the target.
// Then it overwrites the target, so that an operation that still runs shows.
func (x *exact) settled(success bool) {
	word := binary.NativeEndian.Uint64(x.target[exactWord:])
	switch {
	case x.spoiled:
		return
	case success && x.kind.write && string(x.target[:8]) != "written!":
		x.t.Errorf("delivered, and the target has %q", x.target[:8])
	case success && (x.kind.add && word != 7 || x.kind.swap && word != 9):
		x.t.Errorf("delivered, and the atomic left %d", word)
	}
	x.spoiled = true
	for i := range x.target {
		x.target[i] = poison
	}
}

// fetched checks that local memory has the data of a successful read or atomic.
func (x *exact) fetched() {
	if x.kind.read && string(x.local[16:24]) != "original" {
		x.t.Errorf("success, and the read brought %q", x.local[16:24])
	}
	if n := binary.NativeEndian.Uint64(x.local[exactWord:]); (x.kind.add || x.kind.swap) && n != 5 {
		x.t.Errorf("success, and the atomic returned %d", n)
	}
}

func (x *exact) send(text string, k *exactKind) {
	m := rds.Message{Payload: []byte(text), Addr: x.to}
	if k != nil {
		buf := x.buffer()
		if k.write || k.read {
			m.Op = &rds.RDMA{Write: true, Cookie: x.cookie, Local: []rds.Segment{{Buf: buf, Len: 8}}, Notify: true, Token: 1}
			if k.read {
				m.Op.Write, m.Op.Local[0].Off = false, 16
			}
			if k.silent {
				m.Op.Silent, m.Payload = true, nil
			}
		}
		if k.add || k.swap {
			m.Atomic = &rds.Atomic{Cookie: x.cookie, RemoteOff: exactWord, Add: 2, Compare: 5, Swap: 9,
				Local: rds.Segment{Buf: buf, Off: exactWord, Len: 8}, Notify: true, Token: 2}
			if k.swap {
				m.Atomic.CmpSwap = true
			}
		}
	}
	_, err := x.sock.Send(rds.DontWait, &m)
	must(err)
	x.a.kick()
}

func (x *exact) buffer() *rds.Buffer {
	b, err := x.a.clients[0].c.Alloc(128)
	must(err)
	x.local = b.Bytes()
	copy(x.local, "written!")
	return b
}

// play does the run.
func (x *exact) play() {
	copy(x.target, "original")
	binary.NativeEndian.PutUint64(x.target[exactWord:], 5)
	k := &x.kind
	if k.ops() == 0 {
		k = nil
	}
	x.watch = true
	switch st := x.step; {
	case st.queued:
		engine.ResetPeers(x.a.e, x.b.addr, nil, nil)
		x.a.kick()
		x.cut()
		x.flow(10e6)
		x.send(underTest, k)
		x.flow(10e6)
		x.harmNow()
	case st.posted:
		x.net.Timing.Post = sim.Range{Min: 5e6, Max: 5e6}
		x.send(underTest, k)
		x.flow(1e6)
		if i := engine.Conns(x.a.e)[0]; i.Unacked != 1 {
			x.t.Fatalf("not posted: %+v", i)
		}
		x.cut()
		x.harmNow()
		x.net.Timing.Post = sim.DefaultTiming().Post
	default:
		x.send(underTest, k)
		x.until(st.at)
	}
	x.flow(200e6)
	hwm := int(x.sock.HWM(x.to.Addr()))
	x.rose = hwm == x.kind.ops()
	if !x.rose && !x.step.queued && !x.kind.carried() { // an atomic's word is written when its result comes
		x.t.Errorf("HWM is %d of %d, 200 ms after the break, without a connection", hwm, x.kind.ops())
	}
	if x.rose && x.step.queued && x.kind.ops() > 0 && x.harm != restarts {
		x.t.Error("the HWM passed what was never posted")
	}
	if x.rose {
		clear(x.local) // the mark gave it back to the caller
	}
	if x.step.again != nil {
		x.hello, x.second = true, true
		x.mend()
		x.until(x.step.again)
		x.flow(200e6)
	}
	if x.harm == breaksLong {
		x.flow(31e9)
	}
	x.send(afterwards, nil)
	x.mend()
	x.flow(20e9)
	if x.rose && slices.ContainsFunc(x.local, func(b byte) bool { return b != 0 }) {
		x.t.Error("local memory was touched after the HWM had passed")
	}
	if hwm := int(x.sock.HWM(x.to.Addr())); hwm != x.kind.ops() {
		x.t.Errorf("HWM is %d of %d in the end", hwm, x.kind.ops())
	}
	if x.spoiled && !bytes.Equal(x.target, bytes.Repeat([]byte{poison}, len(x.target))) {
		x.t.Errorf("the target was touched after the outcome was known: %x", x.target)
	}
	x.finish()
}

func (x *exact) harmNow() {
	if x.harm == restarts {
		x.b.crash()
	} else {
		engine.ResetPeers(x.a.e, x.b.addr, nil, nil)
		x.a.kick()
	}
}
