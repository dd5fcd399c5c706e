package tls13

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"hash"

	"golang.org/x/crypto/chacha20poly1305"
)

// suite is what a cipher suite means for records.
type suite struct {
	id     uint16
	keyLen int
	hash   func() hash.Hash
	aead   func(key []byte) (cipher.AEAD, error)
	// limit is how many records one key protects at most: half of the 2^24.5
	// full ones RFC 8446 section 5.5 has for AES-GCM. ChaCha20 would need none.
	limit uint64
}

func aesGCM(key []byte) (cipher.AEAD, error) {
	b, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(b)
}

const recordLimit = 1 << 23

// suiteOf finds a cipher suite of TLS 1.3. It has all that crypto/tls has.
func suiteOf(id uint16) (*suite, error) {
	switch id {
	case tls.TLS_AES_128_GCM_SHA256:
		return &suite{id, 16, sha256.New, aesGCM, recordLimit}, nil
	case tls.TLS_AES_256_GCM_SHA384:
		return &suite{id, 32, sha512.New384, aesGCM, recordLimit}, nil
	case tls.TLS_CHACHA20_POLY1305_SHA256:
		return &suite{id, 32, sha256.New, chacha20poly1305.New, recordLimit}, nil
	}
	return nil, fmt.Errorf("TLS: cipher suite %s is not supported", tls.CipherSuiteName(id))
}

// AEAD returns the cipher of the records of a cipher suite. Judges call it.
func AEAD(suiteID uint16, key []byte) (cipher.AEAD, error) {
	s, err := suiteOf(suiteID)
	switch {
	case err != nil:
		return nil, err
	case len(key) != s.keyLen:
		return nil, fmt.Errorf("TLS: key of %d bytes for %s", len(key), tls.CipherSuiteName(suiteID))
	}
	return s.aead(key)
}

// expand is HKDF-Expand-Label with an empty context (RFC 8446 section 7.1).
func (s *suite) expand(secret []byte, label string, n int) ([]byte, error) {
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(info, byte(len("tls13 ")+len(label)))
	info = append(info, "tls13 "+label...)
	info = append(info, 0)
	return hkdf.Expand(s.hash, secret, string(info), n)
}

// half is the protection of one direction.
type half struct {
	suite  *suite
	secret []byte
	aead   cipher.AEAD
	iv     [12]byte
	nonce  [12]byte // here and not on the stack: it would escape
	seq    uint64   // of the next record under this key
}

func (h *half) init(s *suite, secret []byte) error {
	if len(secret) != s.hash().Size() {
		return fmt.Errorf("TLS: traffic secret of %d bytes for %s", len(secret), tls.CipherSuiteName(s.id))
	}
	key, err := s.expand(secret, "key", s.keyLen)
	if err != nil {
		return err
	}
	iv, err := s.expand(secret, "iv", len(h.iv))
	if err != nil {
		return err
	}
	aead, err := s.aead(key)
	if err != nil {
		return err
	}
	h.suite, h.secret, h.aead, h.seq = s, secret, aead, 0
	copy(h.iv[:], iv)
	return nil
}

// update goes on to the next key (RFC 8446 section 7.2). It allocates: once in
// 2^23 records, or when the peer wants it.
func (h *half) update() error {
	next, err := h.suite.expand(h.secret, "traffic upd", len(h.secret))
	if err != nil {
		return err
	}
	return h.init(h.suite, next)
}

// next is the nonce of the next record.
func (h *half) next() []byte {
	h.nonce = h.iv
	tail := h.nonce[4:]
	binary.BigEndian.PutUint64(tail, binary.BigEndian.Uint64(tail)^h.seq)
	h.seq++
	return h.nonce[:]
}
