package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// handshakePatience limits a whole handshake.
const handshakePatience = 10 * time.Second

// errAborted says that the client ended the handshake by ABORT, which is no error of its own.
var errAborted = errors.New("ended by the client")

// export is what a handshake says about the disk.
type export struct {
	name    string
	size    uint64
	flags   uint16
	largest uint32 // most bytes of a READ or WRITE
}

// handshake is one client's handshake. Only one goroutine uses it.
type handshake struct {
	conn    net.Conn
	names   []string                          // of the exports; the first is the default
	attach  func(name string) (export, error) // has the disk ready
	noZeros bool

	structured bool // the client takes structured replies
	status     bool // the client may ask for block status, if it takes the export meta
	meta       string
	taken      string // the export that the client has taken
}

// run answers options until the client takes the disk. Then it returns nil.
func (h *handshake) run() error {
	_ = h.conn.SetDeadline(time.Now().Add(handshakePatience))
	b := binary.BigEndian.AppendUint64(nil, magicServer)
	b = binary.BigEndian.AppendUint64(b, magicOption)
	b = binary.BigEndian.AppendUint16(b, flagFixed|flagNoZeros)
	if _, err := h.conn.Write(b); err != nil {
		return err
	}
	var flags [4]byte
	if _, err := io.ReadFull(h.conn, flags[:]); err != nil {
		return err
	}
	f := binary.BigEndian.Uint32(flags[:])
	if f&^(flagFixed|flagNoZeros) != 0 {
		return fmt.Errorf("%w: handshake flags %#x", errProtocol, f)
	}
	h.noZeros = f&flagNoZeros != 0
	for range maxOptions {
		taken, err := h.option()
		if err != nil {
			return err
		}
		if taken {
			return h.conn.SetDeadline(time.Time{})
		}
	}
	return fmt.Errorf("%w: the handshake has not ended after %d options", errProtocol, maxOptions)
}

// option answers one option. taken says that the client takes the disk.
func (h *handshake) option() (taken bool, err error) {
	var head [optionHead]byte
	if _, err := io.ReadFull(h.conn, head[:]); err != nil {
		return false, err
	}
	o, err := parseOption(&head)
	if err != nil {
		return false, err
	}
	if o.length > maxOption {
		// Do not read so much data only to drop it: the client is disconnected.
		err := fmt.Errorf("%w: option %d with %d bytes, at most %d", errProtocol, o.option, o.length, maxOption)
		return false, errors.Join(err, h.reply(o.option, repTooBig, []byte("too long")))
	}
	data := make([]byte, o.length)
	if _, err := io.ReadFull(h.conn, data); err != nil {
		return false, err
	}
	switch o.option {
	case optExportName:
		return h.exportName(string(data))
	case optAbort:
		_ = h.reply(o.option, repAck, nil) // the client may have disconnected already
		return false, errAborted
	case optList:
		return false, h.list(data)
	case optInfo, optGo:
		return h.info(o.option, data)
	case optStructured:
		if len(data) > 0 {
			return false, h.reply(o.option, repInvalid, []byte("STRUCTURED_REPLY has no data"))
		}
		h.structured = true
		return false, h.reply(o.option, repAck, nil)
	case optListMeta, optSetMeta:
		return false, h.contexts(o.option, data)
	}
	return false, h.reply(o.option, repUnsup, nil)
}

func (h *handshake) reply(o option, kind uint32, data []byte) error {
	b := binary.BigEndian.AppendUint64(nil, magicReply)
	b = binary.BigEndian.AppendUint32(b, uint32(o))
	b = binary.BigEndian.AppendUint32(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	_, err := h.conn.Write(append(b, data...))
	return err
}

// known returns the export's name in full: "" is the default one.
func (h *handshake) known(name string) (full string, ok bool) {
	if name == "" {
		return h.names[0], true
	}
	return name, slices.Contains(h.names, name)
}

// exportName answers EXPORT_NAME, the old way to take the disk. It has no reply for an error:
// the connection ends instead.
func (h *handshake) exportName(name string) (taken bool, err error) {
	full, ok := h.known(name)
	if !ok {
		return false, fmt.Errorf("no export %q", name)
	}
	e, err := h.attach(full)
	if err != nil {
		return false, err
	}
	b := binary.BigEndian.AppendUint64(nil, e.size)
	b = binary.BigEndian.AppendUint16(b, e.flags)
	if !h.noZeros {
		b = append(b, make([]byte, 124)...)
	}
	_, err = h.conn.Write(b)
	h.taken = full
	return err == nil, err
}

// contexts answers LIST_META_CONTEXT and SET_META_CONTEXT.
func (h *handshake) contexts(o option, data []byte) error {
	name, queries, err := parseMeta(data)
	if err != nil {
		return h.reply(o, repInvalid, []byte(err.Error()))
	}
	if !h.structured {
		return h.reply(o, repInvalid, []byte("STRUCTURED_REPLY has to come first"))
	}
	if o == optSetMeta {
		h.status = false
	}
	full, ok := h.known(name)
	if !ok {
		return h.reply(o, repUnknown, fmt.Appendf(nil, "no export %.200q", name))
	}
	if asksFor(queries, o == optListMeta) {
		id := uint32(metaAllocationID)
		if o == optListMeta {
			id = 0
		} else {
			h.status, h.meta = true, full
		}
		if err := h.reply(o, repMeta, append(binary.BigEndian.AppendUint32(nil, id), metaAllocation...)); err != nil {
			return err
		}
	}
	return h.reply(o, repAck, nil)
}

func (h *handshake) list(data []byte) error {
	if len(data) > 0 {
		return h.reply(optList, repInvalid, []byte("LIST has no data"))
	}
	for _, name := range h.names {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(name)))
		if err := h.reply(optList, repServer, append(b, name...)); err != nil {
			return err
		}
	}
	return h.reply(optList, repAck, nil)
}

// info answers INFO and GO. With GO the client takes the disk, too.
func (h *handshake) info(o option, data []byte) (taken bool, err error) {
	name, wanted, err := parseInfo(data)
	if err != nil {
		return false, h.reply(o, repInvalid, []byte(err.Error()))
	}
	full, ok := h.known(name)
	if !ok {
		return false, h.reply(o, repUnknown, fmt.Appendf(nil, "no export %.200q", name))
	}
	e, err := h.attach(full)
	if err != nil {
		return false, h.reply(o, repEnding, []byte(err.Error()))
	}
	be := binary.BigEndian
	b := be.AppendUint16(nil, infoExport)
	b = be.AppendUint64(b, e.size)
	if err := h.reply(o, repInfo, be.AppendUint16(b, e.flags)); err != nil {
		return false, err
	}
	b = be.AppendUint16(nil, infoBlocks)
	b = be.AppendUint32(b, 1) // any boundary
	b = be.AppendUint32(b, min(4096, e.largest))
	if err := h.reply(o, repInfo, be.AppendUint32(b, e.largest)); err != nil {
		return false, err
	}
	for _, w := range wanted {
		if w == infoName {
			if err := h.reply(o, repInfo, append(be.AppendUint16(nil, infoName), full...)); err != nil {
				return false, err
			}
			break
		}
	}
	h.taken = full
	return o == optGo, h.reply(o, repAck, nil)
}
