package tls13

import (
	"encoding/binary"
	"errors"
)

// Handshake messages that may come after the handshake.
const (
	msgNewSessionTicket = 4
	msgKeyUpdate        = 24
)

// ErrClosed: the peer has closed its direction in order, with close_notify.
var ErrClosed = errors.New("TLS: closed by the peer")

const (
	// maxIdle is how many records without data may follow each other.
	maxIdle = 16
	// A peer may change its key maxUpdates times, and once more for every
	// updateEvery records with data: making keys, and the answer, cost far more
	// than the record that asks for it. Correct peers change a key after
	// millions of records, and answer each change of ours.
	maxUpdates  = 64
	updateEvery = 256
)

// Opener opens the records of one direction. It must not be used after an error. It
// is not safe for concurrent use.
type Opener struct {
	half
	by   *carried // nil: the half does it
	out  *Sealer  // that answers a KeyUpdate
	idle int

	updates int // less one for every updateEvery records with data, never below 0
	data    int // such records since

	// A handshake message under way: its first bytes, and what is to skip.
	msg  [5]byte
	have int
	skip int
}

// RecordLen returns the length, header included, of the record that b begins with; 0
// if b is too short to tell. *Error: no record begins so.
func RecordLen(b []byte) (int, error) {
	if len(b) < HeaderLen {
		return 0, nil
	}
	if b[0] != typeData {
		return 0, broken(AlertUnexpectedMessage, "%w: %d", ErrType, b[0])
	}
	n := HeaderLen + int(binary.BigEndian.Uint16(b[3:]))
	if n > MaxRecord {
		return 0, broken(AlertRecordOverflow, "%w: %d bytes", ErrOverflow, n-HeaderLen)
	}
	return n, nil
}

// Open opens the whole record rec, whose length is that of RecordLen, and writes its
// application data to dst. dst has room for a byte more than len(rec)-Overhead, which are all overwritten, and does not
// overlap rec. Open returns the number of bytes, which is 0 for a record without
// application data. Errors: ErrClosed, *Error.
func (o *Opener) Open(dst, rec []byte) (int, error) {
	if len(rec) < Overhead {
		return 0, broken(AlertBadRecordMAC, "%w (%d bytes)", ErrMAC, len(rec))
	}
	if o.by != nil {
		return o.by.open(dst, rec)
	}
	return o.open(dst, rec, o.next())
}

// OpenPlace is Open with a dst that another process may change meanwhile: nothing that is read
// from there is believed, but that a record is one of data without padding. Whoever pretends that
// of another record changes what is in its own memory.
func (o *Opener) OpenPlace(dst, rec []byte) (int, error) {
	if o.by != nil || len(rec) <= Overhead {
		return o.Open(dst, rec) // crypto/tls opens in memory of its own
	}
	nonce := o.next()
	p, err := o.aead.Open(dst[:0], nonce, rec[HeaderLen:], rec[:HeaderLen])
	if err != nil {
		return 0, broken(AlertBadRecordMAC, "%w", ErrMAC)
	}
	if n := len(p) - 1; n <= MaxPlain && p[n] == typeData {
		return o.tookData(n)
	}
	own := make([]byte, len(p))
	n, err := o.open(own, rec, nonce)
	copy(dst, own[:n])
	return n, err
}

func (o *Opener) open(dst, rec, nonce []byte) (int, error) {
	p, err := o.aead.Open(dst[:0], nonce, rec[HeaderLen:], rec[:HeaderLen])
	if err != nil {
		return 0, broken(AlertBadRecordMAC, "%w", ErrMAC)
	}
	n := len(p) - 1
	for n >= 0 && p[n] == 0 {
		n-- // padding
	}
	if n < 0 {
		return 0, broken(AlertUnexpectedMessage, "%w: none", ErrType)
	}
	if n > MaxPlain {
		return 0, broken(AlertRecordOverflow, "%w: %d bytes of content", ErrOverflow, n)
	}
	typ := p[n]
	p = p[:n]
	if typ == typeData && n > 0 {
		return o.tookData(n)
	}
	if o.idle++; o.idle > maxIdle {
		return 0, broken(AlertUnexpectedMessage, "%w", ErrIdle)
	}
	switch typ {
	case typeData:
		return 0, nil
	case typeHandshake:
		return 0, o.handshake(p)
	case typeAlert:
		return 0, alert(p)
	}
	return 0, broken(AlertUnexpectedMessage, "%w: %d", ErrType, typ)
}

// tookData counts a record of n bytes of application data.
func (o *Opener) tookData(n int) (int, error) {
	if o.have > 0 || o.skip > 0 {
		return 0, broken(AlertUnexpectedMessage, "%w: data in the middle of another message", ErrType)
	}
	o.idle = 0
	if o.data++; o.data == updateEvery {
		o.data, o.updates = 0, max(o.updates-1, 0)
	}
	return n, nil
}

func alert(p []byte) error {
	if len(p) != 2 {
		return broken(AlertDecodeError, "an alert of %d bytes", len(p))
	}
	if p[1] == AlertCloseNotify {
		return ErrClosed
	}
	return alertError(p[1])
}

// handshake handles p, a part of the stream of handshake messages.
func (o *Opener) handshake(p []byte) error {
	if len(p) == 0 {
		return broken(AlertUnexpectedMessage, "%w: an empty one", ErrMessage)
	}
	for len(p) > 0 {
		if o.skip > 0 {
			k := min(o.skip, len(p))
			o.skip -= k
			p = p[k:]
			continue
		}
		o.msg[o.have] = p[0]
		p = p[1:]
		if o.have++; o.have < 4 {
			continue
		}
		n := int(o.msg[1])<<16 | int(o.msg[2])<<8 | int(o.msg[3])
		switch {
		case o.msg[0] == msgNewSessionTicket && n <= 1<<17:
			o.skip, o.have = n, 0
		case o.msg[0] != msgKeyUpdate || n != 1:
			return broken(AlertUnexpectedMessage, "%w: type %d of %d bytes", ErrMessage, o.msg[0], n)
		case o.have == 5:
			if len(p) > 0 || o.msg[4] > 1 {
				return broken(AlertUnexpectedMessage, "%w: a wrong KeyUpdate", ErrMessage)
			}
			o.have = 0
			if o.updates++; o.updates > maxUpdates {
				return broken(AlertUnexpectedMessage, "%w", ErrUpdates)
			}
			if o.msg[4] == 1 {
				o.out.answer.Store(true)
			}
			if err := o.update(); err != nil {
				return &Error{AlertInternal, err}
			}
		}
	}
	return nil
}
