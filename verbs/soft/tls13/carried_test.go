package tls13_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"testing"

	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// mixed is a connection whose end b has crypto/tls make its records, and whose end a makes its own.
func mixed(t testing.TB) (a, b *tls13.Session) {
	t.Helper()
	needsOwn(t)
	cfg := config(t)
	x, y := net.Pipe()
	defer x.Close()
	defer y.Close()
	done := make(chan error, 1)
	go func() {
		var err error
		b, err = tls13.HandshakeBy(y, cfg, false, true)
		done <- err
	}()
	a, err := tls13.HandshakeBy(x, cfg, true, false)
	if err = errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// TestCarried: an end whose records crypto/tls makes, beside one that makes its own: data, changes of
// keys that either side wants, and the sizes of records.
func TestCarried(t *testing.T) {
	a, b := mixed(t)
	if a.Suite() != b.Suite() || b.Suite() == "" {
		t.Errorf("suites %q and %q", a.Suite(), b.Suite())
	}
	if b.Halves() || !a.Halves() {
		t.Errorf("which sessions have two halves: %v, %v", a.Halves(), b.Halves())
	}
	for range 40 {
		tls13.WantUpdate(a)
		for _, text := range []string{"", "there"} {
			if err := carry(a, b, text); err != nil {
				t.Fatal(err)
			}
		}
		if !b.Out.Due() {
			t.Fatal("an update that the peer wants is not due")
		}
		if err := carry(b, a, "and back"); err != nil {
			t.Fatal(err)
		}
		if b.Out.Due() {
			t.Fatal("an answer is due twice")
		}
	}
	for _, n := range []int{1, 1000, tls13.MaxPlain - 1, tls13.MaxPlain} {
		rec := make([]byte, n+tls13.Overhead)
		if got, err := b.Out.Seal(rec, make([]byte, n, n+1)); err != nil || got != len(rec) {
			t.Errorf("a record of %d bytes has %d: %v", n, got, err)
		}
		if got, err := openAll(a, rec); err != nil || !bytes.Equal(got, make([]byte, n)) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestCarriedAnswers: the answers to a peer's updates wait for the next data. A peer that wants ever more
// new keys meanwhile is cut off.
func TestCarriedAnswers(t *testing.T) {
	const most = 16
	for _, n := range []int{1, most, most + 1} {
		a, b := mixed(t)
		var err error
		for range n {
			tls13.WantUpdate(a)
			err = errors.Join(err, carry(a, b, "x"))
		}
		if errors.Is(err, tls13.ErrUpdates) != (n > most) || err != nil && n <= most {
			t.Errorf("%d updates: %v", n, err)
		}
		if out, _ := b.Out.AppendUpdates(nil); len(out) != n*tls13.UpdateLen || len(out) > tls13.MaxUpdates {
			t.Errorf("%d updates have %d bytes of answers", n, len(out))
		}
	}
}

// TestCarriedRules: records that break a rule end the connection by the error that they have
// without crypto/tls, and with its alert.
func TestCarriedRules(t *testing.T) {
	const data, handshake, alert = 23, 22, 21
	for _, c := range []struct {
		name  string
		recs  []tls13.Raw
		spoil bool
		want  error
		alert tls.AlertError // that is sent
	}{
		{"forged", []tls13.Raw{{data, []byte("x")}}, true, tls13.ErrMAC, tls13.AlertBadRecordMAC},
		{"huge", []tls13.Raw{{data, make([]byte, tls13.MaxPlain+1)}}, false, tls13.ErrOverflow, tls13.AlertRecordOverflow},
		{"no type", []tls13.Raw{{0, make([]byte, 9)}}, false, tls13.ErrType, tls13.AlertUnexpectedMessage},
		{"renegotiation", []tls13.Raw{{handshake, []byte{1, 0, 0, 0}}}, false, tls13.ErrType, 0},
		{"nothing, for ever", nothing(), false, tls13.ErrType, tls13.AlertUnexpectedMessage},
		{"fatal alert", []tls13.Raw{{alert, []byte{2, 80}}}, false, tls.AlertError(80), 0},
		{"close_notify", []tls13.Raw{{alert, []byte{1, 0}}}, false, tls13.ErrClosed, 0},
	} {
		a, b := mixed(t)
		var wire []byte
		for _, r := range c.recs {
			wire = append(wire, tls13.SealRaw(a, r)...)
		}
		if c.spoil {
			wire[len(wire)-1] ^= 1
		}
		_, err := openAll(b, wire)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if c.alert == 0 {
			continue
		}
		if _, err := openAll(a, b.Out.AppendAlert(nil, uint8(c.alert))); !errors.Is(err, c.alert) {
			t.Errorf("%s: the other end sees %v, want %v", c.name, err, c.alert)
		}
	}
}

func nothing() (all []tls13.Raw) {
	for range 40 {
		all = append(all, tls13.Raw{Type: 23})
	}
	return all
}
