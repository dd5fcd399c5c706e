package soft

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// features returns what q tells a peer that is a device of this package.
func (q *qp) features() iwarp.Features {
	f := iwarp.Features{Immediate: true, Atomics: true, RNRRetry: 7, Reserve: fenceReserve, ParkMsgs: parkMsgs / 16, ParkKiB: parkBytes >> 10}
	if n, limited := q.attr.RNRRetry.Limit(); limited {
		f.RNRRetry = uint8(n)
	}
	return f
}

// depths returns the read depths that q can offer: how many requests it serves, with
// room for the fences of the peer, and how many it wants to make.
func (q *qp) depths() (ird, ord int) {
	ird, ord = q.attr.Cap.ReadDepth+fenceReserve, q.attr.Cap.ReadDepth
	if q.attr.Ack == verbs.AckRemote {
		ord += fenceReserve
	}
	return ird, ord
}

// negotiate sets the READ depths by the frame of the peer. At the initiator it
// returns the Terminate to send if it fails.
func (q *qp) negotiate(m *iwarp.MPA) iwarp.Code {
	ird, ord := q.depths()
	depth := q.cap.ReadDepth
	if m.Enhanced {
		if m.IRD != iwarp.NoDepth {
			ord = min(ord, int(m.IRD))
			depth = min(depth, max(int(m.IRD)-int(q.peer.Reserve), 0))
		}
		if m.ORD != iwarp.NoDepth {
			if m.Reply && int(m.ORD) > ird {
				return iwarp.TermIRD
			}
			ird = min(ird, int(m.ORD))
		}
		if m.Reply && m.P2P && !m.RTRWrite {
			return iwarp.TermNoRTR
		}
	}
	q.cap.ReadDepth = depth
	q.sq.depth = uint64(depth)
	q.sq.waits.init(ord)
	q.serve.init(ird)
	if !q.peer.Immediate {
		q.cap.Caps &^= verbs.CapImm
	}
	if !q.peer.Atomics {
		q.cap.Caps &^= verbs.CapAtomics | verbs.CapMaskedAtomic
	}
	if !q.known {
		q.cap.Caps &^= verbs.CapRNRRetry
	}
	return 0
}

// errNoFence: AckRemote needs one READ in flight.
var errNoFence = fmt.Errorf("soft: the peer serves no READ, which AckRemote needs: %w", unix.EOPNOTSUPP)

// summed reports whether a connection has MPA's checksums, of which the peer's frame is m: if either
// end asks for them. Under TLS this end does not, because records have a stronger one.
func (q *qp) summed(sec *secure, m *iwarp.MPA) bool { return q.crc && sec == nil || m.CRC }

// Checksums reports whether the connection has MPA's checksums. Owner only.
func (q *qp) Checksums() bool { return q.crc && q.state.connected() }

// establish gives q its connection and moves q to RTS.
func (q *qp) establish(fd int, local, remote netip.AddrPort, m *iwarp.MPA, sec *secure) error {
	if q.attr.Ack == verbs.AckRemote && q.sq.waits.limit == 0 {
		return errNoFence
	}
	if err := q.dev.watch(unix.EPOLL_CTL_ADD, fd, q.slot, unix.EPOLLIN); err != nil {
		return err
	}
	q.fd, q.events, q.tls = fd, unix.EPOLLIN, sec
	q.local, q.remote = local, remote
	q.crc = q.summed(sec, m)
	q.markers = m.Markers
	if q.dev.opt.SegmentToMSS || q.markers {
		if mss := segmentOf(fd); mss > 0 {
			q.maxPayload = uint64(min(iwarp.MULPDU(mss, q.markers)-(iwarp.UntaggedLen-iwarp.LenField), iwarp.MaxPayload))
		}
	}
	q.rx.sendMSN = 1
	if q.state == answering {
		q.become(unheard)
	} else {
		q.become(open)
	}
	q.dev.markDirty(q)
	return nil
}

// sendRTR makes the initiator's first FPDU, which allows the responder to send. It
// is a WRITE of no bytes, which is harmless at any peer.
func (q *qp) sendRTR() {
	var hdr [iwarp.TaggedLen]byte
	iwarp.PutTagged(hdr[:], iwarp.OpWrite, true, 0, 1, 0)
	q.emit(hdr[:], nil, 0)
	q.dev.markDirty(q)
}
