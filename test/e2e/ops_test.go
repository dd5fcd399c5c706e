package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// An opPair runs operations from one socket on memory of another and checks their rules. If the
// message is delivered, the data is there. If it is not, the status is not SUCCESS. Each
// operation has one status. The high-water mark only rises, and the buffers of operations that
// it has passed belong to the caller, which overwrites them at once.
//
// The remote memory has a half for writes and a half for reads. The immediate data says which
// operation it belongs to. The target answers each one, and only then is the operation's slot
// used again.
const (
	opSlots = 8
	opSize  = 48 << 10
	opMsg   = 16  // bytes of immediate data and of an answer: number, slot
	opReady = 255 // as a slot: the number is the cookie of new memory
)

type opPair struct {
	t  *testing.T
	to addrPort // the target's socket

	// Of the initiator.
	c     *rds.Client
	s     *rds.Socket
	local *rds.Buffer
	slots [opSlots]opSlot
	last  uint64 // highest barrier id issued
	mark  uint64 // high-water mark when last seen
	sums  map[rds.Status]int
	stale int // how many were refused for a key of a dead instance

	cookie uint64        // of the target's memory, 0 = not known yet
	epoch  atomic.Uint64 // how many memories the target has had
	size   int           // bytes of one operation, at most opSize
	pace   time.Duration // between two looks

	mu        sync.Mutex
	delivered map[uint64]bool       // by number; guarded by mu
	statuses  map[uint64]rds.Status // by number; guarded by mu
	lastIn    uint64                // guarded by mu
	wrong     []error               // guarded by mu
}

// opSlot is a piece of local memory.
type opSlot struct {
	n        uint64 // number of its operation, 0 = none
	id       uint64 // barrier id
	read     bool
	settled  bool
	status   rds.Status
	passed   bool // the mark has passed it
	answered bool
	epoch    uint64
}

func newOpPair(t *testing.T, c *rds.Client, s *rds.Socket, to addrPort) *opPair {
	t.Helper()
	local, err := c.Alloc(opSlots * opSize)
	if err != nil {
		t.Fatal(err)
	}
	return &opPair{t: t, to: to, c: c, s: s, local: local, size: opSize,
		sums: map[rds.Status]int{}, delivered: map[uint64]bool{}, statuses: map[uint64]rds.Status{}}
}

func (p *opPair) fail(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wrong) < 10 {
		p.wrong = append(p.wrong, fmt.Errorf(format, args...))
	}
}

func (p *opPair) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.wrong...)
}

// readSeed is the pattern of a slot in the target's half for reads.
func readSeed(slot int) uint64 { return 1<<40 + uint64(slot) }

// junkSeed is the pattern that overwrites the buffer of operation n.
func junkSeed(n uint64) uint64 { return 1<<50 + n }

// serve makes s the target. It registers memory, tells the initiator, and answers operations
// until s ends. It returns the error that ended s.
func (p *opPair) serve(c *rds.Client, s *rds.Socket) error {
	buf, err := c.Alloc(2 * opSlots * opSize)
	if err != nil {
		return err
	}
	mem := buf.Bytes()
	for i := range opSlots {
		fillPattern(mem[(opSlots+i)*opSize:][:p.size], readSeed(i))
	}
	reg, err := s.Register(buf, 0, len(mem), rds.AllowRead|rds.AllowWrite)
	if err != nil {
		return err
	}
	if err := reg.Expose(context.Background(), p.s.LocalAddrPort()); err != nil {
		return err
	}
	p.epoch.Add(1)
	// The message follows the grant, so its receiver has the grant.
	msg := make([]byte, opMsg)
	binary.LittleEndian.PutUint64(msg, uint64(reg.Cookie()))
	msg[8] = opReady
	if _, err := s.SendTo(msg, p.s.LocalAddrPort()); err != nil {
		return err
	}
	for {
		n, from, err := s.RecvFrom(msg)
		if err != nil {
			return err
		}
		if n != opMsg || from != p.s.LocalAddrPort() {
			p.fail("target: %d bytes from %v", n, from)
			continue
		}
		number, slot := binary.LittleEndian.Uint64(msg), int(msg[8])
		if msg[9] == 0 {
			if err := checkPattern(mem[slot*opSize:][:p.size], number); err != nil {
				p.fail("operation %d was delivered, its data not: %v", number, err)
			}
		}
		p.mu.Lock()
		if p.delivered[number] || number < p.lastIn {
			p.wrong = append(p.wrong, fmt.Errorf("operation %d delivered after %d: twice or out of order", number, p.lastIn))
		}
		p.delivered[number] = true
		p.lastIn = number
		p.mu.Unlock()
		// If the daemon has died, the messages that it delivered are still read.
		if _, err := s.SendTo(msg, from); err != nil && !errors.Is(err, rds.ErrDaemonGone) {
			return err
		}
	}
}

// run issues operations until stop is closed. It returns when all of them have ended.
func (p *opPair) run(stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel() // wakes Wait
		case <-ctx.Done():
		}
	}()
	var number uint64
	deadline := time.Time{}
	for {
		time.Sleep(p.pace)
		p.look()
		busy := 0
		for i := range p.slots {
			p.retire(i)
			if p.slots[i].n == 0 && ctx.Err() == nil && p.cookie != 0 {
				if err := p.issue(i, number+1); err == nil {
					number++
				} else if !errors.Is(err, rds.ErrWouldBlock) && !errors.Is(err, rds.ErrCongested) {
					return err
				}
			}
			if p.slots[i].n != 0 {
				busy++
			}
		}
		if err := p.failure(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			if busy == 0 {
				return nil
			}
			if deadline.IsZero() {
				deadline = time.Now().Add(patience)
			} else if time.Now().After(deadline) {
				return fmt.Errorf("operations do not end: %+v, mark %d of %d", p.slots, p.mark, p.last)
			}
		}
		// A short time, because no condition of Wait says that the target is back.
		w, cancelWait := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, err := p.s.Wait(w, rds.WaitSet{Message: true, Completion: true})
		cancelWait()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// issue starts an operation in slot i.
func (p *opPair) issue(i int, n uint64) error {
	x := &p.slots[i]
	*x = opSlot{n: n, read: n%3 == 0, epoch: p.epoch.Load()}
	mem := p.local.Bytes()[i*opSize:][:p.size]
	op := &rds.RDMA{Write: true, Cookie: rds.Cookie(p.cookie), RemoteOff: uint64(i) * opSize,
		Local: []rds.Segment{{Buf: p.local, Off: i * opSize, Len: p.size}}, Token: n, Notify: true}
	if x.read {
		op.Write = false
		op.RemoteOff += opSlots * opSize
		clear(mem)
	} else {
		fillPattern(mem, n)
	}
	msg := make([]byte, opMsg)
	binary.LittleEndian.PutUint64(msg, n)
	msg[8] = byte(i)
	if x.read {
		msg[9] = 1
	}
	id, err := p.s.Send(rds.DontWait, &rds.Message{Payload: msg, Addr: p.to, Op: op})
	if err != nil {
		*x = opSlot{}
		return err
	}
	if id != p.last+1 {
		p.fail("operation id %d after %d", id, p.last)
	}
	x.id, p.last = id, id
	return nil
}

// look takes statuses, answers and the mark.
func (p *opPair) look() {
	// The mark comes first: a status that is known by then is queued before the mark rises.
	mark := p.s.HWM(p.to.Addr())
	if mark < p.mark || mark > p.last {
		p.fail("mark went from %d to %d, %d issued", p.mark, mark, p.last)
	}
	p.mark = mark
	var cs [2 * opSlots]rds.Completion
	for _, c := range cs[:p.s.Completions(cs[:])] {
		p.settle(c)
	}
	msg := make([]byte, opMsg)
	for {
		m := rds.Received{Payload: msg}
		if err := p.s.Recv(rds.DontWait, &m); err != nil {
			break
		}
		n := binary.LittleEndian.Uint64(msg)
		if msg[8] == opReady {
			p.cookie = n
			continue
		}
		if x := &p.slots[msg[8]%opSlots]; x.n == n {
			x.answered = true
		}
	}
	for i := range p.slots {
		if x := &p.slots[i]; x.n != 0 && !x.passed && mark >= x.id {
			x.passed = true
			// The buffer is ours again. What is written here must stay, and nobody may read it.
			if !x.read {
				fillPattern(p.local.Bytes()[i*opSize:][:p.size], junkSeed(x.n))
			}
		}
	}
}

func TestOperations(t *testing.T) {
	for _, tc := range []struct {
		name string
		same bool
		args []string
	}{{"network", false, nil}, {"crc", false, []string{"-crc", "on"}}, {"threads", false, []string{"-crc", "on", "-io-threads", "2"}}, {"host", true, nil}} {
		t.Run(tc.name, func(t *testing.T) {
			isolated(t, func(t *testing.T) {
				hosts := newHosts(t, 2, withArgs(tc.args...))
				if tc.same {
					hosts[0] = hosts[1]
				}
				l := startLoad(t, hosts[0], hosts[1], 20000)
				l.progress(2000)
				l.finish()
				l.ops.onlySuccess(t)
				l.audit.all(t, l.socks[0], l.socks[1])
				neverReset(t, hosts...)
			})
		})
	}
}

// TestResets resets the connection again and again, from either side.
func TestResets(t *testing.T) {
	for _, crc := range []string{"off", "on"} {
		t.Run("crc "+crc, func(t *testing.T) {
			isolated(t, func(t *testing.T) {
				hosts := newHosts(t, 2, withArgs("-crc", crc))
				l := startLoad(t, hosts[0], hosts[1], 20000)
				rounds := 25
				if long {
					rounds = 1000
				}
				for i := range rounds {
					l.progress(uint64(i % 7 * 30))
					if err := hosts[i%2].reset(hosts[1-i%2]); err != nil {
						t.Error(err)
					}
				}
				l.progress(100)
				l.finish()
				if l.ops.sums[rds.Unknown] > 0 || l.ops.stale > 0 {
					t.Errorf("no instance changed, but the statuses are %v, %d stale", l.ops.sums, l.ops.stale)
				}
				l.audit.all(t, l.socks[0], l.socks[1])
				if p := hosts[0].peer(hosts[1]); p.Resets < uint64(rounds)/2 {
					t.Errorf("%d resets for %d rounds", p.Resets, rounds)
				} else {
					t.Logf("%d resets, %d retransmitted, operations %v", p.Resets, p.Retransmitted, l.ops.sums)
				}
			})
		})
	}
}
