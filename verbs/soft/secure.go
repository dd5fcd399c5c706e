package soft

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// secure is the protection of a connection's bytes: TLS 1.3 records. A plain
// connection has none. It belongs to whoever has the descriptor: the goroutine
// that sets the connection up, then the owner. An I/O thread that writes has Out and what
// was sealed meanwhile, one that reads has In.
type secure struct {
	*tls13.Session

	// What was sealed and not written; batch bytes of the pending output are
	// in it. Only when all of it is written, the batch counts as sent.
	sealed []byte // lent by the device while something waits, or a thread writes
	batch  int

	rest   []byte // a part of a record that came last, lent by the device
	closed bool   // close_notify has come, and nothing behind it counts
}

const (
	// sealBatch is what is sealed for one system call: enough to make that
	// cheap, little enough to stay in the cache.
	sealBatch = 8 * tls13.MaxPlain
	// sealRecords is how many records that are at most: full ones, and ahead of each a
	// short one.
	sealRecords = 2 * sealBatch / tls13.MaxPlain
	// sealedMax is that with everything TLS adds.
	sealedMax = sealBatch + sealRecords*tls13.Overhead + tls13.MaxUpdates
	// openMin is the content from which on a record is opened into its place.
	openMin = 4 << 10
	// recordsSize is a burst and what came of a record before.
	recordsSize = tls13.MaxRecord + maxBurst
)

// scratchOf returns the device's memory for records. Its content does not outlive a
// call of flush or receive.
func (d *Device) scratchOf() []byte {
	if d.records == nil {
		d.records = make([]byte, recordsSize)
	}
	return d.records
}

// seal makes records of segs, from byte off on, in b, of at most sealBatch, and returns the
// lengths of both. content is memory for the content of one. A payload of a record or more begins one, so that the peer can
// open it into its place, and no record is shorter because the batch ends. The content is copied, because it has to end in
// a byte for its type, and to memory that stays in the first cache.
func (s *secure) seal(b, content []byte, segs []piece, off int) (sealed, plain int, err error) {
	if s.Out.Due() {
		updates, err := s.Out.AppendUpdates(b[:0])
		if err != nil {
			return 0, 0, err
		}
		sealed = len(updates)
	}
	for len(segs) > 0 && off >= len(segs[0].mem) {
		off -= len(segs[0].mem)
		segs = segs[1:]
	}
	content = content[:tls13.MaxPlain]
	for records := 0; records < sealRecords && plain <= sealBatch-tls13.MaxPlain && len(segs) > 0; records++ {
		n := 0
		for n < len(content) && len(segs) > 0 {
			mem := segs[0].mem
			if n > 0 && off == 0 && len(mem) >= tls13.MaxPlain {
				break
			}
			k := copy(content[n:], mem[off:])
			n += k
			if off += k; off == len(mem) {
				segs, off = segs[1:], 0
			}
		}
		size, err := s.Out.Seal(b[sealed:], content[:n])
		if err != nil {
			return 0, 0, err
		}
		sealed += size
		plain += n
	}
	return sealed, plain, nil
}

// write writes what waits, or else a batch of segs from byte off on. It returns how many bytes the kernel took,
// and how much content is now written with them. content is memory as of seal.
func (s *secure) write(io *scratch, fd int, content []byte, segs []piece, off int) (took, plain int, err error) {
	if len(s.sealed) == 0 {
		n, plain, err := s.seal(s.sealed[:sealedMax], content, segs, off)
		if err != nil {
			return 0, 0, err
		}
		s.sealed, s.batch = s.sealed[:n], plain
	}
	io.set(0, s.sealed)
	took, err = io.sendmsg(fd, 1)
	io.forget(1)
	s.sealed = s.sealed[:copy(s.sealed, s.sealed[took:])]
	if len(s.sealed) == 0 {
		plain, s.batch = s.batch, 0
	}
	return took, plain, err
}

// writeSealed is write for a connection with TLS.
func (q *qp) writeSealed() (int, bool) {
	d, o := q.dev, &q.out
	q.tls.borrow(d)
	took, plain, err := q.tls.write(&d.io, q.fd, d.scratchOf(), o.segs[o.sh:o.st], 0)
	if err != nil {
		q.lost(err)
		return 0, false
	}
	q.wroteSealed(took, 1, plain)
	o.owes -= plain
	return plain, true
}

// wroteSealed notes that calls of the kernel took so many bytes of records, and that so much content is written.
func (q *qp) wroteSealed(took, calls, plain int) {
	d, s := q.dev, q.tls
	if took > 0 {
		d.stats.BytesOut += uint64(took)
		d.stats.CallsOut += uint64(calls)
	}
	if len(s.sealed) > 0 {
		q.interest(q.events | unix.EPOLLOUT)
	} else {
		s.giveBack(d)
	}
	if t := q.tap(); t != nil {
		q.tapOut(t, plain)
	}
	q.out.sent(plain)
}

// borrow takes memory for a batch of records.
func (s *secure) borrow(d *Device) {
	if s.sealed == nil {
		s.sealed = d.lent.getBatch()[:0]
	}
}

func (s *secure) giveBack(d *Device) {
	if s.sealed != nil {
		d.lent.putBatch(s.sealed)
		s.sealed = nil
		d.trimSoon()
	}
}

// receiveSealed is receive for a connection with TLS. It opens all whole records at
// once. Bytes that are not consumed are in the stage as plain bytes, as on any
// connection.
func (q *qp) receiveSealed() bool {
	x, d, s := &q.rx, q.dev, q.tls
	did := false
	q.busy = true
	for budget := maxBurst; budget > 0 && q.state.receives() && q.intake.reads() && !q.held; {
		if s.closed {
			q.ended()
			return true
		}
		if q.follow() {
			return true
		}
		b := d.scratchOf()
		w := copy(b, s.rest)
		room := maxBurst - w
		if x.bulk && q.follows() {
			room = bulkTail // the rest is for a thread
		}
		d.io.set(0, b[w:w+room])
		n, again, err := d.io.recvmsg(q.fd, 1)
		d.io.forget(1)
		if err != nil {
			q.lost(err)
			return true
		}
		if again {
			break
		}
		if n == 0 {
			q.lost(errCutOff)
			return true
		}
		did = true
		q.heard = true
		budget -= n
		d.stats.BytesIn += uint64(n)
		d.stats.CallsIn++
		q.metered(n)
		x.owes -= n
		q.wholeStage()
		left, err := q.open(b[:w+n])
		if !q.state.connected() {
			return true
		}
		if x.r < x.w {
			q.parse()
		}
		if !q.state.connected() {
			return true
		}
		if err != nil {
			q.insecure(err)
			return true
		}
		s.keep(d, left)
		if n < room {
			break
		}
	}
	q.leaveStage()
	return did
}

// open opens the whole records in b, into their place or into the stage, and returns the rest
// of b.
func (q *qp) open(b []byte) ([]byte, error) {
	x, s := &q.rx, q.tls
	for {
		size, err := tls13.RecordLen(b)
		if err != nil || size == 0 || len(b) < size {
			return b, err
		}
		to, ok := q.openTo(size - tls13.Overhead)
		if !ok {
			return b, nil
		}
		n, t := 0, q.tap()
		if to != nil {
			n, err = s.In.OpenPlace(to, b[:size])
			x.left -= n
			x.to.off += uint64(n)
		} else {
			if x.stage == nil {
				q.wholeStage()
			}
			to = x.stage[x.w:]
			n, err = s.In.Open(to, b[:size])
			x.w += n
		}
		if err != nil {
			return b, err
		}
		if t != nil && n > 0 {
			q.saw(t, false, to[:n])
		}
		b = b[size:]
	}
}

// openTo returns where to open a record of at most n bytes: the place of a payload that goes on
// behind them, because the type and the padding of the record land there, too. It returns nil if
// that is the stage, and false if the connection is gone.
func (q *qp) openTo(n int) ([]byte, bool) {
	x := &q.rx
	if n < openMin {
		return nil, true
	}
	if x.r < x.w {
		q.parse() // the payload's header
		if !q.state.connected() {
			return nil, false
		}
	}
	if !x.placing || x.r < x.w || n >= x.left || !q.state.receives() || !q.intake.reads() {
		return nil, true
	}
	ps, ok := q.locate(n + 1)
	if !ok {
		return nil, q.state.connected()
	}
	if len(ps) > 1 || len(ps[0].mem) <= n {
		return nil, true
	}
	return ps[0].mem[: n+1 : n+1], true
}

// keep stores the beginning of a record until the rest comes.
func (s *secure) keep(d *Device, left []byte) {
	if len(left) == 0 {
		if s.rest != nil {
			d.lent.putRest(s.rest)
			s.rest = nil
			d.trimSoon()
		}
		return
	}
	if s.rest == nil {
		s.rest = d.lent.getRest()
	}
	s.rest = s.rest[:cap(s.rest)]
	s.rest = s.rest[:copy(s.rest, left)]
}

// errCutOff: the stream may have been cut by somebody in between.
var errCutOff = fmt.Errorf("TLS: the stream ended without close_notify: %w", io.ErrUnexpectedEOF)

// insecure ends the connection, or the direction of the peer, because of the content
// of a record.
func (q *qp) insecure(err error) {
	var e *tls13.Error
	switch {
	case err == tls13.ErrClosed:
		q.tls.closed = true
		if q.intake.reads() && !q.held { // else behind what waits, see receiveSealed
			q.ended()
		}
	case errors.As(err, &e):
		q.dev.stats.TLSErrors++
		q.fail(&fault{err: fmt.Errorf("soft: connection lost: %w", err), sq: verbs.WCRetryExcErr, alert: e.Alert})
	default:
		q.lost(err)
	}
}

// lastSealed seals the last bytes of a connection: plain, the part of a batch that
// was not written, and an alert, which is close_notify if nothing is wrong. Without
// plain the batch stays as it is, perhaps in the middle of a record.
func (s *secure) lastSealed(plain []byte, alert uint8) []byte {
	if len(s.sealed) > 0 && plain == nil && alert == tls13.AlertCloseNotify {
		return nil
	}
	b := append(make([]byte, 0, len(s.sealed)+len(plain)+256), s.sealed...)
	b, err := s.Out.Append(b, plain)
	if err != nil {
		return nil
	}
	return s.Out.AppendAlert(b, alert)
}

// release gives back borrowed memory.
func (s *secure) release(d *Device) {
	s.giveBack(d)
	s.keep(d, nil)
}

// TLS returns the name of the connection's cipher suite, "" if it is plain or
// there is none. Owner only.
func (q *qp) TLS() string {
	if q.tls == nil {
		return ""
	}
	return q.tls.Suite()
}
