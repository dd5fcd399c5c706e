package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/internal/loadgen/proto"
	"github.com/rdsd/rdsd/rds"
)

// serveHere runs a server in this process.
func (r *run) serveHere(ctx context.Context) (stop func(), err error) {
	s, err := NewServer(ctx, Env{Open: r.env.Open, corrupt: r.env.corrupt}, netip.AddrPortFrom(r.p.Local, 0))
	if err != nil {
		return nil, err
	}
	r.p.Server = s.Addr()
	r.report.OneProcess = true
	serving, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(serving); err != nil {
			r.fail(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}, nil
}

func (r *run) attach(ctx context.Context) (err error) {
	if r.client, err = r.env.Open(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.client.Close()
		}
	}()
	if r.ctl, err = r.client.Bind(netip.AddrPortFrom(r.p.Local, 0)); err != nil {
		return err
	}
	for range r.p.Sockets {
		s, err := bind(r.client, r.p.Local, &r.hello)
		if err != nil {
			return err
		}
		s.SetNotices(rds.Lost, rds.NoSocket)
		r.socks = append(r.socks, s)
	}
	return nil
}

// begin asks the server for a session.
func (r *run) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.p.Timeout)
	defer cancel()
	r.ctl.SetNotices(rds.Lost, rds.NoSocket)
	b := proto.Append(nil, &r.hello)
	if v := r.env.version; v != 0 {
		b[4], b[5] = byte(v>>8), byte(v)
	}
	if _, err := r.ctl.SendMsg(&rds.Message{Addr: r.p.Server, Payload: b, DontWait: true, GiveUpAfter: r.p.Timeout}); err != nil {
		return err
	}
	m, err := r.hear(ctx)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w: %v said nothing within %v; is there a daemon (rdsctl ping %v), and rdsctl bench -serve?", ErrTimeout, r.p.Server, r.p.Timeout, r.p.Server.Addr())
		}
		return err
	}
	w, ok := m.(*proto.Welcome)
	if !ok || len(w.Ports) != r.p.Sockets {
		return fmt.Errorf("%w: %T in answer to Hello", proto.ErrMessage, m)
	}
	for _, p := range w.Ports {
		r.to = append(r.to, netip.AddrPortFrom(r.p.Server.Addr(), p))
	}
	r.cookie = rds.Cookie(w.Cookie)
	return nil
}

// hear waits for a message of the server other than Alive.
func (r *run) hear(ctx context.Context) (any, error) {
	m := rds.Message{Payload: make([]byte, proto.MaxMessage), DontWait: true}
	for {
		if _, err := r.ctl.Wait(ctx, rds.WaitSet{Message: true, Notice: true}); err != nil {
			return nil, err
		}
		var n [1]rds.Notice
		if r.ctl.Notices(n[:]) > 0 {
			if n[0].Kind == rds.NoSocket {
				return nil, fmt.Errorf("%w: no rdsctl bench -serve at %v", ErrNoServer, r.p.Server)
			}
			return nil, fmt.Errorf("%w: the daemon of %v restarted", ErrGone, r.p.Server.Addr())
		}
		if r.ctl.RecvMsg(&m) != nil || m.Addr != r.p.Server {
			continue
		}
		got, err := proto.Parse(m.Payload[:m.N])
		if err != nil {
			return nil, err
		}
		switch x := got.(type) {
		case *proto.Alive:
			return got, nil
		case *proto.Refuse:
			err := ErrRefused
			if x.Code == proto.Leaving {
				err = ErrGone
			}
			return nil, fmt.Errorf("%w: %s", err, x.Text)
		}
		return got, nil
	}
}

// listen reads the server's messages until the end of the measurement.
func (r *run) listen() {
	for {
		ctx, cancel := context.WithTimeout(r.all, silence)
		m, err := r.hear(ctx)
		cancel()
		switch {
		case r.all.Err() != nil:
			return
		case errors.Is(err, context.DeadlineExceeded):
			r.fail(fmt.Errorf("%w: %v has said nothing for %v", ErrGone, r.p.Server, silence))
			return
		case err != nil:
			r.fail(err)
			return
		}
		if f, ok := m.(*proto.Final); ok {
			r.answers <- f
			return
		}
	}
}
