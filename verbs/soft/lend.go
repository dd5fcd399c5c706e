package soft

import "github.com/rdsd/rdsd/verbs/soft/tls13"

// Memory for moving data belongs to the device and is lent to the queue pairs
// that move some: stages and the lists of pending pieces. Queues grow with use.
// What was not used for a while, up to two trimNs, is given up. So an idle
// queue pair costs little, however busy it was and however many there are.

const (
	trimNs     = 1_000_000_000
	firstWaits = 4 // READs and atomics, either way, that a queue pair has memory for at first
)

// lending is memory that is free to be lent to queue pairs.
type lending struct {
	small, large freeList[[]byte]
	segs         freeList[[]piece]
	rests        freeList[[]byte] // of TLS: the beginnings of records
	batches      freeList[[]byte] // and what was sealed and not taken
}

// freeList is a stack, of which least elements were not used since the last
// trim.
type freeList[T any] struct {
	free  []T
	least int
}

func (f *freeList[T]) get() (x T, ok bool) {
	n := len(f.free) - 1
	if n < 0 {
		return x, false
	}
	x, f.free[n] = f.free[n], x
	f.free = f.free[:n]
	f.least = min(f.least, n)
	return x, true
}

func (f *freeList[T]) put(x T) { f.free = append(f.free, x) }

// trim drops what was not used, which is at the bottom.
func (f *freeList[T]) trim() {
	n := copy(f.free, f.free[f.least:])
	clear(f.free[n:])
	f.free = f.free[:n]
	if n == 0 {
		f.free = nil
	}
	f.least = n
}

// getStage returns smallStage or stageSize bytes.
func (l *lending) getStage(size int) []byte {
	list := &l.large
	if size == smallStage {
		list = &l.small
	}
	if s, ok := list.get(); ok {
		return s
	}
	return make([]byte, size)
}

func (l *lending) putStage(s []byte) {
	switch len(s) {
	case smallStage:
		l.small.put(s)
	case stageSize:
		l.large.put(s)
	} // others are from trim
}

func (l *lending) getRest() []byte {
	if b, ok := l.rests.get(); ok {
		return b
	}
	return make([]byte, tls13.MaxRecord)
}

func (l *lending) putRest(b []byte) { l.rests.put(b[:tls13.MaxRecord]) }

func (l *lending) getBatch() []byte {
	if b, ok := l.batches.get(); ok {
		return b
	}
	return make([]byte, sealedMax)
}

func (l *lending) putBatch(b []byte) { l.batches.put(b[:sealedMax]) }

func (l *lending) getSegs() []piece {
	if s, ok := l.segs.get(); ok {
		return s
	}
	return make([]piece, maxSegs)
}

func (l *lending) putSegs(s []piece) { l.segs.put(s) }

// trimLater notes that q has more memory than an idle queue pair needs.
func (q *qp) trimLater() {
	if !q.on.grown.On() {
		q.dev.grown.Add(&q.on.grown, q)
		q.dev.trimSoon()
	}
}

// trimSoon sets the time for trim, if it is not set.
func (d *Device) trimSoon() {
	if d.trimAt != 0 || d.closed {
		return
	}
	d.trimAt = now() + trimNs
	if d.nextTimer == 0 || d.trimAt < d.nextTimer {
		d.setTimer(d.trimAt)
	}
}

// trim gives up memory that was not used since the last trim.
func (d *Device) trim() {
	d.lent.small.trim()
	d.lent.large.trim()
	d.lent.segs.trim()
	d.lent.rests.trim()
	d.lent.batches.trim()
	for at := d.grown.Head; at != nil; {
		q, next := at.Of, at.Next
		if q.state == destroyed || q.trim() {
			d.grown.Del(at)
		}
		at = next
	}
}

// trimmed reports whether nothing is left to trim.
func (d *Device) trimmed() bool {
	return d.grown.N+len(d.lent.small.free)+len(d.lent.large.free)+len(d.lent.segs.free)+len(d.lent.rests.free)+len(d.lent.batches.free) == 0
}

// trim gives up the memory that q does not need while it is idle. It returns false
// if q is not idle.
func (q *qp) trim() bool {
	if q.busy || q.rx.job != nil {
		q.busy = false
		return false
	}
	x := &q.rx
	if len(x.stage) == stageSize { // the peer has stopped in the middle of a frame
		q.keepRest(make([]byte, x.w-x.r))
	}
	s := &q.sq
	if s.free != s.tail || !s.waits.empty() || !q.serve.empty() {
		return false
	}
	if len(s.w) > firstWRs {
		s.shrink()
		if !x.placing {
			x.to = target{} // it may know an SGL
		}
	}
	if q.out.pending == 0 {
		q.out.frames, q.out.pieces = nil, nil
	}
	if len(s.waits.w) > firstWaits {
		s.waits.w = nil
	}
	if len(q.serve.r) > firstWaits {
		q.serve.r = nil
	}
	return true
}
