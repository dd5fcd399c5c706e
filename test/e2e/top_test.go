package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestTop runs rdsctl top in tmux, beside a program that sends, and types its keys.
func TestTop(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("no tmux: apt-get install -y --no-install-recommends tmux")
	}
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		server := spawn(t, nil, program("rdsctl"), "--socket", hosts[1].sock, "bench", "-serve")
		server.saw("serving at")
		bench := spawn(t, nil, program("rdsctl"), "--socket", hosts[0].sock, "bench", "-mode", "rtt", "-d", "0", "-interval", "50ms", hosts[1].addr().String())
		for _, colour := range []bool{true, false} {
			x := startTmux(t, colour, hosts[0].sock)
			x.shows(hosts[1].addr().String()+" .* up ", `msg/s +[0-9.]+ [KM]iB/s`, `RTT`, `[0-9.]+µs`, `by traffic`)
			if escapes := regexp.MustCompile(`\x1b\[(3[0-7]|9[0-7])m`).MatchString(x.tmux("capture-pane", "-e", "-p")); escapes != colour {
				t.Errorf("colours: %v, want %v", escapes, colour)
			}
			x.tmux("send-keys", "a")
			x.shows(`PROCESSES`, `rdsctl`)
			x.tmux("send-keys", "c")
			x.shows(`send_queued +[0-9]+ +[0-9.]+[kM]?/s`)
			x.tmux("resize-window", "-x", "90", "-y", "14")
			x.shows(`COUNTERS`)
			x.tmux("send-keys", "Space")
			x.shows(`PAUSED`)
			x.tmux("send-keys", "q")
			eventually(t, "the end of top", func() error {
				if out, err := x.try("capture-pane", "-p"); err != nil || !strings.Contains(out, "status 0") {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
			x.tmux("kill-server")
		}
		for _, p := range []*process{bench, server} {
			p.Signal(syscall.SIGINT)
			if code := p.wait(); code != 0 {
				t.Errorf("%v: status %d\n%s", p.Cmd.Args, code, p.log())
			}
		}
	})
}

// tmux is a server of tmux with one window, in which top runs.
type tmux struct {
	t    *testing.T
	sock string
}

func startTmux(t *testing.T, colour bool, sock string) *tmux {
	t.Helper()
	x := &tmux{t, filepath.Join(t.TempDir(), "tmux")}
	no := "unset NO_COLOR; "
	if !colour {
		no = "export NO_COLOR=1; "
	}
	x.tmux("-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "40", no+program("rdsctl")+" --socket "+sock+" top -d 200ms; echo status $?; sleep 1000")
	t.Cleanup(func() { _, _ = x.try("kill-server") }) // it may have ended
	return x
}

func (x *tmux) try(args ...string) (string, error) {
	out, err := exec.Command("tmux", append([]string{"-u", "-S", x.sock}, args...)...).CombinedOutput()
	return string(out), err
}

func (x *tmux) tmux(args ...string) string {
	x.t.Helper()
	out, err := x.try(args...)
	if err != nil {
		x.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return out
}

// shows waits until the screen matches all of these.
func (x *tmux) shows(wants ...string) {
	x.t.Helper()
	eventually(x.t, "the screen", func() error {
		screen := x.tmux("capture-pane", "-p")
		for _, w := range wants {
			if !regexp.MustCompile(w).MatchString(screen) {
				return errors.New("no " + w + " in\n" + screen)
			}
		}
		return nil
	})
}
