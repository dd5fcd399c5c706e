package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/logqueue"
	"github.com/rdsd/rdsd/internal/stats"
)

type fakeDaemon struct{ err error }

func (f fakeDaemon) Run(ctx context.Context) error {
	if f.err == nil {
		<-ctx.Done()
	}
	return f.err
}

// runApp runs the program up to a fake daemon, which ends at once. It returns what the
// daemon was started with.
func runApp(t *testing.T, env map[string]string, startErr, runErr error, args ...string) (code int, stdout, stderr string, cfg *config.Config) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	a := &app{
		stdout: &out, stderr: logqueue.New(&errs), uid: 1000,
		start: func(c *config.Loaded, log *slog.Logger, _ source) (runner, error) {
			cfg = &c.Config
			log.Info("hello")
			cancel()
			return fakeDaemon{runErr}, startErr
		},
	}
	for k, v := range env {
		a.environ = append(a.environ, k+"="+v)
	}
	code = a.run(ctx, args)
	cancel()
	a.stderr.Flush(time.Minute)
	return code, out.String(), errs.String(), cfg
}

var xdg = map[string]string{"XDG_RUNTIME_DIR": "/run/user/1000"}

func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rdsd.toml")
	if err := os.WriteFile(file, []byte("socket = \"/file.sock\"\nport = 1\nspin = \"1us\"\nlisten = [\"127.0.0.9\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	withSocket := map[string]string{"XDG_RUNTIME_DIR": "/x", "RDSD_SOCKET": "/env.sock"}
	for _, tc := range []struct {
		name string
		env  map[string]string
		args []string
		want string // socket port spin listen
	}{
		{"defaults", xdg, nil, "/run/user/1000/rdsd.sock 18634 50µs [127.0.0.1]"},
		{"file", xdg, []string{"-config", file}, "/file.sock 1 1µs [127.0.0.9]"},
		{"environment over file", withSocket, []string{"-config", file}, "/env.sock 1 1µs [127.0.0.9]"},
		{"flags over all", withSocket, []string{"-config", file, "-socket", "/flag.sock", "-port=2", "--listen", "127.0.0.2"}, "/flag.sock 2 1µs [127.0.0.2]"},
		{"lists", xdg, []string{"-listen", "127.0.0.2,127.0.0.3", "-listen=127.0.0.4"}, "/run/user/1000/rdsd.sock 18634 50µs [127.0.0.2 127.0.0.3 127.0.0.4]"},
		{"the last one", xdg, []string{"-port", "3", "-port", "4"}, "/run/user/1000/rdsd.sock 4 50µs [127.0.0.1]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr, cfg := runApp(t, tc.env, nil, nil, tc.args...)
			if code != exitOK || stdout != "" {
				t.Fatalf("status %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			if got := fmt.Sprint(cfg.Socket, " ", cfg.Port, " ", cfg.Spin, " ", cfg.Listen); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestLog(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "level=INFO msg=hello"},
		{[]string{"-log-format", "json"}, `"msg":"hello"`},
		{[]string{"-log-level", "error"}, ""},
	} {
		_, _, stderr, _ := runApp(t, xdg, nil, nil, tc.args...)
		if !strings.Contains(stderr, tc.want) || (tc.want == "") != (stderr == "") {
			t.Errorf("%v: log %q, want %q", tc.args, stderr, tc.want)
		}
	}
}

func TestInformation(t *testing.T) {
	code, stdout, stderr, cfg := runApp(t, xdg, nil, nil, "--version")
	if code != exitOK || !strings.HasPrefix(stdout, "rdsd ") || !strings.Contains(stdout, " linux/") || stderr != "" || cfg != nil {
		t.Errorf("-version: %d %q %q", code, stdout, stderr)
	}
	code, stdout, stderr, cfg = runApp(t, xdg, nil, nil, "-check-config")
	if code != exitOK || stdout != "the configuration is valid\n" || stderr != "" || cfg != nil {
		t.Errorf("-check-config: %d %q %q", code, stdout, stderr)
	}
	code, stdout, stderr, _ = runApp(t, xdg, nil, nil, "-h")
	if code != exitOK || stderr != "" {
		t.Errorf("-h: %d %q", code, stderr)
	}
	for _, k := range config.Keys() {
		if !strings.Contains(stdout, "-"+config.FlagName(k.Name)+" ") || !strings.Contains(stdout, k.Doc) {
			t.Errorf("-h does not tell about %s", k.Name)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.toml")
	if err := os.WriteFile(bad, []byte("prot = 1\n[log]\nlevel = \"loud\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		env  map[string]string
		args []string
		want []string // the lines
	}{
		{"unknown flag", xdg, []string{"-prot", "1"}, []string{
			"rdsd: flag provided but not defined: -prot; there are: -bind-default -bind-rules -check-config -config -congestion -cpus -crc -io-threads -keys-strict -limits-max-clients -limits-max-held-bytes -limits-max-registered-bytes -limits-max-sockets -listen -log-format -log-level -metrics-listen -peers-allow -peers-bytes-per-s -peers-control-per-s -peers-explain -peers-kernel -peers-messages-per-s -peers-paths -peers-silence -ping -port -quota-accounts -quota-clients -quota-destinations -quota-grants -quota-operations -quota-overrides -quota-queued-bytes -quota-registered-bytes -quota-sockets -recv-hard-cap -sandbox -socket -socket-mode -spin -stats -stay -take-over -tcp-lanes -tcp-peers -tcp-port -tcp-timeout -tls-ca -tls-cert -tls-key -tls-mode -tls-names -tls-warn -transport -transport-rules -upgrade-token -version -wait",
			"rdsd: to cure it: rdsd -help lists the flags"}},
		{"argument", xdg, []string{"start"}, []string{
			`rdsd: "start" is not a flag; rdsd takes no arguments`,
			"rdsd: to cure it: rdsd -help lists the flags"}},
		{"bad value", xdg, []string{"-port", "x"}, []string{
			`rdsd: -port: port: "x" is no such number; allowed: a number from 1 to 65535, the same on all hosts`}},
		{"file with errors", xdg, []string{"-config", bad, "-check-config"}, []string{
			"rdsd: " + bad + `:1:1: unknown key "prot", meant is perhaps "port"; allowed here: socket, socket_mode, listen, port, peers.allow, peers.control_per_s, peers.messages_per_s, peers.bytes_per_s, peers.kernel, peers.silence, peers.paths, peers.explain, tls.mode, tls.cert, tls.key, tls.ca, tls.names, tls.warn, tcp.peers, tcp.port, tcp.lanes, tcp.timeout, crc, spin, wait, cpus, io.threads, recv_hard_cap, ping, congestion, transport, transport_rules, stats, upgrade.token, limits.max_clients, limits.max_sockets, limits.max_registered_bytes, limits.max_held_bytes, quota.overrides, quota.accounts, keys.strict, bind.rules, bind.default, metrics.listen, sandbox, log.level, log.format, quota.clients, quota.sockets, quota.destinations, quota.operations, quota.grants, quota.registered_bytes, quota.queued_bytes`,
			"    1 | prot = 1", "      | ^",
			"rdsd: " + bad + `:3:1: log.level: "loud" is none of these; allowed: "debug", "info", "warn" or "error"`,
			`    3 | level = "loud"`, "      | ^"}},
		{"no file", xdg, []string{"-config", "/nowhere/rdsd.toml"}, []string{
			"rdsd: open /nowhere/rdsd.toml: no such file or directory (rdsctl config docs prints a file with every key)"}},
		{"not loopback", xdg, []string{"-listen", "192.0.2.1"}, []string{
			`rdsd: listen: 192.0.2.1 is not a loopback address and peers.allow is empty; set peers.allow to the networks of the peers, as in ["192.0.2.0/24"]`}},
		{"no place for the socket", nil, nil, []string{
			"rdsd: no path for the control socket: XDG_RUNTIME_DIR is not set; use --socket PATH or RDSD_SOCKET"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr, cfg := runApp(t, tc.env, nil, nil, tc.args...)
			if code != exitUsage || stdout != "" || cfg != nil {
				t.Errorf("status %d, stdout %q, started %v", code, stdout, cfg != nil)
			}
			if want := strings.Join(tc.want, "\n") + "\n"; stderr != want {
				t.Errorf("got\n%swant\n%s", stderr, want)
			}
		})
	}
}

func TestCures(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("statistics file: %w", stats.ErrInUse), "stop that daemon"},
		{syscall.EADDRINUSE, "stop the program that uses it"},
		{&os.PathError{Op: "listen", Path: "/x", Err: syscall.ENOENT}, "make the directory (mkdir -p /run/user/1000)"},
		{fmt.Errorf("shared memory \"x\" of 1 bytes: open /proc/self/fd/3: %w: /proc has to be mounted", syscall.ENOENT), ""},
		{syscall.EACCES, "use paths this user may write"},
		{fmt.Errorf("tls.cert: %w", &os.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}), ""},
		{fmt.Errorf("tls.key: %w", &os.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}), ""},
		{syscall.ENOSPC, "free some memory or space"},
		{syscall.EMFILE, "raise the limit of open files"},
		{errors.New("something else"), ""},
	} {
		for _, started := range []bool{false, true} {
			startErr, runErr := tc.err, error(nil)
			if started {
				startErr, runErr = nil, tc.err
			}
			code, _, stderr, _ := runApp(t, xdg, startErr, runErr, "-log-level", "error")
			lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
			if code != exitFailed || lines[0] != "rdsd: "+tc.err.Error() {
				t.Errorf("%v: status %d, %q", tc.err, code, stderr)
			}
			switch {
			case tc.want == "" && len(lines) != 1:
				t.Errorf("%v: a cure for the unknown: %q", tc.err, stderr)
			case tc.want != "" && (len(lines) != 2 || !strings.HasPrefix(lines[1], "rdsd: to cure it: "+tc.want)):
				t.Errorf("%v: %q, want the cure %q", tc.err, stderr, tc.want)
			}
		}
	}
}
