package e2e

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/rds"
)

// roleReceiver is a process that prints the number in each message that it gets. The role goes on
// with a worker, of which it has the socket and the address.
const roleReceiver = "receiver "

func receiverMain(role string) int {
	var w worker
	err := json.Unmarshal([]byte(role), &w)
	var c *rds.Client
	if err == nil {
		c, err = rds.Open(context.Background(), rds.Options{Socket: w.Socket})
	}
	var s *rds.Socket
	if err == nil {
		s, err = c.Bind(w.At)
	}
	if err == nil {
		fmt.Println("bound")
	}
	for b := make([]byte, 8); err == nil; {
		if _, _, err = s.RecvFrom(b); err == nil {
			_, err = fmt.Println(binary.LittleEndian.Uint64(b))
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// numbered sends numbered messages and knows what became of each.
type numbered struct {
	t    *testing.T
	s    *rds.Socket
	gate sync.RWMutex // held for writing while it sends nothing
	stop chan struct{}

	mu     sync.Mutex
	came   *sync.Cond
	sent   uint64                // guarded by mu
	status map[uint64]rds.Status // guarded by mu
}

func newNumbered(t *testing.T, s *rds.Socket) *numbered {
	t.Helper()
	s.SetNotices() // the statuses say the same
	x := &numbered{t: t, s: s, stop: make(chan struct{}), status: map[uint64]rds.Status{}}
	x.came = sync.NewCond(&x.mu)
	return x
}

// run sends to to until it is stopped and the status of each message has come.
func (x *numbered) run(ctx context.Context, to addrPort) {
	defer func() { // next looks whether it failed
		x.mu.Lock()
		x.came.Broadcast()
		x.mu.Unlock()
	}()
	const window = 64
	comps := make([]rds.Completion, window)
	for n, done := uint64(0), uint64(0); ; {
		select {
		case <-x.stop:
			if n == done {
				return
			}
		default:
			if x.gate.RLock(); n-done < window {
				n++
				x.mu.Lock()
				x.sent = n
				x.mu.Unlock()
				m := rds.Message{Addr: to, Payload: binary.LittleEndian.AppendUint64(nil, n), Notify: true, Token: n}
				if n%16 == 0 { // in pieces
					m.Payload = append(m.Payload, make([]byte, 100_000)...)
				}
				if _, err := x.s.Send(ctx, &m); err != nil {
					x.t.Errorf("message %d: %v", n, err)
					x.gate.RUnlock()
					return
				}
			}
			x.gate.RUnlock()
		}
		if n-done >= window || n > done && x.stopped() {
			if _, err := x.s.Wait(ctx, rds.WaitSet{Completion: true}); err != nil {
				x.t.Errorf("%d of %d statuses: %v", done, n, err)
				return
			}
		}
		got := comps[:x.s.Completions(comps)]
		done += uint64(len(got))
		x.mu.Lock()
		for _, c := range got {
			x.status[c.Token] = c.Status
		}
		x.came.Broadcast()
		x.mu.Unlock()
	}
}

func (x *numbered) stopped() bool {
	select {
	case <-x.stop:
		return true
	default:
		return false
	}
}

// next waits until the status of the next n messages has come and returns how many of them came back.
func (x *numbered) next(n uint64) (back int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	first := x.sent + 1
	for i := first; i < first+n; {
		if x.t.Failed() {
			return back
		}
		st, known := x.status[i]
		switch {
		case !known:
			x.came.Wait()
			continue
		case st != rds.Success:
			back++
		}
		i++
	}
	return back
}

// TestAnybodyKilled kills a receiver 50 times, and another one binds its port, beside a sender that sends to
// whoever is bound. What is sent while there is a receiver does not come back, also if the sender
// heard nothing of the former one's end. Each message arrives at most once, and not if it came back.
func TestAnybodyKilled(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		for name, there := range map[string]*host{"two hosts": hosts[1], "one host": hosts[0]} {
			t.Run(name, func(t *testing.T) { receiverKilled(t, hosts[0], there) })
		}
	})
}

func receiverKilled(t *testing.T, here, there *host) {
	to := there.at(6000)
	s := here.bind(here.open(), 0)
	if err := s.SetAnybody(true); err != nil {
		t.Fatal(err)
	}
	role, err := json.Marshal(worker{Socket: there.sock, At: to})
	if err != nil {
		t.Fatal(err)
	}
	receiver := func() *process {
		p := startProcess(t, []string{envRole + "=" + roleReceiver + string(role)}, os.Args[0])
		p.saw("bound")
		return p
	}
	x := newNumbered(t, s)
	var all []*process
	p := receiver()
	var sender sync.WaitGroup
	sender.Go(func() { x.run(t.Context(), to) })
	for round := range 50 {
		if back := x.next(100); back > 0 {
			t.Fatalf("round %d: %d of 100 messages came back", round, back)
		}
		silent := round%2 == 0 // else the sender hears that nobody is there
		if silent {
			x.gate.Lock()
		}
		p.Kill()
		all = append(all, p)
		p = receiver()
		if silent {
			x.gate.Unlock()
		}
	}
	x.next(100)
	close(x.stop)
	sender.Wait()
	p.Kill()
	seen := map[uint64]bool{}
	for _, p := range append(all, p) {
		for line := range strings.Lines(p.stdout()) {
			n, err := strconv.ParseUint(strings.TrimSuffix(line, "\n"), 10, 64)
			if err != nil || !strings.HasSuffix(line, "\n") {
				continue // "bound", and what was cut off
			}
			if st, known := x.status[n]; seen[n] || known && st != rds.Success {
				t.Errorf("message %d arrived: before %v, its status is %v", n, seen[n], st)
			}
			seen[n] = true
		}
	}
	if len(seen) < 50*100/2 || uint64(len(x.status)) != x.sent {
		t.Errorf("%d messages sent, %d statuses, %d arrived", x.sent, len(x.status), len(seen))
	}
	t.Logf("%d messages sent, %d arrived", x.sent, len(seen))
}
