// Package worker is an application of the ledger: a process whose sockets send, receive,
// register memory and use the memory of others, at random. It logs everything that it did
// and was notified of (package book). It checks only what nobody else can see: the contents
// of its own memory.
//
// It reads commands from standard input, one a line. "settle" stops the traffic; when
// nothing of its sockets is outstanding, it answers "settled" with the sockets. "roll
// ADDRESS..." sends a last message to each address and answers "sent"; each such message that
// arrives is answered with "rolled". "close" closes everything and ends.
package worker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/test/ledger/book"
)

// Config of a process.
type Config struct {
	Process int              // its number in the campaign
	Seed    uint64           // of the campaign
	Log     string           // where it writes
	Socket  string           // its daemon's
	Private []Port           // bound as long as the process lives
	Crowd   []Port           // likewise, by sockets that do less
	Events  uint32           // entries of its event ring, 0: the default
	Shared  Port             // bound now and then: another process waits for it, too. Port 0: none
	Known   []netip.AddrPort // where others may be bound
	Mix     Mix
}

// Port is where a socket is bound, and in which lane it sends.
type Port struct {
	At   netip.AddrPort
	Lane uint8
}

// Mix says how much of what there is. Shares are in 1024ths.
type Mix struct {
	Large   uint32        // messages and operations above 64 KiB
	Ops     uint32        // messages with operations
	Bad     uint32        // operations that must be refused
	Limits  uint32        // messages with a GiveUpAfter
	Cancels uint32        // sends behind which everything to the destination is cancelled
	Pauses  uint32        // receives after which the reader stops for a while
	Nobody  uint32        // bursts to a port that nobody binds
	Stuck   uint32        // sockets at shared ports that soon stop reading for good
	Small   uint32        // sockets with a small receive buffer
	Long    uint32        // regions for operations above 1 MiB, which go to a peer in pieces
	Steady  bool          // sockets at shared ports stay to the end
	Pace    time.Duration // mean time between two bursts of a socket
}

// Worker is the process.
type Worker struct {
	cfg   Config
	log   *book.Log
	block []byte // what contents are cut from, the same in all processes
	lives int    // sockets that were bound

	mu      sync.Mutex
	offered map[uint32][]offer // by the life they were made to; guarded by mu

	settling chan struct{} // closed when there is to be no more traffic
}

// Main runs a process until it has been told to close, and returns its status.
func Main(cfg Config) int {
	log, err := book.Create(cfg.Log)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	w := &Worker{cfg: cfg, log: log, block: newBlock(cfg.Seed), offered: map[uint32][]offer{}, settling: make(chan struct{})}
	lines := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(nil, 1<<16)
		for in.Scan() {
			lines <- in.Text()
		}
		close(lines)
	}()
	if err := w.run(lines); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// run lives through sessions until one has settled and closed.
func (w *Worker) run(lines <-chan string) error {
	for {
		s, err := w.attach()
		if err != nil {
			return err
		}
		if s == nil {
			continue
		}
		select {
		case <-s.c.Done():
			s.end()
		case line, ok := <-lines:
			if !ok || line != "settle" {
				return fmt.Errorf("%q instead of settle: %w", line, io.ErrUnexpectedEOF)
			}
			close(w.settling)
			return s.settle(lines)
		}
	}
}

// session is one attachment to the daemon.
type session struct {
	w       *Worker
	c       *rds.Client
	ctx     context.Context // ends with the session
	cancel  context.CancelFunc
	traffic sync.WaitGroup // senders and owners of regions: they end when the worker settles
	all     sync.WaitGroup // everything that may touch memory of c

	mu    sync.Mutex
	socks []*sock // guarded by mu
}

// attach opens a session and its sockets; nil without an error: the daemon went
// away meanwhile.
func (w *Worker) attach() (*session, error) {
	c, err := w.open()
	if err != nil {
		return nil, err
	}
	s := &session{w: w, c: c}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go func() {
		<-c.Done()
		s.cancel()
	}()
	for i, p := range slices.Concat(w.cfg.Private, w.cfg.Crowd) {
		k, err := s.bindAtLast(p, i >= len(w.cfg.Private))
		if err != nil {
			s.end()
			return nil, nil
		}
		k.start()
	}
	if w.cfg.Shared.At.IsValid() {
		s.traffic.Go(s.contend)
	}
	return s, nil
}

// bindAtLast binds a socket, and tries again as long as its session lives. A Bind fails while
// the daemon is drained, and while it still has the port's former owner, which was killed a
// moment ago. Neither ends the sockets that the session has already, because in a steady
// campaign no socket ends.
func (s *session) bindAtLast(p Port, crowd bool) (*sock, error) {
	for {
		k, err := s.bind(p, crowd)
		if err == nil || s.c.Err() != nil {
			return k, err
		}
		s.rest(5 * time.Millisecond)
	}
}

// open waits for the daemon.
func (w *Worker) open() (*rds.Client, error) {
	deadline := time.Now().Add(time.Minute)
	for {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		c, err := rds.Open(ctx, rds.Options{Socket: w.cfg.Socket, Params: rds.Params{EventEntries: w.cfg.Events}})
		cancel()
		if err == nil || time.Now().After(deadline) {
			return c, err
		}
		time.Sleep(2 * time.Millisecond) // the daemon is away
	}
}

// contend binds the shared port whenever it is free, keeps it for a while, and
// closes the socket in one of three ways.
func (s *session) contend() {
	w := s.w
	rng := w.rand(1 << 20)
	for s.running() {
		k, err := s.bind(w.cfg.Shared, false)
		if err != nil {
			s.rest(time.Duration(1+rng.IntN(5)) * time.Millisecond)
			continue
		}
		k.start()
		for s.rest(time.Duration(200+rng.IntN(3000)) * time.Millisecond); w.cfg.Mix.Steady && s.running(); {
			s.rest(time.Second)
		}
		if !s.running() {
			return // it stays for the end
		}
		switch rng.IntN(3) {
		case 0:
			k.close(0)
		case 1:
			k.close(2 * time.Second)
		default: // in the middle of what it does
			k.close(0)
		}
		if rng.IntN(2) == 0 {
			s.rest(time.Duration(rng.IntN(20)) * time.Millisecond)
		} // else its next owner is there at once
	}
}

// running reports whether there is to be traffic.
func (s *session) running() bool {
	select {
	case <-s.ctx.Done():
		return false
	case <-s.w.settling:
		return false
	default:
		return true
	}
}

// rest waits for d, or until there is to be no more traffic.
func (s *session) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	case <-s.w.settling:
	}
}

// settle ends the traffic and does what it is told until it is to close.
func (s *session) settle(lines <-chan string) error {
	s.traffic.Wait()
	var at []string
	for _, k := range s.open() {
		k.settle()
		at = append(at, k.addr.String())
	}
	fmt.Println("settled", strings.Join(at, " "))
	for line := range lines {
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "roll":
			for _, k := range s.open() {
				k.roll(strings.Fields(rest))
			}
			fmt.Println("sent")
		case "close":
			for _, k := range s.open() {
				k.close(20 * time.Second)
			}
			s.end()
			fmt.Println("closed")
			return nil
		default:
			return fmt.Errorf("unknown command %q", line)
		}
	}
	return io.ErrUnexpectedEOF
}

func (s *session) open() (open []*sock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.socks {
		if !k.closing.Load() {
			open = append(open, k)
		}
	}
	return open
}

// end closes the client, once nobody is in its memory any more.
func (s *session) end() {
	s.cancel()
	for _, k := range s.open() {
		if s.c.Err() != nil {
			s.w.log.Write(book.Record{Kind: book.Gone, Life: k.life, Text: s.c.Err().Error()})
		}
		k.close(0)
	}
	s.traffic.Wait()
	s.all.Wait()
	_ = s.c.Close()
}

// rand is a stream of its own.
func (w *Worker) rand(n int) *rand.Rand {
	return rand.New(rand.NewPCG(w.cfg.Seed, uint64(w.cfg.Process)<<32|uint64(n)))
}
