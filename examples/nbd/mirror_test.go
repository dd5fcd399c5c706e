package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/rdstest"
)

const mirrorSize = 9 << 20 // of the volume; some regions, the last one not whole

// mirrored is three hosts: blockstores on two, nbd on the third with a mirror of both.
type mirrored struct {
	*world
	files []string
	kills []func()
}

func newMirrored(t *testing.T) *mirrored {
	t.Helper()
	return mirroredOf(t, mirrorSize)
}

// mirroredOf is a mirror of size bytes.
func mirroredOf(t *testing.T, size int64) *mirrored {
	t.Helper()
	m := &mirrored{world: &world{t: t, d: rdstest.StartDaemons(t, 3)}, kills: make([]func(), 2)}
	for i := range 2 {
		m.files = append(m.files, filepath.Join(t.TempDir(), "leg"))
		sized(t, m.files[i], size+superRoom+int64(i)*superSize)
		m.start(i)
	}
	m.run("-anew")
	m.hears("leg is in sync")
	return m
}

// start starts the blockstore i.
func (m *mirrored) start(i int) { m.kills[i] = m.storeAt(m.d[i], m.files[i]) }

// run starts nbd.
func (m *mirrored) run(args ...string) {
	m.t.Helper()
	m.serve(m.d[2], append(args, "-patience", "5s", m.remotes())...)
}

func (m *mirrored) remotes() string {
	return fmt.Sprintf("disk=%v,%v", m.d[0].Addr(), m.d[1].Addr())
}

// same fails the test unless all legs have want at off.
func (m *mirrored) same(off int, want []byte) {
	m.t.Helper()
	for i := range m.files {
		m.file = m.files[i]
		m.holds(off, want)
	}
}

// refuses starts nbd, which has to end with an error that says text.
func (m *mirrored) refuses(text string) {
	m.t.Helper()
	var said bytes.Buffer
	code := run(m.t.Context(), []string{"-listen", "unix:" + m.at + ".x", "-socket", m.d[2].Socket(), "-bind", m.d[2].Addr().String(), m.remotes()}, &said)
	if code != exitFailed || !strings.Contains(said.String(), text) {
		m.t.Errorf("status %d, said %q; want %q", code, &said, text)
	}
}

// TestMirror: all commands are on both legs.
func TestMirror(t *testing.T) {
	m := newMirrored(t)
	c := m.open()
	data := noise(mirrorSize)
	c.write(0, data)
	small := noise(4000)
	c.write(777, small)
	copy(data[777:], small)
	for _, r := range []request{
		{command: cmdZeroes, offset: 1 << 20, length: 5000},
		{command: cmdTrim, flags: askFUA, offset: 2<<20 + 1, length: 5000},
		{command: cmdFlush},
	} {
		if e := c.do(r, nil); e != eOK {
			t.Errorf("command %d: error %d", r.command, e)
		}
		clear(data[r.offset : r.offset+uint64(r.length)])
	}
	m.same(0, data)
	for range 4 { // from both
		if !bytes.Equal(c.read(0, len(data)), data) || !bytes.Equal(c.read(777, 100), data[777:877]) {
			t.Error("read others than written")
		}
	}
	if e := c.do(request{command: cmdRead, offset: mirrorSize, length: 1}, nil); e != eInval {
		t.Errorf("a read of the superblock: error %d", e)
	}
}

// TestMirrorLegKilled: while one leg is away nothing fails and nothing is lost. When it
// is back it is given what it missed. Only a leg that has everything is used alone.
func TestMirrorLegKilled(t *testing.T) {
	m := newMirrored(t)
	for leg := range 2 {
		data := noise(mirrorSize)
		c := m.open()
		c.write(0, data)
		m.kills[leg]()
		for i := range 5 {
			at := i * 2 << 20
			p := noise(300_000 - i*70_000)
			c.write(at, p)
			copy(data[at:], p)
			if !bytes.Equal(c.read(0, mirrorSize), data) {
				t.Fatal("read others than written while a leg is away")
			}
		}
		if e := c.do(request{command: cmdFlush}, nil); e != eOK {
			t.Errorf("flush: error %d", e)
		}
		// nbd starts anew with the leg that has everything, but not with the other.
		c.Close()
		m.end()
		m.run()
		if c = m.open(); !bytes.Equal(c.read(0, mirrorSize), data) {
			t.Error("read others than written after a start with one leg")
		}
		c.Close()
		m.end()
		m.kills[1-leg]()
		m.start(leg)
		m.refuses("has to be there")
		m.start(1 - leg)
		m.run()
		m.hears("leg is in sync")
		m.end()
		m.same(0, data)
		m.run()
	}
}

// TestMirrorUnderFaults: legs are killed and started again, and daemons too, while
// several clients write and read. No acknowledged write is lost, no request fails, and
// the legs are the same in the end.
func TestMirrorUnderFaults(t *testing.T) {
	m := newMirrored(t)
	const clients, share = 3, mirrorSize / 3
	data := noise(mirrorSize)
	m.open().write(0, data)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range clients {
		c, mine := m.open(), data[i*share:(i+1)*share]
		r := rand.New(rand.NewPCG(7, uint64(i)))
		all.Go(func() {
			for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
				at, p := r.IntN(share-300_000), noise(1+r.IntN(1<<(4+r.IntN(15))))
				switch {
				case n%10 == 0:
					if e := c.do(request{command: cmdFlush}, nil); e != eOK {
						t.Errorf("flush: error %d", e)
					}
				case n%3 == 0:
					if !bytes.Equal(c.read(i*share+at, len(p)), mine[at:at+len(p)]) {
						t.Errorf("client %d read others than written", i)
					}
				default:
					c.write(i*share+at, p)
					copy(mine[at:], p)
				}
			}
		})
	}
	for round := range 4 {
		before := strings.Count(m.said.String(), "leg is in sync")
		leg := round % 2
		if round < 2 {
			m.kills[leg]()
			m.start(leg)
		} else {
			if err := m.d[leg].Stop(); err != nil {
				t.Error(err)
			}
			m.d[leg].Start(t)
			m.start(leg)
		}
		m.hearsOften(m.said, "leg is in sync", before+1)
	}
	stop()
	all.Wait()
	m.end()
	m.same(0, data)
}

// TestMirrorRefuses: legs that do not belong together are not a mirror.
func TestMirrorRefuses(t *testing.T) {
	m := newMirrored(t)
	m.end()
	m.files[0], m.files[1] = m.files[1], m.files[0]
	restart := func() {
		for i := range 2 {
			m.kills[i]()
			m.start(i)
		}
	}
	restart()
	m.refuses("name the same legs in the same order")
	m.files[0], m.files[1] = m.files[1], m.files[0]
	if err := os.Truncate(m.files[1], 4096); err != nil {
		t.Fatal(err)
	}
	restart()
	m.refuses("too few for a leg")
	for i := range 2 {
		sized(t, m.files[i], mirrorSize)
	}
	restart()
	m.refuses("no superblock")
}

// TestMirrorFio: fio verifies what it wrote to a mirror, while a leg is killed and
// comes back.
func TestMirrorFio(t *testing.T) {
	fio := tool(t, "fio", "fio")
	m := newMirrored(t)
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		m.kills[1]()
	}()
	out := output(t, fio, "--name=job", "--ioengine=nbd", "--uri=nbd+unix:///disk?socket="+m.at, "--size=8m", "--iodepth=16", "--randseed=7",
		"--rw=randwrite", "--bsrange=512-128k", "--bs_unaligned=1", "--fsync=32",
		"--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0", "--end_fsync=1")
	if !strings.Contains(out, "err= 0") {
		t.Errorf("fio: %s", out)
	}
	<-killed
	before := strings.Count(m.said.String(), "leg is in sync")
	m.start(1)
	m.hearsOften(m.said, "leg is in sync", before+1)
	m.end()
	want, err := os.ReadFile(m.files[0])
	if err != nil {
		t.Fatal(err)
	}
	m.same(0, want[:mirrorSize])
}
