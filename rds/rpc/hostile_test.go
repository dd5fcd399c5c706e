package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestHostileServer: a caller checks what a server sends: each odd answer ends the one
// call that it is for, with an error.
func TestHostileServer(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	client := d.Open(t)
	s, other := d.Bind(t, client, 0), d.Bind(t, client, 0)
	c := NewCaller(d.Bind(t, d.Open(t), 0), CallerOptions{MaxAnswer: 1000})
	defer c.Close()
	part := func(a answer) func(id uint64) [][]byte {
		return func(id uint64) [][]byte { a.id = id; return [][]byte{appendAnswer(nil, &a)} }
	}
	for name, tt := range map[string]struct {
		send func(id uint64) [][]byte
		want error
	}{
		"a good answer":        {part(answer{total: 2, part: []byte("ok")}), nil},
		"longer than is taken": {part(answer{total: 1001, part: []byte("ok")}), ErrTooLarge},
		"a part too far":       {part(answer{total: 10, offset: 1, part: []byte("ok")}), ErrProtocol},
		"memory never named":   {part(answer{flags: flagWritten, total: 1}), ErrProtocol},
		"an unknown status":    {part(answer{status: statuses}), ErrProtocol},
		"too short":            {func(id uint64) [][]byte { return [][]byte{appendAnswer(nil, &answer{id: id})[:20]} }, ErrProtocol},
		"another version":      {func(id uint64) [][]byte { b := appendAnswer(nil, &answer{id: id}); b[0] = 9; return [][]byte{b} }, ErrVersion},
		"not known":            {func(id uint64) [][]byte { return [][]byte{newIDs(kindUnknown, 0, []uint64{id})} }, ErrLost},
		"parts of another length": {func(id uint64) [][]byte {
			return [][]byte{appendAnswer(nil, &answer{id: id, total: 4, part: []byte("ok")}), appendAnswer(nil, &answer{id: id, total: 5, offset: 2, part: []byte("ok!")})}
		}, ErrProtocol},
		"memory behind a part": {func(id uint64) [][]byte {
			return [][]byte{appendAnswer(nil, &answer{id: id, total: 4, part: []byte("ok")}), appendAnswer(nil, &answer{id: id, flags: flagWritten})}
		}, ErrProtocol},
		"refused as other version": {part(answer{status: statusVersion}), ErrVersion},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan error)
			go func() {
				_, err := c.Call(within(t), s.LocalAddrPort(), "m", nil)
				done <- err
			}()
			m := rds.Received{Payload: make([]byte, 1000)}
			for m.Payload[1] != kindRequest { // a cancel of the call before
				if err := s.Recv(within(t), &m); err != nil {
					t.Fatal(err)
				}
			}
			id := binary.LittleEndian.Uint64(m.Payload[8:])
			// Nothing of this is for a call: ids of others, a stranger's answer, noise.
			for _, b := range [][]byte{{}, {1}, make([]byte, 16), appendAnswer(nil, &answer{id: id + 1}), newIDs(77, id, nil), newIDs(kindUnknown, 0, nil)[:15]} {
				if _, err := s.SendTo(b, m.Addr); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := other.SendTo(appendAnswer(nil, &answer{id: id, total: 1, part: []byte("!")}), m.Addr); err != nil {
				t.Fatal(err)
			}
			for _, b := range tt.send(id) {
				if _, err := s.SendTo(b, m.Addr); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-done; !errors.Is(err, tt.want) || tt.want == nil && err != nil {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// TestHostileCaller: a server checks what callers send, answers what has an id, and goes
// on serving others.
func TestHostileCaller(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	s := d.Bind(t, d.Open(t), 0)
	ctx, cancel := context.WithCancel(context.Background())
	held, release := make(chan struct{}, 1), make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- Serve(ctx, s, Methods{"m": func(context.Context, *Request) ([]byte, error) { return nil, nil },
			"hold": func(context.Context, *Request) ([]byte, error) { held <- struct{}{}; <-release; return nil, nil }}, ServerOptions{MaxRequest: 1000})
	}()
	a := d.Bind(t, d.Open(t), 0)
	send := func(b []byte) {
		t.Helper()
		if _, err := a.SendTo(b, s.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
	}
	id := uint64(5) // of the next request: a server forgets a call after its answer, so each has its own
	answered := func(want status) {
		t.Helper()
		m := rds.Received{Payload: make([]byte, 2000)}
		if err := a.Recv(within(t), &m); err != nil {
			t.Fatal(err)
		}
		if got, err := parseAnswer(m.Payload[:m.N]); err != nil || got.id != id || got.status != want {
			t.Errorf("%+v, %v, want status %d", got, err, want)
		}
	}
	good := func() []byte { return asked(&request{id: id, method: []byte("m")}) }
	for _, b := range [][]byte{nil, {1, 1}, make([]byte, 16), newIDs(kindCancel, 99, nil), newIDs(kindProbe, 0, nil), append(newIDs(kindProbe, 0, nil), 1), newIDs(200, 5, nil), appendAnswer(nil, &answer{id: 5})} {
		send(b) // none of these has an answer
	}
	send(good())
	answered(statusOK)
	id++
	b := good()
	b[0] = 3
	send(b)
	answered(statusVersion)
	send(good()[:requestLen-1])
	answered(statusMalformed)
	id++
	send(asked(&request{id: id, method: []byte("m"), size: 1001, cookie: 4711}))
	answered(statusTooLarge)
	id++
	send(asked(&request{id: id, method: []byte("m"), size: 1000, cookie: 4711})) // no such memory
	answered(statusFailed)
	id++
	send(asked(&request{id: id, method: []byte("m"), into: 1 << 63})) // memory without a cookie
	answered(statusOK)
	id++
	send(asked(&request{id: id, method: []byte("hold"), timeout: 1 << 63}))
	<-held
	send(good()) // the same id again
	answered(statusMalformed)
	close(release)
	answered(statusOK)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve: %v", err)
	}
}

// A caller that reads its answer slowly, part by part, holds a handler for a bounded time,
// however many parts the answer has and though it named no deadline.
func TestSlowReader(t *testing.T) {
	const parts = 64
	d := rdstest.StartDaemons(t, 1)[0]
	s := d.Bind(t, d.Open(t), 0)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- Serve(ctx, s, Methods{
			"long":  func(context.Context, *Request) ([]byte, error) { return make([]byte, parts*inline), nil },
			"short": func(context.Context, *Request) ([]byte, error) { return nil, nil },
		}, ServerOptions{Handlers: 1, callerWait: 200 * time.Millisecond})
	}()
	slow := d.Bind(t, d.Open(t), 0)
	if _, err := slow.SendTo(asked(&request{id: 1, method: []byte("long")}), s.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	m := rds.Received{Payload: make([]byte, inline+answerLen)}
	if err := slow.Recv(within(t), &m); err != nil { // the handler has begun to answer
		t.Fatal(err)
	}
	other := NewCaller(d.Bind(t, d.Open(t), 0), CallerOptions{})
	defer other.Close()
	answered := make(chan error, 1)
	go func() {
		_, err := other.Call(within(t), s.LocalAddrPort(), "short", nil)
		answered <- err
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	read := 1
	for waits := true; waits; {
		select {
		case err := <-answered:
			if err != nil {
				t.Error(err)
			}
			waits = false
		case <-tick.C:
			if err := slow.Recv(rds.DontWait, &m); err == nil {
				read++
			}
		}
	}
	if read > parts/2 {
		t.Errorf("another caller had to wait until %d of %d parts were read", read, parts)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve: %v", err)
	}
}
