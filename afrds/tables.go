package afrds

import (
	"net/netip"

	"github.com/rdsd/rdsd/internal/ctl"
)

// Elements of the tables, in the layouts of linux/rds.h: packed but for the
// RDMA connections', addresses and ports big-endian, the rest in host order.

// Flags of a connection (RDS_INFO_CONNECTION_FLAG_*).
const (
	connConnecting = 2
	connConnected  = 4
)

const transportName = 16

// counters: name, value; the kernel's 36 first, then rdsd's.
func counters(_ *Socket, r *ctl.Response, b []byte) []byte {
	if r.Status == nil {
		return b
	}
	for _, c := range r.Status.Counters {
		b = appendName(b, c.Name, 32)
		b = host.AppendUint64(b, c.Value)
	}
	return b
}

// appendName appends a C string in n bytes.
func appendName(b []byte, name string, n int) []byte {
	field := make([]byte, n)
	copy(field[:n-1], name)
	return append(b, field...)
}

func addr4(b []byte, ip netip.Addr) []byte {
	if !ip.Is4() {
		return append(b, 0, 0, 0, 0)
	}
	a := ip.As4()
	return append(b, a[:]...)
}

func addr6(b []byte, ip netip.Addr) []byte {
	if !ip.IsValid() {
		return append(b, make([]byte, 16)...)
	}
	a := ip.As16()
	return append(b, a[:]...)
}

func flagsOf(p *ctl.PeerInfo) byte {
	switch p.State {
	case "up":
		return connConnected
	case "connecting":
		return connConnecting
	}
	return 0
}

func connections4(_ *Socket, r *ctl.Response, b []byte) []byte {
	for i := range r.Peers {
		p := &r.Peers[i]
		if !p.Local.Is4() {
			continue
		}
		b = host.AppendUint64(b, p.NextTxSeq)
		b = host.AppendUint64(b, p.RxSeq+1)
		b = addr4(addr4(b, p.Local), p.Remote)
		b = appendName(b, p.Transport, transportName)
		b = append(b, flagsOf(p), p.Lane)
	}
	return b
}

func connections6(_ *Socket, r *ctl.Response, b []byte) []byte {
	for i := range r.Peers {
		p := &r.Peers[i]
		b = host.AppendUint64(b, p.NextTxSeq)
		b = host.AppendUint64(b, p.RxSeq+1)
		b = addr6(addr6(b, p.Local), p.Remote)
		b = appendName(b, p.Transport, transportName)
		b = append(b, flagsOf(p))
	}
	return b
}

// The sequence of what has arrived is not kept: 0.
func messages4(_ *Socket, r *ctl.Response, b []byte) []byte {
	for i := range r.Queues {
		m := &r.Queues[i]
		if !m.Local.Is4() {
			continue
		}
		b = host.AppendUint64(b, m.Seq)
		b = host.AppendUint32(b, uint32(m.Bytes))
		b = addr4(addr4(b, m.Local), m.Remote)
		b = appendPorts(b, m)
	}
	return b
}

func messages6(_ *Socket, r *ctl.Response, b []byte) []byte {
	for i := range r.Queues {
		m := &r.Queues[i]
		b = host.AppendUint64(b, m.Seq)
		b = host.AppendUint32(b, uint32(m.Bytes))
		b = addr6(addr6(b, m.Local), m.Remote)
		b = appendPorts(b, m)
	}
	return b
}

// appendPorts ends a message: ports, flags, tos.
func appendPorts(b []byte, m *ctl.MessageInfo) []byte {
	b = network.AppendUint16(b, m.LocalPort)
	b = network.AppendUint16(b, m.RemotePort)
	return append(b, 0, m.Lane)
}

// Fields of an RDMA connection that a connection has none of are 0: GIDs, and
// limits that the daemon does not tell.
func rdma4(_ *Socket, r *ctl.Response, b []byte) []byte {
	for i := range r.Peers {
		p := &r.Peers[i]
		if !p.Local.Is4() {
			continue
		}
		b = addr4(addr4(b, p.Local), p.Remote)
		b = append(b, make([]byte, 2*16+5*4)...) // GIDs; work requests, SGEs, regions
		b = append(b, p.Lane, p.Lane&0xf, 0, 0)  // tos, service level, padding
		b = host.AppendUint32(b, 0)              // cache allocations
	}
	return b
}

func rdma6(_ *Socket, r *ctl.Response, b []byte) []byte {
	for i := range r.Peers {
		p := &r.Peers[i]
		b = addr6(addr6(b, p.Local), p.Remote)
		b = append(b, make([]byte, 2*16+5*4)...)
		b = append(b, p.Lane, p.Lane&0xf, 0, 0)
		b = host.AppendUint32(b, 0)
	}
	return b
}

// socketRow is what both socket tables show. Only the owner of a socket knows its
// connected address and send buffer, so these are shown for sockets of this Kernel
// only.
type socketRow struct {
	bound, peer    netip.AddrPort
	sndbuf, rcvbuf uint32
	inode          uint64
}

func (s *Socket) rows(r *ctl.Response) []socketRow {
	rows := make([]socketRow, 0, len(r.Sockets))
	own := s.k.own()
	for i := range r.Sockets {
		x := &r.Sockets[i]
		row := socketRow{bound: netip.AddrPortFrom(x.Addr, x.Port), rcvbuf: uint32(x.RecvLimit), inode: uint64(x.Incarnation)}
		if o, ok := own[row.bound]; ok {
			row.peer, row.sndbuf = o.peer, o.sndbuf
		}
		rows = append(rows, row)
	}
	return rows
}

// own returns the bound sockets of this Kernel.
func (k *Kernel) own() map[netip.AddrPort]socketRow {
	k.mu.Lock()
	defer k.mu.Unlock()
	rows := make(map[netip.AddrPort]socketRow, len(k.socks))
	for s := range k.socks {
		s.mu.Lock()
		if s.rs != nil {
			rows[s.bound.addrPort()] = socketRow{peer: s.peer.addrPort(), sndbuf: uint32(s.opts.sndbuf / 2)}
		}
		s.mu.Unlock()
	}
	return rows
}

func sockets4(s *Socket, r *ctl.Response, b []byte) []byte {
	for _, x := range s.rows(r) {
		if !x.bound.Addr().Is4() {
			continue
		}
		b = host.AppendUint32(b, x.sndbuf)
		b = addr4(addr4(b, x.bound.Addr()), x.peer.Addr())
		b = network.AppendUint16(b, x.bound.Port())
		b = network.AppendUint16(b, x.peer.Port())
		b = host.AppendUint32(b, x.rcvbuf)
		b = host.AppendUint64(b, x.inode)
	}
	return b
}

func sockets6(s *Socket, r *ctl.Response, b []byte) []byte {
	for _, x := range s.rows(r) {
		b = host.AppendUint32(b, x.sndbuf)
		b = addr6(addr6(b, x.bound.Addr()), x.peer.Addr())
		b = network.AppendUint16(b, x.bound.Port())
		b = network.AppendUint16(b, x.peer.Port())
		b = host.AppendUint32(b, x.rcvbuf)
		b = host.AppendUint64(b, x.inode)
	}
	return b
}
