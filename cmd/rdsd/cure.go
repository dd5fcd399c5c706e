package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/stats"
)

// cure is one line that says what to do about an error of starting or running. It is "" if
// the error already says that.
func cure(err error, cfg *config.Config) string {
	switch {
	case strings.Contains(err.Error(), "--socket"), strings.HasPrefix(err.Error(), "shared memory "):
		return "" // the error names the flag to use, or what the memory lacks
	case strings.HasPrefix(err.Error(), "tls."):
		return "" // the error names the key and the file
	case errors.Is(err, stats.ErrInUse):
		return "stop that daemon, or give this one other paths with -socket and -stats"
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("stop the program that uses it (ss -ltnpx shows it), replace it with -take-over if it is rdsd and its control socket is here, or use others: -listen, -port, -metrics-listen, -socket (now port %d, socket %s)", cfg.Port, cfg.Socket)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("make the directory (mkdir -p %s), or use another path with -socket and -stats", filepath.Dir(cfg.Socket))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("use paths this user may write with -socket (now %s) and -stats, and ports above 1023", cfg.Socket)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.ENOMEM):
		return "free some memory or space, or lower the limits"
	case errors.Is(err, syscall.EMFILE):
		return "raise the limit of open files: ulimit -n"
	}
	return ""
}
