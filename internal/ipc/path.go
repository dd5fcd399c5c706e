package ipc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rdsd/rdsd/internal/netns"
)

// SystemSocket is the control socket of a daemon run by root.
const SystemSocket = "/run/rdsd/rdsd.sock"

// DefaultPaths are the paths at which a client looks for the daemon, in this order. If
// RDSD_SOCKET is set, it is the only one. Otherwise they are rdsd.sock in XDG_RUNTIME_DIR,
// except for root, and SystemSocket. In RDSD_SOCKET "%n" stands for the network namespace
// (netns.Path).
func DefaultPaths() []string {
	if p := os.Getenv("RDSD_SOCKET"); p != "" {
		return []string{netns.Path(p)}
	}
	var paths []string
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && os.Geteuid() != 0 {
		paths = append(paths, filepath.Join(dir, "rdsd.sock"))
	}
	return append(paths, SystemSocket)
}

// ResolveDial dials the daemon at path, in which "%n" stands for the network namespace. If path is empty, it dials the first of
// DefaultPaths at which a daemon answers. Its error is ErrNoDaemon, with the error of each
// path, or at once another error of Dial (EACCES).
func ResolveDial(ctx context.Context, path string) (*Client, error) {
	paths := []string{netns.Path(path)}
	if path == "" {
		paths = DefaultPaths()
	}
	var tried []string
	for _, p := range paths {
		c, err := Dial(ctx, p)
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, syscall.ENOENT):
			tried = append(tried, p+" (no such file)")
		case errors.Is(err, syscall.ECONNREFUSED):
			tried = append(tried, p+" (left over from a daemon that ended)")
		default:
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: tried %s; start rdsd, or name its socket with --socket or RDSD_SOCKET", ErrNoDaemon, strings.Join(tried, ", "))
}
