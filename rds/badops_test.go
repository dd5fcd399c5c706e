package rds

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
)

func TestBadOps(t *testing.T) {
	_, a, b, local, _, r := rdmaPair(t, Options{})
	c2, _ := openFake(t, Options{})
	foreign := mustAlloc(t, c2, 64)
	freed := mustAlloc(t, a.c, 64)
	if err := freed.Free(); err != nil || freed.Bytes() != nil {
		t.Fatal(err)
	}
	if err := freed.Free(); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	seg := func(b *Buffer, off, n int) []Segment { return []Segment{{b, off, n}} }
	big := mustAlloc(t, a.c, 2*1<<20)
	for name, tt := range map[string]struct {
		op   RDMA
		want error
	}{
		"no cookie":         {RDMA{Local: seg(local, 0, 1)}, syscall.EINVAL},
		"no segments":       {RDMA{Cookie: 1}, syscall.EINVAL},
		"too many segments": {RDMA{Cookie: 1, Local: make([]Segment, 1025)}, syscall.EMSGSIZE},
		"too long":          {RDMA{Cookie: 1, Local: slices.Repeat(seg(big, 0, 2*1<<20), 513)}, syscall.EMSGSIZE},
		"nil buffer":        {RDMA{Cookie: 1, Local: seg(nil, 0, 1)}, syscall.EINVAL},
		"foreign buffer":    {RDMA{Cookie: 1, Local: seg(foreign, 0, 1)}, syscall.EINVAL},
		"freed buffer":      {RDMA{Cookie: 1, Local: seg(freed, 0, 1)}, syscall.EINVAL},
		"empty segment":     {RDMA{Cookie: 1, Local: seg(local, 0, 0)}, syscall.EINVAL},
		"negative":          {RDMA{Cookie: 1, Local: seg(local, -1, 1)}, syscall.EINVAL},
		"beyond the end":    {RDMA{Cookie: 1, Local: seg(local, 4096, 1)}, syscall.EINVAL},
		"overflow":          {RDMA{Cookie: 1, Local: seg(local, 1, int(^uint(0)>>1))}, syscall.EINVAL},
	} {
		if _, err := a.Send(context.Background(), &Message{Addr: b.LocalAddrPort(), Op: &tt.op}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	ok := RDMA{Cookie: r.Cookie(), Local: seg(local, 0, 1)}
	if _, err := a.Send(context.Background(), &Message{Addr: b.LocalAddrPort(), Op: &ok, Cookie: r.Cookie()}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("operation and cookie: %v", err)
	}
	if id, err := a.Send(context.Background(), &Message{Addr: b.LocalAddrPort(), Op: &ok}); err != nil || id != 1 {
		t.Errorf("refused operations used up ids: %d, %v", id, err)
	}
	for name, f := range map[string]func() error{
		"size 0":        func() error { _, err := a.c.Alloc(0); return err },
		"no rights":     func() error { _, err := a.Register(local, 0, 1, UseOnce); return err },
		"other rights":  func() error { _, err := a.Register(local, 0, 1, AllowRead|1<<7); return err },
		"empty range":   func() error { _, err := a.Register(local, 0, 0, AllowRead); return err },
		"out of bounds": func() error { _, err := a.Register(local, 4000, 97, AllowRead); return err },
		"foreign":       func() error { _, err := a.Register(foreign, 0, 1, AllowRead); return err },
		"nil":           func() error { _, err := a.Register(nil, 0, 1, AllowRead); return err },
	} {
		if err := f(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.Register(freed, 0, 1, AllowRead); !errors.Is(err, ErrClosed) {
		t.Errorf("register a freed buffer: %v", err)
	}
	remote := mustAlloc(t, a.c, 64)
	r2, err := a.Register(remote, 0, 64, AllowRead)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Free(); !errors.Is(err, syscall.EBUSY) || len(remote.Bytes()) != 64 {
		t.Errorf("free with a region: %v", err)
	}
	if err := r2.Release(bg()); err != nil {
		t.Fatal(err)
	}
	if err := remote.Free(); err != nil {
		t.Fatal(err)
	}
}
