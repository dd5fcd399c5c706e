package rds

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/shm"
)

const traceText = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestTraceparent: a message brings its traceparent, whatever else it has, and one that has none
// brings none, also into a Received that had one. Each way to receive tells it.
func TestTraceparent(t *testing.T) {
	_, a, b, local, _, r := rdmaPair(t, Options{})
	to := b.LocalAddrPort()
	ms := []Message{
		{Payload: []byte("small"), Traceparent: traceText},
		{Payload: []byte("plain")},
		{Traceparent: traceText},
		{Payload: make([]byte, 100_000), Traceparent: traceText},
		{From: Segment{local, 0, 4}, Traceparent: traceText},
		{From: Segment{local, 0, 0}, Traceparent: traceText},
		{Op: &RDMA{Write: true, Cookie: r.Cookie(), Local: []Segment{{local, 0, 4}}}, Payload: []byte("behind"), Traceparent: traceText},
		{Payload: make([]byte, 2000)},
		{Payload: []byte("last"), Traceparent: strings.Replace(traceText, "-01", "-00", 1)},
	}
	for i := range ms {
		ms[i].Addr = to
	}
	one := Received{Payload: make([]byte, 1)}
	check := func(i int, m *Received) {
		t.Helper()
		want := len(ms[i].Payload) + ms[i].From.Len
		if m.Len != want || m.Traceparent != ms[i].Traceparent {
			t.Errorf("message %d: %d bytes with %q", i, m.Len, m.Traceparent)
		}
	}
	for range 3 {
		if n, err := a.SendBatch(bg(), ms); n != len(ms) || err != nil {
			t.Fatal(n, err)
		}
	}
	for i := range ms {
		if err := look(bg(), b, &one); err != nil {
			t.Fatal(err)
		}
		check(i, &one)
		if err := b.Recv(bg(), &one); err != nil {
			t.Fatal(err)
		}
		check(i, &one)
	}
	batch := make([]Received, len(ms))
	for i := range batch {
		batch[i].Traceparent = "old"
	}
	for n := 0; n < len(ms); {
		k, err := b.RecvBatch(bg(), batch[n:])
		if err != nil {
			t.Fatal(err)
		}
		for ; k > 0; k-- {
			check(n, &batch[n])
			n++
		}
	}
	i := 0
	for m, err := range b.Messages(bg()) {
		if err != nil {
			t.Fatal(err)
		}
		if check(i, m); i == len(ms)-1 {
			break
		}
		i++
	}
	if err := a.CloseWait(bg()); err != nil {
		t.Error(err)
	}
	if n := a.c.tx.arena.InUse(); n != 0 {
		t.Errorf("%d bytes of send memory are in use", n)
	}
}

// TestTraceparentBad: what is no traceparent is refused with the reason; the longest message goes,
// without; and so goes any message by an older daemon.
func TestTraceparentBad(t *testing.T) {
	d, a, b := pair(t, Options{})
	m := Message{Addr: b.LocalAddrPort(), Payload: []byte("x")}
	for text, want := range map[string]string{
		traceText[:54]:                                   "32 hexadecimal digits",
		strings.ToUpper(traceText):                       "lower case",
		"ff" + traceText[2:]:                             "no version ff",
		"00-" + strings.Repeat("0", 32) + traceText[35:]: "zeros",
	} {
		m.Traceparent = text
		if _, err := a.Send(bg(), &m); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	got := Received{Payload: make([]byte, MaxMessage)}
	send := func(n int, want string) {
		t.Helper()
		m.Payload, m.Traceparent = make([]byte, n), traceText
		if _, err := a.Send(bg(), &m); err != nil {
			t.Fatal(err)
		}
		if err := b.Recv(bg(), &got); err != nil || got.N != n || got.Traceparent != want {
			t.Errorf("%d bytes: %d with %q, %v", n, got.N, got.Traceparent, err)
		}
	}
	a.SetSndBuf(2 * MaxMessage)
	b.SetRcvBuf(4 * MaxMessage)
	send(MaxMessage-26, traceText)
	send(MaxMessage-25, "")
	send(MaxMessage, "")
	d.do(func() { d.older = true })
	send(3, "")
}

// TestTraceparentHostile: a daemon that says that there is a traceparent where there is no memory.
func TestTraceparentHostile(t *testing.T) {
	for _, size := range []uint32{shm.WindowSize - 25, shm.WindowSize + 1, ^uint32(0), ^uint32(0) - 20} {
		for call, recv := range map[string]func(s *Socket) error{
			"Recv": func(s *Socket) error { return s.Recv(bg(), &Received{}) },
			"Peek": func(s *Socket) error { return look(bg(), s, &Received{}) },
		} {
			d := newHostileDaemon()
			c, err := Open(attach.Through(t.Context(), attach.Way{Control: d, Wake: d.wake}), Options{Params: Params(tiny), Spin: -1})
			if err != nil {
				t.Fatal(err)
			}
			s := bindFake(t, c, "127.0.0.1:0")
			*d.seg.EventProducer().Reserve().Event() = shm.Event{Kind: shm.EvData, Flags: shm.EventTraceparent, Len: size}
			d.seg.EventProducer().Publish()
			if err := recv(s); err == nil || !strings.Contains(err.Error(), "outside the receive arena") {
				t.Errorf("%s of %d bytes: %v", call, size, err)
			}
			c.Close()
		}
	}
}
