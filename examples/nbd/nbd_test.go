package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/rdstest"
)

func (w *world) holds(off int, want []byte) {
	w.t.Helper()
	f, err := os.Open(w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, int64(off)); err != nil || !bytes.Equal(got, want) {
		w.t.Errorf("the file has other content than was written at %d (%v)", off, err)
	}
}

// TestReadWrite: all commands work on odd boundaries and across pieces.
func TestReadWrite(t *testing.T) {
	const size = 40<<20 + 513
	w := newWorld(t, size)
	c := w.open()
	for _, at := range []struct{ off, n int }{
		{0, 1}, {511, 4097}, {256<<10 - 1, 2}, {1, 1 << 20}, {size - 1, 1}, {size - 70000, 70000}, {3, maxRequest},
	} {
		data := noise(at.n)
		c.write(at.off, data)
		if !bytes.Equal(c.read(at.off, at.n), data) {
			t.Errorf("%d bytes at %d: read others than written", at.n, at.off)
		}
		w.holds(at.off, data)
	}
	c.write(0, bytes.Repeat([]byte{1}, 1<<20))
	for i, r := range []request{
		{command: cmdFlush},
		{command: cmdZeroes, offset: 10, length: 100},
		{command: cmdZeroes, flags: askNoHole | askFUA, offset: 5000, length: 200_000},
		{command: cmdTrim, offset: 300_000, length: 1000},
		{command: cmdTrim, flags: askFUA, offset: 400_000, length: 1000},
	} {
		if e := c.do(r, nil); e != eOK {
			t.Errorf("request %d: error %d", i, e)
		}
	}
	want := bytes.Repeat([]byte{1}, 300_000)
	clear(want[10:110])
	clear(want[5000:205_000])
	if !bytes.Equal(c.read(0, len(want)), want) {
		t.Error("zeroes are elsewhere than asked for")
	}
	if e := c.do(request{command: cmdWrite, flags: askFUA, length: 4}, []byte("fast")); e != eOK {
		t.Errorf("write with FUA: error %d", e)
	}
	w.holds(0, []byte("fast"))
	if e := c.do(request{command: cmdZeroes, flags: askFast, length: 4096}, nil); e != eOK && e != eNotSup {
		t.Errorf("fast zeroes: error %d", e)
	}
	c.send(requestBytes(request{command: cmdDisc}))
	c.closed()
}

// TestTwoConnections: one connection reads and flushes what the other has written.
func TestTwoConnections(t *testing.T) {
	w := newWorld(t, 1<<20)
	a, b := w.open(), w.open()
	a.write(100, []byte("told"))
	if e := b.do(request{command: cmdFlush}, nil); e != eOK {
		t.Errorf("flush: error %d", e)
	}
	if got := b.read(100, 4); string(got) != "told" {
		t.Errorf("read %q", got)
	}
}

// TestSeveralExports: each name has its own disk, and the first is the default.
func TestSeveralExports(t *testing.T) {
	w := newWorld(t, 1<<20)
	w.end()
	second := filepath.Join(t.TempDir(), "second")
	sized(t, second, 2<<20)
	w.storeAt(w.d[1], second)
	w.serve("one="+w.d[0].Addr().String(), "two="+w.d[1].Addr().String())
	for name, size := range map[string]uint64{"": 1 << 20, "one": 1 << 20, "two": 2 << 20} {
		c := w.dial()
		c.send([]byte{0, 0, 0, 3}, optionBytes(optExportName, []byte(name)))
		if got := binary.BigEndian.Uint64(c.hear(18 + 10)[18:]); got != size {
			t.Errorf("export %q has %d bytes, want %d", name, got, size)
		}
		c.write(5, []byte("of "+name))
		if got := c.read(5, 3+len(name)); string(got) != "of "+name {
			t.Errorf("export %q: read %q", name, got)
		}
	}
	w.file = second
	w.holds(5, []byte("of two"))
}

func TestReadOnly(t *testing.T) {
	w := newWorld(t, 1<<20, "-read-only")
	c := w.open()
	if e := c.do(request{command: cmdWrite, length: 4}, []byte("none")); e != ePerm {
		t.Errorf("write: error %d", e)
	}
	for _, cmd := range []command{cmdTrim, cmdZeroes} {
		if e := c.do(request{command: cmd, length: 4}, nil); e != ePerm {
			t.Errorf("command %d: error %d", cmd, e)
		}
	}
	if !bytes.Equal(c.read(0, 4), make([]byte, 4)) {
		t.Error("read what was not written")
	}
}

// TestBadRequests: a bad request gets an error, and the next request is understood, or the
// connection ends. Other connections go on.
func TestBadRequests(t *testing.T) {
	const size = 1 << 20
	w := newWorld(t, size)
	good := w.open()
	good.write(0, []byte("good"))
	c := w.open()
	for _, x := range []struct {
		r    request
		data []byte
		want errno
	}{
		{request{command: cmdRead, offset: size - 1, length: 2}, nil, eInval},
		{request{command: cmdRead, offset: 1<<64 - 1, length: 1 << 20}, nil, eInval},
		{request{command: cmdRead, length: 1<<32 - 1}, nil, eInval},
		{request{command: cmdRead}, nil, eInval},
		{request{command: cmdWrite, offset: size - 1, length: 2}, []byte("xy"), eNoSpace},
		{request{command: cmdWrite, flags: 0x8000, length: 2}, []byte("xy"), eInval},
		{request{command: 99, length: 2}, nil, eInval},
	} {
		if e := c.do(x.r, x.data); e != x.want {
			t.Errorf("%+v: error %d, want %d", x.r, e, x.want)
		}
	}
	if got := c.read(0, 4); string(got) != "good" {
		t.Errorf("read %q", got)
	}
	for name, b := range map[string][]byte{
		"another magic":              make([]byte, requestSize),
		"a write that is too long":   requestBytes(request{command: cmdWrite, length: maxRequest + 1}),
		"a write of almost 4 GiB":    requestBytes(request{command: cmdWrite, length: 1<<32 - 1}),
		"a request after the end":    append(requestBytes(request{command: cmdDisc}), requestBytes(request{command: cmdRead, length: 1})...),
		"a handshake after the disk": optionBytes(optGo, infoBytes("disk"))[:28:28],
	} {
		c := w.open()
		c.send(b)
		if n, _ := io.Copy(io.Discard, c); n > 0 {
			t.Errorf("%s: answered with %d bytes", name, n)
		}
	}
	if got := good.read(0, 4); string(got) != "good" {
		t.Errorf("read %q", got)
	}
}

// TestDisconnectInWrite: nothing is written of a write whose data did not arrive whole, and
// its buffers come back.
func TestDisconnectInWrite(t *testing.T) {
	w := newWorld(t, 33<<20)
	for range 3 { // each takes all buffers of its connection
		c := w.open()
		c.send(requestBytes(request{command: cmdWrite, length: maxRequest}), noise(1<<20))
		c.Conn.Close()
	}
	w.hears("in the data of a WRITE")
	c := w.open()
	if !bytes.Equal(c.read(0, 1<<20), make([]byte, 1<<20)) {
		t.Error("half a write was written")
	}
	data := noise(maxRequest)
	c.write(5, data)
	if !bytes.Equal(c.read(5, maxRequest), data) {
		t.Error("read others than written")
	}
}

// TestDeafClient: a client that does not read its replies delays no other client.
func TestDeafClient(t *testing.T) {
	w := newWorld(t, 33<<20)
	deaf := w.open()
	for range 8 {
		deaf.send(requestBytes(request{command: cmdRead, length: maxRequest}))
	}
	other := w.open()
	for range 20 {
		data := noise(300_000)
		other.write(1000, data)
		if !bytes.Equal(other.read(1000, len(data)), data) {
			t.Fatal("read others than written")
		}
	}
}

// TestTooManyClients: the server closes the connection of a client too many. When another
// client disconnects, there is room again.
func TestTooManyClients(t *testing.T) {
	w := newWorld(t, 1<<20)
	var all []*client
	for range 16 {
		all = append(all, w.open())
	}
	w.dial().closed()
	w.hears("16 are connected")
	all[3].send(requestBytes(request{command: cmdDisc}))
	all[3].closed()
	for deadline := 0; ; deadline++ { // there is room only when the server has seen the end
		c := w.dial()
		b := make([]byte, 1)
		if _, err := c.Read(b); err == nil {
			break
		} else if deadline > 10_000 {
			t.Fatal("no room again")
		}
		c.Close()
	}
}

// over fails the test unless the session is over, so that c's flush fails, and a new client
// begins another session.
func (w *world) over(c *client, want []byte) {
	w.t.Helper()
	if e := c.do(request{command: cmdFlush}, nil); e != eIO {
		w.t.Errorf("flush: error %d, want %d", e, eIO)
	}
	c.closed()
	w.hears("session over")
	c = w.open()
	if got := c.read(0, len(want)); !bytes.Equal(got, want) {
		w.t.Errorf("read %q, want %q", got, want)
	}
	c.write(0, []byte("after"))
	w.holds(0, []byte("after"))
}

// TestBlockstoreRestarts: writes that were not flushed may be lost, so the session is over.
func TestBlockstoreRestarts(t *testing.T) {
	w := newWorld(t, 1<<20)
	c := w.open()
	c.write(0, []byte("before"))
	w.kill()
	w.kill = w.store()
	w.over(c, []byte("before"))
}

// TestGrantsTakenBack: the blockstore takes its buffers back from an idle writer, and the
// next write gets others.
func TestGrantsTakenBack(t *testing.T) {
	w := newWorld(t, 4<<20, "-keep", "100ms")
	c := w.open()
	for i := range 3 {
		p := noise(300_000)
		c.write(i*5000, p)
		w.hearsOften(w.storeSaid, "buffers taken back", i+1)
		if !bytes.Equal(c.read(i*5000, len(p)), p) {
			t.Fatal("read others than written")
		}
	}
}

// TestGrantsTooShort: pushes arrive in the end, although the blockstore takes its buffers back
// sooner than a push can use them.
func TestGrantsTooShort(t *testing.T) {
	w := newWorld(t, 4<<20, "-keep", "1us")
	c := w.open()
	for i := range 5 {
		p := noise(300_000)
		c.write(i*5000, p)
		if !bytes.Equal(c.read(i*5000, len(p)), p) {
			t.Fatal("read others than written")
		}
	}
}

// TestHostRestarts: blockstore and daemon are started again while nothing is in flight.
// What was written and not flushed may be lost, so not even a read succeeds.
func TestHostRestarts(t *testing.T) {
	w := newWorld(t, 1<<20)
	c := w.open()
	c.write(0, []byte("before"))
	w.kill()
	if err := w.d[0].Stop(); err != nil {
		t.Fatal(err)
	}
	w.d[0].Start(t)
	w.kill = w.store()
	if e := c.do(request{command: cmdRead, length: 4}, nil); e != eIO {
		t.Errorf("read: error %d, want %d", e, eIO)
	}
	c.closed()
}

// TestBlockstoreGone: when the blockstore is gone, requests fail and all connections are
// closed. When it is back, there is a disk again.
func TestBlockstoreGone(t *testing.T) {
	w := newWorld(t, 1<<20)
	c, idle := w.open(), w.open()
	c.write(0, []byte("before"))
	w.kill()
	if e := c.do(request{command: cmdWrite, length: 4}, []byte("none")); e != eIO {
		t.Errorf("write: error %d, want %d", e, eIO)
	}
	c.closed()
	idle.closed()
	late := w.dial()
	late.send([]byte{0, 0, 0, 1}, optionBytes(optGo, infoBytes("disk")))
	if b := late.hear(18 + 20)[18:]; binary.BigEndian.Uint32(b[12:]) != repEnding {
		t.Errorf("answered %x, want a refusal", b)
	}
	w.kill = w.store()
	if got := w.open().read(0, 6); string(got) != "before" {
		t.Errorf("read %q", got)
	}
}

// TestAnotherWriter: a copy-in ends the session, and the disk has only its content.
func TestAnotherWriter(t *testing.T) {
	w := newWorld(t, 1<<20)
	c := w.open()
	c.write(0, []byte("before"))
	source := filepath.Join(t.TempDir(), "source")
	content := noise(1 << 20)
	if err := os.WriteFile(source, content, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(blockstore, "copy-in", "-socket", w.d[1].Socket(), "-bind", w.d[1].Addr().String(),
		source, w.d[0].Addr().String()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.over(c, content)
}

// TestWrongUse: the error says what is wrong.
func TestWrongUse(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	for _, c := range []struct {
		args, says string
		code       int
	}{
		{"", "0 arguments", exitUsage},
		{"-block 5 127.0.0.1", "-block 5", exitUsage},
		{"a=127.0.0.1 a=127.0.0.2", `there is an export "a" already`, exitUsage},
		{"127.0.0.1,127.0.0.2", `"127.0.0.1,127.0.0.2" is not ADDRESS`, exitUsage},
		{"a=", `"" is not ADDRESS`, exitUsage},
		{"-connections 0 127.0.0.1", "-connections", exitUsage},
		{"nowhere", "nowhere", exitUsage},
		{"-bind x 127.0.0.1", "-bind", exitUsage},
		{"-socket /does/not/exist 127.0.0.1", "/does/not/exist", exitFailed},
		{"-socket " + d.Socket() + " -bind " + d.Addr().String() + " " + d.Addr().String(), "no blockstore server is bound there", exitFailed},
	} {
		var said bytes.Buffer
		if code := run(t.Context(), strings.Fields(c.args), &said); code != c.code || !strings.Contains(said.String(), c.says) {
			t.Errorf("%q: status %d, %q; want %d, %q", c.args, code, &said, c.code, c.says)
		}
	}
}
