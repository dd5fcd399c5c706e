package stress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stress/proto"
	"github.com/rdsd/rdsd/internal/stress/report"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

func TestExchange(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	for _, tc := range []struct {
		name   string
		change func(o *proto.Options)
		rdma   bool
	}{
		{"datagrams", nil, false},
		{"tasks", func(o *proto.Options) { o.Tasks, o.Depth = 3, 4 }, false},
		{"large", func(o *proto.Options) { o.ReqSize, o.AckSize, o.Depth = 100_000, 8192, 2 }, false},
		{"smallest", func(o *proto.Options) { o.ReqSize, o.Depth = proto.HeaderSize, 64 }, false},
		{"simplex", func(o *proto.Options) { o.Simplex = true }, false},
		{"lane", func(o *proto.Options) { o.TOS = 5 }, false},
		{"no monitor", func(o *proto.Options) { o.CongMonitor = false; o.Depth = 8 }, false},
		{"rdma", func(o *proto.Options) { o.RDMASize, o.Depth = 65536, 2 }, true},
		{"rdma tasks", func(o *proto.Options) { o.RDMASize, o.Depth, o.Tasks = 4096, 4, 2 }, true},
		{"rdma read", func(o *proto.Options) { o.RDMASize, o.RWMode = 4096, proto.ModeRead }, true},
		{"rdma write", func(o *proto.Options) { o.RDMASize, o.RWMode = 4096, proto.ModeWrite }, true},
		{"rdma pieces", func(o *proto.Options) { o.RDMASize, o.Vector, o.Alignment = 1000, 16, 24 }, true},
		{"rdma once", func(o *proto.Options) { o.RDMASize, o.UseOnce = 4096, true }, true},
		{"rdma kept", func(o *proto.Options) { o.RDMASize, o.CacheMRs, o.UseGetMR, o.KeyMeter = 4096, true, true, true }, true},
		{"rdma get-mr", func(o *proto.Options) { o.RDMASize, o.UseGetMR = 4096, true }, true},
		{"rdma async", func(o *proto.Options) { o.RDMASize, o.Async = 4096, true }, true},
		{"unverified", func(o *proto.Options) { o.RDMASize, o.Verify = 4096, false }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, p := pair(t, ds, verified(tc.change), nil, after(300))
			for _, s := range []*side{a, p} {
				if s.failed != nil {
					t.Fatalf("%v\n%s", s.failed, &s.err)
				}
				if s.report.RoundTrip == nil && !(tc.name == "simplex" && s == p) {
					t.Errorf("%s: no round trip", s.report.Role)
				}
				if s.report.Verified != a.params.Options.Verify {
					t.Errorf("%s: verified is %v", s.report.Role, s.report.Verified)
				}
				in, out := total(s)
				mode := a.params.Options.RWMode
				if tc.rdma != (in+out > 0) || tc.rdma && mode == proto.ModeBoth && (in == 0 || out == 0) {
					t.Errorf("%s: RDMA %d bytes in, %d out", s.report.Role, in, out)
				}
			}
			if !a.report.Interrupted || p.report.Interrupted || a.report.Role != "active" || p.report.Role != "passive" {
				t.Errorf("%+v\n%+v", a.report, p.report)
			}
			if a.report.Parameters != p.report.Parameters {
				t.Errorf("%+v\n%+v", a.report.Parameters, p.report.Parameters)
			}
		})
	}
}

// total returns the bytes that a side moved by RDMA in the whole test, by the sums in its lines.
func total(s *side) (in, out uint64) {
	return s.report.Total.RDMAInBytes, s.report.Total.RDMAOutBytes
}

// TestFindsCorruption checks that wrong data is found and named, and that it ends the test.
func TestFindsCorruption(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	flip := func(at int, when func(b []byte) bool) func(b []byte) {
		var n atomic.Int32
		return func(b []byte) {
			if when(b) && n.Add(1) == 20 {
				b[at] ^= 0x40
			}
		}
	}
	message := func(b []byte) bool { return len(b) == 1024 }
	ack := func(b []byte) bool { return len(b) == proto.HeaderSize }
	buffer := func(b []byte) bool { return len(b) == 4096 }
	for _, tc := range []struct {
		name    string
		passive bool // the passive side's memory is corrupted
		corrupt func(b []byte)
		want    string
	}{
		{"payload", false, flip(proto.HeaderSize+100, message), "the payload is corrupt at offset 100: want 0x"},
		{"payload at the passive side", true, flip(1023, message), "the payload is corrupt at offset 960: want 0x"},
		{"sequence", false, flip(3, message), "not the message that should come next"},
		{"index", true, flip(17, message), "index"},
		{"sender", false, flip(5, ack), "from"},
		{"op", true, flip(18, ack), "not a message of rds-stress: op"},
		{"RDMA buffer", false, flip(7, buffer), "the RDMA buffer is corrupt at offset 0: want 0x"},
		{"RDMA buffer at the passive side", true, flip(4090, buffer), "the RDMA buffer is corrupt at offset 4088: want 0x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, p := pair(t, ds, verified(func(o *proto.Options) { o.RDMASize = 4096 }), func(a, p *side) {
				a.env.corrupt, p.env.corrupt = nil, nil
				if tc.passive {
					p.env.corrupt = tc.corrupt
				} else {
					a.env.corrupt = tc.corrupt
				}
			}, nil)
			hit, other := a, p
			if tc.passive {
				hit, other = p, a
			}
			if hit.failed == nil || !strings.Contains(hit.failed.Error(), tc.want) {
				t.Errorf("got %v, want %q", hit.failed, tc.want)
			}
			if hit.report.Verified || hit.report.Failure == "" {
				t.Errorf("%+v", hit.report)
			}
			// The other side learns that the test is over.
			if tc.passive && !errors.Is(other.failed, errEarly) || !tc.passive && other.failed != nil {
				t.Errorf("the other side: %v", other.failed)
			}
		})
	}
}

func TestRunTime(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	a, p := pair(t, ds, verified(func(o *proto.Options) { o.Seconds = 1 }), nil, nil)
	if a.failed != nil || p.failed != nil || a.report.Interrupted || len(a.report.Intervals) == 0 {
		t.Fatalf("%v, %v\n%+v", a.failed, p.failed, a.report)
	}
	if n := a.report.Total.RoundTrips; n == 0 || a.report.Total.Time < time.Second {
		t.Errorf("%+v", a.report.Total)
	}
	head, rest, _ := strings.Cut(a.out.String(), "\n")
	if head != "tsks   tx/s   rx/s  tx+rx K/s    mbi K/s    mbo K/s tx us/c   rtt us cpu %" {
		t.Errorf("header %q", head)
	}
	if !strings.Contains(rest, "\n---------------------------------------------\n") || !strings.HasSuffix(rest, " -1.00  (average)\n") {
		t.Errorf("%s", rest)
	}
}

func TestReport(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	n := uint64(0)
	a, _ := pair(t, ds, verified(func(o *proto.Options) { o.ShowPerf, o.Seconds = true, 1 }), func(a, _ *side) {
		a.params.ReportCPU = true
		a.env.Counters = func(context.Context) ([]report.Counter, error) {
			n += 10
			return []report.Counter{{Name: "send_bytes", Value: n}, {Name: "resets", Value: 3}}, nil
		}
	}, nil)
	if a.failed != nil {
		t.Fatal(a.failed)
	}
	var head string
	rows := 0
	for line := range strings.Lines(a.out.String()) {
		switch {
		case strings.HasPrefix(line, "::nr_tasks:count,"):
			head = line
		case strings.HasPrefix(line, "::"):
			if rows++; strings.Count(line, ",") != strings.Count(head, ",") {
				t.Errorf("%s has not the columns of %s", line, head)
			}
		}
	}
	if !strings.Contains(head, ",send_bytes:bytes,resets:count,") || rows == 0 {
		t.Errorf("%s", &a.out)
	}
	if a.report.Total.CPU < 0 {
		t.Errorf("CPU %v", a.report.Total.CPU)
	}
}

// TestControlErrors checks the errors of the control connection: nobody answers, or the peer
// sends something wrong.
func TestControlErrors(t *testing.T) {
	ds := rdstest.StartDaemons(t, 1)
	d := ds[0]
	run := func(o proto.Options, change func(s *side)) error {
		s := newSide(d, o)
		s.env.Timing.Options = 50 * time.Millisecond
		change(s)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		s.run(ctx)
		if ctx.Err() != nil {
			t.Error("it did not end")
		}
		if s.report != nil {
			t.Errorf("a report: %+v", s.report)
		}
		return s.failed
	}
	port := freePort(t, d.Addr())
	o := verified(func(o *proto.Options) { o.Port = port })

	err := run(o, func(s *side) { s.params.Send = d.Addr() })
	if err == nil || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "without -s first") {
		t.Errorf("nobody listens: %v", err)
	}
	err = run(o, func(s *side) { s.params.Send = netip.MustParseAddr("::1") })
	if !errors.Is(err, proto.ErrOptions) {
		t.Errorf("IPv6: %v", err)
	}
	// The passive side, with wrong peers.
	passive := func(say func(c net.Conn)) error {
		var peers sync.WaitGroup
		defer peers.Wait()
		return run(o, func(s *side) {
			s.env.listening = func(at netip.AddrPort) {
				peers.Go(func() {
					c, err := net.Dial("tcp", at.String())
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					say(c)
					_, _ = io.Copy(io.Discard, c) // until the side closes the connection
				})
			}
		})
	}
	good := verified(func(o *proto.Options) { o.ReceiveAddr = d.Addr().As4() })
	for _, tc := range []struct {
		name string
		say  func(c net.Conn)
		want string
	}{
		{"silence", func(net.Conn) {}, "i/o timeout"},
		{"other version", func(c net.Conn) { _, _ = c.Write(append([]byte("2.1.0"), make([]byte, 72)...)) }, "the peer's is 2.1.0, this one speaks 2.0.7"},
		{"too much", func(c net.Conn) {
			o := good
			o.Tasks = 2000
			_, _ = c.Write(o.Append(nil))
		}, "2000 tasks, want 1 to 1024"},
		{"no address", func(c net.Conn) {
			o := good
			o.ReceiveAddr = [4]byte{}
			_, _ = c.Write(o.Append(nil))
		}, "do not name its address"},
		{"gives up", func(c net.Conn) {
			o := good
			o.Port = port
			_, _ = c.Write(o.Append(nil))
			_ = c.(*net.TCPConn).CloseWrite()
		}, "the peer ended before the test began"},
	} {
		if err := passive(tc.say); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	// The port of a task is in use.
	c := d.Open(t)
	d.Bind(t, c, port+1)
	err = passive(func(c net.Conn) {
		o := good
		o.Port = port
		_, _ = c.Write(o.Append(nil))
	})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "task 0: ") {
		t.Errorf("taken: %v", err)
	}
}

// TestInterruptedWaiting interrupts a test that waits for its peer. It must end and leave
// nothing behind.
func TestInterruptedWaiting(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	s := newSide(d, verified(func(o *proto.Options) { o.Port = freePort(t, d.Addr()) }))
	var at netip.AddrPort
	s.env.listening = func(a netip.AddrPort) { at = a; cancel() }
	s.run(ctx)
	if !errors.Is(s.failed, context.Canceled) || s.report != nil {
		t.Errorf("%v, %v", s.failed, s.report)
	}
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	l.Close()
}

// TestPeerDies ends the peer's daemon in the middle of a test.
func TestPeerDies(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	var once sync.Once
	a, p := pair(t, ds, verified(nil), func(a, _ *side) {
		var n atomic.Int32
		a.env.corrupt = func([]byte) {
			if n.Add(1) > 50 {
				once.Do(func() { go ds[1].Stop() })
			}
		}
	}, nil)
	if !errors.Is(p.failed, rds.ErrDaemonGone) {
		t.Errorf("passive: %v", p.failed)
	}
	if a.failed == nil {
		t.Error("active: no error")
	}
}

// reset breaks d's connection to peer as rdsctl peer reset does.
func reset(ctx context.Context, d *rdstest.Daemon, peer netip.Addr) error {
	c, err := ipc.ResolveDial(ctx, d.Socket())
	if err != nil {
		return err
	}
	defer c.Close()
	if _, _, err := c.Call(&ipc.Hello{Version: ipc.Version, Role: ipc.RoleCtl, Name: "test"}, nil); err != nil {
		return err
	}
	req, err := json.Marshal(ctl.Request{Schema: ctl.Schema, Kind: ctl.KindPeerReset, Addr: peer})
	if err != nil {
		return err
	}
	raw, err := c.CallJSON(req)
	if err != nil {
		return err
	}
	_, err = ctl.Parse(raw, ctl.KindPeerReset)
	return err
}

// TestResets breaks connections again and again. Plain tests notice nothing. Tests with async
// send the acks again that were lost with their operations.
func TestResets(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	for name, o := range map[string]proto.Options{
		"datagrams": verified(func(o *proto.Options) { o.Depth = 8 }),
		"rdma":      verified(func(o *proto.Options) { o.RDMASize, o.Depth, o.Tasks, o.Async = 16384, 4, 2, true }),
		"rdma kept": verified(func(o *proto.Options) {
			o.RDMASize, o.Depth, o.Async, o.CacheMRs, o.UseGetMR = 16384, 8, true, true, true
		}),
	} {
		t.Run(name, func(t *testing.T) {
			// Another goroutine breaks the connection, each time after more data has come
			// through it.
			next := make(chan struct{}, 1)
			var resets sync.WaitGroup
			defer resets.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var done atomic.Int32
			resets.Go(func() {
				for {
					select {
					case <-next:
					case <-ctx.Done():
						return
					}
					if err := reset(ctx, ds[0], ds[1].Addr()); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					done.Add(1)
				}
			})
			a, p := pair(t, ds, o, nil, func(seen uint64) bool {
				if seen%200 == 0 {
					select {
					case next <- struct{}{}:
					default:
					}
				}
				return done.Load() >= 10
			})
			if a.failed != nil || p.failed != nil || !a.report.Verified || !p.report.Verified {
				t.Errorf("active: %v\npassive: %v", a.failed, p.failed)
			}
			if a.report.Disconnects == 0 || p.report.Disconnects == 0 {
				t.Errorf("disconnects: %d, %d", a.report.Disconnects, p.report.Disconnects)
			}
		})
	}
}
