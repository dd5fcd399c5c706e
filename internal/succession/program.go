package succession

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/failpoint"
	"golang.org/x/sys/unix"
)

// versionTime bounds how long a program may take to say its version.
const versionTime = 10 * time.Second

// checkProgram returns the file to start if path may be started as a successor: the one to
// which links lead now, because they may lead elsewhere later. own says that path is the one
// that the daemon itself was started from. A daemon that an attacker controls can ask for any
// path, so the path must lead to a program that the attacker cannot have made: it belongs to
// root or to this user, nobody else may write it or put another file in its place, and it is
// in none of the folders that the daemon may write. It has no other rights than this process.
// And it must be rdsd.
func checkProgram(path string, own bool, folders []string) (string, error) {
	refuse := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("start %s: %w", path, fmt.Errorf(format, args...))
	}
	if !filepath.IsAbs(path) {
		return refuse("%w: not an absolute path", unix.EINVAL)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return refuse("%w", err)
	}
	st, err := os.Stat(real)
	if err != nil {
		return refuse("%w", err)
	}
	uid := st.Sys().(*syscall.Stat_t).Uid
	switch {
	case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return refuse("%w: not an executable file", unix.EACCES)
	case !own && st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0:
		return refuse("%w: it runs with the rights of its owner or group (mode %v)", unix.EPERM, st.Mode())
	case !own && uid != 0 && int(uid) != os.Geteuid():
		return refuse("%w: it belongs to uid %d, and neither to root nor to the daemon's user", unix.EPERM, uid)
	case !own && st.Mode()&0o022 != 0:
		return refuse("%w: others may write it (mode %v)", unix.EPERM, st.Mode())
	}
	if !own {
		if err := foreignFolder(filepath.Dir(real)); err != nil {
			return refuse("%w", err)
		}
	}
	for _, f := range folders {
		if within(real, f) {
			return refuse("%w: it is in %s, which the daemon may write", unix.EPERM, f)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), failpoint.Limit(versionTime))
	defer cancel()
	cmd := exec.CommandContext(ctx, real, "-version")
	cmd.Env = environ()
	cmd.WaitDelay = failpoint.Limit(time.Second) // for a child of its own that keeps the output open
	out, err := cmd.Output()
	if err == nil && !strings.HasPrefix(string(out), "rdsd ") {
		err = errors.New("-version does not say that it is rdsd")
	}
	if err != nil {
		return refuse("%w", err)
	}
	return real, nil
}

// foreignFolder returns an error if others than root and this user may replace what is in dir
// or in a folder above it. In a sticky folder they may not.
func foreignFolder(dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if uid := st.Sys().(*syscall.Stat_t).Uid; uid != 0 && int(uid) != os.Geteuid() {
			return fmt.Errorf("%w: the folder %s belongs to uid %d, and neither to root nor to the daemon's user", unix.EPERM, dir, uid)
		}
		if st.Mode()&0o022 != 0 && st.Mode()&os.ModeSticky == 0 {
			return fmt.Errorf("%w: others may write the folder %s (mode %v)", unix.EPERM, dir, st.Mode())
		}
		if dir == "/" {
			return nil
		}
	}
}

// within reports whether path is in folder or below it.
func within(path, folder string) bool {
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// environ is this process's environment without what concerned it alone: sockets of systemd
// come from the predecessor, and the watchdog looks after the main process.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains([]string{starterEnv, successorEnv, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID", "WATCHDOG_PID"}, name)
	})
}

func joinFolders(folders []string) string { return strings.Join(folders, "\n") }

func splitFolders(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}
