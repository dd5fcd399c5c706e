package rds_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// One socket reaches every other.
func Example() {
	h, stop := hosts(3) // h[i] is a Client, from Open, on a host of its own
	defer stop()

	// On two hosts a socket answers what comes.
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := 1; i <= 2; i++ {
		s, err := h[i].Bind(netip.AddrPortFrom(h[i].Addr, 4000))
		check(err)
		wg.Go(func() {
			buf := make([]byte, 1500)
			n, from, err := s.RecvFrom(buf)
			check(err)
			_, err = s.SendTo(fmt.Appendf(nil, "%s yourself", buf[:n]), from)
			check(err)
		})
	}

	s, err := h[0].Bind(netip.AddrPortFrom(h[0].Addr, 0)) // any port
	check(err)
	for i := 1; i <= 2; i++ {
		_, err := s.SendTo([]byte("hello"), netip.AddrPortFrom(h[i].Addr, 4000))
		check(err)
	}
	buf := make([]byte, 1500)
	for range 2 {
		n, _, err := s.RecvFrom(buf)
		check(err)
		fmt.Printf("%s\n", buf[:n])
	}
	// Output:
	// hello yourself
	// hello yourself
}

// The target registers memory and sends its cookie along with a request; the
// initiator writes there, tells so with the same message, and waits until it
// may use its own memory again.
func ExampleSocket_Barrier() {
	h, stop := hosts(2)
	defer stop()
	ctx := context.Background()
	target, err := h[0].Bind(netip.AddrPortFrom(h[0].Addr, 0))
	check(err)
	initiator, err := h[1].Bind(netip.AddrPortFrom(h[1].Addr, 0))
	check(err)

	// The target asks for a block.
	buf, err := h[0].Alloc(1 << 20)
	check(err)
	region, err := target.Register(buf, 0, len(buf.Bytes()), rds.AllowWrite)
	check(err)
	_, err = target.Send(context.Background(), &rds.Message{Payload: []byte("block 7, please"), Addr: initiator.LocalAddrPort(), Cookie: region.Cookie()})
	check(err)

	// The initiator serves it.
	request := rds.Received{Payload: make([]byte, 100)}
	check(initiator.Recv(context.Background(), &request))
	block, err := h[1].Alloc(4096)
	check(err)
	copy(block.Bytes(), "contents of the block")
	id, err := initiator.Send(context.Background(), &rds.Message{
		Payload: []byte("here it is"),
		Addr:    request.Addr,
		Op: &rds.RDMA{
			Write:  true,
			Cookie: request.Cookie,
			Local:  []rds.Segment{{Buf: block, Off: 0, Len: len(block.Bytes())}},
			Notify: true,
		},
	})
	check(err)
	_, err = initiator.Barrier(ctx, request.Addr.Addr(), id)
	check(err)
	fmt.Println("the initiator may fill its block anew")
	done, err := initiator.WaitOp(ctx, request.Addr.Addr(), id)
	check(err)
	fmt.Println("outcome of the write:", done.Status)

	// When the answer is there, so is the data.
	answer := rds.Received{Payload: make([]byte, 100)}
	check(target.Recv(context.Background(), &answer))
	fmt.Printf("%s: %s\n", answer.Payload[:answer.N], buf.Bytes()[:21])
	check(region.Release(ctx))
	// Output:
	// the initiator may fill its block anew
	// outcome of the write: success
	// here it is: contents of the block
}

// A slice of a buffer's memory says where in the buffer it is.
func ExampleSegment() {
	h, stop := hosts(1)
	defer stop()
	buf, err := h[0].Alloc(10_000)
	check(err)
	block := buf.Bytes()[512:1024]
	s := rds.Segment{Buf: buf, Off: cap(buf.Bytes()) - cap(block), Len: len(block)}
	fmt.Println(s.Off, s.Len)
	// Output: 512 512
}

// A counter in one host's memory that others increment.
func ExampleSocket_Atomic() {
	h, stop := hosts(2)
	defer stop()
	ctx := context.Background()
	owner, err := h[0].Bind(netip.AddrPortFrom(h[0].Addr, 0))
	check(err)
	user, err := h[1].Bind(netip.AddrPortFrom(h[1].Addr, 0))
	check(err)

	counter, err := h[0].Alloc(8)
	check(err)
	region, err := owner.Register(counter, 0, 8, rds.AllowAtomic)
	check(err)
	_, err = owner.Send(context.Background(), &rds.Message{Addr: user.LocalAddrPort(), Cookie: region.Cookie()})
	check(err)

	var m rds.Received
	check(user.Recv(context.Background(), &m))
	for range 3 {
		ticket, err := user.Atomic(ctx, m.Addr, &rds.Atomic{Cookie: m.Cookie, Add: 1})
		check(err)
		fmt.Println("ticket", ticket)
	}
	// Whoever finds 3 there sets it back.
	old, err := user.Atomic(ctx, m.Addr, &rds.Atomic{CmpSwap: true, Cookie: m.Cookie, Compare: 3, Swap: 0})
	check(err)
	fmt.Println("was", old, "is", binary.NativeEndian.Uint64(counter.Bytes()))
	// Output:
	// ticket 0
	// ticket 1
	// ticket 2
	// was 3 is 0
}

// A sender that does not wait goes on when its slow receiver has room again.
func ExampleSocket_Wait() {
	h, stop := hosts(2)
	defer stop()
	ctx := context.Background()
	slow, err := h[0].Bind(netip.AddrPortFrom(h[0].Addr, 0))
	check(err)
	check(slow.SetRcvBuf(1000))
	sender, err := h[1].Bind(netip.AddrPortFrom(h[1].Addr, 0))
	check(err)

	to, msg := slow.LocalAddrPort(), make([]byte, 100)
	sent := 0
	for err == nil || errors.Is(err, rds.ErrWouldBlock) { // the send buffer's limit is another matter
		m := rds.Message{Payload: msg, Addr: to}
		if _, err = sender.Send(rds.DontWait, &m); err == nil {
			sent++
		}
	}
	fmt.Println("congested:", errors.Is(err, rds.ErrCongested))

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for range sent {
			_, _, err := slow.RecvFrom(make([]byte, 100))
			check(err)
		}
	})
	ready, err := sender.Wait(ctx, rds.WaitSet{Relief: []netip.AddrPort{to}})
	check(err)
	fmt.Println("relieved:", len(ready.Relief) == 1)
	_, err = sender.SendTo(msg, to)
	check(err)
	// Output:
	// congested: true
	// relieved: true
}

// A message that is of no use later than in 50 ms.
func ExampleMessage_giveUpAfter() {
	h, stop := hosts(2)
	defer stop()
	s, err := h[0].Bind(netip.AddrPortFrom(h[0].Addr, 0))
	check(err)
	to := netip.AddrPortFrom(h[1].Addr, 4000)
	check(h[1].Down()) // it cannot be reached

	_, err = s.Send(context.Background(), &rds.Message{Payload: []byte("now or never"), Addr: to, GiveUpAfter: 50 * time.Millisecond})
	check(err)
	s.SetNotices(rds.GaveUp)
	_, err = s.Wait(context.Background(), rds.WaitSet{Notice: true})
	check(err)
	var n [1]rds.Notice
	s.Notices(n[:])
	fmt.Println(n[0].Kind, n[0].To == to, n[0].Count)
	// Output:
	// gave up true 1
}
