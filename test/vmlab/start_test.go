package vmlab

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

const messages, messageSize = 30, 700

// late has siw's messages wait for receives. Later messages wait, too.
func late(l *lab, siwInitiates bool) {
	l.connect(siwInitiates, "", "")
	const read = 1 << 20
	fill(l.mem[read:read+messageSize], 9)
	for i := range messages {
		l.guest("fill %d %d %d", i*messageSize, messageSize, i)
		l.guest("send 1 %d %d 0", i*messageSize, messageSize)
	}
	l.guest("read 1 %d %d %d %d", read, messageSize, iova+read, l.mr.RKey())
	l.until("a message without a receive", func() bool { return l.dev.Stats().RNRWaits > 0 })
	// Writes are placed when they arrive, even if a message before them waits.
	l.guest("write 1 %d 8 %d %d", read, iova+2*read, l.mr.RKey())
	l.until("all messages put aside", func() bool { return l.dev.Stats().RNRParked >= messages })
	for i := range messages {
		l.recv(uint64(10+i), i*messageSize, messageSize)
	}
	want := make([]byte, messageSize)
	for i := range messages {
		if wc := l.done(uint64(10 + i)); wc.ByteLen != messageSize {
			l.Fatalf("message %d: %+v", i, wc)
		}
		fill(want, i)
		if got := l.mem[i*messageSize : (i+1)*messageSize]; string(got) != string(want) {
			l.Fatalf("message %d differs", i)
		}
	}
	l.drain(messages + 2)
	l.checkGuest("READ", read, l.mem[read:read+messageSize])
	l.disconnect(siwInitiates)
}

// early posts requests before the connection is there. They leave right after the set-up, when
// siw may not be ready.
func early(l *lab) {
	fill(l.mem[:messages*messageSize], 5)
	l.hostConnects("")
	for i := range messages {
		l.guest("recv %d %d %d", i, i*messageSize, messageSize)
		l.post(verbs.SendWR{WRID: uint64(i), Op: verbs.OpSend, SGL: l.sge(i*messageSize, messageSize)})
	}
	joined := l.m.start("accept 4 -")
	l.event(verbs.CMEstablished)
	for i := range messages {
		l.done(uint64(i))
	}
	l.guestEstablished(joined, "")
	for i := range messages {
		l.guestDone(uint64(i))
	}
	l.checkGuest("messages", 0, l.mem[:messages*messageSize])
	l.Logf("nudges: %d", l.dev.Stats().StartNudges)
	l.disconnect(false)
}

// markers checks that a peer that asks for markers is rejected. siw neither wants nor sends
// markers, so no other test of them is possible.
func markers(t *testing.T, m *machine) {
	m.begin(t)
	say(t, m, "listen %d", m.port)
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", m.forward[m.port]))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := iwarp.MPA{Rev: 1, CRC: true, Markers: true}
	if _, err := c.Write(req.Append(nil)); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(limit))
	b := make([]byte, iwarp.MPAHeaderLen)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	if reply, err := iwarp.ParseMPA(b, true); err != nil || !reply.Reject || reply.Markers {
		t.Errorf("%+v, %v; want a rejection", reply, err)
	}
}
