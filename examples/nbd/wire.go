package main

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Numbers of the protocol, all big-endian.
const (
	magicServer = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption = 0x49484156454f5054 // "IHAVEOPT"
	magicReply  = 0x0003e889045565a9 // to an option
	magicAsk    = 0x25609513         // request
	magicAnswer = 0x67446698         // simple reply
	magicChunk  = 0x668e33ef         // structured reply

	// Handshake flags, the same bits from both sides.
	flagFixed   = 1
	flagNoZeros = 2

	optionHead = 16
	maxOption  = 16 << 10 // bytes of an option's data: names have up to 4096
	maxOptions = 64       // in one handshake

	requestSize = 28
	replySize   = 16       // of a simple reply, without data
	chunkSize   = 20       // of the header of a structured reply
	maxReply    = 28       // of any reply, without data
	maxRequest  = 32 << 20 // the largest request of a client that learns no other limit
)

// option is the number of an option.
type option uint32

const (
	optExportName option = 1
	optAbort      option = 2
	optList       option = 3
	optInfo       option = 6
	optGo         option = 7
	optStructured option = 8
	optListMeta   option = 9
	optSetMeta    option = 10
)

// Replies to options.
const (
	repAck     uint32 = 1
	repServer  uint32 = 2
	repInfo    uint32 = 3
	repMeta    uint32 = 4
	repUnsup   uint32 = 1<<31 + 1
	repInvalid uint32 = 1<<31 + 3
	repUnknown uint32 = 1<<31 + 6
	repEnding  uint32 = 1<<31 + 7
	repTooBig  uint32 = 1<<31 + 9

	infoExport uint16 = 0
	infoName   uint16 = 1
	infoBlocks uint16 = 3
)

// Transmission flags.
const (
	hasFlags    uint16 = 1 << 0
	hasReadOnly uint16 = 1 << 1
	hasFlush    uint16 = 1 << 2
	hasFUA      uint16 = 1 << 3
	hasTrim     uint16 = 1 << 5
	hasZeroes   uint16 = 1 << 6
	hasMulti    uint16 = 1 << 8 // a FLUSH covers what all connections wrote
	hasFastZero uint16 = 1 << 11
)

// command is the type of a request.
type command uint16

const (
	cmdRead   command = 0
	cmdWrite  command = 1
	cmdDisc   command = 2
	cmdFlush  command = 3
	cmdTrim   command = 4
	cmdZeroes command = 6
	cmdStatus command = 7
)

// Flags of requests.
const (
	askFUA    uint16 = 1
	askNoHole uint16 = 2
	askOne    uint16 = 8
	askFast   uint16 = 16
)

// errno is the error number in a reply.
type errno uint32

const (
	eOK       errno = 0
	ePerm     errno = 1
	eIO       errno = 5
	eInval    errno = 22
	eNoSpace  errno = 28
	eNotSup   errno = 95
	eShutdown errno = 108
)

// errProtocol says that a client broke the protocol.
var errProtocol = errors.New("not the NBD protocol")

// optionHeader is the header of an option.
type optionHeader struct {
	option option
	length uint32
}

// parseOption parses the header of an option.
func parseOption(b *[optionHead]byte) (optionHeader, error) {
	if m := binary.BigEndian.Uint64(b[:]); m != magicOption {
		return optionHeader{}, fmt.Errorf("%w: option with magic %#x", errProtocol, m)
	}
	return optionHeader{option(binary.BigEndian.Uint32(b[8:])), binary.BigEndian.Uint32(b[12:])}, nil
}

// parseInfo parses the data of INFO or GO: the export's name, and the types of information
// that the client wants.
func parseInfo(b []byte) (name string, wanted []uint16, err error) {
	be := binary.BigEndian
	if len(b) < 6 {
		return "", nil, fmt.Errorf("%d bytes, at least 6", len(b))
	}
	n := be.Uint32(b)
	if uint64(n) > uint64(len(b)-6) {
		return "", nil, fmt.Errorf("a name of %d bytes in %d", n, len(b))
	}
	name, b = string(b[4:4+n]), b[4+n:]
	count := int(be.Uint16(b))
	if b = b[2:]; len(b) != 2*count {
		return "", nil, fmt.Errorf("%d bytes for %d information requests", len(b), count)
	}
	for ; len(b) > 0; b = b[2:] {
		wanted = append(wanted, be.Uint16(b))
	}
	return name, wanted, nil
}

// request is a request's header.
type request struct {
	flags   uint16
	command command
	cookie  uint64
	offset  uint64
	length  uint32
}

// parseRequest parses a request's header.
func parseRequest(b *[requestSize]byte) (request, error) {
	be := binary.BigEndian
	if m := be.Uint32(b[:]); m != magicAsk {
		return request{}, fmt.Errorf("%w: request with magic %#x", errProtocol, m)
	}
	return request{
		flags: be.Uint16(b[4:]), command: command(be.Uint16(b[6:])), cookie: be.Uint64(b[8:]),
		offset: be.Uint64(b[16:]), length: be.Uint32(b[24:]),
	}, nil
}

// check returns what is wrong with a request for a disk of size bytes, or eOK.
func (r *request) check(size uint64, readOnly bool, largest uint32) errno {
	var known uint16 // flags
	switch r.command {
	case cmdRead, cmdWrite, cmdTrim, cmdFlush, cmdDisc:
		known = askFUA
	case cmdZeroes:
		known = askFUA | askNoHole | askFast
	case cmdStatus:
		known = askFUA | askOne
	default:
		return eInval
	}
	if r.flags&^known != 0 {
		return eInval
	}
	switch r.command {
	case cmdDisc:
		return eOK
	case cmdFlush:
		if r.offset != 0 || r.length != 0 {
			return eInval
		}
		return eOK
	}
	if r.command != cmdRead && r.command != cmdStatus && readOnly {
		return ePerm
	}
	if r.length == 0 || r.command <= cmdWrite && r.length > largest {
		return eInval
	}
	if r.offset > size || uint64(r.length) > size-r.offset {
		if r.command == cmdRead || r.command == cmdTrim || r.command == cmdStatus {
			return eInval
		}
		return eNoSpace
	}
	return eOK
}
