package tour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/netip"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

// two returns a client at each of two hosts. A program has the installed daemon of its
// host, and opens it as the tour's first snippet does.
func two() (a, b *rds.Client, ctx context.Context, stop func()) {
	daemons, end, err := rdstest.Start(2)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	var c [2]*rds.Client
	for i, d := range daemons {
		c[i], err = rds.Open(ctx, rds.Options{Socket: d.Socket()})
		check(err)
	}
	return c[0], c[1], ctx, func() {
		_ = c[0].Close()
		_ = c[1].Close()
		cancel()
		check(end())
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

var anyPort = netip.MustParseAddrPort("0.0.0.0:0")

func Example_attach() {
	daemons, end, err := rdstest.Start(1)
	check(err)
	defer func() { check(end()) }()
	ctx := context.Background()
	options := rds.Options{Socket: daemons[0].Socket()}

	c, err := rds.Open(ctx, options)
	check(err)
	defer c.Close()
	s, err := c.Bind(netip.MustParseAddrPort("0.0.0.0:0"))
	check(err)
	addrs, err := c.Addrs()
	check(err)
	fmt.Println(len(addrs), s.LocalAddrPort().Addr() == addrs[0])

	// Output:
	// 1 true
}

func Example_messages() {
	a, b, ctx, stop := two()
	defer stop()
	from, err := a.Bind(anyPort)
	check(err)
	to, err := b.Bind(anyPort)
	check(err)

	for i := range 3 {
		_, err := from.SendTo(fmt.Appendf(nil, "message %d", i), to.LocalAddrPort())
		check(err)
	}
	for m, err := range to.Messages(ctx) {
		check(err)
		fmt.Printf("%s, from the sender: %v\n", m.Payload, m.Addr == from.LocalAddrPort())
		if string(m.Payload) == "message 2" {
			break
		}
	}

	// Output:
	// message 0, from the sender: true
	// message 1, from the sender: true
	// message 2, from the sender: true
}

func Example_notices() {
	a, b, ctx, stop := two()
	defer stop()
	s, err := a.Bind(anyPort)
	check(err)
	addrs, err := b.Addrs()
	check(err)
	nobody := netip.AddrPortFrom(addrs[0], 9)

	_, err = s.SendTo([]byte("anybody?"), nobody)
	fmt.Println("queued:", err == nil)
	_, err = s.Wait(ctx, rds.WaitSet{Notice: true})
	check(err)
	notices := make([]rds.Notice, 10)
	for _, n := range notices[:s.Notices(notices)] {
		fmt.Println(n.Kind == rds.NoSocket, n.To == nobody, n.Count)
	}

	// Output:
	// queued: true
	// true true 1
}

func Example_calls() {
	a, b, ctx, stop := two()
	defer stop()
	socket, err := b.Bind(anyPort)
	check(err)
	server := socket.LocalAddrPort()
	own, err := a.Bind(anyPort)
	check(err)
	serving, end := context.WithCancel(ctx)
	ended := make(chan error)

	go func() {
		ended <- rpc.Serve(serving, socket, rpc.Methods{
			"double": func(_ context.Context, r *rpc.Request) ([]byte, error) {
				return append(r.Body, r.Body...), nil
			},
			"sleep": func(ctx context.Context, _ *rpc.Request) ([]byte, error) {
				<-ctx.Done() // at the caller's deadline
				return nil, ctx.Err()
			},
		}, rpc.ServerOptions{})
	}()

	c := rpc.NewCaller(own, rpc.CallerOptions{})
	answer, err := c.Call(ctx, server, "double", []byte("ha"))
	check(err)
	fmt.Printf("%s\n", answer)

	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = c.Call(short, server, "sleep", nil)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	_, err = c.Call(ctx, netip.AddrPortFrom(server.Addr(), 9), "double", nil)
	fmt.Println(errors.Is(err, rpc.ErrNoSocket))

	end()
	<-ended
	check(c.Close())

	// Output:
	// haha
	// true
	// true
}

func Example_memory() {
	a, b, ctx, stop := two()
	defer stop()
	reader, err := a.Bind(anyPort)
	check(err)
	owner, err := b.Bind(anyPort)
	check(err)

	memory, err := b.Alloc(1 << 20)
	check(err)
	copy(memory.Bytes(), "read without the owner's program")
	region, err := owner.Register(memory, 0, len(memory.Bytes()), rds.AllowRead|rds.AllowWrite|rds.AllowAtomic)
	check(err)
	_, err = owner.Send(ctx, &rds.Message{Addr: reader.LocalAddrPort(), Cookie: region.Cookie()})
	check(err)

	var m rds.Received
	check(reader.Recv(ctx, &m))
	remote := reader.Remote(ctx, m.Addr, m.Cookie, 1<<20)
	whole, err := io.ReadAll(io.NewSectionReader(remote, 0, 32))
	check(err)
	fmt.Printf("%s\n", whole)

	_, err = remote.WriteAt([]byte("WRITTEN"), 0)
	check(err)
	fmt.Printf("%s\n", memory.Bytes()[:32])
	for range 3 {
		old, err := reader.Atomic(ctx, m.Addr, &rds.Atomic{Cookie: m.Cookie, RemoteOff: 64, Add: 10})
		check(err)
		fmt.Println(old)
	}

	// Output:
	// read without the owner's program
	// WRITTENthout the owner's program
	// 0
	// 10
	// 20
}

func Example_operation() {
	a, b, ctx, stop := two()
	defer stop()
	s, err := a.Bind(anyPort)
	check(err)
	owner, err := b.Bind(anyPort)
	check(err)
	peer := owner.LocalAddrPort()
	memory, err := b.Alloc(4096)
	check(err)
	region, err := owner.Register(memory, 0, 4096, rds.AllowWrite)
	check(err)
	_, err = owner.Send(ctx, &rds.Message{Addr: s.LocalAddrPort(), Cookie: region.Cookie()})
	check(err)
	var grant rds.Received
	check(s.Recv(ctx, &grant))
	cookie := grant.Cookie

	local, err := a.Alloc(4096)
	check(err)
	copy(local.Bytes(), "block 7")
	id, err := s.Send(ctx, &rds.Message{Addr: peer, Payload: []byte("it is there"),
		Op: &rds.RDMA{Write: true, Cookie: cookie, Local: []rds.Segment{{Buf: local, Len: 4096}}, Notify: true}})
	check(err)
	_, err = s.Barrier(ctx, peer.Addr(), id)
	check(err)
	clear(local.Bytes()) // it is ours again
	done, err := s.WaitOp(ctx, peer.Addr(), id)
	check(err)
	fmt.Println(done.Status)

	m := rds.Received{Payload: make([]byte, 100)}
	check(owner.Recv(ctx, &m))
	fmt.Printf("%s: %s\n", m.Payload[:m.N], memory.Bytes()[:7])

	// Output:
	// success
	// it is there: block 7
}

// TestReopen is no Example, because only a test can start a daemon again.
func TestReopen(t *testing.T) {
	daemon := rdstest.StartDaemons(t, 1)[0]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path := daemon.Socket()

	lost := make(chan *rds.Reopened, 1)
	c, err := rds.Open(ctx, rds.Options{Socket: path, Reopen: func(r *rds.Reopened) { lost <- r }})
	check(err)
	s, err := c.Bind(anyPort)
	check(err)

	check(daemon.Stop())
	daemon.Start(t)

	for _, l := range (<-lost).Sockets {
		fmt.Println(l.Socket.LocalAddrPort(), l.Err, l.Unacked, l.Unknown)
	}
	_, err = s.SendTo([]byte("the same socket"), s.LocalAddrPort())
	check(err)

	m := rds.Received{Payload: make([]byte, 100)}
	check(s.Recv(ctx, &m))
	if string(m.Payload[:m.N]) != "the same socket" {
		t.Errorf("%q", m.Payload[:m.N])
	}
	check(c.Close())
}
