package afrds

import (
	"math"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/rds"
)

// transportLoop is what SO_RDS_TRANSPORT reads on a loopback address
// (RDS_TRANS_LOOP); it cannot be chosen.
const transportLoop = 3

// Options at level SOL_SOCKET (asm-generic/socket.h). The time-outs and the
// timestamp have a number for each size of time_t; the layouts are the same on
// a 64-bit machine.
const (
	soReuseAddr    = 2
	soType         = 3
	soError        = 4
	soSndBuf       = 7
	soRcvBuf       = 8
	soRcvTimeo     = 20
	soSndTimeo     = 21
	soTimestamp    = 29
	soProtocol     = 38
	soDomain       = 39
	soZeroCopy     = 60
	soTimestampNew = 63
	soRcvTimeoNew  = 66
	soSndTimeoNew  = 67
)

// The kernel's buffer sizes, which count twice what the application set.
const (
	defaultBuf = 212992 // what net.core.wmem_default and rmem_default usually are
	minSndBuf  = 4608   // SOCK_MIN_SNDBUF
	minRcvBuf  = 2304   // SOCK_MIN_RCVBUF
)

const (
	intLen     = 4
	timevalLen = 16
)

// options are options of a socket that can be set before bind.
type options struct {
	sndbuf, rcvbuf int // as getsockopt tells: twice the limit
	sndtimeo       timeout
	rcvtimeo       timeout
	reuse          int
	zerocopy       int
	timestamp      int // soTimestamp, soTimestampNew, 0 = off
	transport      int
	recverr        bool
	monitor        bool
}

func defaultOptions() options {
	snd, rcv := hostBufs()
	return options{sndbuf: snd, rcvbuf: rcv, transport: cmsg.TransportNone}
}

// hostBufs returns the host's net.core.wmem_default and rmem_default. A socket that the kernel has just made has them.
func hostBufs() (snd, rcv int) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return defaultBuf, defaultBuf
	}
	defer syscall.Close(fd)
	if snd, err = syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF); err == nil {
		rcv, err = syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF)
	}
	if err != nil {
		return defaultBuf, defaultBuf
	}
	return snd, rcv
}

// applyOptions sets the options at a socket that is being bound.
func (s *Socket) applyOptions(rs *rds.Socket) error {
	if err := rs.SetSndBuf(s.opts.sndbuf / 2); err != nil {
		return err
	}
	if err := rs.SetRcvBuf(s.opts.rcvbuf / 2); err != nil {
		return err
	}
	rs.SetNotices() // what became of a message has no place in the kernel's calls
	krds.Of(rs).PreferAnybody()
	krds.Of(rs).SetCongMonitor(s.opts.monitor)
	return nil
}

// timeout is SO_SNDTIMEO or SO_RCVTIMEO.
type timeout struct {
	d    time.Duration // 0: for ever
	poll bool          // a negative one: do not wait
}

// parseTimeval decodes a struct timeval. EINVAL: b is too short. EDOM: the
// microseconds are out of range.
func parseTimeval(b []byte) (timeout, error) {
	if len(b) < timevalLen {
		return timeout{}, syscall.EINVAL
	}
	sec, usec := int64(host.Uint64(b)), int64(host.Uint64(b[8:]))
	switch {
	case usec < 0 || usec >= 1e6:
		return timeout{}, syscall.EDOM
	case sec < 0:
		return timeout{poll: true}, nil
	case sec > math.MaxInt64/int64(time.Second)-1:
		return timeout{}, nil
	}
	return timeout{d: time.Duration(sec)*time.Second + time.Duration(usec)*time.Microsecond}, nil
}

func (t timeout) encode() []byte {
	b := host.AppendUint64(nil, uint64(t.d/time.Second))
	return host.AppendUint64(b, uint64(t.d%time.Second/time.Microsecond))
}

// doubled returns the value that the kernel keeps for a buffer size that was set.
func doubled(v int32, least int) int {
	n := int64(uint32(v))
	return max(int(min(n, math.MaxInt32/2)*2), least)
}

// Setsockopt is setsockopt(2). ENOPROTOOPT: there is no such option. docs/kernel.md
// has the errors of each option.
func (s *Socket) Setsockopt(level, opt int, val []byte) error {
	if _, err := s.socket(); err != nil {
		return err
	}
	switch level {
	case syscall.SOL_SOCKET:
		return s.setSocketOption(opt, val)
	case cmsg.SOLRDS:
		return s.setRDSOption(opt, val)
	}
	return syscall.ENOPROTOOPT
}

// Getsockopt is getsockopt(2) into buf. It returns what the kernel returns (0, or
// the size of an element for a table of RDS_INFO_*) and the length of the value.
// ENOSPC: a table needs n bytes. ENOPROTOOPT: there is no such option. EINVAL: buf
// is too short for an option that is no table.
func (s *Socket) Getsockopt(level, opt int, buf []byte) (ret, n int, err error) {
	if _, err := s.socket(); err != nil {
		return 0, 0, err
	}
	switch level {
	case syscall.SOL_SOCKET:
		return s.getSocketOption(opt, buf)
	case cmsg.SOLRDS:
		return s.getRDSOption(opt, buf)
	}
	return 0, 0, syscall.ENOPROTOOPT
}

func (s *Socket) setSocketOption(opt int, val []byte) error {
	if len(val) < intLen {
		return syscall.EINVAL
	}
	v := int32(host.Uint32(val))
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &s.opts
	switch opt {
	case soReuseAddr: // kept, without effect: a port has one socket
		o.reuse = truth(v)
	case soSndBuf:
		return s.setBuf(&o.sndbuf, doubled(v, minSndBuf), (*rds.Socket).SetSndBuf)
	case soRcvBuf:
		return s.setBuf(&o.rcvbuf, doubled(v, minRcvBuf), (*rds.Socket).SetRcvBuf)
	case soZeroCopy:
		if v != 0 && v != 1 {
			return syscall.EINVAL
		}
		o.zerocopy = int(v)
	case soTimestamp, soTimestampNew:
		o.timestamp = opt * truth(v)
	case soSndTimeo, soSndTimeoNew, soRcvTimeo, soRcvTimeoNew:
		t, err := parseTimeval(val)
		if err != nil {
			return err
		}
		if opt == soSndTimeo || opt == soSndTimeoNew {
			o.sndtimeo = t
		} else {
			o.rcvtimeo = t
		}
	default:
		return syscall.ENOPROTOOPT
	}
	return nil
}

// setBuf sets the buffer size keep to n, at the bound socket by set.
func (s *Socket) setBuf(keep *int, n int, set func(*rds.Socket, int) error) error {
	if s.rs != nil {
		if err := set(s.rs, n/2); err != nil {
			return errno(err)
		}
	}
	*keep = n
	return nil
}

func (s *Socket) getSocketOption(opt int, buf []byte) (ret, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &s.opts
	var v int
	switch opt {
	case soReuseAddr:
		v = o.reuse
	case soType:
		v = syscall.SOCK_SEQPACKET
	case soDomain:
		v = cmsg.AFRDS
	case soProtocol, soError:
	case soSndBuf:
		v = o.sndbuf
	case soRcvBuf:
		v = o.rcvbuf
	case soZeroCopy:
		v = o.zerocopy
	case soTimestamp, soTimestampNew:
		v = truth(int32(o.timestamp))
	case soSndTimeo, soSndTimeoNew:
		return 0, copy(buf, o.sndtimeo.encode()), nil
	case soRcvTimeo, soRcvTimeoNew:
		return 0, copy(buf, o.rcvtimeo.encode()), nil
	default:
		return 0, 0, syscall.ENOPROTOOPT
	}
	return 0, copy(buf, host.AppendUint32(nil, uint32(v))), nil
}

func truth(v int32) int {
	if v != 0 {
		return 1
	}
	return 0
}
