package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/test/ledger/book"
)

// sock is one socket from Bind to Close.
type sock struct {
	ses   *session
	w     *Worker
	s     *rds.Socket
	life  uint32
	addr  netip.AddrPort
	crowd bool       // one of many in its process: it does less
	rng   *rand.Rand // of the sender

	target netip.AddrPort // of the last operation; used by the sender only

	closing atomic.Bool
	users   sync.WaitGroup // its reader, keeper and sender, which use its local memory

	send struct {
		sync.Mutex
		seq uint64 // of the last message
		out []byte
	}
	local   *local
	mu      sync.Mutex
	regions map[uint64]*region     // own; guarded by mu
	offers  []offer                // offers of others; guarded by mu
	seen    map[netip.AddrPort]who // guarded by mu
}

var lastRegion atomic.Uint64

// bind binds a socket and logs that. start lets it work. Only one socket is bound at a time.
func (s *session) bind(p Port, crowd bool) (*sock, error) {
	life := book.LifeOf(s.w.cfg.Process, s.w.lives+1)
	s.w.log.Write(book.Record{Kind: book.Binding, Life: life, Peer: p.At})
	x, err := s.c.Bind(p.At)
	if err != nil {
		s.w.log.Write(book.Record{Kind: book.Unbound, Life: life})
		return nil, err
	}
	s.w.lives++
	n := s.w.lives
	k := &sock{ses: s, w: s.w, s: x, life: life, addr: x.LocalAddrPort(), crowd: crowd, rng: s.w.rand(n),
		regions: map[uint64]*region{}, seen: map[netip.AddrPort]who{}}
	s.w.log.Write(book.Record{Kind: book.Bind, Life: k.life, Peer: k.addr, A: uint64(p.Lane)})
	k.send.out = make([]byte, rds.MaxMessage)
	if p.Lane != 0 {
		err = x.SetLane(p.Lane)
	}
	if err == nil {
		err = x.SetSndBuf(2 << 20)
	}
	if err == nil && k.rng.Uint32N(1024) < s.w.cfg.Mix.Small {
		err = x.SetRcvBuf(1 << (8 + k.rng.IntN(9)))
	}
	if err == nil {
		k.local, err = newLocal(s.c, k.sizes())
	}
	if err != nil {
		k.failed("set up", err)
		_ = x.Close()
		k.note(book.Record{Kind: book.Close})
		k.note(book.Record{Kind: book.Closed})
		return nil, err
	}
	s.mu.Lock()
	s.socks = append(s.socks, k)
	s.mu.Unlock()
	return k, nil
}

func (k *sock) start() {
	k.users.Add(3)
	k.ses.all.Go(func() { defer k.users.Done(); k.read() })
	k.ses.all.Go(func() { defer k.users.Done(); k.keep() })
	k.ses.traffic.Go(func() { defer k.users.Done(); k.generate() })
	owners := 2
	if k.crowd {
		owners = 1
	}
	for i := range owners {
		k.ses.traffic.Go(func() { k.own(k.w.rand(int(k.life) + (i+1)<<24)) })
	}
}

// note logs what the socket did or was notified of.
func (k *sock) note(r book.Record) {
	r.Life = k.life
	k.w.log.Write(r)
}

// failed judges an error of a call. The error must be due to an end, or to a lack of room. In a
// steady campaign no daemon and no session ends.
func (k *sock) failed(what string, err error) {
	allowed := []error{rds.ErrClosed, rds.ErrWouldBlock, rds.ErrCongested, os.ErrDeadlineExceeded, context.Canceled}
	if !k.w.cfg.Mix.Steady {
		allowed = append(allowed, rds.ErrDaemonGone, rds.ErrSession)
	}
	for _, allowed := range allowed {
		if errors.Is(err, allowed) {
			return
		}
	}
	k.note(book.Record{Kind: book.Wrong, Text: fmt.Sprintf("%s: %v", what, err)})
}

// close closes the socket, at once or when everything is acknowledged. It waits in the
// background for operations that still use memory of the socket.
func (k *sock) close(linger time.Duration) {
	if k.closing.Swap(true) {
		return
	}
	r := book.Record{Kind: book.Close}
	if linger > 0 {
		r.A = 1
	}
	k.note(r)
	var err error
	if linger > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), linger)
		err = k.s.CloseWait(ctx)
		var kind rds.NoticeKind
		var status rds.Status
		if errors.As(err, &kind) || errors.As(err, &status) {
			err = nil // the book has them
		}
		cancel()
	} else {
		err = k.s.Close()
	}
	r = book.Record{Kind: book.Closed}
	if err != nil {
		r.Text = err.Error()
	}
	k.note(r)
	k.ses.all.Go(func() {
		k.users.Wait()
		k.told() // notices until the close
		k.free("local memory", k.local.buf)
	})
	k.ses.mu.Lock()
	defer k.ses.mu.Unlock()
	for i, o := range k.ses.socks {
		if o == k {
			k.ses.socks = append(k.ses.socks[:i], k.ses.socks[i+1:]...)
			break
		}
	}
	k.w.mu.Lock()
	delete(k.w.offered, k.life)
	k.w.mu.Unlock()
}

// freeTime is how long operations may use the memory of a closed socket or an ended region.
const freeTime = 30 * time.Second

// free frees a buffer as soon as nothing uses it.
func (k *sock) free(what string, b *rds.Buffer) {
	ctx, cancel := context.WithTimeout(context.Background(), freeTime)
	defer cancel()
	if err := b.FreeWait(ctx); err != nil && k.ses.c.Err() == nil {
		k.failed("free "+what, err)
	}
}

// post sends a message, and logs the attempt and its end. It fills the payload of size bytes: a
// header if there is room, then what more fills in. With FlagRoll it waits for a long time if it
// has to, otherwise not at all.
func (k *sock) post(m *rds.Message, size int, flags uint32, more func(b []byte, seq uint64)) error {
	k.send.Lock()
	defer k.send.Unlock()
	ctx := rds.DontWait
	if flags&book.FlagRoll != 0 {
		ctx = context.Background()
	}
	return k.postLocked(ctx, m, size, flags, 0, more)
}

// postLocked is post while send is locked. The payload of a message with m.From is made in
// place. meant is the life that m.DstInc names.
func (k *sock) postLocked(ctx context.Context, m *rds.Message, size int, flags, meant uint32, more func(b []byte, seq uint64)) error {
	k.send.seq++
	seq := k.send.seq
	b := k.send.out[:size]
	if m.From.Len > 0 {
		b = k.local.bytes(m.From)
	}
	if size < headerSize {
		copy(b, k.w.short(size))
		if size > 0 || flags&book.FlagSilent == 0 {
			flags |= book.FlagShort
		}
	} else {
		copy(b, k.w.content(^k.life, seq, size))
		header{k.life, flags, seq}.put(b)
	}
	if more != nil {
		more(b, seq)
	}
	if m.Payload = b; m.From.Len > 0 {
		m.Payload = nil
	}
	if m.ZeroCopy = flags&book.FlagCookie != 0; m.ZeroCopy {
		m.ZeroCopyCookie = uint32(seq)
		k.local.lend(m.ZeroCopyCookie, m.From)
	}
	try := book.Record{Kind: book.Try, Seq: seq, Peer: m.Addr, A: uint64(size), B: uint64(checksum(b)), C: uint64(flags)}
	if meant != 0 {
		try.Text = strconv.FormatUint(uint64(meant), 10)
	}
	k.note(try)
	if _, err := k.s.Send(ctx, m); err != nil {
		k.local.back(uint32(seq))
		k.note(book.Record{Kind: book.Fail, Seq: seq, Text: err.Error()})
		k.failed("send", err)
		return err
	}
	k.note(book.Record{Kind: book.Sent, Seq: seq, A: m.OpID, B: m.AtomicID})
	return nil
}

// settle waits until nothing of the socket is outstanding.
func (k *sock) settle() {
	ctx, cancel := context.WithTimeout(k.ses.ctx, 30*time.Second)
	defer cancel()
	r := book.Record{Kind: book.Barrier}
	if err := k.s.BarrierAll(ctx); err != nil {
		r.Text = err.Error()
	}
	for ctx.Err() == nil && k.local.outstanding() > 0 {
		time.Sleep(5 * time.Millisecond) // until the keeper has taken more statuses and cookies
	}
	k.note(r)
}

// roll sends the last message to each address.
func (k *sock) roll(to []string) {
	for _, a := range to {
		at, err := netip.ParseAddrPort(a)
		if err != nil {
			k.note(book.Record{Kind: book.Wrong, Text: err.Error()})
			continue
		}
		_ = k.s.SetWriteDeadline(time.Now().Add(20 * time.Second))
		if err := k.post(&rds.Message{Addr: at}, headerSize, book.FlagRoll, nil); err != nil {
			k.note(book.Record{Kind: book.Wrong, Text: fmt.Sprintf("last message to %v: %v", at, err)})
		}
	}
}
