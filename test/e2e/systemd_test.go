package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/test/child"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// booted is systemd as process 1 of namespaces of its own, with the units of contrib/systemd.
type booted struct {
	t   *testing.T
	pid string
}

// boot prepares the folder that is /run there: programs, units, and a user.
const boot = `set -e
mount --make-rprivate /; mount -t proc proc /proc; mount -t tmpfs run /run; mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir -p /run/systemd/system /run/test; cp "$0/rdsd" "$0/rdsctl" /run/test/; cp "$0"/*.service "$0"/*.socket /run/systemd/system/
printf '[Unit]\nDefaultDependencies=no\n' >/run/systemd/system/t.target
for f in passwd group; do
	{ grep -v '^rdsd:' /etc/$f || true; [ $f = group ] && echo 'rdsd:x:64999:' || echo 'rdsd:x:64999:64999::/run/rdsd:/usr/sbin/nologin'; } >/run/test/$f
	mount --bind /run/test/$f /etc/$f
done
container=docker exec "$1" --system --unit=t.target --log-target=null`

// bootSystemd boots it.
func bootSystemd(t *testing.T) *booted {
	t.Helper()
	systemd, err := exec.LookPath("/lib/systemd/systemd")
	if err != nil || os.Getuid() != 0 {
		t.Skip("systemd as process 1 of namespaces needs root and systemd: apt-get install -y --no-install-recommends systemd")
	}
	dir := t.TempDir()
	for _, name := range []string{"rdsd", "rdsctl"} {
		if err := os.Symlink(program(name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"rdsd.service", "rdsd.socket"} {
		text, err := os.ReadFile("../../contrib/systemd/" + name)
		if err != nil {
			t.Fatal(err)
		}
		// There is no rest of a system to wait for, and the programs are elsewhere.
		text = regexp.MustCompile(`(?m)^(Wants|After)=.*\n`).ReplaceAll(text, nil)
		text = []byte(strings.NewReplacer("[Unit]\n", "[Unit]\nDefaultDependencies=no\n", "/usr/bin/", "/run/test/", "/etc/rdsd/", "/run/test/").Replace(string(text)))
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-c", boot, dir, systemd)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWCGROUP, Unshareflags: syscall.CLONE_NEWNS}
	p, err := child.Start(cmd)
	if err != nil {
		t.Skipf("namespaces are not permitted here: %v", err)
	}
	t.Cleanup(p.Kill)
	b := &booted{t, strconv.Itoa(p.Pid())}
	eventually(t, "systemd", func() error {
		if !p.Alive() {
			t.Fatalf("systemd does not run: %s", &p.Stderr)
		}
		_, err := b.try("systemctl list-units --no-pager")
		return err
	})
	return b
}

// try runs a line of shell there.
func (b *booted) try(line string) (string, error) {
	out, err := exec.Command("nsenter", "-t", b.pid, "-m", "-p", "-n", "-C", "sh", "-c", line).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// do is try of a line that succeeds.
func (b *booted) do(line string) string {
	b.t.Helper()
	out, err := b.try(line)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// is waits until a property of a unit has a value.
func (b *booted) is(unit, property, want string) {
	b.t.Helper()
	eventually(b.t, unit+" "+property, func() error {
		got, err := b.try("systemctl show -P " + property + " " + unit)
		if ok, _ := regexp.MatchString("^("+want+")$", got); err == nil && !ok {
			err = fmt.Errorf("%q, want %s: %s", got, want, b.status())
		}
		return err
	})
}

func (b *booted) status() string {
	out, _ := b.try("systemctl status --no-pager rdsd.service rdsd.socket; /run/test/rdsd -config /run/test/rdsd.toml -check 2>&1")
	return out
}

// configure writes the configuration.
func (b *booted) configure(text string) {
	b.t.Helper()
	b.do("cat >/run/test/rdsd.toml <<'END'\n" + text + "\nEND")
}

// served waits until the daemon answers.
func (b *booted) served(want string) {
	b.t.Helper()
	eventually(b.t, "an answer of the daemon", func() error {
		out, err := b.try("/run/test/rdsctl -socket /run/rdsd/rdsd.sock status")
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("no %q in %s", want, out)
		}
		return err
	})
}

const plainConfig = `listen = ["127.0.0.1", "10.91.0.1"]
[peers]
allow = ["10.91.0.0/16"]
[tls]
mode = "off"`

// TestSystemd has a real systemd run the shipped units while what the daemon needs is not there
// yet.
func TestSystemd(t *testing.T) {
	b := bootSystemd(t)
	b.do("ip link set lo up")

	t.Run("the address comes late", func(t *testing.T) {
		b := &booted{t, b.pid}
		b.configure(plainConfig)
		b.do("systemctl start rdsd.socket rdsd.service")
		b.is("rdsd.service", "ActiveState", "active")
		b.served("listen: this host does not have the address 10.91.0.1")
		b.do("/run/test/rdsctl -socket /run/rdsd/rdsd.sock bench -mode rtt -d 10ms -warmup 0s -bind 127.0.0.1")
		b.do("ip addr add 10.91.0.1/32 dev lo")
		if out := b.do("/run/test/rdsctl -socket /run/rdsd/rdsd.sock status"); strings.Contains(out, "does not have the address") {
			t.Errorf("the address is there: %s", out)
		}
		b.do("/run/test/rdsctl -socket /run/rdsd/rdsd.sock bench -mode rtt -d 10ms -warmup 0s -bind 10.91.0.1")
		if n := b.do("systemctl show -P NRestarts rdsd.service"); n != "0" {
			t.Errorf("%s restarts", n)
		}
		b.do("systemctl stop rdsd.socket rdsd.service")
	})

	t.Run("the certificate comes late", func(t *testing.T) {
		b := &booted{t, b.pid}
		dir := t.TempDir()
		tlstest.NewCA(t).Write(t, dir, tlstest.IPs("10.91.0.1", "127.0.0.1"))
		b.configure(strings.Replace(plainConfig, `mode = "off"`, "cert = \"/run/test/cert.pem\"\nkey = \"/run/test/key.pem\"\nca = \"/run/test/ca.pem\"", 1))
		b.do("systemctl start rdsd.socket")
		// A client that waits in the socket's queue has systemd start the daemon again and again.
		waiting := make(chan error, 1)
		go func() {
			_, err := b.try("/run/test/rdsctl -socket /run/rdsd/rdsd.sock status -timeout 2m")
			waiting <- err
		}()
		_, _ = b.try("systemctl start rdsd.service") // fails
		// By default systemd would have given up after 5 starts in 10 s.
		b.is("rdsd.service", "NRestarts", "[6-9]|[1-9][0-9]+")
		b.is("rdsd.socket", "Result", "success")
		b.do("cp " + dir + "/*.pem /run/test/; chown rdsd /run/test/*.pem")
		b.is("rdsd.service", "ActiveState", "active")
		b.served("10.91.0.1")
		if err := <-waiting; err != nil {
			t.Errorf("the client that waited: %v", err)
		}
		b.do("systemctl stop rdsd.socket rdsd.service")
	})

	t.Run("a mistake in the configuration", func(t *testing.T) {
		b := &booted{t, b.pid}
		b.configure("prot = 1")
		if _, err := b.try("systemctl start rdsd.service"); err == nil {
			t.Fatal("it starts")
		}
		b.is("rdsd.service", "ActiveState", "failed")
		b.is("rdsd.service", "ExecMainStatus", "2")
		if n := b.do("systemctl show -P NRestarts rdsd.service"); n != "0" {
			t.Errorf("%s restarts", n)
		}
		b.configure(plainConfig)
		b.do("systemctl start rdsd.service")
		b.is("rdsd.service", "ActiveState", "active")
	})

	t.Run("a unit that denies AF_RDS", func(t *testing.T) {
		b := &booted{t, b.pid}
		dir := t.TempDir()
		if out, err := exec.Command("make", "-s", "-j2", "-C", "../../preload", "OUT="+dir, dir+"/librdsd-preload.so", dir+"/pre-calls").CombinedOutput(); err != nil {
			t.Fatalf("the preload library: %v: %s", err, out)
		}
		b.do("mkdir -p /run/denied; cp " + dir + "/librdsd-preload.so " + dir + "/pre-calls /run/denied/")
		unit := func(name, env string) {
			b.do("cat >/run/systemd/system/" + name + " <<'END'\n[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\n" + env +
				"RestrictAddressFamilies=~AF_RDS\nExecStart=/run/denied/pre-calls 10.91.0.1\nStandardError=file:/run/denied/err\nEND\nsystemctl daemon-reload")
		}
		unit("denied.service", "")
		if _, err := b.try("systemctl start denied.service"); err == nil {
			t.Fatal("without the library it has AF_RDS")
		}
		unit("preloaded.service", "Environment=LD_PRELOAD=/run/denied/librdsd-preload.so RDSD_SOCKET=/run/rdsd/rdsd.sock\n")
		if _, err := b.try("systemctl start preloaded.service"); err != nil {
			t.Fatalf("%v: %s", err, b.do("cat /run/denied/err"))
		}
	})

	t.Run("the daemon is killed", func(t *testing.T) {
		b := &booted{t, b.pid}
		pid := b.do("systemctl show -P MainPID rdsd.service")
		b.do("kill -9 " + pid)
		eventually(t, "another daemon", func() error {
			now, err := b.try("systemctl show -P MainPID rdsd.service")
			if err == nil && (now == pid || now == "0") {
				err = errors.New("main process " + now)
			}
			return err
		})
		b.served("10.91.0.1")
		b.do("systemctl stop rdsd.socket rdsd.service")
	})
}
