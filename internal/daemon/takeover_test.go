package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/quota"
	"golang.org/x/sys/unix"
)

// TestMayTakeOver: who may take over from a daemon that has not started them.
func TestMayTakeOver(t *testing.T) {
	dir := t.TempDir()
	file := func(name, secret string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const secret = "0123456789abcdef"
	right, short := file("right", "  "+secret+"\n"), file("short", "0123456789abcde\n")
	long := file("long", strings.Repeat("x", ipc.MaxToken+1))
	own, other := quota.User{Trusted: true}, quota.User{UID: 1000}
	for name, tc := range map[string]struct {
		user  quota.User
		path  string // upgrade.token
		token string
		netns uint64
		part  bool // of another program
		is    error
		says  string
	}{
		"own user":           {own, "", "", 7, false, nil, ""},
		"own, wrong token":   {own, right, "x", 7, false, nil, ""},
		"unknown namespace":  {own, "", "", 0, false, nil, ""},
		"token":              {other, right, secret, 7, false, nil, ""},
		"part of a program":  {own, "", "", 7, true, unix.ENOTSUP, "part of another program"},
		"other namespace":    {own, "", "", 8, false, unix.EXDEV, "network namespace 8, this one in 7"},
		"other user":         {other, "", "", 7, false, unix.EACCES, "uid 1000, which is neither root nor"},
		"token, none here":   {other, "", secret, 7, false, unix.EACCES, "give both the same secret"},
		"no token":           {other, right, "", 7, false, unix.EACCES, "has sent no secret"},
		"part of the token":  {other, right, secret[1:], 7, false, unix.EACCES, "has another secret"},
		"more":               {other, right, secret + " ", 7, false, unix.EACCES, "has another secret"},
		"short":              {other, short, secret[:15], 7, false, unix.EACCES, "15 bytes, it has to have 16 to 1024"},
		"long":               {other, long, secret, 7, false, unix.EACCES, "1025 bytes"},
		"no file":            {other, dir + "/none", secret, 7, false, unix.EACCES, "no such file"},
		"token, other place": {other, right, secret, 9, false, unix.EXDEV, "9"},
	} {
		d := &Daemon{handing: newHanding()}
		c := config.Default()
		c.Upgrade.Token = tc.path
		d.live.Store(&c)
		d.handing.alone, d.handing.netns = !tc.part, 7
		err := d.mayTakeOver(&connection{id: ipc.Cred{UID: tc.user.UID}, user: tc.user}, &ipc.TakeOver{NetNS: tc.netns, Token: []byte(tc.token)})
		if !errors.Is(err, tc.is) || err != nil && !strings.Contains(err.Error(), tc.says) || err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFindPredecessor: what keeps a new daemon from another one's place, as the new one learns it. The other one
// goes on and can be asked again.
func TestFindPredecessor(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := newCrowd(t, nil)
	find := func(edit func(*config.Config), says string) {
		t.Helper()
		cfg := *c.d.config()
		edit(&cfg)
		l, err := FindPredecessor(t.Context(), &cfg, log)
		if l != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, %v; want %q", l, err, says)
		}
		eventually(t, "no attempt is in progress", func() error {
			if u := c.d.upgradeState(); u.Running {
				return fmt.Errorf("%+v", u)
			}
			return nil
		})
	}
	find(func(*config.Config) {}, "part of another program")
	c = newCrowd(t, nil)
	c.d.admission.mu.Lock() // which each session takes first
	c.d.handing.alone = true
	c.d.admission.mu.Unlock()
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Symlink(filepath.Dir(c.d.config().Socket), other); err != nil {
		t.Fatal(err)
	}
	find(func(cfg *config.Config) { cfg.Socket = filepath.Join(other, filepath.Base(cfg.Socket)) }, "mount the folder at the same place here")
	find(func(cfg *config.Config) { cfg.Upgrade.Token = other + "/none" }, "upgrade.token: open ")
	cfg := *c.d.config()
	cfg.Socket, cfg.Stats = other+"2/s", other+"2/s.stats"
	if l, err := FindPredecessor(t.Context(), &cfg, log); l != nil || err != nil {
		t.Errorf("there is none: %v, %v", l, err)
	}

	// A daemon of an earlier release, and a program that says nothing.
	for _, answers := range []bool{true, false} {
		cfg.Socket = filepath.Join(t.TempDir(), "s")
		ln, err := ipc.Listen(cfg.Socket, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if m, err := conn.Recv(); err == nil && answers {
				_ = conn.Send(m.ID, &ipc.HelloOK{})
			} else {
				cancel()
			}
			_, _ = conn.Recv()
		}()
		says := "no answer: context canceled"
		if answers {
			says = "its version does not know -take-over"
		}
		if l, err := FindPredecessor(ctx, &cfg, log); l != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, %v; want %q", l, err, says)
		}
	}
}
