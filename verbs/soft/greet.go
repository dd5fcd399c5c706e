package soft

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// accept runs until the listener is closed.
func (c *control) accept(l net.Listener) {
	rate := c.opt.HandshakeRate
	limit, denials := newLimiter(rate, atOnce), newLimiter(rate, rate/10)
	later := newLimiter(10*rate, atOnce) // what is said of limit: a peer that does not hear it takes this host for one that is gone
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors, or a connection that died in the queue
			time.Sleep(10 * time.Millisecond)
			continue
		}
		remote := addrOf(conn.RemoteAddr()).Addr()
		cfg, err := c.tlsFor(remote)
		if err != nil {
			c.deny(conn, denials.allow(now(), remote), err)
			continue
		}
		if cfg != nil && !limit.allow(now(), remote) {
			c.deny(conn, later.allow(now(), remote), errTooMany)
			continue
		}
		if !c.slots.take(remote) {
			atomic.AddUint64(&c.stats.HandshakeRefused, 1)
			conn.Close()
			continue
		}
		if !c.spawn(func() { c.greet(conn, cfg, limit) }) {
			c.slots.give(remote)
			conn.Close()
			return
		}
	}
}

// greet reads the request of an incoming connection and hands the request to the
// owner, who gives its place back when it is answered. cfg says how the connection
// is secured; nil: it is plain.
func (c *control) greet(tcp net.Conn, cfg *tls.Config, limit *limiter) {
	conn := &byteStream{Conn: tcp}
	handed := false
	defer func() {
		c.disown(tcp)
		tcp.Close()
		if !handed {
			c.slots.give(addrOf(tcp.RemoteAddr()).Addr())
		}
	}()
	if !c.own(tcp) {
		return
	}
	_ = tcp.SetDeadline(time.Now().Add(c.opt.HandshakeTimeout))
	local, remote := addrOf(tcp.LocalAddr()), addrOf(tcp.RemoteAddr())
	if cfg != nil {
		if err := c.secure(conn, cfg, false); err != nil {
			c.insecure(tcp, err)
			return
		}
		limit.succeeded(now(), remote.Addr())
	}
	m, err := c.readMPA(conn, false)
	switch {
	case err == errTLSHere:
		c.refuse(&c.stats.HandshakePlain, local.Addr(), remote.Addr(), err)
		c.answerPlain(tcp, nil)
		return
	case errors.Is(err, os.ErrDeadlineExceeded):
		atomic.AddUint64(&c.stats.HandshakeTimeout, 1)
		return
	case err == io.EOF: // gone without a word, as when two connects cross
		return
	case err != nil:
		atomic.AddUint64(&c.stats.HandshakeGarbage, 1)
		return
	case m.Markers:
		atomic.AddUint64(&c.stats.HandshakeMarkers, 1)
	}
	fd, err := c.detach(tcp)
	if err != nil {
		return
	}
	if err := silent(fd); err != nil {
		if err == errEarly {
			atomic.AddUint64(&c.stats.HandshakeGarbage, 1)
		}
		unix.Close(fd)
		return
	}
	handed = true
	c.post(result{typ: verbs.CMConnectRequest, fd: fd, mpa: m, tls: conn.tls, local: local, remote: remote, segment: segmentOf(fd)})
}

// silent checks that an initiator waits for the reply: it must not send anything
// before (RFC 5044 section 7.1.2), and must not be gone.
func silent(fd int) error {
	var one [1]byte
	n, _, err := unix.Recvfrom(fd, one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil:
		return err
	case n > 0:
		return errEarly
	}
	return io.EOF
}

var errEarly = errors.New("peer sent data before the MPA reply")

// rejection returns the reply that refuses m.
func rejection(m *iwarp.MPA, private []byte) iwarp.MPA {
	return iwarp.MPA{Reply: true, Reject: true, CRC: m.CRC, Rev: m.Rev, Enhanced: m.Enhanced, Private: private}
}
