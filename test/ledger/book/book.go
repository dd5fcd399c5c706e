// Package book is the log of an application of the ledger: what it asked for and what it
// was notified of. A log is a mapped file, so a record that Write has finished survives
// kill -9 of its process, without a system call for each record. A record is a line of
// text.
package book

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Kind says what a record is about. The meaning of Seq, Peer, A, B, C and Text depends on
// it. Fields without a meaning are zero.
type Kind string

// Records of an application. Life is the number of a socket: each Bind of a campaign makes
// a new one. Its upper bits (ProcessOf) are the process.
const (
	Binding Kind = "binding" // Bind was called: Peer = own address
	Bind    Kind = "bind"    // and returned: Peer = own address, A = lane
	Unbound Kind = "unbound" // or failed: the socket's number is used again
	Close   Kind = "close"   // Close or CloseWait (A = 1) was called
	Closed  Kind = "closed"  // and returned: Text = error, "" = nil
	Gone    Kind = "gone"    // the socket failed because the daemon or the session ended: Text = error
	Op      Kind = "op"      // an operation of the message Seq, written ahead of Try: see below
	Try     Kind = "try"     // a send begins: Seq, Peer = destination, A = size, B = CRC-32C, C = flags, Text = life that is meant
	Sent    Kind = "sent"    // it returned nil: Seq, A and B = ids of RDMA operation and atomic
	Fail    Kind = "fail"    // it returned an error: Seq, Text
	Recv    Kind = "recv"    // a receive returned: Peer = source, A = life (0: not known), Seq (0: too short to tell), B = size, C = CRC-32C
	Data    Kind = "data"    // the receiver looked at the memory a delivered message wrote: A = life, Seq, B = region, Text = verdict
	Acked   Kind = "acked"   // the zero-copy cookie of Seq came back
	Notice  Kind = "notice"  // Peer = destination, A = count, B = rds.Reason, Text = kind
	Status  Kind = "status"  // Seq, A = id, B = errno, C = 1 for the atomic, Peer = host, Text = status
	Mark    Kind = "mark"    // the high-water mark to the host Peer was seen at A
	Local   Kind = "local"   // local memory when the mark had passed: Seq, A = CRC-32C or old value, C = 1 for the atomic
	Touched Kind = "touched" // local memory changed after the mark had passed its operation: Seq
	Region  Kind = "region"  // Register returned: A = region, B = length, C = rights, Peer = whom it is for (port 0: the host)
	Release Kind = "release" // Release was called: A = region
	Freed   Kind = "freed"   // and returned: A = region, Text = error
	After   Kind = "after"   // memory some time after Release returned: A = region, Text = "" if untouched
	Words   Kind = "words"   // values at Release's return: A = region, C = of the fetch-add word, B = of the compare-and-swap word
	Cancel  Kind = "cancel"  // CancelSentTo of Peer was called
	Barrier Kind = "barrier" // BarrierAll at the end returned: Text = error
	Wrong   Kind = "wrong"   // the application saw what must not be: Text
)

// Records of the program that starts, ends and disturbs processes. A is the process of an
// application. Peer is the address of a daemon, without a port.
const (
	Kill     Kind = "kill"     // process A is about to be killed
	Dead     Kind = "dead"     // and has been waited for
	Ending   Kind = "ending"   // the daemon Peer is about to be killed or ended
	Ended    Kind = "ended"    // and has been waited for
	Serving  Kind = "serving"  // and serves again
	Fault    Kind = "fault"    // Text = what, Peer = a host it touches, A = process or 0, B = length in ns
	Upgrade  Kind = "upgrade"  // another process is about to take over from the daemon Peer; for people, because it explains nothing
	Upgraded Kind = "upgraded" // and has, or has not: Text = error
	Settled  Kind = "settled"  // no process was disturbed from here on
)

// Bits of C of Try, and of the header of a message.
const (
	FlagRoll   = 1 << 0 // sent at the end, to a socket that exists: it must arrive
	FlagShort  = 1 << 1 // too short to carry a number
	FlagLimit  = 1 << 2 // has a GiveUpAfter
	FlagOp     = 1 << 3 // has operations
	FlagSilent = 1 << 4 // is not delivered
	FlagOffer  = 1 << 5 // offers a region
	FlagCookie = 1 << 6 // asks for a zero-copy cookie
)

// Op: Seq, Peer = destination, A = region, B = offset in the upper and length in
// the lower half, C = CRC-32C of what it moves, Text = "write", "read", "add" or
// "swap". A swap has in C what it compares with; what it stores is SwapValue.

// SwapValue is the value that the compare-and-swap of a message stores. Nothing else stores
// it.
func SwapValue(life uint32, seq uint64) uint64 { return uint64(life)<<32 | seq&(1<<32-1) }

// Record is one line.
type Record struct {
	At      int64 // ns of the host's monotonic clock, the same for all processes
	Kind    Kind
	Life    uint32
	Seq     uint64
	Peer    netip.AddrPort
	A, B, C uint64
	Text    string
}

// lifeBits bounds how many sockets a process can have, one after the other.
const lifeBits = 12

// LifeOf is the life of the nth socket of a process, n from 1.
func LifeOf(process, n int) uint32 { return uint32(process)<<lifeBits | uint32(n) }

// ProcessOf is the process whose socket life is.
func ProcessOf(life uint32) int { return int(life >> lifeBits) }

// Now is the time of a Record.
func Now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return t.Nano()
}

// step is how much a log grows at a time. Its file is sparse.
const step = 64 << 20

// Log is a log that is open for writing. Many goroutines may call its methods.
type Log struct {
	mu  sync.Mutex
	f   *os.File
	mem []byte // the mapped part of the file, one step long
	n   int    // how many bytes of mem are written
	off int64  // of mem in the file
}

// Create makes the file of a log.
func Create(path string) (*Log, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	l := &Log{f: f, off: -step}
	return l, l.grow()
}

func (l *Log) grow() error {
	if l.mem != nil {
		if err := unix.Munmap(l.mem); err != nil {
			return err
		}
	}
	l.off += step
	if err := l.f.Truncate(l.off + step); err != nil {
		return err
	}
	mem, err := unix.Mmap(int(l.f.Fd()), l.off, step, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	l.mem, l.n = mem, 0
	return err
}

// Write appends r, with the time if it has none. If the log cannot grow, Write ends the
// process, because the judge takes what is not in the log for not done.
func (l *Log) Write(r Record) {
	if r.At == 0 {
		r.At = Now()
	}
	var buf [512]byte
	line := appendRecord(buf[:0], &r)
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(line) > 0 {
		if l.n == len(l.mem) {
			if err := l.grow(); err != nil {
				fmt.Fprintln(os.Stderr, "log:", err)
				os.Exit(1)
			}
		}
		n := copy(l.mem[l.n:], line)
		l.n += n
		line = line[n:]
	}
}

func appendRecord(b []byte, r *Record) []byte {
	b = strconv.AppendInt(b, r.At, 10)
	b = append(b, ' ')
	b = append(b, r.Kind...)
	b = append(b, ' ')
	b = strconv.AppendUint(b, uint64(r.Life), 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, r.Seq, 10)
	b = append(b, ' ')
	if r.Peer.IsValid() {
		b = r.Peer.AppendTo(b)
	} else {
		b = append(b, '-')
	}
	for _, v := range [...]uint64{r.A, r.B, r.C} {
		b = append(b, ' ')
		b = strconv.AppendUint(b, v, 10)
	}
	if r.Text != "" {
		b = append(b, ' ')
		b = append(b, strings.ReplaceAll(r.Text, "\n", " ")...)
	}
	return append(b, '\n')
}

// Read calls do with each record of a log, in order. It skips a record that a killed
// process had not finished.
func Read(path string, do func(Record)) error {
	return scan(path, func(line string) error {
		r, err := parse(line)
		if err != nil {
			return fmt.Errorf("%s: %q: %w", path, line, err)
		}
		do(r)
		return nil
	})
}

// Trim cuts off the part that was never written.
func Trim(path string) error {
	n := int64(0)
	if err := scan(path, func(line string) error { n += int64(len(line)) + 1; return nil }); err != nil {
		return err
	}
	return os.Truncate(path, n)
}

// Grep returns at most most lines of a log that match.
func Grep(path string, most int, match func(Record) bool) (lines []string, err error) {
	err = scan(path, func(line string) error {
		if r, err := parse(line); err == nil && len(lines) < most && match(r) {
			lines = append(lines, line)
		}
		return nil
	})
	return lines, err
}

func scan(path string, do func(line string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := in.ReadSlice('\n')
		if err == io.EOF || err == bufio.ErrBufferFull || bytes.IndexByte(line, 0) == 0 {
			return nil // the rest of the file was never written
		}
		if err != nil {
			return err
		}
		if err := do(string(line[:len(line)-1])); err != nil {
			return err
		}
	}
}

func parse(line string) (r Record, err error) {
	f := strings.SplitN(line, " ", 9)
	if len(f) < 8 {
		return r, fmt.Errorf("%d fields", len(f))
	}
	number := func(s string) (n uint64) {
		n, e := strconv.ParseUint(s, 10, 64)
		if e != nil {
			err = e
		}
		return n
	}
	r = Record{At: int64(number(f[0])), Kind: Kind(f[1]), Life: uint32(number(f[2])), Seq: number(f[3]),
		A: number(f[5]), B: number(f[6]), C: number(f[7])}
	if f[4] != "-" {
		p, e := netip.ParseAddrPort(f[4])
		if e != nil {
			return r, e
		}
		r.Peer = p
	}
	if len(f) == 9 {
		r.Text = f[8]
	}
	return r, err
}
