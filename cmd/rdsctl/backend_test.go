package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// backend is a daemon with fixed answers.
type backend struct {
	err   error
	pings []time.Duration // used in turn, again and again; 0 is a lost ping
	n     int
	size  int  // of the last ping
	same  bool // the running configuration is the configured one

	onPoll func()   // runs after events were answered
	left   int      // messages that a drain still finds
	drains []string // what was asked
	traced []ctl.TraceSpec
	missed bool // a trace is not complete

	captured []ctl.CaptureSpec
	upgrades []ctl.Upgrade // answers
}

func (b *backend) Status() (ctl.Status, error) {
	one, mib := uint64(1), uint64(1<<20)
	return ctl.Status{
		Version: "v0.1.0", PID: 4711, Uptime: 90 * time.Second, Instance: 0xabc, Socket: "/run/rdsd/rdsd.sock", Stats: "/run/rdsd/rdsd.sock.stats",
		Listen:     []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:18634")},
		CRC:        "auto",
		TLS:        ctl.TLS{Mode: "auto", Subject: "CN=host", Expires: time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC), Secured: 3, Failed: 4, Plain: 5, Limited: 6},
		Transports: []ctl.Choice{{Name: "soft", Used: true, Why: "the default"}, {Name: "verbs", Why: "built without it"}},
		Congestion: ctl.Congestion{Wanted: "cubic", Used: "reno", Why: "operation not permitted"},
		Engine: ctl.EngineInfo{State: "running", Turns: 10, TurnMean: 1234, TurnP50: 1024, TurnP99: 65536, TurnMax: 1500 * time.Microsecond, Stalls: 1,
			Wait: ctl.WaitInfo{Strategy: "auto", Way: "yield", Look: 12 * time.Microsecond, Block: 18240 * time.Nanosecond, SlowYields: 3}},
		Counts: ctl.Counts{Clients: 1, Sockets: 2, Peers: 3, PeersUp: 4, CongestedPorts: 5, Regions: 6, OpsOutstanding: 7},
		Memory: ctl.Memory{Registered: 64 << 20, Limit: 4 << 30, Shared: 1536, Pool: 0, Held: 1000, HeldLimit: 64 << 20},
		Users: []ctl.User{
			{UID: new(uint32(1000)), Clients: ctl.Usage{Used: 1, Quota: &one}, Sockets: ctl.Usage{Used: 2}, Destinations: ctl.Usage{Used: 3}, Waiting: 4,
				Operations: ctl.Usage{Used: 5}, RegisteredBytes: ctl.Usage{Used: 6 << 10, Quota: &mib}, QueuedBytes: ctl.Usage{Used: 7}, HeldBytes: 8},
			{UID: new(uint32(1001))}, {Account: "pod7", Sockets: ctl.Usage{Used: 9}},
		},
		Warnings: []string{"beware\x1b[31m"},
		Counters: ctl.CounterList{{Name: "send_queued", Value: 5}, {Name: "conn_reset", Value: 0}},
	}, b.err
}

func (b *backend) Devices() (ctl.Devices, error) {
	a := netip.MustParseAddr("10.9.0.1")
	return ctl.Devices{Devices: []ctl.Device{{Name: "rxe0", Kind: "InfiniBand", Node: "/dev/infiniband/uverbs0",
		Nodes: []ctl.DeviceNode{{Path: "/dev/infiniband/rdma_cm", Problem: "permission denied"}, {Path: "/dev/infiniband/uverbs0"}}, Ports: []ctl.DevicePort{{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet",
			Interfaces: []string{"eth0"}, GIDs: []ctl.DeviceGID{{Index: 0, Addr: a, Type: "RoCE v2"}, {Index: 1, Addr: a, Type: "RoCE v2"}}, Counters: ctl.CounterList{{Name: "link_downed"}, {Name: "port_rcv_data", Value: 12}}}}}},
		Addresses: []ctl.AddressWay{{Addr: a, Transports: []string{"soft", "tcp"}, WhyNotVerbs: "rxe0 has it, and this build has no libibverbs: make build-ibv"}},
		Problems:  []string{"siw0 is in RDMA netlink and not in sysfs"}}, b.err
}

func (b *backend) Unreceived() []ctl.Unreceived {
	return []ctl.Unreceived{{Owner: ctl.Owner{PID: 77, UID: 1000, Name: "deaf"}, Descriptors: 12, Ended: true}}
}

func (b *backend) Sockets() ([]ctl.SocketInfo, error) {
	return []ctl.SocketInfo{{Addr: netip.MustParseAddr("127.0.0.1"), Port: 4000, Incarnation: 9, Owner: ctl.Owner{PID: 12, UID: 1000, Name: "a\x1b[2Jb\tc"},
		SendMessages: 1, SendBytes: 2, RecvBytes: 3, RecvLimit: 4, Congested: true, Ops: 5}}, b.err
}

func (b *backend) Peers() ([]ctl.PeerInfo, error) {
	return []ctl.PeerInfo{{Local: netip.MustParseAddr("127.0.0.1"), Remote: netip.MustParseAddr("127.0.0.2"), State: "up",
		Since: time.Now().Add(-65 * time.Second), Transport: "soft", Why: "transport = soft", NextTxSeq: 1 << 63, AckedSeq: 7, RxSeq: 8, QueuedMessages: 1, UnackedMessages: 2,
		SendCredits: 3, RecvCredits: 4, Resets: 5, Retransmitted: 6, DroppedOps: 9, UnknownOps: 10, Lost: 11}}, b.err
}

func (b *backend) PeerReset(addr netip.Addr, lane, path *uint8) (int, error) {
	if path != nil {
		return 100 + int(*path), b.err // likewise
	}
	if lane != nil {
		return int(*lane), b.err // the lane's number, to show that the lane arrived
	}
	if addr != netip.MustParseAddr("127.0.0.2") {
		return 0, fmt.Errorf("%w: no connection to %v", ctl.ErrNotFound, addr)
	}
	return 2, b.err
}

func (b *backend) Config() ([]ctl.ConfigValue, error) {
	return []ctl.ConfigValue{{Key: "port", Value: "7", Default: "18634", Origin: "/etc/x.toml:3"}, {Key: "spin", Value: "50µs", Default: "50µs", Origin: "default", Live: true},
		{Key: "peers.allow"}}, b.err
}

func (b *backend) Reload(apply bool) (ctl.Reload, error) {
	if b.same {
		return ctl.Reload{}, b.err
	}
	return ctl.Reload{Applied: []ctl.ConfigChange{{Key: "spin", Old: "50µs", New: fmt.Sprint(apply), Origin: "-spin"}},
		Restart: []ctl.ConfigChange{{Key: "stats", New: "/x", Origin: "RDSD_STATS"}}, Warnings: []string{"beware"}}, b.err
}

func (b *backend) Ping(ctx context.Context, p *ctl.Ping) error {
	b.size = p.Size
	if b.err != nil {
		return b.err
	}
	b.n++
	if rtt := b.pings[(b.n-1)%len(b.pings)]; rtt > 0 {
		if p.RTT = rtt; p.Path > 0 {
			p.Paths = 4
		}
		return nil
	}
	return fmt.Errorf("connection is down: %w", context.DeadlineExceeded)
}

// direct calls a backend without a socket.
type direct struct {
	b     *backend
	admin bool
}

func (d direct) Call(ctx context.Context, req []byte) ([]byte, error) {
	return ctl.Serve(ctx, req, ctl.Caller{UID: 1000, Admin: d.admin}, d.b), ctx.Err()
}

func (direct) Close() error { return nil }

func (b *backend) BeginTrace(_ ctl.Caller, s ctl.TraceSpec) error {
	b.traced = append(b.traced, s)
	return b.err
}

func (b *backend) ReadTrace() ([]ctl.TraceEvent, ctl.TraceState, error) {
	here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := ctl.TraceState{Messages: 1, Over: true}
	if b.missed {
		s.Dropped, s.Skipped = 2, 3
	}
	return []ctl.TraceEvent{
		{Time: at, Step: "submitted", Local: here, LocalPort: 4000, Remote: there, RemotePort: 4001, Seq: 77, Datagrams: 2, Bytes: 24},
		{Time: at.Add(time.Microsecond), Step: "posted", Local: here, LocalPort: 4000, Remote: there, RemotePort: 4001, Seq: 77, Datagrams: 2, Bytes: 24},
	}, s, b.err
}

func (b *backend) EndTrace() {}

func (b *backend) BeginCapture(s ctl.CaptureSpec) (ctl.CaptureState, error) {
	b.captured = append(b.captured, s)
	return ctl.CaptureState{Unseen: []netip.Addr{netip.MustParseAddr("10.9.0.2")}}, b.err
}

func (b *backend) ReadCapture() ([]byte, ctl.CaptureState, error) {
	return []byte("pcapng"), ctl.CaptureState{Frames: 3, Dropped: 4, Over: true}, b.err
}

func (b *backend) EndCapture() {}

// Upgrade answers with the next of b.upgrades, and with the last one again and again.
func (b *backend) Upgrade() ctl.Upgrade {
	if len(b.upgrades) == 0 {
		return ctl.Upgrade{Generation: 2, PID: 4712, Version: "v0.2.0", Attempt: 1}
	}
	u := b.upgrades[0]
	if len(b.upgrades) > 1 {
		b.upgrades = b.upgrades[1:]
	}
	return u
}

func (b *backend) BeginUpgrade(binary string) (ctl.Upgrade, error) {
	return ctl.Upgrade{Generation: 1, PID: 4711, Version: "v0.1.0", Attempt: 1, Running: true, Program: binary}, b.err
}
