package soft

import (
	"fmt"
	"math"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// The benchmarks run two devices on two locked threads, each driving its own,
// as two daemons would, over loopback with the same congestion control as the
// raw TCP they are compared with.

func benchPair(b *testing.B, crc verbs.CRCMode) (x, y *host) {
	at := attrs()
	at.CRC = crc
	at.Cap = verbs.QPCap{MaxSendWR: 1024, MaxRecvWR: 1024, MaxSendSGE: 1, MaxRecvSGE: 1, ReadDepth: 16}
	x, y = newHost(b, Options{Congestion: "cubic"}), newHost(b, Options{Congestion: "cubic"})
	link(b, x, y, at, at)
	return x, y
}

var spinTurns = 5 // idle turns that yield before blocking

// drive calls turn until it says done, yielding when idle.
func drive(h *host, turn func() bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	idle := 0
	for !turn() {
		if h.dev.Progress() {
			idle = 0
		} else if idle++; idle > spinTurns {
			fds := []unix.PollFd{{Fd: int32(h.dev.FD()), Events: unix.POLLIN}}
			unix.Poll(fds, 1)
		} else {
			unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
}

// stream keeps the send queue of x full of wr until n are complete, and the
// receives of y posted.
func stream(b *testing.B, x, y *host, wr verbs.SendWR, every int) {
	n := b.N
	isSend := wr.Op == verbs.OpSend
	recv := verbs.RecvWR{SGL: y.sge(0, max(int(wr.SGL[0].Length), 1))}
	last := verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled}
	total := n
	if !isSend {
		total = 1
	}
	stop := make(chan struct{})
	started := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		posted := 0
		post := func(k int) {
			for range k {
				if _, err := y.qp.PostRecv([]verbs.RecvWR{recv}); err != nil {
					b.Error(err)
				}
				posted++
			}
		}
		post(1024)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cpu := cpuMeterOf(b, unix.RUSAGE_THREAD, "peer-ns/op")
		close(started)
		got := 0
		wc := make([]verbs.WC, 64)
		rv := make([]verbs.RecvWR, 64)
		for i := range rv {
			rv[i] = recv
		}
		drive(y, func() bool {
			k := y.cq.Poll(wc)
			if k > 0 {
				y.qp.PostRecv(rv[:k])
			}
			got += k
			return got >= total
		})
		cpu()
		<-stop
	}()
	<-started
	b.SetBytes(int64(wr.SGL[0].Length))
	b.ResetTimer()
	cpu := cpuMeter(b)
	sent, open := 0, 0
	wc := make([]verbs.WC, 64)
	list := make([]verbs.SendWR, every)
	for i := range list {
		list[i] = wr
	}
	list[every-1].Flags |= verbs.SendSignaled
	drive(x, func() bool {
		for k := x.cq.Poll(wc); k > 0; k = x.cq.Poll(wc) {
			open -= k * every
		}
		for sent < n && open+every <= 1024-every {
			if _, err := x.qp.PostSend(list); err != nil {
				b.Error(err)
				return true
			}
			sent += every
			open += every
			if !isSend && open >= 8 {
				break
			}
		}
		return sent >= n && open <= 0
	})
	if !isSend {
		x.qp.PostSend([]verbs.SendWR{last})
		drive(x, func() bool { return x.cq.Poll(wc) > 0 })
	}
	close(stop)
	for finished := false; !finished; {
		x.dev.Progress()
		select {
		case <-done:
			finished = true
		case <-time.After(time.Millisecond):
		}
	}
	b.StopTimer()
	cpu()
	sx, sy := x.dev.Stats(), y.dev.Stats()
	b.ReportMetric(float64(sx.BytesOut)/float64(sx.CallsOut), "B/out")
	b.ReportMetric(float64(sy.BytesIn)/float64(sy.CallsIn), "B/in")
}

// cpuMeter returns a function that reports the process's CPU time since as
// ns per operation: on a shared machine steadier than the throughput.
func cpuMeter(b *testing.B) func() { return cpuMeterOf(b, unix.RUSAGE_SELF, "cpu-ns/op") }

func cpuMeterOf(b *testing.B, whose int, name string) func() {
	used := func() int64 {
		var r unix.Rusage
		unix.Getrusage(whose, &r)
		return r.Utime.Nano() + r.Stime.Nano()
	}
	start := used()
	return func() { b.ReportMetric(float64(used()-start)/float64(b.N), name) }
}

// write1M is stream for WRITEs of 1 MiB. owner-ns/op is the CPU time of the sender's own thread.
func write1M(b *testing.B, x, y *host) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpu := cpuMeterOf(b, unix.RUSAGE_THREAD, "owner-ns/op")
	stream(b, x, y, verbs.SendWR{Op: verbs.OpRDMAWrite, SGL: x.sge(0, 1<<20), RKey: y.mr.RKey(), RemoteAddr: testIOVA}, 1)
	cpu()
}

// BenchmarkSecure is BenchmarkStream over TLS; compare with nocrc there.
func BenchmarkSecure(b *testing.B) {
	pair := func(b *testing.B) (x, y *host) {
		at := attrs()
		at.Cap = verbs.QPCap{MaxSendWR: 1024, MaxRecvWR: 1024, MaxSendSGE: 1, MaxRecvSGE: 1, ReadDepth: 16}
		return securePair(b, at, func(_ int, o *Options) { o.Congestion = "cubic" })
	}
	b.Run("write1M", func(b *testing.B) {
		x, y := pair(b)
		write1M(b, x, y)
	})
	for _, n := range []int{64, 4096, 32768} {
		b.Run(fmt.Sprintf("send%d", n), func(b *testing.B) {
			x, y := pair(b)
			stream(b, x, y, verbs.SendWR{Op: verbs.OpSend, SGL: x.sge(0, n)}, 16)
		})
	}
}

func BenchmarkStream(b *testing.B) {
	for _, crc := range []verbs.CRCMode{verbs.CRCOff, verbs.CRCOn} {
		name := [...]string{"crc", "nocrc"}[crc]
		b.Run("write1M/"+name, func(b *testing.B) {
			x, y := benchPair(b, crc)
			write1M(b, x, y)
		})
		for _, n := range []int{64, 1024, 4096, 8192, 16384, 32768} {
			b.Run(fmt.Sprintf("send%d/%s", n, name), func(b *testing.B) {
				x, y := benchPair(b, crc)
				stream(b, x, y, verbs.SendWR{Op: verbs.OpSend, SGL: x.sge(0, n)}, 16)
			})
		}
	}
}

// BenchmarkAside is BenchmarkStream with I/O threads and without. peer-ns/op is the CPU time of the receiver's own thread.
func BenchmarkAside(b *testing.B) {
	defer func(n int) { spinTurns = n }(spinTurns)
	spinTurns = 0 // looks are not counted
	for how := range sealed + 1 {
		for _, threads := range []int{0, 2} {
			b.Run(fmt.Sprintf("%v/threads%d", how, threads), func(b *testing.B) {
				at := attrs()
				at.Cap.MaxSendWR, at.Cap.MaxRecvWR = 1024, 1024
				x, y := guardedPair(b, how, at, Options{Congestion: "cubic", Threads: threads})
				for _, h := range []*host{x, y} {
					if th := h.dev.threads; th != nil {
						th.late = math.MaxInt64 // however late they are
					}
				}
				write1M(b, x, y)
			})
		}
	}
}

// BenchmarkTCP is the bare loop to compare write1M with: write(2) and read(2)
// of the same memory.
func BenchmarkTCP(b *testing.B) {
	for _, size := range []int{256 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size>>10, "K"), func(b *testing.B) {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			c, err := net.Dial("tcp4", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			s, err := l.Accept()
			if err != nil {
				b.Fatal(err)
			}
			ctl := &control{opt: &Options{Congestion: "cubic"}}
			in, _ := ctl.detach(s)
			out, _ := ctl.detach(c)
			unix.SetNonblock(in, false)
			unix.SetNonblock(out, false)
			defer unix.Close(in)
			defer unix.Close(out)
			total := b.N << 20
			done := make(chan struct{})
			go func() {
				runtime.LockOSThread()
				defer close(done)
				buf := make([]byte, 1<<20)
				for got := 0; got < total; {
					n, err := unix.Read(in, buf)
					if err == unix.EINTR {
						continue
					}
					if n <= 0 {
						b.Error(n, err)
						return
					}
					got += n
				}
			}()
			buf := make([]byte, 1<<20)
			b.SetBytes(1 << 20)
			b.ResetTimer()
			cpu := cpuMeter(b)
			runtime.LockOSThread()
			for sent := 0; sent < total; {
				off := sent & (1<<20 - 1)
				n, err := unix.Write(out, buf[off:min(off+size, 1<<20)])
				if err != nil && err != unix.EINTR {
					b.Fatal(err)
				}
				sent += max(n, 0)
			}
			<-done
			b.StopTimer()
			cpu()
		})
	}
}
