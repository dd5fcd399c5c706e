package soft

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// stuckAfter is how often TCP has sent the oldest segment again when it counts as stuck: 1.4 s at the least.
const stuckAfter = 3

// limitSegment has a socket that is not connected yet ask for segments of at most n bytes. TCP's SYN says so to the
// peer.
func limitSegment(c syscall.RawConn, n int) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, n) }); e != nil {
		return e
	}
	return err
}

// segmentOf returns the most bytes of a segment that a connected socket sends; 0: not known.
func segmentOf(fd int) int {
	n, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	if err != nil {
		return 0
	}
	return n
}

// pathOf returns what TCP knows of the way to the peer of a connected socket.
func pathOf(fd int) (p verbs.Path, info *unix.TCPInfo) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return p, &unix.TCPInfo{}
	}
	unacked, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	p = verbs.Path{Acked: info.Bytes_acked, Passes: info.Sacked > 0, Again: info.Total_retrans > 0,
		Stuck: err == nil && unacked > int(info.Snd_mss) && info.Retransmits >= stuckAfter}
	return p, info
}

// Path implements verbs.OverTCP.
func (q *qp) Path() verbs.Path {
	if q.fd < 0 {
		return verbs.Path{}
	}
	p, _ := pathOf(q.fd)
	return p
}

// blamed is err of a set-up that has failed, with verbs.ErrLarge if large packets are lost on the way. They are
// those of this side if TCP sends some again and again, also if the peer gave up first. They are the peer's if
// the set-up took too long and smaller packets have arrived that were sent later.
func blamed(tcp net.Conn, err error) error {
	raw, e := tcp.(*net.TCPConn).SyscallConn()
	if e != nil {
		return err
	}
	late, large := errors.Is(err, os.ErrDeadlineExceeded), false
	_ = raw.Control(func(fd uintptr) {
		p, info := pathOf(int(fd))
		large = p.Stuck || late && info.Rcv_ooopack > 0
	})
	if large {
		return fmt.Errorf("%w: %w", verbs.ErrLarge, err)
	}
	return err
}

// noEnd reports whether a set-up that failed with err has come to no end, because the peer did not answer in time or
// large packets are lost; why is what blamed says.
func noEnd(tcp net.Conn, err error) (no bool, why error) {
	why = blamed(tcp, err)
	return errors.Is(why, os.ErrDeadlineExceeded) || errors.Is(why, verbs.ErrLarge), why
}
