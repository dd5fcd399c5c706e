package tls13

import "encoding/binary"

// Sealer makes the records of one direction. It is not safe for concurrent use.
type Sealer struct {
	half
	answer bool // the peer wants a new key of us
}

// UpdateLen is the length of the record of Update.
const UpdateLen = Overhead + 5

// Seal makes a record of application data in place. The data are the n bytes, at
// most MaxPlain, at b[HeaderLen:]. It returns the length of the record, n+Overhead,
// for which b has room.
func (s *Sealer) Seal(b []byte, n int) int { return s.seal(b, typeData, n) }

func (s *Sealer) seal(b []byte, typ byte, n int) int {
	b[HeaderLen+n] = typ
	header(b, n+1+tagLen)
	body := b[HeaderLen : HeaderLen+n+1]
	s.aead.Seal(body[:0], s.next(), body, b[:HeaderLen])
	return n + Overhead
}

func header(b []byte, n int) {
	b[0], b[1], b[2] = typeData, 3, 3
	binary.BigEndian.PutUint16(b[3:], uint16(n))
}

// Due reports whether Update has to come before more data.
func (s *Sealer) Due() bool { return s.answer || s.seq >= s.suite.limit }

// Update makes the KeyUpdate record, of UpdateLen bytes, in b. Records made
// afterwards use the next key.
func (s *Sealer) Update(b []byte) error {
	copy(b[HeaderLen:], []byte{msgKeyUpdate, 0, 0, 1, 0})
	s.seal(b, typeHandshake, 5)
	s.answer = false
	return s.update()
}

// AppendAlert appends the record of an alert to b. Nothing may be sent after it.
func (s *Sealer) AppendAlert(b []byte, code uint8) []byte {
	level := byte(2)
	if code == AlertCloseNotify {
		level = 1
	}
	n := len(b)
	b = append(b, make([]byte, 2+Overhead)...)
	b[n+HeaderLen], b[n+HeaderLen+1] = level, code
	s.seal(b[n:], typeAlert, 2)
	return b
}

// PlainAlert returns the record of a fatal alert ahead of a handshake.
func PlainAlert(code uint8) []byte { return []byte{typeAlert, 3, 3, 0, 2, 2, code} }

// Append appends p to b as records, with an Update if one is due.
func (s *Sealer) Append(b, p []byte) ([]byte, error) {
	for len(p) > 0 {
		if s.Due() {
			n := len(b)
			b = append(b, make([]byte, UpdateLen)...)
			if err := s.Update(b[n:]); err != nil {
				return b, err
			}
		}
		k := min(len(p), MaxPlain)
		n := len(b)
		b = append(b, make([]byte, k+Overhead)...)
		copy(b[n+HeaderLen:], p[:k])
		s.Seal(b[n:], k)
		p = p[k:]
	}
	return b, nil
}
