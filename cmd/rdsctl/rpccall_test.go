package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

func TestCallMethod(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	s := ds[1].Bind(t, ds[1].Open(t), 0)
	v := rpc.NewServer(s, rpc.Methods{
		"greet": func(_ context.Context, r *rpc.Request) ([]byte, error) {
			if len(r.Body) == 0 {
				return nil, fmt.Errorf("nobody to greet: %w", syscall.ENOENT)
			}
			return fmt.Appendf(nil, "hello %s%s", r.Body, r.Header["mark"]), nil
		},
	}, rpc.ServerOptions{})
	ended := make(chan error)
	go func() { ended <- v.Serve(context.Background()) }()
	at := s.LocalAddrPort().String()
	nobody := netip.AddrPortFrom(ds[1].Addr(), 9).String()
	run := func(stdin string, args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		a := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, dial: dial}
		code := a.run(t.Context(), append([]string{"-socket", ds[0].Socket(), "call", "-timeout", "1m"}, args...))
		return code, out.String(), errs.String()
	}
	for _, tt := range []struct {
		stdin string
		args  []string
		code  int
		out   string
		err   string
	}{
		{"", []string{at, "greet", "the  world"}, exitOK, "hello the  world", ""},
		{"", []string{at, "greet", "-H", "mark=!", "world", "-H", "b=c=d"}, exitOK, "hello world!", ""},
		{"in\x00put\n", []string{at, "greet", "-"}, exitOK, "hello in\x00put\n", ""},
		{"", []string{at, rpc.MethodHealth}, exitOK, "serving", ""},
		{"", []string{at, "-list"}, exitOK, "greet\nrpc.health\nrpc.methods\n", ""},
		{"not read", []string{at, "greet"}, exitFailed, "", "rdsctl: rpc greet at " + at + ": nobody to greet: no such file or directory\n"},
		{"", []string{at, "none"}, exitFailed, "", "rdsctl: rpc none at " + at + ": no such method; rdsctl call " + at + " -list names the methods"},
		{"", []string{nobody, "greet"}, exitNotFound, "", "greet at " + nobody + ": no server at the destination; rdsctl sockets on the host of " + ds[1].Addr().String() + " lists the ports that are bound\n"},
		{"", []string{ds[1].Addr().String(), "greet"}, exitUsage, "", "has no port; want ADDR:PORT"},
		{"", []string{at}, exitUsage, "", "METHOD is missing; rdsctl call " + at + " -list"},
		{"", []string{at, "-list", "greet"}, exitUsage, "", "-list takes no method"},
		{"", []string{at, "greet", "-H", "x"}, exitUsage, "", "want name=value"},
		{"", []string{at, "greet", "-H", "=x"}, exitFailed, "", "a header's name has 1 to 255 bytes"},
		{"", []string{at, "greet", "-socket", "/nowhere"}, exitNoDaemon, "", "/nowhere"},
	} {
		code, out, errs := run(tt.stdin, tt.args...)
		if code != tt.code || out != tt.out || !strings.Contains(errs, tt.err) || tt.err == "" && errs != "" {
			t.Errorf("%q: status %d, %q, %q", tt.args, code, out, errs)
		}
	}
	if err := v.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	<-ended
}
