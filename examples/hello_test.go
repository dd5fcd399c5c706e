package examples

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/test/loopback"
)

// TestHello runs the program that README.md shows, in two processes and without a daemon. What
// finds no socket is said, and the program ends with 1.
func TestHello(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(readme), "```go\n")
	shown, _, _ = strings.Cut(shown, "```\n")
	_, code, _ := strings.Cut(string(source), "package main\n")
	if shown != "package main\n"+code {
		t.Error("README.md does not show examples/hello/main.go")
	}

	net, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = net.Close() })
	at := [2]string{fmt.Sprintf("%v:4000", net.At(1)), fmt.Sprintf("%v:4000", net.At(2))}
	hello := filepath.Join(outside.dir, "hello")
	printer := exec.Command(hello, at[0])
	printer.Stderr = os.Stderr
	out, err := printer.StdoutPipe()
	if err == nil {
		err = printer.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = printer.Process.Kill(); _ = printer.Wait() })
	lines := bufio.NewReader(out)
	send := func(to string) (told bool) {
		said, err := exec.Command(hello, at[1], to, "hello").CombinedOutput()
		told = strings.HasPrefix(string(said), "hello: ") && strings.Contains(string(said), "not delivered to "+to+": no socket")
		if exit, is := err.(*exec.ExitError); err != nil && (!told || !is || exit.ExitCode() != 1) {
			t.Fatalf("%v: %s", err, said)
		}
		return told
	}
	// A message that comes before the printer has bound its port comes back. So there is one more,
	// until one is printed.
	printed := make(chan string, 1)
	go func() {
		line, _ := lines.ReadString('\n')
		printed <- line
	}()
	for {
		_ = send(at[0])
		select {
		case line := <-printed:
			if line != at[1]+": hello\n" {
				t.Errorf("printed %q", line)
			}
			if nobody := fmt.Sprintf("%v:4001", net.At(1)); !send(nobody) {
				t.Errorf("nothing said of a message to %s, where nobody is", nobody)
			}
			return
		default:
		}
	}
}
