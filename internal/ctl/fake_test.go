package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
)

// fake answers each request with one element of everything, or with err.
type fake struct {
	err   error
	empty bool
	block bool // Ping waits for its ctx
}

func some(n uint64) *uint64 { return new(n) }

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)

func (f *fake) Status() (Status, error) {
	if f.empty || f.err != nil {
		return Status{}, f.err
	}
	mem := make([]uint64, stats.Size/8)
	b, err := stats.NewBlock(mem, stats.Info{PID: 4711, Instance: 0xfedcba9876543210, Start: t0.UnixNano()})
	if err != nil {
		return Status{}, err
	}
	for i := range b.C {
		b.C[i] = uint64(i) + 1000
	}
	b.Turn(1000)
	b.Turn(3000)
	b.SetState(stats.Running)
	b.Publish(t0.Add(time.Minute).UnixNano())
	r, err := stats.NewReader(mem)
	if err != nil {
		return Status{}, err
	}
	s := Status{
		Version: "v0.1.0", Socket: "/run/rdsd/rdsd.sock", Stats: "/run/rdsd/rdsd.sock.stats", Upgrade: f.Upgrade(),
		Listen:  []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:18634"), netip.MustParseAddrPort("[::1]:18634")},
		Metrics: "127.0.0.1:9464", CRC: "auto",
		Transports: []Choice{{"soft", true, "the default"}, {"ibv", false, "built without it"}},
		Congestion: Congestion{"cubic", "reno", "operation not permitted"},
		Memory:     Memory{Limit: 4 << 30, HeldLimit: 64 << 20},
		Users: []User{
			{UID: new(uint32(1000)), Clients: Usage{1, some(2)}, Sockets: Usage{3, some(4)}, Destinations: Usage{5, some(5)}, Waiting: 6,
				Operations: Usage{0, some(0)}, Grants: Usage{12, some(13)}, RegisteredBytes: Usage{7, some(8)}, QueuedBytes: Usage{9, some(10)}, HeldBytes: 11, Unreceived: Usage{14, some(15)}},
			{UID: new(uint32(0)), Sockets: Usage{Used: 1}},
			{Account: "pod7", Sockets: Usage{2, some(2)}},
		},
	}
	snap := r.Snapshot()
	s.Fill(&snap, t0.Add(time.Minute+2*time.Second))
	return s, nil
}

func (f *fake) Devices() (Devices, error) {
	if f.empty || f.err != nil {
		return Devices{}, f.err
	}
	a := netip.MustParseAddr("10.9.0.1")
	return Devices{Built: true, Devices: []Device{{Name: "rxe0", Kind: "InfiniBand", GUID: "5054:00ff:fe00:000a", Node: "/dev/infiniband/uverbs0", Used: true,
		Counters: CounterList{{"alloc_pd_err", 4}},
		Nodes:    []DeviceNode{{"/dev/infiniband/rdma_cm", "permission denied"}, {"/dev/infiniband/uverbs0", ""}},
		Ports:    []DevicePort{{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", Interfaces: []string{"eth0"}, GIDs: []DeviceGID{{1, a, "RoCE v2", "eth0"}}, Counters: CounterList{{"port_rcv_data", 1 << 63}}}, {Number: 2, State: "DOWN"}}}},
		Addresses: []AddressWay{{a, []string{"verbs", "soft"}, "rxe0", ""}, {netip.MustParseAddr("127.0.0.1"), nil, "", "no RDMA device belongs to lo"}},
		Problems:  []string{"siw0 is in RDMA netlink and not in sysfs"}}, nil
}

func (f *fake) Unreceived() []Unreceived {
	return []Unreceived{{Owner: Owner{PID: 9, UID: 1000, Name: "deaf"}, Descriptors: 12, Ended: true}, {Owner: Owner{PID: 9, UID: 1000, Name: "deaf"}, Descriptors: 5}, {Owner: Owner{PID: 8}, Descriptors: 1}}
}

func (f *fake) Sockets() ([]SocketInfo, error) {
	if f.empty || f.err != nil {
		return nil, f.err
	}
	a := netip.MustParseAddr("127.0.0.1")
	return []SocketInfo{
		{Addr: a, Port: 4000, Incarnation: 9, Owner: Owner{PID: 12, UID: 1000, Name: "blockstore"}, SendMessages: 1, SendBytes: 2, RecvBytes: 3, RecvLimit: 4, Congested: true, Ops: 5},
		{Addr: a, Port: 80, Incarnation: 8, Owner: Owner{PID: 13, UID: 0, Name: ""}},
	}, nil
}

func (f *fake) Peers() ([]PeerInfo, error) {
	if f.empty || f.err != nil {
		return nil, f.err
	}
	a, b := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	return []PeerInfo{
		{Local: a, Remote: b, Lane: 1, State: "up", Since: t0, Instance: 0x0123456789abcdef, Transport: "soft", Why: "transport = soft", CRC: true,
			NextTxSeq: 1<<63 + 1, AckedSeq: 1 << 63, RxSeq: 77, QueuedMessages: 1, QueuedBytes: 2, UnackedMessages: 3, UnackedBytes: 4,
			SendCredits: 5, RecvCredits: 6, Resets: 7, Retransmitted: 8, DroppedOps: 9, UnknownOps: 10, Lost: 11, LastError: "reset", Limitable: "all", HeldBy: "peers.bytes_per_s", Holds: 12, HeldTime: 13},
		{Local: a, Remote: b, State: "down"},
	}, nil
}

func (f *fake) PeerReset(addr netip.Addr, _, _ *uint8) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 2, nil
}

func (f *fake) Config() ([]ConfigValue, error) {
	if f.empty || f.err != nil {
		return nil, f.err
	}
	return []ConfigValue{{Key: "port", Value: "7", Default: "18634", Origin: "/etc/x.toml:3"}, {Key: "spin", Value: "50µs", Default: "50µs", Origin: "default", Live: true}}, nil
}

func (f *fake) Reload(apply bool) (Reload, error) {
	r := Reload{Applied: []ConfigChange{}, Restart: []ConfigChange{{Key: "port", Old: "7", New: "8", Origin: "-port"}}, Warnings: []string{"beware"}}
	if apply {
		r.Applied = append(r.Applied, ConfigChange{Key: "spin", Old: "50µs", New: "0s", Origin: "RDSD_SPIN"})
	}
	return r, f.err
}

func (f *fake) Ping(ctx context.Context, p *Ping) error {
	if f.block {
		<-ctx.Done()
		return ctx.Err()
	}
	p.RTT = 31415 * time.Nanosecond
	if p.Path > 0 {
		p.Paths = 4
	}
	return f.err
}

func serve(t *testing.T, req string, who Caller, b Backend) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, Serve(t.Context(), []byte(req), who, b), "", "  "); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}
