package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// attachPatience limits how long opening a session may take.
const attachPatience = 5 * time.Second

// diskOptions are what disks have in common.
type diskOptions struct {
	daemon string // control socket
	wait   store.Patience
	block  int // bytes of a piece, at most
	small  int // bytes of a piece that travels in a message, at most
	unit   int // bytes of a part in one stripe; 0 is what the superblocks say, or defaultUnit
	log    *slog.Logger
}

// remote is a blockstore.
type remote struct {
	bind, server netip.AddrPort
}

// disk is an NBD export: a blockstore, several that mirror each other, or stripes over
// some of these. It is attached when a client needs it. It is safe for concurrent use.
type disk struct {
	diskOptions
	name  string
	parts [][]remote // the legs of each part

	anew bool // the next attach makes the volume anew

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
func (d *disk) String() string {
	var b strings.Builder
	for i, legs := range d.parts {
		if i > 0 {
			b.WriteByte('+')
		}
		for j, r := range legs {
			if j > 0 {
				b.WriteByte(',')
			}
			b.WriteString(r.server.String())
		}
	}
	return b.String()
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
	geometry
	size     uint64
	readOnly bool
	block    int // bytes of a piece
	small    int // bytes of a piece that travels in a message, at most

	ctx context.Context // ends with the volume
	end context.CancelCauseFunc

	parts []part

	mu    sync.Mutex // guards the fields below
	users int
	dirty []*conn // have replies to send
}

// begin attaches the disk.
func (d *disk) begin(ctx context.Context) (*volume, error) {
	v := &volume{disk: d, geometry: geometry{oneUnit, uint64(len(d.parts))}}
	v.ctx, v.end = context.WithCancelCause(context.Background())
	for i, legs := range d.parts {
		if len(legs) == 1 {
			v.parts = append(v.parts, &single{v: v, remote: legs[0]})
		} else {
			v.parts = append(v.parts, newMirror(v, i, legs))
		}
	}
	err := v.attach(ctx)
	if err == nil && v.ctx.Err() != nil {
		err = context.Cause(v.ctx)
	}
	if err != nil {
		v.end(err)
		v.close()
		return nil, err
	}
	return v, nil
}

// attach begins the sessions, and makes the parts one volume.
func (v *volume) attach(ctx context.Context) error {
	if err := v.open(ctx); err != nil {
		return err
	}
	if p, ok := v.parts[0].(*single); ok && len(v.parts) == 1 {
		v.size = p.s.size
		if s, err := readSuper(p.s); err == nil {
			v.log.Warn("the blockstore belongs to a mirror or to stripes, which do not notice what is changed here",
				"blockstore", p.server, "part", s.part+1, "parts", s.parts, "leg", s.leg+1, "legs", s.legs)
		}
		return nil
	}
	if v.anew {
		if err := v.create(); err != nil {
			return err
		}
	} else if err := v.load(); err != nil {
		return err
	}
	for _, p := range v.parts {
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

// open begins the sessions of all parts, and finds what they have in common.
func (v *volume) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attachPatience)
	defer cancel()
	errs := make([]error, len(v.parts))
	var wg sync.WaitGroup
	for i, p := range v.parts {
		wg.Go(func() { errs[i] = p.open(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	v.block, v.small = v.disk.block, v.disk.small
	for _, p := range v.parts {
		for _, s := range p.sessions() {
			v.block, v.small = min(v.block, s.Block), min(v.small, s.Small)
			v.readOnly = v.readOnly || s.readOnly
		}
	}
	return nil
}

// create writes the superblocks of a new volume.
func (v *volume) create() error {
	s := superblock{parts: uint8(len(v.parts)), size: oneUnit}
	if len(v.parts) > 1 {
		s.unit = uint32(v.disk.unit)
		if s.unit == 0 {
			s.unit = defaultUnit
		}
	}
	for _, p := range v.parts {
		for _, session := range p.sessions() {
			if session.readOnly {
				return fmt.Errorf("blockstore %v: is read-only, and cannot have a superblock", session.Server)
			}
			s.size = min(s.size, superAt(session.size))
			if s.unit > 0 {
				s.size -= s.size % uint64(s.unit)
			}
			if s.size == 0 {
				return fmt.Errorf("blockstore %v: %d bytes are too few for a part of %v, whose superblock takes %d", session.Server, session.size, v.disk, superRoom)
			}
		}
	}
	if _, err := rand.Read(s.id[:]); err != nil {
		return err
	}
	s.region = regionFor(s.size)
	for i, p := range v.parts {
		s.part = uint8(i)
		if err := p.create(s); err != nil {
			return err
		}
	}
	v.shape(&s)
	return nil
}

// load checks that the superblocks of all parts describe the same volume.
func (v *volume) load() error {
	var first superblock
	for i, p := range v.parts {
		s, err := p.load()
		if i == 0 {
			first = s
		}
		switch {
		case errors.Is(err, errNoSuper):
			return fmt.Errorf("%w: %v was not made yet, or other blockstores are named (-anew makes it)", err, v.disk)
		case err != nil:
			return err
		case int(s.parts) != len(v.parts) || int(s.part) != i:
			return fmt.Errorf("%v is part %d of %d of its disk: name the same parts in the same order", p.sessions()[0].Server, s.part+1, s.parts)
		case s.id != first.id || s.unit != first.unit || s.size != first.size:
			return fmt.Errorf("%v belongs to another disk than %v", p.sessions()[0].Server, v.parts[0].sessions()[0].Server)
		case v.disk.unit > 0 && s.unit > 0 && v.disk.unit != int(s.unit):
			return fmt.Errorf("-stripe %d: %v was made with %d bytes (leave -stripe away; only -anew makes other stripes)", v.disk.unit, v.disk, s.unit)
		}
	}
	v.shape(&first)
	return nil
}

// shape sets what the superblock s says about the volume.
func (v *volume) shape(s *superblock) {
	if s.unit > 0 {
		v.geometry.unit = uint64(s.unit)
		v.block = min(v.block, int(s.unit))
	}
	v.size = s.size * v.geometry.parts
	for _, p := range v.parts {
		for _, s := range p.sessions() {
			s.Block = v.block // for the buffers that are made from here on
		}
	}
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
	if last {
		v.close()
		v.end(errClosed)
	}
}

// close ends the parts.
func (v *volume) close() {
	var wg sync.WaitGroup
	for _, p := range v.parts {
		wg.Go(p.close)
	}
	wg.Wait()
}
