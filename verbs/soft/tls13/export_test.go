package tls13

import (
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
	copy(b[HeaderLen:], r.Body)
	s.Out.seal(b, r.Type, len(r.Body))
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
