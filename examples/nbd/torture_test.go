package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/test/child"
)

// tortureFor is the length of the long form, -args -torture 10m.
var tortureFor = flag.Duration("torture", 0, "time for TestTorture; 0 is a few faults")

const (
	tortureFio    = 20 << 20 // the bytes that fio writes and verifies
	tortureLedger = 4 << 20  // the bytes behind them, of the ledger
	tortureFaults = 5        // of the short form
)

// torture is a disk whose programs are killed while fio and a ledger use it.
type torture struct {
	*world
	disk   string
	front  *child.Process // nbd
	random *rand.Rand

	acked    atomic.Int64 // writes of the ledger
	reopened atomic.Int64 // connections of the ledger after the first
	verified atomic.Int64 // bytes that fio has read and verified
	jobs     int
	faults   map[string]int
}

// TestTorture: fio writes blocks of 512 bytes to 1 MiB, 1 to 64 at a time, and verifies their
// CRC-32C, while the blockstore, daemons and nbd are killed and started again and the connection
// is reset. nbdkit's filter retry, between fio and nbd, connects again after a session has ended.
// A ledger beside fio has no such help: it knows which of its writes were acknowledged, and none
// is lost.
func TestTorture(t *testing.T) {
	fio, nbdkit := tool(t, "fio", "fio"), tool(t, "nbdkit", "nbdkit")
	w := newWorld(t, tortureFio+tortureLedger)
	w.end()
	x := &torture{world: w, disk: "disk=" + w.d[0].Addr().String(), faults: map[string]int{}, random: rand.New(rand.NewPCG(3, 0))}
	x.start()
	x.run(fio, x.retrying(nbdkit))
	t.Logf("faults: %v; fio: %d jobs, %d MiB verified; ledger: %d writes acknowledged, %d connections",
		x.faults, x.jobs, x.verified.Load()>>20, x.acked.Load(), x.reopened.Load())
}

// start starts nbd.
func (x *torture) start() { x.front = x.process("-patience", "20s", x.disk) }

// retrying starts nbdkit between fio and nbd, and returns its address.
func (x *torture) retrying(nbdkit string) string {
	x.t.Helper()
	at := x.at + ".r"
	c, err := child.Start(exec.Command(nbdkit, "-f", "-U", at, "-t", "64", "--filter=retry", "nbd", "socket="+x.at, "export=disk", "retry=60", "shared=false",
		"retries=200", "retry-delay=1", "retry-exponential=no"))
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(c.Kill)
	if !poll(func() bool {
		conn, err := net.Dial("unix", at)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}) {
		x.t.Fatalf("nbdkit does not serve: %s", &c.Stderr)
	}
	return "nbd+unix:///?socket=" + at
}

// run lets fio and the ledger use the disk until all faults were made.
func (x *torture) run(fio, uri string) {
	ctx, stop := context.WithCancel(x.t.Context())
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { x.ledger(ctx) })
	all.Go(func() {
		for ctx.Err() == nil && !x.t.Failed() {
			x.fio(fio, uri)
		}
	})
	end := time.Now().Add(*tortureFor)
	for n := 0; !x.t.Failed() && (*tortureFor == 0 && n < tortureFaults || time.Now().Before(end)); n++ {
		x.fault(n)
	}
	stop()
	all.Wait()
	if x.t.Failed() {
		x.t.Logf("nbd said:\n%s", &x.front.Stderr)
	}
}

var fioRead = regexp.MustCompile(`READ: .*io=[0-9.]+[KMG]?i?B \(([0-9.]+)([kMG]?)B\)`)

// fio runs one job of fio, with another depth than the last one.
func (x *torture) fio(fio, uri string) {
	depth := []string{"64", "1", "16", "4"}[x.jobs%4]
	args := []string{
		"--name=job", "--ioengine=nbd", "--uri=" + uri, fmt.Sprintf("--size=%d", tortureFio), "--iodepth=" + depth, fmt.Sprintf("--randseed=%d", x.jobs+1),
		"--rw=randwrite", "--bsrange=512-1m", "--bs_unaligned=1", "--fsync=16", "--buffer_compress_percentage=0", "--refill_buffers",
		"--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0", "--end_fsync=1",
	}
	// Not with the context: what was begun is verified, too.
	out, err := exec.Command(fio, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "err= 0") {
		x.t.Errorf("fio, depth %s: %v\n%s", depth, err, out)
		return
	}
	if m := fioRead.FindStringSubmatch(string(out)); m != nil {
		n, _ := strconv.ParseFloat(m[1], 64)
		x.verified.Add(int64(n * map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[m[2]]))
	}
	x.jobs++
}

// ledger writes over one connection until ctx ends, and connects again when that has ended. It
// then compares what is there with what was acknowledged.
func (x *torture) ledger(ctx context.Context) {
	l := ledger{from: tortureFio, acked: make([]byte, tortureLedger)}
	for first := true; !x.t.Failed(); first = false {
		c := x.connect()
		if c == nil {
			return
		}
		got := make([]byte, tortureLedger)
		err := c.tryRead(l.from, got)
		switch {
		case err != nil: // it has ended again
		case !first && l.check(got) != nil:
			x.t.Error(l.check(got))
		case ctx.Err() != nil:
			c.Close()
			return
		default:
			copy(l.acked, got)
			stop := context.AfterFunc(ctx, func() { c.Conn.Close() })
			// The error is one of a write that was not acknowledged.
			_ = l.writes(c, uint64(x.reopened.Load()), func() { x.acked.Add(1) })
			stop()
			x.reopened.Add(1)
		}
		c.Close()
	}
}

// connect takes the disk as soon as nbd serves it.
func (x *torture) connect() (c *client) {
	var err error
	if !poll(func() bool {
		var conn net.Conn
		if conn, err = net.Dial("unix", x.at); err != nil {
			return false
		}
		_ = conn.SetDeadline(time.Now().Add(patienceForTests))
		c = &client{Conn: conn, t: x.t}
		if _, err = conn.Write(append([]byte{0, 0, 0, 3}, optionBytes(optExportName, []byte("disk"))...)); err == nil {
			err = c.tryHear(make([]byte, 18+10))
		}
		if err != nil {
			conn.Close()
		}
		return err == nil
	}) {
		x.t.Errorf("nbd does not serve the disk: %v", err)
		return nil
	}
	return c
}

// fault kills something, starts it again, and waits until the disk was written again.
func (x *torture) fault(n int) {
	kinds := []string{"blockstore", "nbd", "reset", "daemon", "nbd's daemon"}
	kind := kinds[n%len(kinds)]
	if n >= len(kinds) {
		kind = kinds[x.random.IntN(len(kinds))]
	}
	x.faults[kind]++
	acked := x.acked.Load()
	switch kind {
	case "blockstore":
		x.kill()
		x.kill = x.store()
	case "daemon":
		x.restart(0)
		x.kill = x.store()
	case "nbd":
		x.front.Kill()
		x.start()
	case "nbd's daemon":
		x.restart(1)
	case "reset":
		x.reset()
	}
	if !poll(func() bool { return x.acked.Load() >= acked+30 || x.t.Failed() }) {
		x.t.Errorf("%d writes after %s; nbd said:\n%s", x.acked.Load()-acked, kind, &x.front.Stderr)
	}
}

// poll calls done again and again until it is true, and returns false after two minutes.
func poll(done func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * patienceForTests); !done(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (x *torture) restart(d int) {
	if err := x.d[d].Stop(); err != nil {
		x.t.Error(err)
	}
	x.d[d].Start(x.t)
}

// tryRead reads all of b at off.
func (c *client) tryRead(off int, b []byte) error {
	c.next++
	r := request{command: cmdRead, cookie: c.next, offset: uint64(off), length: uint32(len(b))}
	if _, err := c.Write(requestBytes(r)); err != nil {
		return err
	}
	var head [replySize]byte
	if err := c.tryHear(head[:]); err != nil {
		return err
	}
	if head[7] != 0 {
		return errors.New("the read has failed")
	}
	return c.tryHear(b)
}
