package rpc

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// TestProbeBehindRequest: a call is not asked for before its request was sent, even if that
// takes long. The server would not know it.
func TestProbeBehindRequest(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := NewCaller(d.Bind(t, d.Open(t), 0), CallerOptions{})
	t.Cleanup(func() { _ = c.Close() })
	server := d.Bind(t, d.Open(t), 0)
	p := &pending{to: server.LocalAddrPort(), done: make(chan struct{}, 1)}

	c.sends.RLock()
	if err := c.register(p); err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		c.ask()
	}()
	for range 1000 { // time enough for a probe that does not wait for the request
		runtime.Gosched()
	}
	request := []byte("the request")
	if _, err := c.s.Send(context.Background(), &rds.Message{Addr: p.to, Payload: request}); err != nil {
		t.Fatal(err)
	}
	c.sends.RUnlock()
	<-asked
	for i, want := range [][]byte{request, newIDs(kindProbe, 0, []uint64{p.id})} {
		b := make([]byte, 100)
		n, _, err := server.RecvFrom(b)
		if err != nil || !bytes.Equal(b[:n], want) {
			t.Fatalf("message %d: %q, %v, want %q", i, b[:n], err, want)
		}
	}
}

// TestFirstProbe: the first firing of the timer asks for a lone call, and the second for one
// that has begun since as well.
func TestFirstProbe(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := NewCaller(d.Bind(t, d.Open(t), 0), CallerOptions{Probe: time.Hour})
	t.Cleanup(func() { _ = c.Close() })
	server := d.Bind(t, d.Open(t), 0)
	var ids []uint64
	for range 2 {
		p := &pending{to: server.LocalAddrPort(), done: make(chan struct{}, 1)}
		if err := c.register(p); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, p.id)
		c.probe()
		c.tell(p.to, newIDs(kindCancel, 0, nil)) // behind the question, if there is one
		b := make([]byte, 100)
		n, _, err := server.RecvFrom(b)
		if err != nil || b[1] != kindProbe {
			t.Fatalf("firing %d: %q, %v, want a probe", len(ids), b[:n], err)
		}
		asked, err := parseIDs(b[:n])
		slices.SortFunc(asked, func(a, b uint64) int { return int(int64(a - b)) })
		if err != nil || !slices.Equal(asked, ids) {
			t.Fatalf("firing %d asks for %v, %v, want %v", len(ids), asked, err, ids)
		}
		if n, _, err = server.RecvFrom(b); err != nil || b[1] != kindCancel {
			t.Fatalf("firing %d: %q, %v, want one probe alone", len(ids), b[:n], err)
		}
	}
}

// TestSuccessor: a call whose server has died ends with ErrNoSocket, though the next server is
// there and does not know the request: the question goes to the server that was met. The next
// call goes to the next server.
func TestSuccessor(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	for name, d := range map[string]*rdstest.Daemon{"two hosts": ds[1], "same host": ds[0]} {
		t.Run(name, func(t *testing.T) {
			c := NewCaller(ds[0].Bind(t, ds[0].Open(t), 0), CallerOptions{Probe: time.Hour})
			t.Cleanup(func() { _ = c.Close() })
			first := d.Open(t)
			server := d.Bind(t, first, 0)
			at := server.LocalAddrPort()
			done := make(chan error)
			go func() {
				_, err := c.Call(within(t), at, "hang", nil)
				done <- err
			}()
			if _, _, err := server.RecvFrom(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			_ = first.Close() // as the end of the process does
			v := NewServer(d.Bind(t, d.Open(t), at.Port()), nil, ServerOptions{})
			ended := make(chan error)
			go func() { ended <- v.Serve(context.Background()) }()
			c.ask()
			if err := <-done; !errors.Is(err, ErrNoSocket) || errors.Is(err, ErrLost) {
				t.Errorf("the call: %v, want ErrNoSocket", err)
			}
			if _, err := c.Call(within(t), at, MethodHealth, nil); err != nil {
				t.Errorf("the next call: %v", err)
			}
			if err := v.Shutdown(within(t)); err != nil {
				t.Error(err)
			}
			<-ended
		})
	}
}

// TestSuccessorMet: a call whose server has died ends with ErrNoSocket though the Caller's socket has given
// the place of that destination to others, so that the question goes to the next server.
func TestSuccessorMet(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	client, err := rds.Open(within(t), rds.Options{Socket: d.Socket(), Params: rds.Params{Slots: 4}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	c := NewCaller(d.Bind(t, client, 0), CallerOptions{Probe: time.Hour})
	t.Cleanup(func() { _ = c.Close() })
	first := d.Open(t)
	began := make(chan struct{})
	hangs := func(ctx context.Context, _ *Request) ([]byte, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	v := NewServer(d.Bind(t, first, 0), map[string]Handler{"hang": hangs}, ServerOptions{})
	ended := make(chan error)
	go func() { ended <- v.Serve(context.Background()) }()
	at := v.s.LocalAddrPort()
	done := make(chan error)
	go func() {
		_, err := c.Call(within(t), at, "hang", nil)
		done <- err
	}()
	<-began
	c.ask()
	if _, err := c.Call(within(t), at, MethodHealth, nil); err != nil { // its answer comes behind that
		t.Fatal(err)
	}
	_ = first.Close() // as the end of the process does
	<-ended
	next := NewServer(d.Bind(t, d.Open(t), at.Port()), nil, ServerOptions{})
	go func() { ended <- next.Serve(context.Background()) }()
	for range 12 { // other destinations, each of which takes the place of one
		to := d.Bind(t, d.Open(t), 0)
		if _, err := c.s.Send(within(t), &rds.Message{Payload: []byte("x"), Addr: to.LocalAddrPort()}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := to.RecvFrom(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	c.ask()
	if err := <-done; !errors.Is(err, ErrNoSocket) || errors.Is(err, ErrLost) {
		t.Errorf("the call: %v, want ErrNoSocket", err)
	}
	if err := next.Shutdown(within(t)); err != nil {
		t.Error(err)
	}
	<-ended
}

// TestGoneBehindAnswers: news that a server is gone does not pass an answer that has arrived.
// It ends no call made later, whose server may be the next one there.
func TestGoneBehindAnswers(t *testing.T) {
	t.Run("room", func(t *testing.T) { testGone(t, false) })
	t.Run("congested", func(t *testing.T) { testGone(t, true) })
}

func testGone(t *testing.T, full bool) {
	d := rdstest.StartDaemons(t, 1)[0]
	s, server := d.Bind(t, d.Open(t), 0), d.Bind(t, d.Open(t), 0)
	c := &Caller{s: s, self: s.LocalAddrPort(), calls: map[uint64]*pending{}, armed: true}
	var ps [3]*pending // answered, lost, made later
	for i := range ps {
		ps[i] = &pending{to: server.LocalAddrPort(), done: make(chan struct{}, 1)}
	}
	for _, p := range ps[:2] {
		if err := c.register(p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := server.SendTo(appendAnswer(nil, &answer{id: ps[0].id}), c.self); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Wait(within(t), rds.WaitSet{Message: true}); err != nil {
		t.Fatal(err)
	}
	for fill := full; fill; {
		_, err := s.Send(rds.DontWait, &rds.Message{Payload: newIDs(kindCancel, 0, make([]uint64, maxIDs)), Addr: c.self})
		if errors.Is(err, rds.ErrWouldBlock) {
			_, err = s.Wait(within(t), rds.WaitSet{SendSpace: true})
		}
		if err != nil && !errors.Is(err, rds.ErrCongested) {
			t.Fatal(err)
		}
		fill = err == nil
	}
	c.gone(t.Context(), server.LocalAddrPort(), ErrNoSocket)
	if err := c.register(ps[2]); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	c.timer = time.NewTimer(time.Hour)
	go func() {
		defer close(ended)
		c.receive(context.Background())
	}()
	<-ps[0].done
	<-ps[1].done
	if ps[0].err != nil || ps[1].err != ErrNoSocket || len(ps[2].done) > 0 {
		t.Errorf("%v, %v, want nil, ErrNoSocket; the later call ended: %v", ps[0].err, ps[1].err, len(ps[2].done) > 0)
	}
	_ = s.Close()
	<-ended
	c.wg.Wait()
}
