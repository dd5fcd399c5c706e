package rpc

import (
	"fmt"

	"github.com/rdsd/rdsd/rds"
)

// Header is what a request or an answer says besides its body: values by names of 1 to 255
// bytes. Names are lower-case by convention. Those that begin with "rpc." belong to this
// package.
type Header map[string]string

// maxName is the longest name of a header, bytes.
const maxName = 255

// The bounds of a Header. One beyond them is not sent: ErrTooLarge.
const (
	// MaxHeaders is the most headers of one request or answer.
	MaxHeaders = 32
	// MaxHeaderBytes is how long all names and values of one Header are together.
	MaxHeaderBytes = 8 << 10
)

// Traceparent is the name of the header with the trace that a request belongs to, in the
// format of W3C Trace Context: 00-<trace id>-<parent id>-<flags>. The package carries it as
// any other. Interceptors that trace calls set and read it.
const Traceparent = "traceparent"

// encode returns h as it travels: for each header u8 length of the name, u16 length of the
// value, name, value.
func (h Header) encode() ([]byte, error) {
	if len(h) > MaxHeaders {
		return nil, &detailed{ErrTooLarge, fmt.Sprintf("%d headers, the limit is %d (MaxHeaders)", len(h), MaxHeaders)}
	}
	size := 0
	for name, value := range h {
		if len(name) == 0 || len(name) > maxName {
			return nil, &detailed{rds.ErrInvalid, fmt.Sprintf("a header's name has 1 to %d bytes, not %d", maxName, len(name))}
		}
		size += len(name) + len(value)
	}
	if size > MaxHeaderBytes {
		return nil, &detailed{ErrTooLarge, fmt.Sprintf("headers of %d bytes, the limit is %d (MaxHeaderBytes)", size, MaxHeaderBytes)}
	}
	b := make([]byte, 0, size+3*len(h))
	for name, value := range h {
		b = le.AppendUint16(append(b, byte(len(name))), uint16(len(value)))
		b = append(append(b, name...), value...)
	}
	return b, nil
}

// parseHeader reads n headers from the beginning of b, and returns what is behind them.
func parseHeader(b []byte, n int) (h Header, rest []byte, err error) {
	if n > MaxHeaders {
		return nil, nil, fmt.Errorf("%d headers", n)
	}
	h, size := make(Header, n), 0
	for range n {
		if len(b) < 3 {
			return nil, nil, fmt.Errorf("header of %d bytes", len(b))
		}
		name, value := int(b[0]), int(le.Uint16(b[1:]))
		size += name + value
		b = b[3:]
		if name == 0 || name+value > len(b) || size > MaxHeaderBytes {
			return nil, nil, fmt.Errorf("header of %d and %d bytes in %d", name, value, len(b))
		}
		h[string(b[:name])], b = string(b[name:name+value]), b[name+value:]
	}
	if len(h) < n {
		return nil, nil, fmt.Errorf("%d different names in %d headers", len(h), n)
	}
	return h, b, nil
}
