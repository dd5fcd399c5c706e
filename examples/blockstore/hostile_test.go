package main

import (
	"bytes"
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

// stranger is a socket that sends what a test says to a server.
type stranger struct {
	t    *testing.T
	c    *rds.Client
	sock *rds.Socket
	to   netip.AddrPort
	in   rds.Received
}

func (w *world) stranger() *stranger {
	w.t.Helper()
	c := w.d[1].Open(w.t)
	sock := w.d[1].Bind(w.t, c, 0)
	to := netip.AddrPortFrom(w.d[0].Addr(), store.DefaultPort)
	return &stranger{t: w.t, c: c, sock: sock, to: to, in: rds.Received{Payload: make([]byte, store.MaxMessage)}}
}

// ask sends b and returns the answer.
func (s *stranger) ask(m *rds.Message) store.Message {
	s.t.Helper()
	m.Addr = s.to
	if _, err := s.sock.Send(context.Background(), m); err != nil {
		s.t.Fatal(err)
	}
	return s.hear()
}

// hear returns the next message.
func (s *stranger) hear() store.Message {
	s.t.Helper()
	_ = s.sock.SetReadDeadline(time.Now().Add(patienceForTests))
	if err := s.sock.Recv(context.Background(), &s.in); err != nil {
		s.t.Fatal(err)
	}
	a, err := store.Parse(s.in.Payload[:s.in.N])
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *stranger) say(m store.Message) store.Message {
	s.t.Helper()
	return s.ask(&rds.Message{Payload: m.Append(nil)})
}

// TestHostileRequests: what a client may not do is refused, changes nothing, and
// costs the server nothing that it needs for others.
func TestHostileRequests(t *testing.T) {
	w := newWorld(t)
	export, content := w.file("export", 1<<20)
	s := w.start(w.serveArgs("-small", "4096", "-buffers", "4", "-block", "65536", export)...).serving()
	x := w.stranger()
	const mine, other = 77, 78
	if a := x.say(store.Message{Kind: store.KindOpen, Flags: store.FlagWrite, Session: mine, BlockSize: 1 << 20}); a.Kind != store.KindOpened || a.Length != 4096 || a.Window != 2 {
		t.Fatalf("OPEN: %+v", a)
	}
	data := bytes.Repeat([]byte{5}, 4096)
	sum := store.Checksum(data)
	small := store.Message{Kind: store.KindWrite, Flags: store.FlagBytes, Session: mine, Length: 4096, CRC: sum, Data: data}
	with := func(change func(*store.Message)) store.Message {
		m := small
		change(&m)
		return m
	}
	pushed := with(func(m *store.Message) { m.Flags |= store.FlagPushed; m.Data = nil })
	grant := x.say(store.Message{Kind: store.KindGrant, Session: mine})
	cookie := x.in.Cookie
	if grant.Kind != store.KindGranted || grant.Window != 2 || grant.BlockSize != 65536 || cookie == 0 {
		t.Fatalf("GRANT: %+v, cookie %#x", grant, cookie)
	}
	number := uint32(grant.Block) << 16
	for name, c := range map[string]struct {
		m    store.Message
		want store.Status
	}{
		"a WRITE of another session":           {with(func(m *store.Message) { m.Session = other }), store.StatusStale},
		"a WRITE without a session":            {with(func(m *store.Message) { m.Session = 0 }), store.StatusStale},
		"a WRITE with another checksum":        {with(func(m *store.Message) { m.CRC++ }), store.StatusChecksum},
		"a WRITE beyond all offsets":           {with(func(m *store.Message) { m.Block = 1 << 63 }), store.StatusBad},
		"a READ of more than a message has":    {store.Message{Kind: store.KindRead, Flags: store.FlagBytes, Length: 4097}, store.StatusBad},
		"a READ beyond the end":                {store.Message{Kind: store.KindRead, Flags: store.FlagBytes, Block: 1 << 20, Length: 1}, store.StatusShort},
		"a READ of another session":            {store.Message{Kind: store.KindRead, Flags: store.FlagBytes, Session: other, Length: 1}, store.StatusStale},
		"a READ of nothing":                    {store.Message{Kind: store.KindRead, Flags: store.FlagBytes}, store.StatusBad},
		"a GRANT without a session":            {store.Message{Kind: store.KindGrant}, store.StatusStale},
		"a push under another grant":           {with(func(m *store.Message) { *m = pushed; m.Window = number + 1<<16 }), store.StatusGrantOver},
		"a push of another session":            {with(func(m *store.Message) { *m = pushed; m.Window = number; m.Session = other }), store.StatusGrantOver},
		"a push into a buffer that is not one": {with(func(m *store.Message) { *m = pushed; m.Window = number + 2 }), store.StatusBad},
		"a push that is longer than a buffer":  {with(func(m *store.Message) { *m = pushed; m.Window = number; m.Length = 65537 }), store.StatusBad},
		"a push of other bytes than announced": {with(func(m *store.Message) { *m = pushed; m.Window = number + 1 }), store.StatusChecksum},
		"a COMMIT beyond all sizes":            {store.Message{Kind: store.KindCommit, Session: mine, Block: 1 << 63}, store.StatusBad},
	} {
		c.m.ID = 1
		if a := x.say(c.m); a.Kind != store.KindFailed || a.Status != c.want || a.ID != 1 {
			t.Errorf("%s: %v, status %d (%s), want %d", name, a.Kind, a.Status, a.Text, c.want)
		}
	}
	// What is no message has no answer; the server goes on.
	large := with(func(m *store.Message) { m.Data = make([]byte, 8192); m.Length = 8192 })
	for _, b := range [][]byte{nil, []byte("BS"), make([]byte, 70000), small.Append(nil)[:store.HeaderSize+1], large.Append(nil)} {
		if _, err := x.sock.SendTo(b, x.to); err != nil {
			t.Fatal(err)
		}
	}
	if a := x.say(store.Message{Kind: store.KindRead, Flags: store.FlagBytes, Block: 7, Length: 9}); !bytes.Equal(a.Data, content[7:16]) {
		t.Errorf("READ of 9 bytes: %+v", a)
	}
	x.pushes(t, cookie, pushed, number)
	s.stop()
	copy(content, data)
	w.holds(export, content)
}

// pushes writes m's bytes into the buffer 1, with m as the immediate data. Then it
// opens another session, and the same does not work any more.
func (s *stranger) pushes(t *testing.T, cookie rds.Cookie, m store.Message, number uint32) {
	t.Helper()
	buf, err := s.c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	copy(buf.Bytes(), bytes.Repeat([]byte{5}, 4096))
	m.Window = number + 1
	push := func() *rds.Message {
		return &rds.Message{Payload: m.Append(nil), Op: &rds.RDMA{
			Write: true, Cookie: cookie, RemoteOff: 65536, Local: []rds.Segment{{Buf: buf, Len: 4096}}, Notify: true,
		}}
	}
	if a := s.ask(push()); a.Kind != store.KindDurable {
		t.Errorf("push: %+v", a)
	}
	if a := s.say(store.Message{Kind: store.KindOpen, Flags: store.FlagWrite, Session: 99}); a.Kind != store.KindOpened {
		t.Errorf("OPEN: %+v", a)
	}
	if a := s.ask(push()); a.Status != store.StatusStale {
		t.Errorf("push of a session that is over: %+v", a)
	}
	if a := s.say(store.Message{Kind: store.KindGrant, Session: 99}); a.Kind != store.KindGranted {
		t.Errorf("GRANT: %+v", a)
	}
	p := push()
	p.Addr = s.to
	id, err := s.sock.Send(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patienceForTests)
	defer cancel()
	for done := false; !done; { // the first two pushes have statuses, too
		c := make([]rds.Completion, 1)
		if _, err := s.sock.Wait(ctx, rds.WaitSet{Completion: true}); err != nil {
			t.Fatal(err)
		}
		if s.sock.Completions(c); c[0].ID == id {
			if done = true; c[0].Status != rds.RemoteError {
				t.Errorf("push with a cookie that was taken back: %v", c[0].Status)
			}
		}
	}
}
