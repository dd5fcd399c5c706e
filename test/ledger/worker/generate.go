package worker

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/test/ledger/book"
)

// generate sends until the traffic is to end. It sends bursts to one destination each, with and
// without operations.
func (k *sock) generate() {
	mix, rng := k.w.cfg.Mix, k.rng
	share := mix.Ops
	if rng.IntN(3) == 0 {
		share = 0 // a third of the sockets: of these, every message without operations is counted exactly
	}
	for k.ses.running() && !k.closing.Load() {
		to := k.w.cfg.Known[rng.IntN(len(k.w.cfg.Known))]
		if rng.Uint32N(1024) < mix.Nobody {
			to = netip.AddrPortFrom(to.Addr(), nobody)
		}
		var err error
		for range 1 + rng.IntN(24) {
			if rng.Uint32N(1024) < share {
				err = k.operate()
			} else {
				err = k.plain(to)
			}
			if err != nil {
				break
			}
		}
		if rng.Uint32N(1024) < mix.Cancels {
			if k.target.IsValid() && rng.IntN(2) == 0 {
				to = k.target
			}
			k.cancel(to)
		}
		if err != nil && !errors.Is(err, rds.ErrWouldBlock) && !errors.Is(err, rds.ErrCongested) {
			k.ses.rest(time.Millisecond)
		}
		k.ses.rest(time.Duration(rng.Int64N(2 * int64(k.pace()))))
	}
}

// crowdPace is how many times longer a socket of a crowd rests.
const crowdPace = 30

// pace is the mean time between two bursts.
func (k *sock) pace() time.Duration {
	if k.crowd {
		return crowdPace * k.w.cfg.Mix.Pace
	}
	return k.w.cfg.Mix.Pace
}

// nobody is a port that no process binds.
const nobody = 9

func (k *sock) cancel(to netip.AddrPort) {
	k.send.Lock()
	defer k.send.Unlock()
	k.note(book.Record{Kind: book.Cancel, Peer: to})
	if err := k.s.CancelSentTo(to); err != nil {
		k.failed("cancel", err)
	}
}

// pick chooses memory that the socket may use, or with bad a sibling's memory, for which it must
// be refused. It reserves a part of n bytes.
func (k *sock) pick(bad bool) (o offer, ok bool) {
	now := time.Now()
	if bad && k.rng.IntN(3) == 0 {
		k.w.mu.Lock()
		defer k.w.mu.Unlock()
		for life, all := range k.w.offered {
			if life != k.life && len(all) > 0 {
				return all[len(all)-1], true
			}
		}
		return o, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.offers) > 0 {
		i := k.rng.IntN(len(k.offers))
		if o = k.offers[i]; o.until.After(now) && o.off < o.end {
			return o, true
		}
		k.offers = append(k.offers[:i], k.offers[i+1:]...)
	}
	return o, false
}

// used ends the use of a part of an offer, or of the whole offer.
func (k *sock) used(region uint64, n uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.offers {
		if o := &k.offers[i]; o.region == region {
			o.off += n
			return
		}
	}
}

// operate sends a message with one or two operations.
func (k *sock) operate() error {
	rng := k.rng
	bad := rng.Uint32N(1024) < k.w.cfg.Mix.Bad
	o, ok := k.pick(bad)
	if !ok {
		return k.plain(k.w.cfg.Known[rng.IntN(len(k.w.cfg.Known))])
	}
	k.target = o.to
	c := call{k: k, o: o, m: rds.Message{Addr: o.to}, silent: rng.IntN(16) == 0}
	c.flags = book.FlagOp | k.limit(&c.m)
	add := o.rights&rds.AllowAtomic != 0 && (o.rights&rds.AllowWrite == 0 || rng.IntN(3) == 0)
	move := !add || o.rights&rds.AllowWrite != 0 && rng.IntN(2) == 0
	if move && !c.move(o.rights&rds.AllowRead != 0, bad) {
		return rds.ErrWouldBlock
	}
	if add && !c.add() {
		c.undo()
		return rds.ErrWouldBlock
	}
	return c.send()
}

// call is a message with operations that is being made.
type call struct {
	k      *sock
	o      offer
	m      rds.Message
	op     rds.RDMA
	atomic rds.Atomic
	silent bool
	flags  uint32
}

// move adds a write or a read. A bad one ends one byte beyond the region, or does something for
// which it has no right.
func (c *call) move(read, bad bool) bool {
	k, o := c.k, c.o
	n := k.size(1)
	if o.size > blockSize && k.local.largest == longest && k.rng.IntN(4) > 0 {
		n = blockSize + k.rng.IntN(longest-blockSize)
	}
	if !read {
		n = min(n, int(o.end-o.off))
	}
	n = min(n, int(o.size))
	seg, before, ok := k.local.take(n)
	if !ok {
		return false
	}
	if before != 0 {
		k.note(book.Record{Kind: book.Touched, Seq: before})
	}
	off := o.off
	if read {
		off = k.rng.Uint32N(o.size - uint32(n) + 1)
	}
	if bad {
		switch k.rng.IntN(3) {
		case 0, 1:
			off = o.size - uint32(n) + 1
		default:
			read = !read
		}
	}
	c.op = rds.RDMA{Write: true, Cookie: o.cookie, RemoteOff: uint64(off), Local: []rds.Segment{seg}, Notify: true, Silent: c.silent}
	if read {
		c.op.Write = false
	}
	if !read && !bad {
		k.used(o.region, uint32(n))
	}
	c.m.Op = &c.op
	return true
}

// add adds an atomic: it adds to the region's first word, or compares and swaps the second.
func (c *call) add() bool {
	seg, before, ok := c.k.local.take(0)
	if !ok {
		return false
	}
	if before != 0 {
		c.k.note(book.Record{Kind: book.Touched, Seq: before, C: 1})
	}
	c.atomic = rds.Atomic{Cookie: c.o.cookie, Add: 1, Local: seg, Notify: true, Silent: c.silent}
	if c.k.rng.IntN(2) == 0 {
		c.atomic.CmpSwap, c.atomic.Add = true, 0
		c.atomic.RemoteOff, c.atomic.Compare = swapWord, c.k.local.expects(c.o.region)
	}
	c.m.Atomic = &c.atomic
	return true
}

func (c *call) undo() {
	if c.m.Op != nil {
		c.k.local.give(c.op.Local[0])
	}
	if c.m.Atomic != nil {
		c.k.local.give(c.atomic.Local)
	}
}

// send logs the operations, sends the message, and notes which operations use its local memory.
func (c *call) send() error {
	k := c.k
	flags, size := c.flags, k.size(writeSize)
	if c.silent {
		flags, size = flags|book.FlagSilent, 0
	} else if size > 4096 {
		size = writeSize
	}
	k.send.Lock()
	defer k.send.Unlock()
	seq := k.send.seq + 1
	c.describe(seq)
	c.op.Token, c.atomic.Token = seq<<1, seq<<1|1
	var more func([]byte, uint64)
	if !c.silent {
		more = func(b []byte, _ uint64) {
			x := written{region: c.o.region} // a read or an atomic: the receiver has nothing to look at
			if c.m.Op != nil && c.op.Write {
				x.off, x.len = uint32(c.op.RemoteOff), uint32(c.op.Local[0].Len)
			}
			x.put(b[headerSize:])
		}
	}
	if err := k.postLocked(rds.DontWait, &c.m, size, flags, 0, more); err != nil {
		c.undo()
		return err
	}
	host := c.o.to.Addr()
	if c.m.Op != nil {
		k.local.sent(host, use{seq: seq, id: c.m.OpID, seg: c.op.Local[0], read: !c.op.Write})
	}
	if c.m.Atomic != nil {
		u := use{seq: seq, id: c.m.AtomicID, seg: c.atomic.Local, word: true}
		if c.atomic.CmpSwap {
			u.swap = &swap{c.o.region, c.atomic.Compare, c.atomic.Swap}
		}
		k.local.sent(host, u)
	}
	return nil
}

// describe logs the operations of message seq, and fills the local memory of a write.
func (c *call) describe(seq uint64) {
	k := c.k
	if c.m.Op != nil {
		seg := c.op.Local[0]
		r := book.Record{Kind: book.Op, Seq: seq, Peer: c.m.Addr, A: c.o.region, B: c.op.RemoteOff<<32 | uint64(seg.Len), Text: "read"}
		if c.op.Write {
			copy(k.local.bytes(seg), k.w.content(k.life, seq, seg.Len))
			r.Text = "write"
		} else if end := int(c.op.RemoteOff) + seg.Len; end <= longest {
			r.C = uint64(checksum(k.w.content(uint32(c.o.region), c.o.region>>32, end)[c.op.RemoteOff:]))
		}
		k.note(r)
	}
	if c.m.Atomic != nil {
		r := book.Record{Kind: book.Op, Seq: seq, Peer: c.m.Addr, A: c.o.region, B: 8, Text: "add"}
		if c.atomic.CmpSwap {
			c.atomic.Swap = book.SwapValue(k.life, seq)
			r.B, r.C, r.Text = swapWord<<32|8, c.atomic.Compare, "swap"
		}
		k.note(r)
	}
}

// looks is after which time the socket looks at its marks even if nothing has come.
func (k *sock) looks() time.Duration {
	if k.crowd {
		return 200 * time.Millisecond
	}
	return 20 * time.Millisecond
}

// keep takes what the socket is notified of, as soon as it is.
func (k *sock) keep() {
	for {
		ctx, cancel := context.WithTimeout(k.ses.ctx, k.looks())
		_, err := k.s.Wait(ctx, rds.WaitSet{Completion: true, Notice: true, ZeroCopy: true, Op: k.local.next()})
		cancel()
		ended := err != nil && !errors.Is(err, context.DeadlineExceeded)
		k.marks()
		k.told()
		if ended {
			if !errors.Is(err, context.Canceled) {
				k.failed("wait", err)
			}
			return
		}
	}
}

// marks looks at the marks. A socket that is being closed has none.
func (k *sock) marks() {
	for _, host := range k.local.hosts() {
		value := k.s.HWM(host)
		if k.closing.Load() {
			return
		}
		k.local.passed(host, value, k.note)
	}
}

// told takes statuses, notices and cookies. It takes the cookies first and logs them last, so
// that notices of the same messages are logged before.
func (k *sock) told() {
	var cs [64]rds.Completion
	for n := k.s.Completions(cs[:]); n > 0; n = k.s.Completions(cs[:]) {
		for _, c := range cs[:n] {
			k.note(book.Record{Kind: book.Status, Seq: c.Token >> 1, A: c.ID, B: uint64(c.Errno), C: c.Token & 1,
				Peer: netip.AddrPortFrom(c.To, 0), Text: c.Status.Error()})
			k.local.settled()
		}
	}
	var zs [64]uint32
	for more := true; more; {
		back := zs[:k.s.ZeroCopyDone(zs[:])]
		var ns [64]rds.Notice
		for n := k.s.Notices(ns[:]); n > 0; n = k.s.Notices(ns[:]) {
			for _, x := range ns[:n] {
				k.note(book.Record{Kind: book.Notice, Peer: x.To, A: x.Count, B: uint64(x.Reason), Text: x.Kind.Error()})
			}
		}
		for _, z := range back {
			k.note(book.Record{Kind: book.Acked, Seq: uint64(z)})
			k.local.back(z)
		}
		more = len(back) == len(zs)
	}
}
