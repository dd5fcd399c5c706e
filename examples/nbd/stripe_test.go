package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/rdstest"
)

// TestGeometry: place and before agree with a table of every byte.
func TestGeometry(t *testing.T) {
	for _, g := range []geometry{{4, 1}, {4, 2}, {1, 3}, {8, 5}, {oneUnit, 1}} {
		const size = 200
		seen := make([]uint64, g.parts) // bytes of each part so far
		for off := range uint64(size) {
			for i := range seen {
				if got := g.before(i, off); got != seen[i] {
					t.Fatalf("%v: part %d has %d of the first %d bytes, want %d", g, i, got, off, seen[i])
				}
			}
			i, at, left := g.place(off)
			if i != int(off/g.unit%g.parts) || at != seen[i] {
				t.Fatalf("%v: byte %d is in part %d at %d, want %d", g, off, i, at, seen[i])
			}
			if j, next, _ := g.place(off + left - 1); j != i || next != at+left-1 {
				t.Fatalf("%v: %d bytes at %d are not together", g, left, off)
			}
			if j, next, _ := g.place(off + left); g.parts > 1 && j == i && next == at+left {
				t.Fatalf("%v: more than %d bytes at %d are together", g, left, off)
			}
			seen[i]++
		}
	}
}

// TestGeometryPieces: pieces is never less than what take makes of a request.
func TestGeometryPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		g := geometry{1 << (12 + r.IntN(8)), 1 + r.Uint64N(4)}
		if g.parts == 1 {
			g.unit = oneUnit
		}
		block := min(4096+r.Uint64N(1<<18), g.unit)
		off, n := r.Uint64N(1<<24), 1+r.Uint64N(1<<21)
		pieces := 0
		for at, rest := off, n; rest > 0; pieces++ {
			_, _, left := g.place(at)
			k := min(rest, left, block)
			at, rest = at+k, rest-k
		}
		if most := g.pieces(n, block); pieces > most {
			t.Fatalf("%v: %d bytes at %d are %d pieces of %d, at most %d expected", g, n, off, pieces, block, most)
		}
	}
}

func TestParseUnit(t *testing.T) {
	for s, want := range map[string]int{"4096": 4096, "64k": 64 << 10, "64M": 64 << 20, "1m": 1 << 20, "": 0, "k": 0, "-4k": 0, "2K": 0, "65M": 0, "96k": 0, "1G": 0} {
		if got, err := parseUnit(s); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
}

const (
	unitForTests = 64 << 10
	stripeSize   = 3 * 40 * unitForTests // of the volume
)

// striped is a host with nbd, and a blockstore on each of several others.
type striped struct {
	*world
	files []string
	kills []func()
	disk  string
}

// newStriped makes a disk of several blockstores. between are the separators between them.
func newStriped(t *testing.T, between string) *striped {
	t.Helper()
	return stripedOf(t, stripeSize, between)
}

// stripedOf makes a disk of size bytes.
func stripedOf(t *testing.T, size int64, between string) *striped {
	t.Helper()
	n := len(between) + 1
	s := &striped{world: &world{t: t, d: rdstest.StartDaemons(t, n+1)}, kills: make([]func(), n)}
	stripes := strings.Count(between, "+")
	part := size / int64(1+stripes)
	if n > 1 {
		part += superRoom
	}
	for i := range n {
		s.files = append(s.files, filepath.Join(t.TempDir(), fmt.Sprint("part", i)))
		sized(t, s.files[i], part+int64(i)*5000)
		s.start(i)
		if i > 0 {
			s.disk += between[i-1 : i]
		}
		s.disk += s.d[i].Addr().String()
	}
	args := []string{"-anew"}
	if stripes > 0 {
		args = append(args, "-stripe", "64K")
	}
	s.run(args...)
	return s
}

func (s *striped) start(i int) { s.kills[i] = s.storeAt(s.d[i], s.files[i]) }

func (s *striped) run(args ...string) {
	s.t.Helper()
	s.serve(s.d[len(s.files)], append(args, "-patience", "5s", "disk="+s.disk)...)
}

// refuses starts nbd with disk, which has to end with an error that says text.
func (s *striped) refuses(text, disk string, args ...string) {
	s.t.Helper()
	var said bytes.Buffer
	d := s.d[len(s.files)]
	code := run(s.t.Context(), append(append([]string{"-listen", "unix:" + s.at + ".x", "-socket", d.Socket(), "-bind", d.Addr().String()}, args...), disk), &said)
	if code != exitFailed || !strings.Contains(said.String(), text) {
		s.t.Errorf("%v %s: status %d, said %q; want %q", args, disk, code, &said, text)
	}
}

// has fails the test unless the parts, of which step files each have the same, have data.
func (s *striped) has(data []byte, step int) {
	s.t.Helper()
	g := geometry{unitForTests, uint64(len(s.files) / step)}
	want := make([][]byte, g.parts)
	for off := 0; off < len(data); off += unitForTests {
		i, _, _ := g.place(uint64(off))
		want[i] = append(want[i], data[off:off+unitForTests]...)
	}
	for i := range s.files {
		s.file = s.files[i]
		s.holds(0, want[i/step])
	}
}

// TestStripe: all commands work at all boundaries, each byte is where it belongs, and all is
// there after a start.
func TestStripe(t *testing.T) {
	s := newStriped(t, "++")
	c := s.open()
	data := noise(stripeSize)
	c.write(0, data)
	for _, at := range []struct{ off, n int }{
		{0, 1}, {unitForTests - 1, 2}, {unitForTests - 2000, 4000}, {5, 3 * unitForTests}, {stripeSize - 70_000, 70_000}, {123_457, 3_000_001},
	} {
		p := noise(at.n)
		c.write(at.off, p)
		copy(data[at.off:], p)
		if !bytes.Equal(c.read(at.off, at.n), p) {
			t.Errorf("%d bytes at %d: read others than written", at.n, at.off)
		}
	}
	for _, r := range []request{
		{command: cmdZeroes, offset: unitForTests - 10, length: 20},
		{command: cmdZeroes, flags: askNoHole | askFUA, offset: 300_001, length: 1_000_000},
		{command: cmdZeroes, offset: 2_000_000, length: 5},
		{command: cmdFlush},
	} {
		if e := c.do(r, nil); e != eOK {
			t.Errorf("command %d: error %d", r.command, e)
		}
		clear(data[r.offset : r.offset+uint64(r.length)])
	}
	// The file system here makes holes, so what was trimmed reads as zeros.
	trim := request{command: cmdTrim, flags: askFUA, offset: 4_000_000 &^ 4095, length: 20 * unitForTests}
	if e := c.do(trim, nil); e != eOK {
		t.Errorf("trim: error %d", e)
	}
	clear(data[trim.offset : trim.offset+uint64(trim.length)])
	fua := noise(9000)
	if e := c.do(request{command: cmdWrite, flags: askFUA, offset: unitForTests*7 - 4500, length: 9000}, fua); e != eOK {
		t.Errorf("write with FUA: error %d", e)
	}
	copy(data[unitForTests*7-4500:], fua)
	if e := c.do(request{command: cmdRead, offset: stripeSize - 1, length: 2}, nil); e != eInval {
		t.Errorf("a read beyond the end: error %d", e)
	}
	if !bytes.Equal(c.read(0, stripeSize), data) {
		t.Error("read others than written")
	}
	s.has(data, 1)
	c.Close()
	s.end()
	s.run()
	if !bytes.Equal(s.open().read(0, stripeSize), data) {
		t.Error("read others than written after a start")
	}
}

// TestStripeRefuses: blockstores that do not belong together are not a disk, and the error
// says what to name.
func TestStripeRefuses(t *testing.T) {
	s := newStriped(t, "+")
	s.end()
	a, b := s.d[0].Addr().String(), s.d[1].Addr().String()
	s.refuses("is part 2 of 2 of its disk: name the same parts in the same order", b+"+"+a)
	s.refuses("was made with 65536 bytes", a+"+"+b, "-stripe", "128K")
	s.refuses("leg 1 of 1 of its mirror", a+","+b)
	c := filepath.Join(t.TempDir(), "new")
	sized(t, c, stripeSize)
	s.storeAt(s.d[2], c)
	third := s.d[2].Addr().String()
	s.refuses("no superblock", a+"+"+third)
	s.refuses("no superblock", third+"+"+b)
	s.refuses("is part 1 of 2", a+"+"+b+"+"+third)
	s.refuses("too few", a+"+"+third, "-anew", "-stripe", "4M")
	s.kills[1]()
	s.refuses("no blockstore server is bound there", a+"+"+b)
	if err := os.Truncate(s.files[1], superRoom); err != nil {
		t.Fatal(err)
	}
	s.start(1)
	s.refuses("no superblock", a+"+"+b)
	s.refuses("too few", a+"+"+b, "-anew")
}

// TestStripeForeign: parts of two disks are no disk.
func TestStripeForeign(t *testing.T) {
	s := newStriped(t, "+")
	first, err := os.ReadFile(s.files[0])
	if err != nil {
		t.Fatal(err)
	}
	s.end()
	s.run("-anew", "-stripe", "64K")
	s.end()
	s.kills[0]()
	if err := os.WriteFile(s.files[0], first, 0o600); err != nil {
		t.Fatal(err)
	}
	s.start(0)
	s.refuses("belongs to another disk", s.disk)
}

// TestStripePartGone: stripes without one of their parts have errors, and no old content. When
// the part is back, the next client has the disk.
func TestStripePartGone(t *testing.T) {
	s := newStriped(t, "+")
	c := s.open()
	data := noise(4 * unitForTests)
	c.write(0, data)
	s.kills[1]()
	if e := c.do(request{command: cmdWrite, length: 2 * unitForTests}, noise(2*unitForTests)); e != eIO {
		t.Errorf("write: error %d, want %d", e, eIO)
	}
	c.closed()
	s.start(1)
	c = s.open()
	if got := c.read(2*unitForTests, 2*unitForTests); !bytes.Equal(got, data[2*unitForTests:]) {
		t.Error("read others than written")
	}
}

// TestStripeOfMirrors: stripes over mirrors go on when one leg of each is away, and give it
// what it missed.
func TestStripeOfMirrors(t *testing.T) {
	s := newStriped(t, ",+,")
	s.hearsOften(s.said, "leg is in sync", 2)
	c := s.open()
	data := noise(stripeSize)
	c.write(0, data)
	s.kills[0]()
	s.kills[3]()
	for i := range 5 {
		at, p := i*1_300_000, noise(700_000)
		c.write(at, p)
		copy(data[at:], p)
	}
	if e := c.do(request{command: cmdZeroes, offset: 100_000, length: 500_000}, nil); e != eOK {
		t.Errorf("zeroes: error %d", e)
	}
	clear(data[100_000:600_000])
	if !bytes.Equal(c.read(0, len(data)), data) {
		t.Error("read others than written while legs are away")
	}
	s.start(0)
	s.start(3)
	s.hearsOften(s.said, "leg is in sync", 4)
	c.Close()
	s.end()
	s.has(data, 2)
	s.refuses("is a leg of a mirror of 2", strings.Replace(s.disk, ",", "+", 1)[len(s.d[0].Addr().String())+1:])
}
