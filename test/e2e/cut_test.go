package e2e

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
)

// everybody is the address for Expose to all sockets of all hosts.
var everybody = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)

// cuttable are memory files that their process can cut short.
var cuttable = map[string]func(t *testing.T) int{
	"memfd": func(t *testing.T) int {
		fd, err := unix.MemfdCreate("cuttable", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	},
	"tmpfs": func(t *testing.T) int {
		file, err := os.CreateTemp("/dev/shm", "rdsd-e2e")
		if err != nil {
			t.Skip(err)
		}
		defer file.Close()
		os.Remove(file.Name())
		fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	},
}

// newCuttable makes a memory file of size bytes.
func newCuttable(t *testing.T, size int64, open func(*testing.T) int) int {
	t.Helper()
	fd := open(t)
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestCutShort: a process cuts memory short that its daemon has mapped, while another host and another process of
// this one write into it and read it, and the process itself has operations with it. It loses its session, and
// these operations end. Others notice nothing.
func TestCutShort(t *testing.T) {
	isolated(t, func(t *testing.T) {
		for name, args := range map[string][]string{"plain": nil, "checksums": {"-crc=on"}, "threads": {"-io-threads=2"}} {
			t.Run(name, func(t *testing.T) {
				hosts := newHosts(t, 2, withArgs(args...))
				hosts[0].expected = append(hosts[0].expected, "client broke the rules", "took away", "taken away")
				b := startBystanders(t, hosts[0], hosts[1])
				for name, open := range cuttable {
					t.Run(name, func(t *testing.T) { cutShort(t, hosts[0], hosts[1], open) })
				}
				b.progress()
				b.finish()
			})
		}
	})
}

func cutShort(t *testing.T, here, there *host, open func(*testing.T) int) {
	const off, size, page = 2 << 12, 4 << 20, 4096
	resets := func() uint64 {
		here.published()
		there.published()
		return here.gauge(stats.ConnReset) + there.gauge(stats.ConnReset)
	}
	before := resets()
	fd := newCuttable(t, 2*size, open)
	owner := here.open()
	own, err := owner.Import(fd, off, size)
	if err != nil {
		t.Fatal(err)
	}
	if last := own.Bytes()[size-page:]; cap(own.Bytes())-cap(last) != size-page { // see rds.Segment
		t.Errorf("capacities %d and %d", cap(own.Bytes()), cap(last))
	}
	s := here.bind(owner, 0)
	region, err := s.Register(own, 0, size, rds.AllowRead|rds.AllowWrite)
	if err != nil {
		t.Fatal(err)
	}
	far := there.open()
	o := there.bind(far, 0)
	target, err := o.Register(mustAlloc(t, far, size), 0, size, rds.AllowRead|rds.AllowWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(region.Expose(t.Context(), everybody), target.Expose(t.Context(), everybody)); err != nil {
		t.Fatal(err)
	}
	mem := mustAlloc(t, far, size)
	neighbour := here.open()
	beside := mustAlloc(t, neighbour, size)
	// All of them run until they fail.
	loads := map[string]func() error{}
	add := func(name string, c *rds.Client, h, to *host, at addrPort, op rds.RDMA) {
		sock := h.bind(c, 0)
		op.Local[0].Len = size
		loads[name] = func() error {
			op := op
			if op.Write {
				return sock.RDMAWrite(t.Context(), at, &op)
			}
			return sock.RDMARead(t.Context(), at, &op)
		}
	}
	for _, write := range []bool{false, true} {
		way := map[bool]string{false: " reads", true: " writes"}[write]
		add("another host"+way, far, there, here, s.LocalAddrPort(), rds.RDMA{Write: write, Cookie: region.Cookie(), Local: []rds.Segment{{Buf: mem}}})
		add("a neighbour"+way, neighbour, here, here, s.LocalAddrPort(), rds.RDMA{Write: write, Cookie: region.Cookie(), Local: []rds.Segment{{Buf: beside}}})
		add("the owner"+way, owner, here, there, o.LocalAddrPort(), rds.RDMA{Write: write, Cookie: target.Cookie(), Local: []rds.Segment{{Buf: own}}})
	}
	started, ended := make(chan error), make(chan string)
	for name, run := range loads {
		go func() {
			started <- run()
			for run() == nil {
			}
			ended <- name
		}()
	}
	for range loads {
		if err := <-started; err != nil {
			t.Error(err)
		}
	}
	if err := unix.Ftruncate(fd, off+page); err != nil {
		t.Fatal(err)
	}
	<-owner.Done()
	contains(t, "the reason", owner.Err().Error(), "memory with holes", "ftruncate")
	for range loads {
		t.Log("ended: ", <-ended)
	}
	if now := resets(); now != before {
		t.Errorf("%d connections were broken", now-before)
	}
}

// cutMemory is a process that has cut memory short which the daemon has mapped and not touched since, beside one
// whose memory can be cut short and goes on.
func cutMemory(t *testing.T, here, there *host) func() {
	const size = 1 << 20
	c, stays := here.open(), here.open()
	own, kept := newCuttable(t, size, cuttable["memfd"]), newCuttable(t, size, cuttable["tmpfs"])
	if _, err := c.Import(own, 0, size); err != nil {
		t.Fatal(err)
	}
	b, err := stays.Import(kept, 4096, size-4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(own, 4096); err != nil {
		t.Fatal(err)
	}
	return func() {
		<-c.Done()
		contains(t, "the reason", c.Err().Error(), "memory with holes")
		s, far := here.bind(stays, 0), there.open()
		o := there.bind(far, 0)
		target, err := o.Register(mustAlloc(t, far, size), 0, size, rds.AllowWrite)
		if err == nil {
			err = target.Expose(t.Context(), everybody)
		}
		if err != nil {
			t.Fatal(err)
		}
		op := rds.RDMA{Cookie: target.Cookie(), Local: []rds.Segment{{Buf: b, Len: size - 4096}}}
		if err := s.RDMAWrite(t.Context(), o.LocalAddrPort(), &op); err != nil {
			t.Error(err)
		}
		if err := stays.Err(); err != nil {
			t.Error(err)
		}
	}
}
