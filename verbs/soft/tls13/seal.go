package tls13

import (
	"encoding/binary"
	"sync/atomic"
)

// Sealer makes the records of one direction. Its methods are not for concurrent use, but an Opener of the same
// session may be used meanwhile, see Session.Halves.
type Sealer struct {
	half
	by     *carried    // nil: the half does it
	answer atomic.Bool // the peer wants a new key of us. The Opener says so, also meanwhile
}

// UpdateLen is the length of the record of a KeyUpdate, MaxUpdates that of all that are due.
const (
	UpdateLen  = Overhead + 5
	MaxUpdates = (maxAnswers + 1) * UpdateLen
)

// Seal makes a record of application data in b. The data p are 1 to MaxPlain bytes. Seal writes to
// the byte behind them, for which p has the capacity. p may be at b[HeaderLen:]; elsewhere it does
// not overlap b. Seal returns the length of the record, len(p)+Overhead, for which b has room. Nothing may be due.
func (s *Sealer) Seal(b, p []byte) (int, error) {
	if s.by != nil {
		return s.by.seal(b[:len(p)+Overhead], p)
	}
	return s.seal(b, typeData, p), nil
}

func (s *Sealer) seal(b []byte, typ byte, p []byte) int {
	n := len(p)
	p = append(p[:n:n+1], typ)
	header(b, n+1+tagLen)
	s.aead.Seal(b[HeaderLen:HeaderLen], s.next(), p, b[:HeaderLen])
	return n + Overhead
}

func header(b []byte, n int) {
	b[0], b[1], b[2] = typeData, 3, 3
	binary.BigEndian.PutUint16(b[3:], uint16(n))
}

// Due reports whether AppendUpdates has to come before more data.
func (s *Sealer) Due() bool {
	if s.by != nil {
		return len(s.by.out) > 0
	}
	return s.answer.Load() || s.seq >= s.suite.limit
}

// AppendUpdates appends the KeyUpdate records that are due, at most MaxUpdates bytes, or one.
// Records made afterwards use the next key.
func (s *Sealer) AppendUpdates(b []byte) ([]byte, error) {
	if s.by != nil {
		return s.by.answers(b), nil
	}
	s.answer.Store(false) // before: the peer may want another one from now on
	n := len(b)
	b = append(b, make([]byte, UpdateLen)...)
	s.seal(b[n:], typeHandshake, append(b[n+HeaderLen:n+HeaderLen], msgKeyUpdate, 0, 0, 1, 0))
	return b, s.update()
}

// AppendAlert appends the record of an alert to b. Nothing may be sent after it.
func (s *Sealer) AppendAlert(b []byte, code uint8) []byte {
	if s.by != nil {
		return s.by.alert(b, code)
	}
	level := byte(2)
	if code == AlertCloseNotify {
		level = 1
	}
	n := len(b)
	b = append(b, make([]byte, 2+Overhead)...)
	s.seal(b[n:], typeAlert, append(b[n+HeaderLen:n+HeaderLen], level, code))
	return b
}

// PlainAlert returns the record of a fatal alert ahead of a handshake.
func PlainAlert(code uint8) []byte { return []byte{typeAlert, 3, 3, 0, 2, 2, code} }

// Append appends p to b as records, with the updates that are due.
func (s *Sealer) Append(b, p []byte) ([]byte, error) {
	for len(p) > 0 {
		if s.Due() {
			var err error
			if b, err = s.AppendUpdates(b); err != nil {
				return b, err
			}
		}
		k := min(len(p), MaxPlain)
		n := len(b)
		b = append(b, make([]byte, k+Overhead)...)
		if _, err := s.Seal(b[n:], append(b[n+HeaderLen:n+HeaderLen], p[:k]...)); err != nil {
			return b[:n], err
		}
		p = p[k:]
	}
	return b, nil
}
