package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// keepArg is the only argument of the keeper process.
const keepArg = "keep"

// keeper is a second process of the demo. It makes the temporary directory, and removes it
// when the demo ends in whatever way: its standard input then ends, because the demo holds
// the other end.
type keeper struct {
	cmd   *exec.Cmd
	leash io.Closer
	dir   string
}

func startKeeper() (*keeper, error) {
	k := &keeper{cmd: exec.Command("/proc/self/exe", keepArg)}
	k.cmd.Args[0] = "demo"
	k.cmd.Stderr = os.Stderr
	k.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	leash, err := k.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := k.cmd.Start(); err != nil {
		return nil, err
	}
	k.leash = leash
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(errors.New("no temporary directory"), k.close())
	}
	k.dir = strings.TrimSuffix(line, "\n")
	return k, nil
}

// close ends the keeper and returns when the directory is gone.
func (k *keeper) close() error {
	k.leash.Close()
	if err := k.cmd.Wait(); err != nil {
		return fmt.Errorf("temporary directory: %w", err)
	}
	return nil
}

// keep is the keeper process: it prints the path of a new directory on out and
// removes it at the end of in.
func keep(in io.Reader, out io.Writer) error {
	// A signal to all processes with the demo's name must end the demo, not the keeper: the
	// keeper still has to remove the directory.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	dir, err := shortTempDir()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, dir)
	_, _ = io.Copy(io.Discard, in)
	// The demo's children die with it, but not at the same instant. One may still make a
	// file while its directory is being emptied.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if err = os.RemoveAll(dir); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// shortTempDir makes a directory whose paths fit a unix socket's address.
func shortTempDir() (string, error) {
	dir, err := os.MkdirTemp("", "rdsd-demo-")
	if err == nil && len(dir) > 80 {
		os.Remove(dir)
		dir, err = os.MkdirTemp("/tmp", "rdsd-demo-")
	}
	return dir, err
}
