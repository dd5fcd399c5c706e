package conn

import (
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// link is the queue pair under a connection, and its handshake.
type link struct {
	qp        verbs.QP // nil: none
	num       uint32
	active    bool       // this side dialled
	segment   int        // most bytes of a TCP segment, as this side has asked for or the peer's request says; 0: not known
	helloSeen bool       // the peer's HELLO is in hello
	ready     bool       // both HELLOs are through
	readyAt   int64      // since when
	deaf      bool       // the peer broke the protocol: nothing it sent counts any more
	resetDue  bool       // PeerDown is owed for an attempt that was reset
	hello     wire.Hello // the peer's
	maxSend   int        // largest SEND, both ways
	readDepth int        // READs in flight, both ways
	deadline  int64      // of the handshake, or of the emptying; 0: none
	peerAck   uint64     // ack_seq of the peer's private data
}

// has reports whether completion wc is of the link's queue pair, and not of an
// earlier one.
func (l *link) has(wc *verbs.WC) bool { return l.qp != nil && wc.QPNum == l.num }

// agree takes the limits of both sides from the peer's HELLO.
func (l *link) agree(cfg *Config) {
	l.maxSend = min(cfg.MaxSend, int(l.hello.MaxSend))
	l.readDepth = max(1, min(cfg.ReadDepth, int(min(l.hello.ReadDepth, 1<<16))))
}

// gone forgets the queue pair. maxSend stays for Info.
func (l *link) gone() {
	l.qp = nil
	l.segment = 0
	l.helloSeen, l.ready, l.deaf = false, false, false
	l.hello = wire.Hello{}
	l.deadline = 0
}
