package python

import (
	"bufio"
	"context"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/test/cbuild"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// hop starts a program that sends one message on, and returns when it is bound.
func hop(t *testing.T, d *rdstest.Daemon, cmd *exec.Cmd) {
	t.Helper()
	cmd.Env = append(cmd.Environ(), "RDSD_SOCKET="+d.Socket())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "bound\n" {
		t.Fatalf("%v: %q, %v", cmd, line, err)
	}
	go io.Copy(io.Discard, out)
}

// TestTraceparentHops: a message keeps its trace from Go to C on another host, to Python on a third
// one, and back to Go.
func TestTraceparentHops(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ds := rdstest.StartDaemons(t, 3)
	var at [3]netip.AddrPort
	for i, d := range ds {
		at[i] = netip.AddrPortFrom(d.Addr(), 4000)
	}
	built := librds.Build(t, "")
	program := filepath.Join(t.TempDir(), "hop")
	if out, err := exec.Command(cbuild.Compiler(), "-Wall", "-Werror", "-I../librds/include", "-o", program, "testdata/hop.c",
		filepath.Join(built, "librds.a"), "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := ds[0].Bind(t, ds[0].Open(t), 4000)
	hop(t, ds[2], python.Command(t, "..", func() string { return built }, "testdata/hop.py", at[2].String(), at[0].String()))
	hop(t, ds[1], exec.Command(program, at[1].String(), at[2].String()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Send(ctx, &rds.Message{Payload: []byte("round"), Addr: at[1], Traceparent: trace}); err != nil {
		t.Fatal(err)
	}
	m := rds.Received{Payload: make([]byte, 64)}
	if err := s.Recv(ctx, &m); err != nil || string(m.Payload[:m.N]) != "round" || m.Addr != at[2] || m.Traceparent != trace {
		t.Errorf("%v: %q of %v in trace %q", err, m.Payload[:m.N], m.Addr, m.Traceparent)
	}
}
