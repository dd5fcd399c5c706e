package child

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = 2 * time.Minute

func start(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(exec.Command("sh", "-c", script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestProcess(t *testing.T) {
	p := start(t, "echo out; echo err >&2; read x; exit 3")
	if !p.Until(patience, func() bool { return p.Stdout.Has("out\n") && p.Stderr.Has("err\n") }) {
		t.Errorf("printed %q and %q", &p.Stdout, &p.Stderr)
	}
	if !p.Wait(patience) || p.Alive() || p.Code() != 1 && p.Code() != 3 || p.Err() == nil {
		t.Errorf("alive: %v, %v", p.Alive(), p.Err())
	}
	if p.Until(patience, func() bool { return p.Stdout.Has("more") }) {
		t.Error("waits for what a child that has ended never printed")
	}

	p = start(t, "sleep 1000; echo")
	if p.Wait(time.Millisecond) || !p.Alive() {
		t.Error("not alive")
	}
	p.Kill()
	if p.Code() != -1 {
		t.Errorf("status %d after SIGKILL", p.Code())
	}
}

// A child that is paused does nothing until it is resumed.
func TestPause(t *testing.T) {
	p := start(t, "while :; do echo line; done")
	if !p.Until(patience, func() bool { return p.Stdout.Has("line") }) {
		t.Fatal("nothing printed")
	}
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if stands, err := stopped(p.Pid()); !stands || err != nil {
		t.Errorf("stopped: %v, %v", stands, err)
	}
	p.Resume()
	n := len(p.Stdout.String())
	if !p.Until(patience, func() bool { return len(p.Stdout.String()) > n }) {
		t.Error("does not go on")
	}
	p.Kill()
	if err := p.Pause(); err == nil {
		t.Error("a child that has ended was paused")
	}
}

// A child's output is complete when the child has ended.
func TestOutputIsComplete(t *testing.T) {
	for range 50 {
		p := start(t, "i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); done; echo end")
		if !p.Until(patience, func() bool { return p.Stdout.Has("end") }) {
			t.Fatalf("%s", p.Stdout.Tail())
		}
		<-p.Ended()
		if n := strings.Count(p.Stdout.String(), "line"); n != 100 || p.Err() != nil {
			t.Fatalf("%d lines, %v", n, p.Err())
		}
	}
}

// A child dies with the program that started it.
func TestDiesWithParent(t *testing.T) {
	if os.Getenv("CHILD_TEST_PARENT") != "" {
		p := start(t, "exec sleep 1000")
		fmt.Println("pid", p.Pid())
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestDiesWithParent$")
	cmd.Env = Env("CHILD_TEST_PARENT=1")
	parent, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(parent.Kill)
	pid := 0
	if !parent.Until(patience, func() bool { n, _ := fmt.Sscanf(parent.Stdout.String(), "pid %d\n", &pid); return n == 1 }) {
		t.Fatalf("%s%s", &parent.Stdout, &parent.Stderr)
	}
	parent.Signal(syscall.SIGKILL) // its output ends when its child does
	if !parent.Wait(patience) {
		t.Errorf("process %d is left", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
