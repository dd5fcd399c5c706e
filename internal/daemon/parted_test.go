package daemon

import (
	"context"
	"log/slog"
	"testing"

	"github.com/rdsd/rdsd/internal/handover"
	"golang.org/x/sys/unix"
)

// parted is a daemon in a recess, whose engine stands still, and what it hands over.
type parted struct {
	t     *testing.T
	d     *Daemon
	pause *pause
	state []byte
	files handover.Files
}

// part has d hand over its sessions and its engine.
func part(t *testing.T, d *Daemon) *parted {
	t.Helper()
	p := stands(t, d)
	p.write(handover.Newest)
	return p
}

// stands has the sessions and the engine of d stand still.
func stands(t *testing.T, d *Daemon) *parted {
	t.Helper()
	p := &parted{t: t, d: d}
	var err error
	if err = d.admission.recess(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	if p.pause, err = d.standStill(context.Background()); err != nil {
		t.Fatal(err)
	}
	return p
}

// write writes the state of d in a version.
func (p *parted) write(version uint16) {
	p.t.Helper()
	w := handover.Write(version)
	h := p.d.sessionsToHand()
	h.handOver(w, &p.files)
	if err := p.d.engine.Encode(w, h.number()); err != nil {
		p.t.Fatal(err)
	}
	p.state = w.Bytes()
}

// copies are descriptors of the files as another process gets them.
func (p *parted) copies() *handover.Files {
	p.t.Helper()
	f := &handover.Files{}
	for _, fd := range p.files.All {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			p.t.Fatal(err)
		}
		f.All = append(f.All, own)
	}
	return f
}

// next makes a daemon that has the addresses of d. Nothing runs yet.
func (p *parted) next() *Daemon {
	p.t.Helper()
	cfg := *p.d.config()
	cfg.Socket, cfg.Stats = cfg.Socket+"2", cfg.Stats+"2"
	cfg.Port++
	d, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		p.t.Fatal(err)
	}
	d.credOf, d.labels.cgroupOf = p.d.credOf, p.d.labels.cgroupOf
	return d
}

// adopt has d take over state.
func (p *parted) adopt(d *Daemon, state []byte, f *handover.Files) (*heirs, error) {
	r, err := handover.Read(state)
	if err != nil {
		return nil, err
	}
	h := newHeirs(d, r)
	h.handOver(r, f)
	if r.Err() == nil && d.engine.Adopt(r, h) == nil {
		h.complete(r)
	}
	err = r.Close()
	f.Close()
	if err != nil {
		h.leave()
	}
	return h, err
}

// resume has the daemon go on.
func (p *parted) resume() {
	p.d.loop.goOn(p.pause)
	p.d.admission.resume()
}

// succeed has another daemon take over, and run until the test ends.
func (p *parted) succeed() *Daemon { return p.succeedWith(func(*Daemon) {}) }

// succeedWith is succeed. It calls f before the sessions go on.
func (p *parted) succeedWith(f func(*Daemon)) *Daemon {
	p.t.Helper()
	d := p.next()
	h, err := p.adopt(d, p.state, p.copies())
	if err != nil {
		p.t.Fatal(err)
	}
	p.d.loop.leave(p.pause)
	<-p.d.loop.done
	p.d.admission.leave()
	d.engine.Resume()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	p.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	})
	f(d)
	h.start()
	return d
}
