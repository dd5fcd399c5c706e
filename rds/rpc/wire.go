package rpc

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

// The formats of the messages. All numbers are little-endian. The first 16 bytes are the
// same in all versions: version, kind, six bytes that depend on them, id.
//
// Version 2 is version 1 with headers (Header.encode). A message without headers is of
// version 1, except that a request of version 2 with none says that its answer may have some.
// An answer of several parts has its headers in the first.
//
//	request  1: u8 version, u8 kind, u8 length of the method, u8 number of headers, u32 length of the body,
//	            u64 id, u64 timeout in µs (0: none), u64 cookie of the body (0: the body
//	            follows), u64 size of the memory for the answer (the message's cookie
//	            names it); method, headers, body
//	answer   2: u8 version, u8 kind, u8 status, u8 flags (1: written into the memory, 2: has headers),
//	            u32 errno, u64 id, u64 length of the whole answer, u64 offset of this part;
//	            u8 number of headers and headers if flags say so; part
//	cancel   3: u8 version, u8 kind, 6 bytes 0, u64 id
//	probe    4: as cancel with id 0; up to 128 u64 ids
//	unknown  5: as probe: those of a probe's ids that the server does not know, or ids that
//	            will have no answer
//	mark     6: as cancel with id 0, from a Caller to itself
//	known    7: as probe: those of a probe's ids that the server knows; from release 0.3.0
const (
	version       = 1
	versionHeader = 2

	kindRequest = 1
	kindAnswer  = 2
	kindCancel  = 3
	kindProbe   = 4
	kindUnknown = 5
	kindMark    = 6
	kindKnown   = 7

	commonLen  = 16
	requestLen = 40
	answerLen  = 32

	// maxIDs is the most ids in a probe.
	maxIDs = 128
	// maxMethod is the longest name of a method, bytes.
	maxMethod = 255
	// maxText is the longest text of an error, bytes.
	maxText = 1024
	// inline is how many bytes of a request or an answer travel in one message. It is
	// below the send buffer limit of a new socket, and the same at both ends.
	inline = 128 << 10
)

// status is what came of a call at the server.
type status uint8

const (
	statusOK status = iota
	statusFailed
	statusBusy
	statusNoMethod
	statusTooLarge
	statusMalformed
	statusVersion
	statuses
)

const (
	flagWritten = 1 // the answer is in the memory that the request named
	flagHeader  = 2 // headers are ahead of the part
)

var le = binary.LittleEndian

// request is a request as it travels. method and body point into the message.
type request struct {
	id      uint64
	timeout uint64 // µs, 0: none
	cookie  uint64 // of the body's memory, 0: body has it
	into    uint64 // size of the memory for the answer, 0: there is none
	size    uint32 // of the body
	method  []byte
	body    []byte
	headed  bool   // of version 2
	header  Header // once parsed
	head    []byte // header as it travels
}

// answer is an answer, or a part of one, as it travels.
type answer struct {
	id     uint64
	total  uint64
	offset uint64
	status status
	flags  uint8
	errno  syscall.Errno
	part   []byte
	header Header // once parsed
	head   []byte // its number and header as it travels, or nothing
}

func putCommon(b []byte, kind byte, id uint64) {
	b[0], b[1] = version, kind
	le.PutUint64(b[8:], id)
}

// appendRequest appends q, with method for its own, to b.
func appendRequest(b []byte, q *request, method string) []byte {
	var h [requestLen]byte
	putCommon(h[:], kindRequest, q.id)
	if q.headed {
		h[0], h[3] = versionHeader, byte(len(q.header))
	}
	h[2] = byte(len(method))
	le.PutUint32(h[4:], q.size)
	le.PutUint64(h[16:], q.timeout)
	le.PutUint64(h[24:], q.cookie)
	le.PutUint64(h[32:], q.into)
	b = append(append(b, h[:]...), method...)
	return append(append(b, q.head...), q.body...)
}

// appendAnswer appends a to b.
func appendAnswer(b []byte, a *answer) []byte {
	var h [answerLen]byte
	putCommon(h[:], kindAnswer, a.id)
	h[2], h[3] = byte(a.status), a.flags
	if a.head != nil {
		h[0], h[3] = versionHeader, a.flags|flagHeader
	}
	le.PutUint32(h[4:], uint32(a.errno))
	le.PutUint64(h[16:], a.total)
	le.PutUint64(h[24:], a.offset)
	b = append(append(b, h[:]...), a.head...)
	return append(b, a.part...)
}

// newIDs returns a cancel, a probe or an unknown.
func newIDs(kind byte, id uint64, ids []uint64) []byte {
	b := make([]byte, commonLen, commonLen+8*len(ids))
	putCommon(b, kind, id)
	for _, x := range ids {
		b = le.AppendUint64(b, x)
	}
	return b
}

// parseCommon returns what is the same in all versions. ok is false for a message that no
// version has.
func parseCommon(b []byte) (ver, kind byte, id uint64, ok bool) {
	if len(b) < commonLen || b[0] == 0 {
		return 0, 0, 0, false
	}
	return b[0], b[1], le.Uint64(b[8:]), true
}

// parseRequest reads a request.
func parseRequest(b []byte) (q request, err error) {
	if len(b) < requestLen {
		return q, fmt.Errorf("request of %d bytes", len(b))
	}
	q = request{id: le.Uint64(b[8:]), timeout: le.Uint64(b[16:]), cookie: le.Uint64(b[24:]), into: le.Uint64(b[32:]), size: le.Uint32(b[4:])}
	n, headers := int(b[2]), int(b[3])
	rest := b[requestLen:]
	switch q.headed = b[0] == versionHeader; {
	case !q.headed && headers != 0:
		return q, fmt.Errorf("reserved byte %#x", headers)
	case n > len(rest):
		return q, fmt.Errorf("method of %d bytes in %d", n, len(rest))
	}
	q.method, q.body = rest[:n], rest[n:]
	if q.headed {
		all := q.body
		if q.header, q.body, err = parseHeader(all, headers); err != nil {
			return q, err
		}
		q.head = all[:len(all)-len(q.body)]
	}
	switch {
	case q.cookie != 0 && len(q.body) > 0:
		return q, fmt.Errorf("%d bytes besides a body in memory", len(q.body))
	case q.cookie == 0 && uint64(len(q.body)) != uint64(q.size):
		return q, fmt.Errorf("body of %d bytes, said to have %d", len(q.body), q.size)
	}
	return q, nil
}

// parseAnswer reads an answer.
func parseAnswer(b []byte) (a answer, err error) {
	if len(b) < answerLen {
		return a, fmt.Errorf("answer of %d bytes", len(b))
	}
	a = answer{id: le.Uint64(b[8:]), total: le.Uint64(b[16:]), offset: le.Uint64(b[24:]), status: status(b[2]), flags: b[3],
		errno: syscall.Errno(le.Uint32(b[4:])), part: b[answerLen:]}
	if b[0] == versionHeader && a.flags&flagHeader != 0 && a.offset == 0 && len(a.part) > 0 {
		all := a.part
		if a.header, a.part, err = parseHeader(all[1:], int(all[0])); err != nil {
			return a, err
		}
		a.head, a.flags = all[:len(all)-len(a.part)], a.flags&^flagHeader
	}
	n := uint64(len(a.part))
	switch {
	case a.status >= statuses:
		return a, fmt.Errorf("status %d", a.status)
	case a.flags&^flagWritten != 0:
		return a, fmt.Errorf("flags %#x", a.flags)
	case a.flags == flagWritten && (n != 0 || a.offset != 0 || a.status != statusOK):
		return a, fmt.Errorf("an answer in memory with %d bytes", n)
	case a.flags == flagWritten:
	case a.offset > a.total || n > a.total-a.offset || n == 0 && a.total > 0:
		return a, fmt.Errorf("%d bytes at %d of %d", n, a.offset, a.total)
	case a.status != statusOK && (n != a.total || n > maxText):
		return a, fmt.Errorf("text of an error: %d of %d bytes", n, a.total)
	}
	return a, nil
}

// parseIDs reads the ids of a probe or an unknown.
func parseIDs(b []byte) (ids []uint64, err error) {
	b = b[commonLen:]
	if len(b)%8 != 0 || len(b) > 8*maxIDs {
		return nil, fmt.Errorf("%d bytes of ids", len(b))
	}
	for ; len(b) > 0; b = b[8:] {
		ids = append(ids, le.Uint64(b))
	}
	return ids, nil
}
