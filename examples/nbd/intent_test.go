package main

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// bare is a mirror of so many regions and legs, all in sync, without sessions.
func bare(n, legs int) *mirror {
	v := &volume{}
	v.ctx, v.end = context.WithCancelCause(context.Background())
	r := newMirror(v, 0, make([]remote, legs))
	r.super = superblock{size: uint64(n) << minRegion, region: minRegion, legs: uint8(legs)}
	r.intent.reset(n)
	for _, l := range r.legs {
		l.begin(n, true)
		l.s = &session{}
	}
	return r
}

// TestFlushInProgress: a FLUSH does not cover a change that is in progress, so a leg that
// fails afterwards has missed it.
func TestFlushInProgress(t *testing.T) {
	r := bare(10, 2)
	sp := span{3, 4}
	r.gate.enter(sp)
	r.targets(sp)
	r.flushed()
	for _, l := range r.legs {
		if !l.fresh.has(sp) {
			t.Errorf("leg %d: the change in progress counts as flushed", l.i)
		}
	}
}

// TestIntentAges: a region stays in the map while it is changed, while a change of it is in
// progress, while it was not flushed, and while a leg is away.
func TestIntentAges(t *testing.T) {
	const n = 5 * group
	r := bare(n, 0)
	r.intent.bits.fill(n)
	idle, used, inside, fresh := span{0, group - 1}, span{group, 2*group - 1}, span{2 * group, 2 * group}, span{3 * group, 3 * group}
	r.gate.enter(inside)
	r.age()
	if r.intent.bits.meets(idle) || !r.intent.bits.has(inside) {
		t.Errorf("after a look: %x", r.intent.bits)
	}
	r.intent.bits.fill(n)
	if !r.intent.use(used) {
		t.Error("a region in the map is not there")
	}
	r.age()
	if !r.intent.bits.has(used) {
		t.Error("a region left the map that was changed just before")
	}
	r.age()
	r.age()
	if r.intent.bits.meets(used) || r.intent.use(used) {
		t.Error("a region that is not changed stays in the map")
	}
	r.legs = bare(n, 1).legs
	r.legs[0].fresh.add(fresh)
	r.legs[0].state = legFailed
	r.intent.bits.fill(n)
	r.age()
	if !r.intent.bits.has(span{0, n - 1}) {
		t.Error("regions left the map while a leg is away")
	}
}

// TestChangeAfterTheEnd: when the volume is over, a change goes to no leg unless it is in the
// map, because no map would say that legs differ.
func TestChangeAfterTheEnd(t *testing.T) {
	r := bare(2*group, 2)
	r.intent.bits.add(span{0, group - 1})
	r.v.end(errClosed)
	for i, want := range []int{2, 0} {
		c := r.change(store.Message{Kind: store.KindWrite, Block: uint64(i * groupSize), Length: 1})
		if len(c.ts) != want {
			t.Errorf("a change in group %d goes to %d legs, want %d", i, len(c.ts), want)
		}
		if want > 0 {
			r.gate.leave(c.sp)
			continue
		}
		var e *ended
		if err := c.end(); !errors.As(err, &e) {
			t.Errorf("it ended with %v", err)
		}
	}
}

// TestMapPages: pages have all regions, and no others.
func TestMapPages(t *testing.T) {
	n := 2*pageRegions + 100
	a, b := newRegions(n), newRegions(n)
	for _, i := range []int{0, 63, pageRegions - 1, pageRegions, 2*pageRegions + 99} {
		a.add(span{i, i})
	}
	for page := range 3 {
		p := a.page(page)
		if len(p) != superSize {
			t.Fatalf("page %d has %d bytes", page, len(p))
		}
		b.mergePage(page, p)
	}
	if !a.equal(b) {
		t.Error("the pages have others")
	}
}

const (
	groupSize = group << minRegion // bytes that come into the map together
	wideSize  = 4 * groupSize      // bytes of a mirror with several groups
)

// copied fails the test unless nbd has copied want bytes to a leg to bring it in sync, for the
// nth time since nbd was started.
func (m *mirrored) copied(n, want int) {
	m.t.Helper()
	m.hearsOften(m.said, "leg is in sync", n)
	found := regexp.MustCompile(`leg is in sync.* bytes=(\d+)`).FindAllStringSubmatch(m.said.String(), -1)
	if got, err := strconv.Atoi(found[n-1][1]); err != nil || got != want {
		m.t.Errorf("%s bytes were copied, want %d", found[n-1][1], want)
	}
}

// super is the superblock in the file of a leg.
func (m *mirrored) super(leg int) superblock {
	m.t.Helper()
	b, err := os.ReadFile(m.files[leg])
	if err != nil {
		m.t.Fatal(err)
	}
	s, err := parseSuper(b[superAt(uint64(len(b))):])
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// change writes something at off over a new connection.
func (m *mirrored) change(data []byte, off int) {
	m.t.Helper()
	c, p := m.open(), noise(5000)
	c.write(off, p)
	copy(data[off:], p)
	c.Close()
}

// TestMirrorMap: nbd that was started again knows what legs have missed, whether it ended in
// an orderly way or was killed. It copies that and no more.
func TestMirrorMap(t *testing.T) {
	m := mirroredOf(t, wideSize)
	m.copied(1, wideSize)
	if s := m.super(0); s.inSync != 3 || s.last[1] != s.events {
		t.Errorf("after leg 1 came in sync, leg 0 would take an earlier content of it: %+v", s)
	}
	data := noise(wideSize)
	for off := 0; off < wideSize; off += maxRequest {
		m.open().write(off, data[off:off+maxRequest])
	}
	m.end()
	m.run()
	if strings.Contains(m.said.String(), "being restored") {
		t.Error("a leg is restored after an orderly end")
	}

	// A leg misses changes of two lives of nbd.
	m.kills[1]()
	m.change(data, groupSize+77)
	m.end()
	m.run()
	m.change(data, 3*groupSize-1000)
	m.end()
	m.run()
	m.start(1)
	m.copied(1, 3*groupSize)
	m.end()
	m.same(0, data)

	// nbd is killed with both legs in sync, and with one away.
	for _, away := range []bool{false, true} {
		c := m.process(2, m.remotes())
		if away {
			m.kills[0]()
		}
		m.change(data, 2*groupSize+5)
		c.Kill()
		m.run()
		if away {
			m.start(0)
		}
		m.copied(1, groupSize)
		m.end()
		m.same(0, data)
	}
}

// TestMirrorOtherContent: a leg that comes back with another content is given everything.
func TestMirrorOtherContent(t *testing.T) {
	m := mirroredOf(t, wideSize)
	data := make([]byte, wideSize)
	m.change(data, 0)
	m.end() // the leg's superblock is of this life
	earlier, err := os.Open(m.files[1])
	if err != nil {
		t.Fatal(err)
	}
	defer earlier.Close()
	backup := m.files[1] + ".backup"
	replace := func(from io.Reader) {
		t.Helper()
		f, err := os.Create(m.files[1])
		if err == nil {
			_, err = io.Copy(f, from)
		}
		if err == nil {
			err = f.Truncate(wideSize + superRoom + superSize)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if err := os.Link(m.files[1], backup); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(m.files[1]); err != nil {
		t.Fatal(err)
	}
	replace(earlier)
	m.kills[1]()
	m.start(1)
	m.run()
	m.change(data, groupSize) // both have it
	for n, from := range []io.Reader{strings.NewReader(""), io.NewSectionReader(earlier, 0, 1<<40)} {
		// Without a FLUSH the leg would be given everything that was copied to it before,
		// whatever its superblock says.
		if e := m.open().do(request{command: cmdFlush}, nil); e != eOK {
			t.Fatalf("flush: error %d", e)
		}
		m.kills[1]()
		m.change(data, 2*groupSize)
		replace(from)
		m.start(1)
		m.copied(n+1, wideSize)
	}
	m.end()
	m.same(0, data)
}
