package tls13_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/verbs/soft/tls13"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// config is for both ends of connections over loopback.
func config(t testing.TB) *tls.Config {
	cfg := tlstest.NewCA(t).Config(t, tlstest.IPs("127.0.0.1"))
	cfg.ClientAuth, cfg.ServerName = tls.RequireAndVerifyClientCert, "127.0.0.1"
	return cfg
}

// needsOwn skips a test of records that crypto/tls does not make.
func needsOwn(t testing.TB) {
	if tls13.Approved {
		t.Skip("FIPS 140-3 mode: crypto/tls makes all records")
	}
}

// end makes our end of a connection whose other end is crypto/tls's. With carry our end has
// crypto/tls make its records.
func end(t *testing.T, client, carry bool) (*tls13.Session, net.Conn, *tls.Conn) {
	t.Helper()
	cfg := config(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []net.Conn{c, s} {
		x.SetDeadline(time.Now().Add(2 * time.Minute))
		t.Cleanup(func() { x.Close() })
	}
	mine, theirs, judge := s, c, tls.Client
	if client {
		mine, theirs, judge = c, s, tls.Server
	}
	other := judge(theirs, cfg)
	done := make(chan error, 1)
	go func() {
		err := other.Handshake()
		if err == nil { // at once: nothing behind the handshake may be read by it
			_, err = other.Write([]byte("first"))
		}
		done <- err
	}()
	ses, err := tls13.HandshakeBy(mine, cfg, client, carry)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return ses, mine, other
}

// read opens n bytes of application data. Tickets of the peer pass by.
func read(s *tls13.Session, c net.Conn, n int) ([]byte, error) {
	var got []byte
	for len(got) < n {
		b := make([]byte, tls13.MaxRecord)
		if _, err := io.ReadFull(c, b[:tls13.HeaderLen]); err != nil {
			return got, err
		}
		size, err := tls13.RecordLen(b)
		if err != nil {
			return got, err
		}
		if _, err := io.ReadFull(c, b[tls13.HeaderLen:size]); err != nil {
			return got, err
		}
		out := make([]byte, size)
		k, err := s.In.Open(out, b[:size])
		if err != nil {
			return got, err
		}
		got = append(got, out[:k]...)
	}
	return got, nil
}

// TestJudge: crypto/tls understands us and we it, either way, across key
// updates of ours.
func TestJudge(t *testing.T) {
	for _, c := range []struct{ client, carry bool }{{true, true}, {false, true}, {true, false}, {false, false}} {
		t.Run(fmt.Sprintf("client %v, carried %v", c.client, c.carry), func(t *testing.T) {
			if !c.carry {
				needsOwn(t)
			}
			judge(t, c.client, c.carry)
		})
	}
}

func judge(t *testing.T, client, carry bool) {
	s, c, other := end(t, client, carry)
	if got, err := read(s, c, 5); err != nil || string(got) != "first" {
		t.Fatalf("%q, %v", got, err)
	}
	data := make([]byte, 100000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for round := range 3 {
		b, err := s.Out.AppendUpdates(nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err = s.Out.Append(b, data)
		if err != nil {
			t.Fatal(err)
		}
		go c.Write(b)
		got := make([]byte, len(data))
		if _, err := io.ReadFull(other, got); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("round %d: %v", round, err)
		}
		wrote := make(chan struct{})
		go func() { other.Write(data); close(wrote) }()
		got, err = read(s, c, len(data))
		if <-wrote; err != nil || !bytes.Equal(got, data) {
			t.Fatalf("round %d: back: %v", round, err)
		}
	}
	c.Write(s.Out.AppendAlert(nil, tls13.AlertCloseNotify))
	if _, err := other.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("close_notify read as %v", err)
	}
	other.Close()
	if _, err := read(s, c, 1); err != tls13.ErrClosed {
		t.Errorf("close_notify of crypto/tls read as %v", err)
	}
}

// pair is both ends with made-up secrets.
func pair(t testing.TB, suite uint16, n int) (a, b *tls13.Session) {
	t.Helper()
	needsOwn(t)
	cs, ss := bytes.Repeat([]byte{1}, n), bytes.Repeat([]byte{2}, n)
	a, err := tls13.NewSession(suite, true, cs, ss)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = tls13.NewSession(suite, false, cs, ss); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// TestSuites: each suite carries data over key updates that either side wants.
func TestSuites(t *testing.T) {
	for _, c := range []struct {
		id uint16
		n  int
	}{{tls.TLS_AES_128_GCM_SHA256, 32}, {tls.TLS_AES_256_GCM_SHA384, 48}, {tls.TLS_CHACHA20_POLY1305_SHA256, 32}} {
		a, b := pair(t, c.id, c.n)
		for range 3 {
			if err := carry(a, b, "there"); err != nil {
				t.Fatal(err)
			}
			if err := carry(b, a, "and back"); err != nil {
				t.Fatal(err)
			}
			tls13.WantUpdate(a)
			if err := carry(a, b, ""); err != nil {
				t.Fatal(err)
			}
			if !b.Out.Due() {
				t.Fatal("an update that the peer wants is not due")
			}
		}
	}
	if _, err := tls13.NewSession(tls.TLS_RSA_WITH_AES_128_CBC_SHA, true, nil, nil); err == nil {
		t.Error("a suite of TLS 1.2 is taken")
	}
	if _, err := tls13.NewSession(tls.TLS_AES_128_GCM_SHA256, true, make([]byte, 5), make([]byte, 32)); err == nil {
		t.Error("a short secret is taken")
	}
}

// TestLimit: a key is changed before it has protected too much.
func TestLimit(t *testing.T) {
	a, b := pair(t, tls.TLS_AES_128_GCM_SHA256, 32)
	tls13.SetLimit(a, 3)
	updates := 0
	for range 10 {
		if a.Out.Due() {
			updates++
		}
		if err := carry(a, b, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if updates != 3 {
		t.Errorf("%d updates in 10 records of 3 each", updates)
	}
}

// TestHalves: one goroutine seals while another opens, and what the peer wants meanwhile is answered.
func TestHalves(t *testing.T) {
	a, b := pair(t, tls.TLS_AES_128_GCM_SHA256, 32)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 30 {
			tls13.WantUpdate(a)
			if err := carry(a, b, "there"); err != nil {
				t.Error(err)
			}
		}
	})
	var sealed []byte
	for range 30 {
		var err error
		if sealed, err = b.Out.Append(sealed, []byte("back")); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	sealed, err := b.Out.Append(sealed, []byte("."))
	if err != nil || b.Out.Due() {
		t.Fatalf("an answer is due: %v, %v", b.Out.Due(), err)
	}
	if got, err := openAll(a, sealed); err != nil || string(got) != strings.Repeat("back", 30)+"." {
		t.Errorf("%q, %v", got, err)
	}
}

// carry sends text, and whatever is due before it.
func carry(from, to *tls13.Session, text string) error {
	b, err := from.Out.Append(tls13.TakeQueued(from), []byte(text))
	if err != nil {
		return err
	}
	got, err := openAll(to, b)
	if err == nil && string(got) != text {
		err = errors.New("got " + string(got))
	}
	return err
}

func openAll(s *tls13.Session, b []byte) (got []byte, err error) {
	for {
		n, err := tls13.RecordLen(b)
		if err != nil || n == 0 || n > len(b) {
			return got, err
		}
		out := make([]byte, n)
		k, err := s.In.Open(out, b[:n])
		if err != nil {
			return got, err
		}
		got = append(got, out[:k]...)
		b = b[n:]
	}
}

// TestRules: records with a good tag that break a rule.
func TestRules(t *testing.T) {
	const data, handshake, alert, ccs = 23, 22, 21, 20
	ticket := append([]byte{4, 0, 0, 60}, make([]byte, 60)...)
	for _, c := range []struct {
		name string
		recs []tls13.Raw
		want error // nil: fine
	}{
		{"ticket", []tls13.Raw{{handshake, ticket}}, nil},
		{"ticket in pieces", []tls13.Raw{{handshake, ticket[:3]}, {handshake, ticket[3:30]}, {handshake, ticket[30:]}}, nil},
		{"ticket torn by data", []tls13.Raw{{handshake, ticket[:30]}, {data, []byte("x")}}, tls13.ErrType},
		{"huge ticket", []tls13.Raw{{handshake, []byte{4, 2, 0, 1}}}, tls13.ErrMessage},
		{"update in pieces", []tls13.Raw{{handshake, []byte{24, 0}}, {handshake, []byte{0, 1, 0}}}, nil},
		{"more behind an update", []tls13.Raw{{handshake, []byte{24, 0, 0, 1, 0, 4}}}, tls13.ErrMessage},
		{"wrong update", []tls13.Raw{{handshake, []byte{24, 0, 0, 1, 2}}}, tls13.ErrMessage},
		{"long update", []tls13.Raw{{handshake, []byte{24, 0, 0, 2, 0, 0}}}, tls13.ErrMessage},
		{"renegotiation", []tls13.Raw{{handshake, []byte{1, 0, 0, 0}}}, tls13.ErrMessage},
		{"empty handshake", []tls13.Raw{{handshake, nil}}, tls13.ErrMessage},
		{"CCS", []tls13.Raw{{ccs, []byte{1}}}, tls13.ErrType},
		{"no type", []tls13.Raw{{0, make([]byte, 9)}}, tls13.ErrType},
		{"padding", []tls13.Raw{{data, []byte("x")}, {data, nil}}, nil},
		{"nothing, for ever", slices.Repeat([]tls13.Raw{{data, nil}}, 17), tls13.ErrIdle},
		{"fatal alert", []tls13.Raw{{alert, []byte{2, 80}}}, tls.AlertError(80)},
		{"close_notify", []tls13.Raw{{alert, []byte{1, 0}}}, tls13.ErrClosed},
	} {
		a, b := pair(t, tls.TLS_AES_128_GCM_SHA256, 32)
		var wire []byte
		for _, r := range c.recs {
			wire = append(wire, tls13.SealRaw(a, r)...)
		}
		_, err := openAll(b, wire)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// A peer that changes its key with every record costs us keys and answers: it is
// cut off. One that does so every updateEvery records never is.
func TestUpdateFlood(t *testing.T) {
	for _, c := range []struct {
		records, updates int // data before each update
		want             error
	}{{0, 16, nil}, {1, 64, nil}, {1, 65, tls13.ErrUpdates}, {10, 200, tls13.ErrUpdates}, {256, 200, nil}} {
		a, b := pair(t, tls.TLS_AES_128_GCM_SHA256, 32)
		var err error
		for i := 0; i < c.updates && err == nil; i++ {
			for j := 0; j < c.records && err == nil; j++ {
				err = carry(a, b, "x")
			}
			tls13.WantUpdate(a)
			if err == nil {
				_, err = openAll(b, tls13.TakeQueued(a))
			}
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%d updates, one every %d records: %v, want %v", c.updates, c.records, err, c.want)
		}
	}
}

// FuzzOpen: whatever arrives, nothing panics and nothing is made up.
func FuzzOpen(f *testing.F) {
	a, _ := pair(f, tls.TLS_AES_128_GCM_SHA256, 32)
	good, _ := a.Out.Append(nil, []byte("hello"))
	f.Add(good, []byte{23, 1})
	f.Add([]byte{22, 3, 1, 0, 1, 0}, []byte{22, 24, 0, 0, 1, 1})
	f.Add([]byte{23, 3, 3, 0xff, 0xff}, []byte{21, 2, 40})
	f.Add(good[:9], []byte{22, 4, 0, 0, 2, 9, 9})
	f.Add(good, []byte{0, '0', 23})
	f.Add(good, []byte{0, '0', 0, 23, 0, 0})
	f.Add(good, []byte{0, 0, 0})
	f.Fuzz(func(t *testing.T, wire, inner []byte) {
		_, b := pair(t, tls.TLS_AES_128_GCM_SHA256, 32)
		if got, err := openAll(b, wire); err == nil && len(got) > 0 && string(got) != "hello" {
			t.Fatalf("%q from %x", got, wire)
		}
		a, b := pair(t, tls.TLS_AES_128_GCM_SHA256, 32)
		if len(inner) == 0 || len(inner) > tls13.MaxPlain {
			return
		}
		got, err := openAll(b, tls13.SealRaw(a, tls13.Raw{inner[0], inner[1:]}))
		// The type is the last byte that is not 0, whatever byte SealRaw was given as the type.
		plain := bytes.TrimRight(append(bytes.Clone(inner[1:]), inner[0]), "\x00")
		if err == nil && len(got) > 0 && (plain[len(plain)-1] != 23 || !bytes.Equal(got, plain[:len(plain)-1])) {
			t.Fatalf("%q from content %x", got, inner)
		}
	})
}

// TestHandshakeBounds: what no TLS client says is cut off early.
func TestHandshakeBounds(t *testing.T) {
	cfg := tlstest.NewCA(t).Config(t)
	for _, c := range []struct {
		say  string
		want error
	}{
		{"MPA ID Req Frame", &tls13.ErrPlain{}}, {"\x16\x03\x01\x20\x01", tls13.ErrOverflow}, {"\x16\x03", io.EOF}, {"", io.EOF},
	} {
		a, b := net.Pipe()
		go func() { io.WriteString(a, c.say); a.Close() }()
		_, err := tls13.Handshake(b, cfg, false)
		var plain *tls13.ErrPlain
		if !errors.Is(err, c.want) && !(errors.As(c.want, &plain) && errors.As(err, &plain)) {
			t.Errorf("%q: %v, want %v", c.say, err, c.want)
		}
	}
}
