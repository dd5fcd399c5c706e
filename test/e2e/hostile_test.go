package e2e

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
	"golang.org/x/sys/unix"
)

// TestHostileClient has a client break the rules of shared memory. It must lose its session, get
// the reason, and have one line in the log. Nothing else may be disturbed.
func TestHostileClient(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		h := hosts[0]
		h.expected = []string{"client broke the rules"}
		l := startLoad(t, h, hosts[1], 5000)
		far := hosts[1].at(9)
		sub := func(r *raw) shm.Sub { return shm.Sub{Kind: shm.KindSend, Sock: r.sock, Len: 64} }
		for _, tc := range []struct {
			name string
			do   func(r *raw)
			want string
		}{
			{"unknown kind", func(r *raw) { r.submit(shm.Sub{Kind: 99}) }, "unknown descriptor kind 99"},
			{"ring index ahead", func(r *raw) { r.index(offSubTail).Store(1 << 40); r.ring() }, "submission ring"},
			{"ring index back", func(r *raw) { r.index(offSubTail).Store(^uint64(0)); r.ring() }, "submission ring"},
			{"return index ahead", func(r *raw) { r.index(offRecvRetTail).Store(1 << 40); r.ring() }, "ring index"},
			{"socket without slot", func(r *raw) { r.submit(sub(r)) }, "slot 0 is not open"},
			{"slot out of range", func(r *raw) { s := sub(r); s.Slot = 1 << 31; r.submit(s) }, "is not open"},
			{"message id out of range", func(r *raw) { s := sub(r); s.MsgID = r.p.MaxMsgs; r.submit(r.dest(far), s) }, "message id"},
			{"message id in use", func(r *raw) {
				a := newAddress(r.t) // no host is there, so the message stays queued
				r.submit(r.dest(addrPortOf(a, 1000)), sub(r), sub(r))
			}, "message id 0 out of range or in use"},
			{"chunk outside", func(r *raw) { s := sub(r); s.Chunk = 1 << 30; r.submit(r.dest(far), s) }, "outside the send arena"},
			{"over the window's end", func(r *raw) {
				s := sub(r)
				s.Chunk, s.Len = shm.WindowSize/shm.Unit-1, shm.Unit+1
				r.submit(r.dest(far), s)
			}, "outside the send arena"},
			{"too long", func(r *raw) { s := sub(r); s.Len = abi.MaxMessage + 1; r.submit(r.dest(far), s) }, "1048577 bytes, a message has at most 1048576"},
			{"half an operation", func(r *raw) { s := sub(r); s.Kind = shm.KindSendOp; r.submit(r.dest(far), s) }, "operation descriptor missing"},
			{"operation id", func(r *raw) {
				s := sub(r)
				s.Kind = shm.KindSendOp
				r.submit(r.dest(far), s, shm.SubOp{Op: abi.OpWrite, NSeg: 1, OpID: 7, Len: 8, Cookie: 5})
			}, "operation id"},
			{"slot to open out of range", func(r *raw) { d := r.dest(far); d.Slot = r.p.Slots; r.submit(d) }, "out of range or in use"},
			{"cell out of range", func(r *raw) { d := r.dest(far); d.Cell = 1 << 31; r.submit(d) }, "out of range or in use"},
			{"slot opened twice", func(r *raw) { r.submit(r.dest(far), r.dest(far)) }, "out of range or in use"},
			{"cell of another", func(r *raw) {
				d := r.dest(addrPortOf(newAddress(r.t), 5))
				d.Slot = 1
				r.submit(r.dest(far), d)
			}, "cell 0 belongs to another"},
			{"unspecified destination", func(r *raw) { d := r.dest(far); d.Addr = [16]byte{10: 255, 11: 255}; r.submit(d) }, "bad address"},
			{"other family", func(r *raw) { d := r.dest(far); d.Addr = [16]byte{0: 0xfd}; r.submit(d) }, "bad address"},
			{"receive id never given", func(r *raw) { r.returnID(3) }, "receive id 3"},
			{"receive id out of range", func(r *raw) { r.returnID(1 << 31) }, "receive id"},
			{"receive id twice", func(r *raw) {
				s := sub(r)
				r.submit(r.dest(r.at), s)
				e := r.event()
				if e.Event().Kind != shm.EvData {
					r.t.Fatalf("event %+v", e.Event())
				}
				r.returnID(e.Event().RxID)
				r.returnID(e.Event().RxID)
			}, "returned twice"},
			{"run in no memory", func(r *raw) { s := r.run(0, 1); s.Len = shm.RunHead - 1; r.submit(r.dest(far), s) }, "outside the send arena"},
			{"run outside", func(r *raw) { s := r.run(0, 1); s.Chunk = 1 << 30; r.submit(r.dest(far), s) }, "outside the send arena"},
			{"run with a limit", func(r *raw) { s := r.run(0, 1); s.GiveUp = 1; r.submit(r.dest(far), s) }, "a run with"},
			{"run from a buffer", func(r *raw) { s := r.run(0, 1); s.Flags = shm.SubFromBuf; r.submit(r.dest(far), s) }, "a run with"},
			{"run of pings", func(r *raw) { r.submit(r.dest(addrPortOf(far.Addr(), 0)), r.run(0, 1)) }, "a run of pings"},
			{"run of nothing", func(r *raw) { r.submit(r.dest(far), r.run(0)) }, "of a run in"},
			{"run taken twice", func(r *raw) {
				s, again := r.run(0, 1), r.run(0, 1)
				again.MsgID = 1
				r.submit(r.dest(far), s, again)
			}, "of a run in"},
			{"run longer than its chunk", func(r *raw) {
				s := r.run(0, 100)
				s.Len--
				r.submit(r.dest(far), s)
			}, "of a run in"},
			{"part of a plain message", func(r *raw) {
				r.submit(r.dest(r.at), sub(r))
				e := r.event()
				r.returnID(e.Event().RxID | shm.RxStep)
			}, "returned twice"},
			{"too many parts of a run", func(r *raw) {
				r.submit(r.dest(r.at), r.run(0, 1000, 1000, 1000, 1000))
				e := r.event()
				for range shm.RunSteps {
					r.returnID(e.Event().RxID | shm.RxStep)
				}
			}, "returned twice"},
			{"part of a run that was returned", func(r *raw) {
				r.submit(r.dest(r.at), r.run(0, 1000, 1000, 1000, 1000))
				e := r.event()
				r.returnID(e.Event().RxID)
				r.returnID(e.Event().RxID | shm.RxStep)
			}, "returned twice"},
		} {
			counted, logged := h.gauge(stats.ClientViolations), h.logged("client broke the rules")
			r := h.raw()
			tc.do(r)
			if why := r.endedBecause(); !strings.Contains(why, tc.want) {
				t.Errorf("%s: ended because %q, want %q", tc.name, why, tc.want)
			}
			r.close()
			eventually(t, tc.name+": log and count", func() error {
				if h.logged("client broke the rules") != logged+1 || h.gauge(stats.ClientViolations) != counted+1 {
					return errors.New("not yet one more")
				}
				return nil
			})
		}
		l.progress(50)
		neverReset(t, hosts...)
		l.finish()
		l.ops.onlySuccess(t)
		l.audit.all(t, l.socks[0], l.socks[1])
		if n := h.logged("level=WARN"); n != h.logged("client broke the rules") {
			t.Errorf("%d warnings:\n%s", n, h.Stderr.Tail())
		}
	})
}

func (r *raw) returnID(id uint32) {
	r.seg.RecvRetProducer().Put(id)
	r.seg.RecvRetProducer().Publish()
	r.ring()
}

// TestRandomSegment writes random bytes over everything that a client can write. The daemon and
// everybody else must go on.
func TestRandomSegment(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		h := hosts[0]
		h.expected = []string{"client broke the rules"}
		l := startLoad(t, h, hosts[1], 5000)
		rounds := 60
		if long {
			rounds = 3000
		}
		for round := range rounds {
			rng := rand.New(rand.NewPCG(uint64(round), 5))
			r := h.raw()
			d := r.dest(hosts[round%2].at(9))
			r.submit(d, shm.Sub{Kind: shm.KindSend, Sock: r.sock, Len: 4000})
			for range 20 {
				for range 64 {
					// These entries are nearly right.
					x := r.seg.SubProducer().Reserve()
					if x == nil {
						break
					}
					switch *x.Sub() = (shm.Sub{Kind: shm.Kind(rng.IntN(7)), Sock: r.sock, MsgID: uint32(rng.IntN(64)), Len: uint32(rng.IntN(9000))}); rng.IntN(8) {
					case 0:
						x.Sub().Slot = rng.Uint32()
					case 1:
						x.Sub().Chunk = rng.Uint32()
					case 2:
						x.Sub().Cookie = rng.Uint64()
					}
				}
				r.seg.SubProducer().Publish()
				r.ring()
				for range 200 {
					r.mem[rng.IntN(len(r.mem)-4096)+4096] = byte(rng.Uint32())
				}
			}
			r.index([]int{offSubTail, offEventHead, offSendRetHead, offRecvRetTail}[round%4]).Store(rng.Uint64())
			r.ring()
			r.close()
		}
		l.progress(50)
		neverReset(t, hosts...)
		l.finish()
		l.ops.onlySuccess(t)
		l.audit.all(t, l.socks[0], l.socks[1])
	})
}

// TestWrongRequests sends requests that a client may not make. None may harm the memory, or what
// belongs to others.
func TestWrongRequests(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		r := h.raw()
		for i, fd := range r.fds {
			if i == 2 || i == 3 {
				continue
			}
			for _, size := range []int64{0, 1 << 30} {
				if err := unix.Ftruncate(fd, size); err == nil {
					t.Errorf("descriptor %d: its size can be changed", i)
				}
			}
		}
		for _, i := range []int{1, 4 + int(r.p.SendWindows)} {
			if m, err := shm.MapFD(r.fds[i], sizeOf(t, r.fds[i]), true); err == nil {
				m.Close()
				t.Errorf("descriptor %d can be written", i)
			}
		}
		c := h.open()
		g := newTarget(t, c, h.bind(c, 0), 4096, rds.AllowRead)
		theirs := uint32(g.reg.Cookie())
		for _, tc := range []struct {
			req  ipc.Request
			want unix.Errno
		}{
			{&ipc.CloseSock{Sock: 99}, unix.EBADF},
			{&ipc.SetRcvBuf{Sock: 99, Bytes: 1}, unix.EBADF},
			{&ipc.SetRcvBuf{Sock: r.sock}, unix.EINVAL},
			{&ipc.Alloc{}, unix.EINVAL},
			{&ipc.Alloc{Size: 1 << 62}, unix.EINVAL},
			{&ipc.Alloc{Size: 1 << 39}, unix.ENOBUFS},
			{&ipc.Import{Len: 1}, unix.EINVAL},
			{&ipc.Free{Buffer: 1}, unix.EINVAL},
			{&ipc.Register{Sock: r.sock, Buffer: 1, Len: 1, Access: 1}, unix.EINVAL},
			{&ipc.Register{Sock: 99, Buffer: 1, Len: 1, Access: 1}, unix.EBADF},
			{&ipc.Release{Region: theirs}, unix.EINVAL},
			{&ipc.Expose{Region: theirs, Addr: h.addr()}, unix.EINVAL},
		} {
			if _, _, err := r.c.Call(tc.req, nil); !errors.Is(err, tc.want) {
				t.Errorf("%+v: %v, want %v", tc.req, err, tc.want)
			}
		}
		if err := g.reg.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func sizeOf(t *testing.T, fd int) int {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Size)
}
