package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
)

func groupD() []statement {
	return []statement{
		{n: 56, kind: "k", by: byCalls, text: "CANCEL_SENT_TO: unbound ENOTCONN, 15 bytes EINVAL, other destinations untouched", check: cancelArguments},
		{n: 57, kind: "k", by: byCalls, text: "after a cancel the queued bytes and POLLOUT are back while the peer is dead", check: cancelFreesSendBuffer},
		{n: 58, kind: "k", by: byCalls, text: "a cancel queues CANCELED for operations with NOTIFY_ME only", check: cancelTellsOperations},
		{n: 59, kind: "k", by: byCalls, text: "the gap a cancel leaves does not disturb what is sent later", check: cancelGapIsHarmless},
		{n: 60, kind: "k", by: byCalls, text: "RECVERR set reads back 1; two bytes fail EINVAL", check: recvErrOption},
		{n: 61, kind: "k", by: byCalls, text: "CONG_MONITOR is an int boolean; reading it fails ENOPROTOOPT", check: congMonitorOption},
		{n: 62, kind: "r", by: byCalls, text: "turning CONG_MONITOR off leaves a congested port congested", check: congMonitorOffStaysCongested},
		{n: 63, kind: "k", by: byCalls, text: "SIOCRDSSETTOS before bind fails ENOTTY; after a send, or a second time, EINVAL", check: tosCalls},
		{n: 64, kind: "k", by: byCalls, text: "TOS 5 is a connection of its own, tos 5 at both ends; on TCP it reads 0", check: tosIsAConnection},
		{n: 65, kind: "k", by: byCalls, text: "a table with length 0 fails ENOSPC and tells the bytes needed; with room it returns the element size", check: infoTableLengths},
		{n: 66, kind: "k", by: byCalls, text: "element sizes are 40, 42, 26, 28, 41, 68 and 65, 50, 52, 64, 92", check: infoElementSizes},
		rdsInfo(67),
		{n: 68, kind: "k", by: byCalls, text: "IPv4 tables omit IPv6 and unbound sockets", check: infoTablesOmit},
		{n: 69, kind: "k", by: byCalls, text: "the counters begin with the 36 of the kernel, in order", check: infoCounterOrder},
		{n: 70, kind: "k", by: byCalls, text: "an unknown SOL_RDS option fails ENOPROTOOPT", check: unknownOptionFails},
	}
}

// rdsInfo is the statement about rds-info, which has to be built outside the repository.
func rdsInfo(n int) statement {
	s := statement{n: n, kind: "k", by: byTest, text: "unmodified rds-info prints all tables"}
	if os.Getenv("RDS_TOOLS") == "" {
		s.later = laterTools
		return s
	}
	s.check = func(t *testing.T, _ *env) { goTest(t, "../../preload", "TestInfo") }
	return s
}

func (s *sock) cancel(to netip.AddrPort) {
	s.t.Helper()
	s.set(cmsg.SOLRDS, cmsg.OptCancelSentTo, afrds.Sockaddr(to))
}

func cancelArguments(t *testing.T, e *env) {
	to := afrds.Sockaddr(nobody())
	want(t, "unbound", e.ka.socket(t).Setsockopt(cmsg.SOLRDS, cmsg.OptCancelSentTo, to), syscall.ENOTCONN)
	s := e.ka.bound(t)
	want(t, "15 bytes", s.Setsockopt(cmsg.SOLRDS, cmsg.OptCancelSentTo, to[:15]), syscall.EINVAL)
	want(t, "none", s.Setsockopt(cmsg.SOLRDS, cmsg.OptCancelSentTo, nil), syscall.EINVAL)
	// Neither of two destinations can be reached. The messages to one are cancelled.
	s.sndbuf(4000)
	gone, kept := nobody(), nobody()
	s.mustSend(make([]byte, 2000), gone)
	s.mustSend(make([]byte, 2000), kept)
	want(t, "full", s.send([]byte("x"), kept), syscall.EAGAIN)
	s.cancel(gone)
	s.polled(afrds.PollOut)
	s.mustSend(make([]byte, 2000), kept)
	want(t, "full again: the other's are still queued", s.send([]byte("x"), kept), syscall.EAGAIN)
}

func cancelFreesSendBuffer(t *testing.T, e *env) {
	s := e.ka.bound(t)
	dead := full(s)
	if s.poll(afrds.PollOut) != 0 {
		t.Error("POLLOUT with a full queue")
	}
	s.cancel(dead)
	s.polled(afrds.PollOut)
	s.mustSend(make([]byte, 3000), dead)
	if p, _ := e.a.peer(t, dead.Addr(), 0); p.State == "up" {
		t.Error("the peer is not dead")
	}
}

func cancelTellsOperations(t *testing.T, e *env) {
	p := pair(t)
	r := newRDMA(t, p, 4096)
	p.b.pause(t)
	to := r.to.local()
	r.s.set(cmsg.SOLRDS, cmsg.OptRecvErr, i32(1))
	for i, flags := range []uint64{cmsg.FlagNotifyMe, 0, cmsg.FlagNotifyMe} {
		r.s.mustSend(nil, to, r.args(cmsg.RDMAArgs{UserToken: uint64(i + 1), Flags: flags | cmsg.FlagReadWrite}, 0, 64)...)
	}
	r.s.cancel(to)
	var got []cmsg.Notify
	for len(got) < 2 {
		got = append(got, r.s.recv().control.Status...)
	}
	wanted := []cmsg.Notify{{UserToken: 1, Status: cmsg.StatusCanceled}, {UserToken: 3, Status: cmsg.StatusCanceled}}
	if !slices.Equal(got, wanted) {
		t.Errorf("statuses %+v", got)
	}
	// All operations are settled, so the mark has passed them.
	if hwm, err := barrier(r.s, to.Addr(), 3, 0); err != nil || hwm != 3 {
		t.Errorf("mark %d, %v", hwm, err)
	}
	r.s.empty()
}

func cancelGapIsHarmless(t *testing.T, e *env) {
	p := pair(t)
	s, keep, drop := p.ka.bound(t), p.kb.bound(t), p.kb.bound(t)
	s.mustSend(nil, keep.local())
	keep.recv()
	p.b.pause(t)
	for i := range 10 {
		s.mustSend([]byte{byte(i)}, keep.local())
		s.mustSend(make([]byte, 1000), drop.local())
	}
	s.cancel(drop.local())
	p.a.reset(t, p.b) // messages in the queue are sent again, the others leave a gap
	p.b.Resume()
	s.deliver([]byte{10}, keep.local())
	for i := range 11 {
		if g := keep.recv(); !slices.Equal(g.data, []byte{byte(i)}) {
			t.Errorf("message %d: %x", i, g.data)
		}
	}
	keep.empty()
}

func recvErrOption(t *testing.T, e *env) {
	s := e.ka.socket(t)
	if v := s.getint(cmsg.SOLRDS, cmsg.OptRecvErr); v != 0 {
		t.Errorf("at first %d", v)
	}
	s.set(cmsg.SOLRDS, cmsg.OptRecvErr, i32(17))
	if v := s.getint(cmsg.SOLRDS, cmsg.OptRecvErr); v != 1 {
		t.Errorf("set: %d", v)
	}
	want(t, "2 bytes", s.Setsockopt(cmsg.SOLRDS, cmsg.OptRecvErr, []byte{1, 0}), syscall.EINVAL)
	_, _, err := s.Getsockopt(cmsg.SOLRDS, cmsg.OptRecvErr, make([]byte, 2))
	want(t, "read into 2 bytes", err, syscall.EINVAL)
}

func congMonitorOption(t *testing.T, e *env) {
	s := e.ka.bound(t)
	s.set(cmsg.SOLRDS, cmsg.OptCongMonitor, i32(1))
	s.set(cmsg.SOLRDS, cmsg.OptCongMonitor, i32(0))
	want(t, "2 bytes", s.Setsockopt(cmsg.SOLRDS, cmsg.OptCongMonitor, []byte{1, 0}), syscall.EINVAL)
	_, _, err := s.Getsockopt(cmsg.SOLRDS, cmsg.OptCongMonitor, make([]byte, 8))
	want(t, "read", err, syscall.ENOPROTOOPT)
	// Taken as a mask of ports, this value would leave others out. Any value means "on".
	s.set(cmsg.SOLRDS, cmsg.OptCongMonitor, i32(1<<30))
	to := e.kb.bound(t)
	to.rcvbuf(4000)
	n := congest(s, to.local(), 1000)
	to.drain(n)
	if g := s.recv(); g.control.Cong != 1<<(to.local().Port()%64) {
		t.Errorf("received %+v", g.control)
	}
}

func congMonitorOffStaysCongested(t *testing.T, e *env) {
	s, to := flow(t, e)
	to.rcvbuf(4000)
	to.set(cmsg.SOLRDS, cmsg.OptCongMonitor, i32(1))
	n := congest(s, to.local(), 1000)
	to.set(cmsg.SOLRDS, cmsg.OptCongMonitor, i32(0))
	if si, _ := e.b.socket(t, to.local()); !si.Congested {
		t.Error("the socket is not congested any more")
	}
	want(t, "send", s.send(nil, to.local()), syscall.ENOBUFS)
	to.drain(n)
}

func tosCalls(t *testing.T, e *env) {
	s := e.ka.socket(t)
	want(t, "before bind", s.Ioctl(cmsg.IoctlSetTOS, []byte{5}), syscall.ENOTTY)
	want(t, "another request", s.Ioctl(0x89E7, []byte{5}), syscall.ENOTTY)
	s.bind(e.a.at(0))
	ok(t, "0", s.Ioctl(cmsg.IoctlSetTOS, []byte{0}))
	ok(t, "5", s.Ioctl(cmsg.IoctlSetTOS, []byte{5}))
	want(t, "again", s.Ioctl(cmsg.IoctlSetTOS, []byte{6}), syscall.EINVAL)
	if v := []byte{0}; s.Ioctl(cmsg.IoctlGetTOS, v) != nil || v[0] != 5 {
		t.Errorf("reads %d", v[0])
	}
	sent := e.ka.bound(t)
	sent.mustSend(nil, e.kb.bound(t).local())
	want(t, "after a send", sent.Ioctl(cmsg.IoctlSetTOS, []byte{5}), syscall.EINVAL)
}

func tosIsAConnection(t *testing.T, e *env) {
	p := pair(t)
	s, to := p.ka.bound(t), p.kb.bound(t)
	plain := p.ka.bound(t)
	plain.mustSend(nil, to.local())
	to.recv()
	ok(t, "ioctl", s.Ioctl(cmsg.IoctlSetTOS, []byte{5}))
	s.mustSend([]byte("lane 5"), to.local())
	to.recv()
	for _, x := range []struct{ h, peer *host }{{p.a, p.b}, {p.b, p.a}} {
		for _, lane := range []uint8{0, 5} {
			if c, there := x.h.peer(t, x.peer.addr(), lane); !there || c.State != "up" {
				t.Errorf("%v: lane %d: %v %q", x.h.addr(), lane, there, c.State)
			}
		}
	}
	tcp := p.ka.socket(t)
	tcp.set(cmsg.SOLRDS, cmsg.OptTransport, i32(cmsg.TransportTCP))
	tcp.bind(p.a.at(0))
	ok(t, "ioctl on TCP", tcp.Ioctl(cmsg.IoctlSetTOS, []byte{7}))
	if v := []byte{9}; tcp.Ioctl(cmsg.IoctlGetTOS, v) != nil || v[0] != 0 {
		t.Errorf("on TCP it reads %d", v[0])
	}
}

// info reads a whole table in the two steps of rds-info, and checks both.
func info(t *testing.T, s *sock, opt int) (elements [][]byte, size int) {
	t.Helper()
	_, need, err := s.Getsockopt(cmsg.SOLRDS, opt, nil)
	if err != nil && (!errors.Is(err, syscall.ENOSPC) || need == 0) {
		t.Fatalf("table %d, length 0: %d bytes, %v", opt, need, err)
	}
	buf := make([]byte, need+1000) // the table may grow in between
	size, n, err := s.Getsockopt(cmsg.SOLRDS, opt, buf)
	if err != nil || size <= 0 || n%size != 0 {
		t.Fatalf("table %d: element size %d, %d bytes, %v", opt, size, n, err)
	}
	for b := buf[:n]; len(b) > 0; b = b[size:] {
		elements = append(elements, b[:size])
	}
	return elements, size
}

func infoTableLengths(t *testing.T, e *env) {
	s, to := flow(t, e, nil)
	to.recv()
	elements, size := info(t, s, afrds.InfoCounters)
	_, n, err := s.Getsockopt(cmsg.SOLRDS, afrds.InfoCounters, make([]byte, size+1))
	want(t, "too short", err, syscall.ENOSPC)
	if n != len(elements)*size || len(elements) < 36 {
		t.Errorf("needs %d bytes, has %d elements of %d", n, len(elements), size)
	}
	for _, opt := range []int{afrds.InfoConnections, afrds.InfoSockets} {
		if elements, _ := info(t, s, opt); len(elements) == 0 {
			t.Errorf("table %d is empty", opt)
		}
	}
	if size, n, err := s.Getsockopt(cmsg.SOLRDS, afrds.InfoTCPSockets, nil); size != 41 || n != 0 || err != nil {
		t.Errorf("an empty table with length 0: %d, %d, %v", size, n, err)
	}
	// A table of sockets is read as a whole or not at all.
	buf := make([]byte, 28)
	if _, _, err := s.Getsockopt(cmsg.SOLRDS, afrds.InfoSockets, buf[:27]); !errors.Is(err, syscall.ENOSPC) || !slices.Equal(buf, make([]byte, 28)) {
		t.Errorf("sockets in 27 bytes: %v, %x", err, buf)
	}
	_, _, err = s.Getsockopt(cmsg.SOLRDS, 10002, buf)
	want(t, "a table nobody has", err, syscall.ENOPROTOOPT)
}

func infoElementSizes(t *testing.T, e *env) {
	s, to := flow(t, e, nil)
	to.recv()
	for _, c := range []struct{ opt, size int }{
		{afrds.InfoCounters, 40}, {afrds.InfoConnections, 42}, {afrds.InfoSendMessages, 26}, {afrds.InfoRetransMessages, 26},
		{afrds.InfoRecvMessages, 26}, {afrds.InfoSockets, 28}, {afrds.InfoTCPSockets, 41}, {afrds.InfoIBConnections, 68},
		{afrds.Info6Connections, 65}, {afrds.Info6SendMessages, 50}, {afrds.Info6RetransMsgs, 50}, {afrds.Info6RecvMessages, 50},
		{afrds.Info6Sockets, 52}, {afrds.Info6TCPSockets, 64}, {afrds.Info6IBConnections, 92},
	} {
		if _, size := info(t, s, c.opt); size != c.size {
			t.Errorf("table %d: element size %d, want %d", c.opt, size, c.size)
		}
	}
	// The table must have the connection of this message, in each form.
	la, ra := e.a.addr().As4(), e.b.addr().As4()
	find := func(opt, at int, want []byte) []byte {
		t.Helper()
		elements, _ := info(t, s, opt)
		for _, x := range elements {
			if slices.Equal(x[at:at+len(want)], want) {
				return x
			}
		}
		t.Errorf("table %d: no %x", opt, want)
		return make([]byte, 128)
	}
	if x := find(afrds.InfoConnections, 16, append(la[:], ra[:]...)); x[40]&4 == 0 || binary.NativeEndian.Uint64(x) == 0 {
		t.Errorf("connection %x", x)
	}
	la16, ra16 := e.a.addr().As16(), e.b.addr().As16()
	find(afrds.Info6Connections, 16, append(la16[:], ra16[:]...))
	find(afrds.InfoIBConnections, 0, append(la[:], ra[:]...))
	find(afrds.Info6IBConnections, 0, append(la16[:], ra16[:]...))
	s.rcvbuf(5000)
	s.sndbuf(7000)
	ok(t, "connect", s.Connect(afrds.Sockaddr(to.local())))
	port := binary.BigEndian.AppendUint16(nil, s.local().Port())
	x := find(afrds.InfoSockets, 12, port)
	if binary.NativeEndian.Uint32(x) != 7000 || !slices.Equal(x[4:12], append(la[:], ra[:]...)) ||
		binary.BigEndian.Uint16(x[14:]) != to.local().Port() || binary.NativeEndian.Uint32(x[16:]) != 5000 {
		t.Errorf("socket %x", x)
	}
	find(afrds.Info6Sockets, 36, port)
}

func infoTablesOmit(t *testing.T, e *env) {
	h := host6(t)
	k := newKernel(t, h)
	six, four := k.bound(t), k.socket(t)
	four.bind(netip.AddrPortFrom(h.addrs[1], 0))
	k.socket(t) // not bound
	elements, _ := info(t, six, afrds.InfoSockets)
	a4 := h.addrs[1].As4()
	if len(elements) != 1 || !slices.Equal(elements[0][4:8], a4[:]) {
		t.Errorf("IPv4 table: %x", elements)
	}
	if elements, _ = info(t, six, afrds.Info6Sockets); len(elements) != 2 {
		t.Errorf("IPv6 table: %x", elements)
	}
}

func infoCounterOrder(t *testing.T, e *env) {
	names := strings.Fields(`conn_reset recv_drop_bad_checksum recv_drop_old_seq recv_drop_no_sock recv_drop_dead_sock
		recv_deliver_raced recv_delivered recv_queued recv_immediate_retry recv_delayed_retry recv_ack_required
		recv_rdma_bytes recv_ping send_queue_empty send_queue_full send_lock_contention send_lock_queue_raced
		send_immediate_retry send_delayed_retry send_drop_acked send_ack_required send_queued send_rdma send_rdma_bytes
		send_pong page_remainder_hit page_remainder_miss copy_to_user copy_from_user cong_update_queued
		cong_update_received cong_send_error cong_send_blocked recv_bytes_added_to_sock recv_bytes_freed_fromsock
		send_stuck_rm`)
	s, to := flow(t, e, nil)
	to.recv()
	elements, _ := info(t, s, afrds.InfoCounters)
	for i, name := range names {
		got := string(elements[i][:slices.Index(elements[i], 0)])
		if got != name {
			t.Errorf("counter %d is %q, want %q", i, got, name)
		}
	}
	if v := binary.NativeEndian.Uint64(elements[slices.Index(names, "send_queued")][32:]); v == 0 {
		t.Error("send_queued is 0")
	}
}

func unknownOptionFails(t *testing.T, e *env) {
	s := e.ka.bound(t)
	for _, opt := range []int{0, 9, 11, 99, 10000} {
		want(t, fmt.Sprint(opt), s.Setsockopt(cmsg.SOLRDS, opt, i32(1)), syscall.ENOPROTOOPT)
	}
	want(t, "another level", s.Setsockopt(syscall.IPPROTO_TCP, 1, i32(1)), syscall.ENOPROTOOPT)
	_, _, err := s.Getsockopt(cmsg.SOLRDS, 99, make([]byte, 4))
	want(t, "read", err, syscall.ENOPROTOOPT)
}
