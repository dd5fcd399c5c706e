package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// errClosed ends what is closed in an orderly way.
var errClosed = errors.New("closed")

// part is a blockstore, or a mirror of several. A volume has one part, or stripes over
// several ones. Its methods may be called concurrently, except those with which it is attached.
type part interface {
	// begin does what volume.begin does, at offsets of the part.
	begin(buf *buffer, m store.Message, done func(data []byte, err error))
	// ask does what volume.ask does.
	ask(m store.Message) error
	// extents returns where the storage of the range of the MAP m has holes. They may end
	// before the range.
	extents(m store.Message) ([]store.Extent, error)
	// take returns a buffer, and makes one if none is free. The connections bound how many
	// they take.
	take() (*buffer, error)
	// put gives back a buffer that no operation can touch any more.
	put(b *buffer)

	// open begins the part's sessions. A leg of a mirror may have none afterwards.
	open(ctx context.Context) error
	// sessions are those that open has begun.
	sessions() []*session
	// load finds the part's valid superblock.
	load() (superblock, error)
	// create writes superblocks. s says which part of which volume this is.
	create(s superblock) error
	// start makes the part usable.
	start() error
	// close ends the part's sessions.
	close()
}

// buffer is memory for a piece of a request.
type buffer struct {
	b    []byte
	slot *store.Slot // has the memory b; nil in a mirror
}

// single is a part that is one blockstore.
type single struct {
	v *volume
	remote
	s *session // nil if there is none
}

func (p *single) open(ctx context.Context) error {
	s, err := openSession(ctx, p.v.diskOptions, p.bind, p.server, false, p.v.flush)
	if err != nil {
		return err
	}
	p.s = s
	context.AfterFunc(s.ctx, func() {
		// Other parts still use the volume while it is closed.
		if why := context.Cause(s.ctx); !errors.Is(why, errClosed) {
			p.v.end(why)
		}
	})
	return nil
}

func (p *single) sessions() []*session { return []*session{p.s} }

func (p *single) load() (superblock, error) {
	s, err := readSuper(p.s)
	switch {
	case err != nil:
		return s, fmt.Errorf("blockstore %v: %w", p.server, err)
	case s.legs != 1:
		return s, fmt.Errorf("%v is a leg of a mirror of %d", p.server, s.legs)
	case superAt(p.s.size) < s.size:
		return s, fmt.Errorf("blockstore %v: %d bytes are too few for a part of the stripes", p.server, p.s.size)
	}
	return s, nil
}

func (p *single) create(s superblock) error {
	s.legs, s.inSync, s.events, s.clean = 1, 1, 1, true
	return writeSuper(p.s, &s)
}

func (p *single) start() error { return nil }

func (p *single) begin(buf *buffer, m store.Message, done func(data []byte, err error)) {
	var slot *store.Slot
	if buf != nil {
		slot = buf.slot
	}
	p.s.begin(slot, m, done)
}

func (p *single) ask(m store.Message) error { return p.s.ask(m) }

func (p *single) extents(m store.Message) ([]store.Extent, error) {
	m, err := p.s.answer(m)
	return m.Extents, err
}

func (p *single) take() (*buffer, error) {
	slot, err := p.s.take()
	if err != nil {
		return nil, err
	}
	return &buffer{slot.Bytes(), slot}, nil
}

func (p *single) put(b *buffer) { p.s.put(b.slot) }

func (p *single) close() {
	if p.s != nil {
		p.s.close(errClosed)
	}
}

// readSuper reads the superblock of a blockstore. The error is errNoSuper if there is none.
func readSuper(s *session) (superblock, error) {
	if superAt(s.size) == 0 {
		return superblock{}, errNoSuper
	}
	b := make([]byte, superSize)
	m := store.Message{Kind: store.KindRead, Flags: store.FlagBytes, Block: superAt(s.size), Length: superSize}
	if err := s.moveNow(m, b); err != nil {
		return superblock{}, fmt.Errorf("superblock: %w", err)
	}
	return parseSuper(b)
}

// writeSuper writes sb to stable storage. If sb is nil, the blockstore then has none.
func writeSuper(s *session, sb *superblock) error {
	b := make([]byte, superSize)
	if sb != nil {
		b = sb.append(nil)
	}
	return s.moveNow(store.Message{Kind: store.KindWrite, Flags: store.FlagBytes, Block: superAt(s.size), Length: superSize}, b)
}
