package rds

import "github.com/rdsd/rdsd/internal/shm"

// Message ids and send memory are common to all sockets of a process. A
// destination that takes nothing keeps what its messages have, so each has its
// share, which is less the less is free: many that are stuck leave something to
// the others. A destination beyond its share is congested until it holds three
// quarters of it.

const (
	// idShare is the part of the free message ids that one destination may hold:
	// an eighth. Of 16384 twenty stuck destinations leave 1500 free.
	idShare = 8
	// memShare is the part of the free send memory that one destination may hold:
	// a quarter. It matters when a window's worth and less is free and the daemon
	// gives no more.
	memShare = 4
)

// freeMem returns how many bytes of send memory are free.
func (t *tx) freeMem() int { return t.arena.Windows()*shm.WindowSize - t.arena.InUse() }

// overShare reports whether a destination that holds holds has its share: one
// part-th of free, what is free.
func overShare(holds, part, free int) bool {
	return holds > 0 && part*holds >= free
}

// idsOver reports that d holds its share of message ids.
func (t *tx) idsOver(d *dest) bool { return overShare(d.pending, idShare, len(t.free)) }

// memOver reports that d holds its share of send memory, and that send memory is
// scarce.
func (t *tx) memOver(d *dest) bool {
	free := t.freeMem()
	return free < shm.WindowSize && overShare(d.mem, memShare, free)
}

// refuse notes that d was refused for holding its share.
func (t *tx) refuse(d *dest) error {
	if !d.over {
		d.over = true
		t.over = append(t.over, d)
	}
	return ErrCongested
}

// relieveShares announces the relief of the destinations that hold less than their
// share again.
func (t *tx) relieveShares() {
	free, mem := len(t.free), t.freeMem()
	scarce := t.full && mem < shm.WindowSize
	kept := t.over[:0]
	for _, d := range t.over {
		if 4*idShare*d.pending > 3*free || scarce && 4*memShare*d.mem > 3*mem {
			kept = append(kept, d)
			continue
		}
		d.over = false
		t.relieve(d)
	}
	clear(t.over[len(kept):])
	t.over = kept
}

// relieve wakes those who wait for the relief of d.
func (t *tx) relieve(d *dest) {
	if d.sock.congMon.Load() {
		t.c.rx.mu.Lock()
		d.sock.relieved(d.to)
		t.c.rx.mu.Unlock()
	}
	d.sock.notifyAll(wantRelief)
}
