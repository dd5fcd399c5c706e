package e2e

import (
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/rds"
)

func (p *opPair) settle(c rds.Completion) {
	p.mu.Lock()
	_, twice := p.statuses[c.Token]
	p.statuses[c.Token] = c.Status
	p.mu.Unlock()
	if twice {
		p.fail("operation %d has a second status %v", c.Token, c.Status)
	}
	p.sums[c.Status]++
	for i := range p.slots {
		x := &p.slots[i]
		if x.n != c.Token {
			continue
		}
		x.settled, x.status = true, c.Status
		switch {
		case c.Status == rds.RemoteError && (c.Errno == syscall.EINVAL || c.Errno == syscall.EACCES):
			p.stale++
		case c.Status != rds.Success && c.Status != rds.Dropped && c.Status != rds.Unknown:
			p.fail("operation %d: %+v", x.n, c)
		case c.Status == rds.Success && x.read:
			if err := checkPattern(p.local.Bytes()[i*opSize:][:p.size], readSeed(i)); err != nil {
				p.fail("read %d succeeded, its data: %v", x.n, err)
			}
		}
	}
}

// retire frees slot i when its operation has ended in every respect.
func (p *opPair) retire(i int) {
	x := &p.slots[i]
	if x.n == 0 || !x.settled || !x.passed {
		return
	}
	// The target looks at its memory until it answers, unless it has new memory.
	if x.status == rds.Success && !x.answered && x.epoch == p.epoch.Load() {
		return
	}
	if !x.read {
		if err := checkPattern(p.local.Bytes()[i*opSize:][:p.size], junkSeed(x.n)); err != nil {
			p.fail("memory of operation %d written behind the mark: %v", x.n, err)
		}
	}
	*x = opSlot{}
}

// check compares what the two sides know. No operation may be in progress.
func (p *opPair) check(t *testing.T) {
	t.Helper()
	if err := p.failure(); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, s := range p.statuses {
		if d := p.delivered[n]; s == rds.Success && !d || (s == rds.Dropped || s == rds.RemoteError) && d {
			t.Errorf("operation %d: %v, delivered %v", n, s, d)
		}
	}
	for n := range p.delivered {
		if _, ok := p.statuses[n]; !ok {
			t.Errorf("operation %d was delivered and has no status", n)
		}
	}
	if hwm := p.s.HWM(p.to.Addr()); hwm != p.last {
		t.Errorf("mark %d, %d issued", hwm, p.last)
	}
}

// onlySuccess checks that nothing was dropped.
func (p *opPair) onlySuccess(t *testing.T) {
	t.Helper()
	if len(p.sums) != 1 || p.sums[rds.Success] == 0 {
		t.Errorf("statuses %v", p.sums)
	}
}
