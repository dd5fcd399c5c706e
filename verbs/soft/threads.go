package soft

import (
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/post"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// An I/O thread copies the payload of large frames into the stage, computes their checksums, and
// writes the output, or reads input (see follow.go). The owner makes the headers before and counts what was written behind, and
// touches neither the stage nor the socket's output meanwhile. If no thread is idle, the owner does
// the same at once. So no output waits for a thread that waits for a page of somebody's memory, and
// a thread does that without a lock of the socket. With TLS it seals what it writes, and opens what it reads.
//
// A queue pair fails, and is destroyed, when its thread has let go of it. A region ends at once, and its
// memory may go when Untouched says so.
const (
	asideMin   = directMin // payload of a frame that is worth a thread
	maxThreads = 16
	slowNs     = 1_000_000 // a job that takes longer is slow

	// A thread that begins lateNs after it got its job, or later, had no CPU. Then the owner does without
	// threads for restFor times as long: so it waits for them for a 64th of its time at most.
	lateNs   = 25_000
	mostLate = 1_000_000 // what counts of that
	restFor  = 64
)

// threads is what the owner and the I/O threads share.
type threads struct {
	jobs  []*job // one for each thread. Owner only, as what follows
	idle  []*job
	late  int64  // lateNs
	rests int64  // until when none is used
	spill *spill // see Options; nil: all that they can have
	stats verbs.ThreadStats
	work  chan *job
	wg    sync.WaitGroup
	done  post.Box // how jobs come back
}

// job is output of a queue pair that is being written, or input that is being read. Its thread has that, and
// what the job has of it, from take to takeBack.
type job struct {
	q      *qp
	began  int64
	taken  int64 // by its thread
	slow   bool  // and counted
	fd     int
	crc    bool
	pieces []piece // memory that it touches
	io     scratch
	n      int // bytes that were written, of TLS their content, or read
	calls  int // of the kernel
	err    error
	back   func()      // what the owner is to run then
	enough atomic.Bool // it is to begin nothing more

	frames []frame // to be made whole, of pieces, and written with what io has
	iovs   int
	size   int // bytes that are to be written

	tls     *secure // nil: without TLS
	records []byte  // memory of the thread for records
	content []piece // what is to be sealed
	took    int     // bytes of records that were written

	following // x is nil: it writes
}

// frame is a frame whose payload, in so many pieces, is missing behind the header.
type frame struct {
	f         []byte
	h, pieces int
}

func (d *Device) startThreads(n int) {
	t := d.newThreads(n)
	for range n {
		t.wg.Go(func() {
			for j := range t.work {
				j.do()
				t.done.Add(j.back)
			}
		})
	}
}

// newThreads makes what n threads need.
func (d *Device) newThreads(n int) *threads {
	t := &threads{work: make(chan *job, n), late: lateNs}
	if d.opt.Spill {
		t.spill = &spill{}
	}
	t.done.Wake = func() { ring(d.ctl.fd) }
	for range n {
		j := &job{}
		j.back = func() { d.takeBack(j) }
		t.jobs = append(t.jobs, j)
	}
	t.idle = slices.Clone(t.jobs)
	d.threads = t
	return t
}

// do is what a thread does.
func (j *job) do() {
	j.taken = now()
	if j.x != nil {
		j.read()
		return
	}
	finish(j.frames, j.pieces, j.crc, true)
	if j.tls != nil {
		j.writeSealed()
		return
	}
	j.n, j.err = j.io.sendmsg(j.fd, j.iovs)
	j.calls = 1
}

// writeSealed seals and writes what the kernel takes.
func (j *job) writeSealed() {
	for j.n < j.size && j.err == nil {
		var took, plain int
		took, plain, j.err = j.tls.write(&j.io, j.fd, j.records, j.content, j.n)
		if took > 0 {
			j.calls++
		}
		j.took += took
		j.n += plain
		if len(j.tls.sealed) > 0 {
			return
		}
	}
}

// stop ends the threads. They have no jobs.
func (t *threads) stop() {
	close(t.work)
	t.wg.Wait()
}

// elsewhere reports whether a thread has something of q.
func (q *qp) elsewhere() bool { return q.out.job != nil || q.rx.job != nil }

// await takes jobs back until q has none.
func (q *qp) await() {
	for q.elsewhere() {
		if t := q.dev.threads; !t.done.Run() {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(q.dev.ctl.fd), Events: unix.POLLIN}}, 1)
		}
	}
}

// finish makes frames whole.
func finish(frames []frame, ps []piece, crc, aside bool) {
	for i := range frames {
		f := &frames[i]
		if !aside || !moveAside(unix.SYS_PROCESS_VM_READV, f.f[f.h:], ps[:f.pieces]) {
			gather(f.f[f.h:], ps[:f.pieces])
		}
		iwarp.Seal(f.f, crc)
		ps = ps[f.pieces:]
	}
}

// aside reports whether a frame with payload ps is for a thread, if q lends. Those of memory windows are not: a
// window ends at once.
func aside(ps []piece, n int) bool {
	if n < asideMin {
		return false
	}
	for i := range ps {
		if ps[i].mr.parent != nil {
			return false
		}
	}
	return true
}

// lends reports whether a thread may have what q moves next in a direction.
func (q *qp) lends(s *share) bool {
	t := q.dev.threads
	return t != nil && (q.tls == nil || q.tls.Halves()) && (t.spill == nil || t.spill.lends(s, len(t.jobs)-len(t.idle))) && t.free()
}

// leave leaves the payload of the frame f, whose header has h bytes, to whoever writes it.
func (o *output) leave(f []byte, h int, ps []piece) {
	o.frames = append(o.frames, frame{f, h, len(ps)})
	o.pieces = append(o.pieces, ps...)
	o.bulk = true
}

// fill makes all frames of the output whole that no thread has.
func (q *qp) fill() {
	o := &q.out
	if len(o.frames) > 0 {
		finish(o.frames, o.pieces, q.crc, false)
		o.forget()
	}
}

// fillFrom is fill if one of the frames is to have payload of m.
func (q *qp) fillFrom(m *mr) {
	if slices.ContainsFunc(q.out.pieces, func(p piece) bool { return p.mr == m }) {
		q.fill()
	}
}

// owned reports whether p is memory of a region, not of the stage.
func (p piece) owned() bool { return p.mr != nil }

// forget drops what is known of frames that are not whole.
func (o *output) forget() {
	clear(o.frames)
	clear(o.pieces)
	o.frames, o.pieces = o.frames[:0], o.pieces[:0]
}

// Threads implements verbs.Threaded.
func (d *Device) Threads() (s verbs.ThreadStats) {
	t := d.threads
	if t == nil {
		return s
	}
	if len(t.idle) < len(t.jobs) {
		at := now()
		for _, j := range t.jobs {
			t.time(j, at)
		}
	}
	return t.stats
}

// time counts j if a thread has had it for too long.
func (t *threads) time(j *job, at int64) {
	if j.q != nil && !j.slow && at-j.began > slowNs {
		j.slow = true
		t.stats.Slow++
	}
}

var _ verbs.Threaded = (*Device)(nil)

// writeAside gives the output to a thread. It returns false if that is not worth it or none is idle.
func (q *qp) writeAside() bool {
	o, t := &q.out, q.dev.threads
	if !o.bulk || o.pending < asideMin || !t.free() || slices.ContainsFunc(o.segs[o.sh:o.st], piece.owned) {
		return false
	}
	j := t.take(q)
	j.size, o.lastStaged = o.pending, false // what is added meanwhile is in pieces of its own
	j.frames, o.frames = o.frames, j.frames
	j.pieces, o.pieces = o.pieces, j.pieces
	for i := range j.pieces {
		j.pieces[i].mr.used++
	}
	j.iovs = 0
	if q.tls != nil {
		q.tls.borrow(q.dev)
		j.content = o.segs[o.sh:o.st]
	} else {
		for _, p := range o.segs[o.sh:o.st] {
			j.io.set(j.iovs, p.mem)
			j.iovs++
		}
	}
	o.job, o.owes = j, 1 // until it is back
	t.work <- j          // has room for all threads
	return true
}

// free reports whether a thread is idle and is likely to begin soon.
func (t *threads) free() bool { return len(t.idle) > 0 && (t.rests == 0 || now() >= t.rests) }

// take takes a job of q for an idle thread.
func (t *threads) take(q *qp) *job {
	last := len(t.idle) - 1
	j := t.idle[last]
	t.idle = t.idle[:last]
	j.q, j.began, j.slow, j.fd, j.crc, j.n, j.calls, j.err = q, now(), false, q.fd, q.crc, 0, 0, nil
	j.enough.Store(false)
	j.tls, j.took = q.tls, 0
	if j.tls != nil && j.records == nil {
		j.records = make([]byte, recordsSize)
	}
	return j
}

// takeBack takes back a job from a thread.
func (d *Device) takeBack(j *job) {
	t, q := d.threads, j.q
	t.time(j, now())
	if wait := j.taken - j.began; wait >= t.late {
		t.rests = j.taken + restFor*min(wait, mostLate)
	}
	j.q = nil
	read := j.x != nil
	if read {
		q.rx.lent(t.spill, j.n, len(t.jobs))
	} else {
		q.out.lent(t.spill, j.n, len(t.jobs))
	}
	t.stats.Calls += uint64(j.calls)
	if read {
		q.followed(j)
	} else {
		q.wroteAside(j)
	}
	for i := range j.pieces {
		j.pieces[i].mr.letGo()
	}
	clear(j.frames)
	clear(j.pieces)
	j.frames, j.pieces = j.frames[:0], j.pieces[:0]
	j.io.forget(j.iovs)
	j.x, j.tls, j.content = nil, nil, nil
	t.idle = append(t.idle, j)
	if read {
		q.readOn(j.more)
	}
}

// wroteAside goes on where the thread of j has stopped.
func (q *qp) wroteAside(j *job) {
	q.out.job = nil
	switch {
	case j.tls != nil:
		q.wroteSealed(j.took, j.calls, j.n)
	case j.err == nil:
		q.wrote(j.n, j.size)
	}
	if j.err == nil {
		q.dev.markDirty(q)
	}
	switch {
	case q.state == releasing:
		q.fail(q.fault)
	case j.err != nil:
		q.lost(j.err)
	}
}

// Releasing implements verbs.Releaser.
func (q *qp) Releasing() bool { return q.state == releasing }

var _ verbs.Releaser = (*qp)(nil)

func (m *mr) letGo() {
	if m.used--; m.used > 0 {
		return
	}
	fs := m.untouched
	m.untouched = nil
	for _, f := range fs {
		f()
	}
}

// Untouched implements verbs.Touched.
func (m *mr) Untouched(f func()) {
	if m.used == 0 {
		f()
		return
	}
	m.untouched = append(m.untouched, f)
}

var _ verbs.Touched = (*mr)(nil)
