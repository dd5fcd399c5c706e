package main

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// diskOptions are what disks have in common.
type diskOptions struct {
	daemon string // control socket
	wait   store.Patience
	block  int // bytes of a piece, at most
	small  int // bytes of a piece that travels in a message, at most
	log    *slog.Logger
}

// remote is a blockstore.
type remote struct {
	bind, server netip.AddrPort
}

// disk is an NBD export: a blockstore, or several that mirror each other. It is attached
// when a client needs it. It is safe for concurrent use.
type disk struct {
	diskOptions
	name    string
	remotes []remote

	anew bool // the next attach makes the mirror from its first leg

	mu  sync.Mutex // guards anew and cur; held while the disk is attached
	cur *volume
}

// use returns the current volume, or a new one if that is over. The caller must call leave.
func (d *disk) use(ctx context.Context) (*volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cur != nil && d.cur.ctx.Err() == nil {
		d.cur.join()
		return d.cur, nil
	}
	if d.cur != nil {
		d.cur.leave()
		d.cur = nil
	}
	v, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	v.join() // the disk's own
	v.join()
	d.cur = v
	d.anew = false
	d.log.Info("disk attached", "disk", d, "bytes", v.size, "read-only", v.readOnly, "block", v.block)
	return v, nil
}

// String names the disk's blockstores.
func (d *disk) String() (s string) {
	for i, r := range d.remotes {
		if i > 0 {
			s += ","
		}
		s += r.server.String()
	}
	return s
}

// close ends the disk's own use of the volume. Connections end theirs themselves.
func (d *disk) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cur != nil {
		d.cur.leave()
		d.cur = nil
	}
}

// volume is an attached disk, shared by all connections. It ends when something happened
// after which writes that were not flushed may be lost, or when its last user leaves.
type volume struct {
	*disk
	size     uint64
	readOnly bool
	block    int // bytes of a piece
	small    int // bytes of a piece that travels in a message, at most

	ctx context.Context // ends with the volume
	end context.CancelCauseFunc

	only   *session // the session of a volume that is no mirror
	mirror *mirror  // nil if the volume is no mirror

	mu    sync.Mutex // guards the fields below
	users int
	dirty []*conn   // have replies to send
	free  []*buffer // of a mirror
}

// buffer is memory for a piece of a request.
type buffer struct {
	b    []byte
	slot *store.Slot // has the memory b; nil in a mirror
}

// begin attaches the disk.
func (d *disk) begin(ctx context.Context) (*volume, error) {
	v := &volume{disk: d}
	v.ctx, v.end = context.WithCancelCause(context.Background())
	if len(d.remotes) > 1 {
		if err := v.assemble(ctx); err != nil {
			v.end(err)
			return nil, err
		}
		return v, nil
	}
	s, err := openSession(ctx, d.diskOptions, d.remotes[0].bind, d.remotes[0].server, false, v.flush)
	if err != nil {
		v.end(err)
		return nil, err
	}
	v.only, v.size, v.readOnly, v.block, v.small = s, s.size, s.readOnly, s.Block, s.Small
	context.AfterFunc(s.ctx, func() { v.end(context.Cause(s.ctx)) })
	return v, nil
}

func (v *volume) join() {
	v.mu.Lock()
	v.users++
	v.mu.Unlock()
}

// leave ends one use of the volume. The last one closes its sessions.
func (v *volume) leave() {
	v.mu.Lock()
	v.users--
	last := v.users == 0
	v.mu.Unlock()
	if !last {
		return
	}
	if v.mirror != nil {
		v.mirror.close()
	} else {
		v.only.close(errClosed)
	}
	v.end(errClosed)
}

// flags returns NBD's transmission flags for the export.
func (v *volume) flags() uint16 {
	if v.readOnly {
		return hasFlags | hasMulti | hasReadOnly
	}
	f := hasFlags | hasMulti | hasFlush | hasFUA | hasTrim | hasZeroes
	if v.mirror == nil {
		f |= hasFastZero // one leg might be fast, and another one not
	}
	return f
}

// begin carries out the READ or WRITE m and calls done once. buf holds the bytes. It may be
// nil for small requests: the bytes of a WRITE are then in m.Data, and those of a READ are
// passed to done and valid only while done runs. After success a receiving goroutine mostly
// calls done, so done must not wait. begin may wait.
func (v *volume) begin(buf *buffer, m store.Message, done func(data []byte, err error)) {
	if v.mirror != nil {
		v.mirror.begin(buf, m, done)
		return
	}
	var slot *store.Slot
	if buf != nil {
		slot = buf.slot
	}
	v.only.begin(slot, m, done)
}

// ask carries out m, which has no data.
func (v *volume) ask(m store.Message) error {
	if v.mirror != nil {
		return v.mirror.ask(m)
	}
	return v.only.ask(m)
}

// over ends the volume.
func (v *volume) over(why error) error {
	v.end(why)
	return &ended{context.Cause(v.ctx)}
}

// take returns a buffer, and makes one if none is free. The connections bound how many they
// take.
func (v *volume) take() (*buffer, error) {
	if v.mirror == nil {
		slot, err := v.only.take()
		if err != nil {
			return nil, err
		}
		return &buffer{slot.Bytes(), slot}, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.free); n > 0 {
		b := v.free[n-1]
		v.free = v.free[:n-1]
		return b, nil
	}
	return &buffer{b: make([]byte, v.block)}, nil
}

// put gives back buffers that no operation can touch any more.
func (v *volume) put(bufs []*buffer) {
	for _, b := range bufs {
		if b.slot != nil {
			v.only.put(b.slot)
			continue
		}
		v.mu.Lock()
		v.free = append(v.free, b)
		v.mu.Unlock()
	}
}

// touch notes that c has replies to send, for the next flush.
func (v *volume) touch(c *conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Contains(v.dirty, c) {
		v.dirty = append(v.dirty, c)
	}
}

// flush sends the replies of all connections that have some.
func (v *volume) flush() {
	v.mu.Lock()
	dirty := v.dirty
	v.dirty = nil
	v.mu.Unlock()
	for _, c := range dirty {
		c.out.flush()
	}
}
