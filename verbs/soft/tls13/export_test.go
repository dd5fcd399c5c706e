package tls13

import (
	"crypto/cipher"
	"crypto/tls"
	"net"
)

// Approved reports whether only crypto/tls may make records in this process.
var Approved = approved

// HandshakeBy is Handshake in the mode carry and in the other one.
func HandshakeBy(c net.Conn, cfg *tls.Config, client, carry bool) (*Session, error) {
	return handshake(c, cfg, client, carry)
}

// Raw is a record's content type and content.
type Raw struct {
	Type byte
	Body []byte
}

// SealRaw makes a record that Sealer does not make.
func SealRaw(s *Session, r Raw) []byte {
	b := make([]byte, len(r.Body)+Overhead)
	s.Out.seal(b, r.Type, append(b[HeaderLen:HeaderLen], r.Body...))
	return b
}

var queued = map[*Session][]byte{}

// WantUpdate has s send a KeyUpdate that wants another one back.
func WantUpdate(s *Session) {
	b := SealRaw(s, Raw{typeHandshake, []byte{msgKeyUpdate, 0, 0, 1, 1}})
	s.Out.update()
	queued[s] = b
}

// TakeQueued takes the record of WantUpdate.
func TakeQueued(s *Session) []byte {
	b := queued[s]
	delete(queued, s)
	return b
}

// SetLimit sets how many records a key of s protects.
func SetLimit(s *Session, n uint64) { s.Out.suite.limit = n }

// meddler changes what is opened into place.
type meddler struct {
	cipher.AEAD
	place  []byte
	change func(b []byte)
}

func (m *meddler) Open(dst, nonce, sealed, data []byte) ([]byte, error) {
	b, err := m.AEAD.Open(dst, nonce, sealed, data)
	if m.change != nil && err == nil && &b[0] == &m.place[0] {
		m.change(b)
	}
	return b, err
}

// Meddle has another process change place whenever s has opened a record into it, type and padding included, before
// s looks at it.
func Meddle(s *Session, place []byte, change func(b []byte)) {
	if m, ok := s.In.aead.(*meddler); ok {
		s.In.aead = m.AEAD
	}
	s.In.aead = &meddler{s.In.aead, place, change}
}
