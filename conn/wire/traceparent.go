package wire

import (
	"encoding/hex"
	"errors"
)

// TraceparentLen is the length in bytes of a Traceparent, and TraceparentRoom how many it
// takes in a frame: zeros fill it up.
const (
	TraceparentLen  = 26
	TraceparentRoom = 32
)

// Traceparent is the trace that a message belongs to, as W3C Trace Context says it: version (1
// byte), trace id (16), parent id (8), flags (1).
type Traceparent [TraceparentLen]byte

// textLen is how long the text of a Traceparent is, and dashes where its parts end.
const textLen = 55

var dashes = [...]int{2, 35, 52}

var (
	errTraceText    = errors.New("a traceparent is 00-<32 hexadecimal digits>-<16>-<2>, in lower case")
	errTraceVersion = errors.New("a traceparent has no version ff")
	errTraceZero    = errors.New("a traceparent has no trace id or parent id of zeros")
)

// ParseTraceparent returns the Traceparent in text, the value of a traceparent header. The error says
// what is wrong with text.
func ParseTraceparent(text string) (p Traceparent, err error) {
	if len(text) != textLen {
		return p, errTraceText
	}
	var digits [2 * TraceparentLen]byte
	n := 0
	for i := range len(text) {
		switch c := text[i]; {
		case i == dashes[0] || i == dashes[1] || i == dashes[2]:
			if c != '-' {
				return p, errTraceText
			}
		case c >= '0' && c <= '9' || c >= 'a' && c <= 'f':
			digits[n] = c
			n++
		default:
			return p, errTraceText
		}
	}
	_, _ = hex.Decode(p[:], digits[:]) // they are digits: no error
	return p, p.Check()
}

// Check says what is wrong with p, which may come from anybody.
func (p *Traceparent) Check() error {
	switch {
	case p[0] == 0xff:
		return errTraceVersion
	case [16]byte(p[1:17]) == [16]byte{}, [8]byte(p[17:25]) == [8]byte{}:
		return errTraceZero
	}
	return nil
}

// TraceparentText returns p as the value of a traceparent header.
func TraceparentText(p *Traceparent) string {
	var digits [2 * TraceparentLen]byte
	hex.Encode(digits[:], p[:])
	text := make([]byte, 0, textLen)
	for i, c := range digits {
		if i == 2 || i == 34 || i == 50 {
			text = append(text, '-')
		}
		text = append(text, c)
	}
	return string(text)
}

// Put writes p into the first TraceparentRoom bytes of b.
func (p *Traceparent) Put(b []byte) {
	clear(b[copy(b, p[:]):TraceparentRoom])
}

// Traced reports whether a Traceparent follows the header, and the request of an atomic if
// there is one.
func (h *Header) Traced() bool { return h.Ext[0] == extTraceparent }

// AddExtTraceparent puts the extension header that says so ahead of the others, which leave room.
func (h *Header) AddExtTraceparent() {
	copy(h.Ext[1:], h.Ext[:ExtLen-1])
	h.Ext[0] = extTraceparent
}
