package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rdstest"
)

func TestBench(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	run := func(args ...string) (int, string, string) {
		t.Helper()
		var out, errs bytes.Buffer
		a := &app{stdout: &out, stderr: &errs, dial: dial}
		code := a.run(t.Context(), append([]string{"-socket", ds[0].Socket(), "bench", "-d", "100ms", "-warmup", "10ms", "-interval", "50ms"}, args...))
		return code, out.String(), errs.String()
	}
	// Both ends run here, at the daemon's own address.
	code, out, errs := run("-mode", "rtt", "-verify")
	if code != exitOK || errs != "" {
		t.Fatalf("status %d, %q, %q", code, out, errs)
	}
	for _, want := range []string{"   seconds   per second", "rtt of 64 bytes, 1 sockets with 1 outstanding, " + ds[0].Addr().String(), "both ends in this process", "every byte was as expected", "cpu          its daemon"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// The server is interrupted at the end.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w := &waiting{ready: make(chan struct{}), text: "serving at"}
	var ends sync.WaitGroup
	ends.Go(func() {
		a := &app{stdout: w, stderr: w, dial: dial}
		if code := a.run(ctx, []string{"bench", "-serve", "-socket", ds[1].Socket()}); code != exitOK {
			t.Errorf("server: status %d", code)
		}
	})
	select {
	case <-w.ready:
	case <-ctx.Done():
		t.Fatal("no server")
	}
	code, out, errs = run("-mode", "rdma-write", "-size", "4096", "-o", "json-v2", ds[1].Addr().String())
	var answer report
	if err := json.Unmarshal([]byte(out), &answer); code != exitOK || errs != "" || err != nil || answer.Schema != ctl.Schema || answer.Kind != ctl.KindBench ||
		answer.Bench == nil || answer.Bench.Mode != "rdma-write" || answer.Bench.CPU.ServerDaemon == nil {
		t.Errorf("status %d, %q, %v\n%s", code, errs, err, out)
	}
	cancel()
	ends.Wait()
	// The server is gone now.
	code, out, errs = run(netip.AddrPortFrom(ds[1].Addr(), benchPort).String())
	if code != exitNotFound || out != "" || !strings.Contains(errs, "nobody serves there: no rdsctl bench -serve at") {
		t.Errorf("status %d, %q, %q", code, out, errs)
	}
}

func TestBenchErrors(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-mode", "x"}, exitUsage, `rdsctl: bench: -mode: "x" is none of rtt, rate, rdma-read, rdma-write`},
		{[]string{"a b"}, exitUsage, `rdsctl: bench: "a b" is neither an address or name nor ADDR:PORT`},
		{[]string{"nobody"}, exitUsage, "rdsctl: bench: nobody: the system's resolver has no address for it"},
		{[]string{"-bind", "x"}, exitUsage, "rdsctl: bench: -bind:"},
		{[]string{"-serve", "127.0.0.1"}, exitUsage, "rdsctl: bench: a server takes no address"},
		{[]string{"-rate", "-1"}, exitUsage, "not negative"},
		{[]string{"-size", "2000000"}, exitFailed, "beyond the limits"},
		{[]string{"-bind", "192.0.2.1"}, exitFailed, "cannot assign"},
		{[]string{"::1"}, exitFailed, "names no address"},
		{[]string{"-socket", d.Socket() + "x"}, exitNoDaemon, "no daemon found"},
	} {
		var out, errs bytes.Buffer
		a := &app{stdout: &out, stderr: &errs, dial: dial}
		code := a.run(t.Context(), append([]string{"bench", "-socket", d.Socket(), "-d", "1ms"}, tc.args...))
		if code != tc.code || !strings.Contains(errs.String(), tc.want) || out.Len() != 0 {
			t.Errorf("%v: status %d, %q, %q", tc.args, code, &out, &errs)
		}
	}
}
