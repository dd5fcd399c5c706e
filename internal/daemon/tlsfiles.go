package daemon

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"golang.org/x/sys/unix"
)

// tlsFiles notices that somebody replaces the files of tls.cert, tls.key and tls.ca: an administrator, or a
// program that renews certificates. Such a program writes the files one after the other, or swaps the
// link to their folder. Only watch looks.
type tlsFiles struct {
	seen, read [3]fileState // at the last look, and when the files were read last

	refused atomic.Pointer[string] // why what the files hold now is not used; nil: it is
}

// fileState is what changes when a file is replaced or written.
type fileState struct {
	path         string
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// statesOf follows links. A file that is not there has no inode.
func statesOf(c *config.Config) (all [3]fileState) {
	for i, path := range []string{c.TLS.Cert, c.TLS.Key, c.TLS.CA} {
		all[i].path = path
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			all[i] = fileState{path, st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
		}
	}
	return all
}

// lookAtCertificates reads the files again if they have changed, and have not changed since the last look.
func (d *Daemon) lookAtCertificates() {
	c, f := d.config(), &d.tlsFiles
	if c.TLS.Cert == "" {
		return
	}
	now := statesOf(c)
	if now != f.seen {
		f.seen = now // somebody may be writing the rest
		return
	}
	if now != f.read && d.readCertificates() {
		f.read = now
	}
}

// readCertificates has new connections use what the files hold now. If there is something wrong with it, they
// go on with what was read before. It returns false if it cannot be done now.
func (d *Daemon) readCertificates() bool {
	d.reload.mu.Lock()
	defer d.reload.mu.Unlock()
	if d.reload.refuse { // a successor reads the files by itself; or else this daemon does, later
		return false
	}
	next, err := loadTLS(d.config())
	if err != nil {
		why := err.Error()
		d.tlsFiles.refused.Store(&why)
		d.summed.write(time.Now(), slog.LevelError, nil, "new certificates are wrong", "in use", d.credentials.Load().String(), "err", err)
		return true
	}
	d.tlsFiles.refused.Store(nil)
	if old := d.credentials.Load(); !next.same(old) {
		d.credentials.Store(next)
		d.summed.write(time.Now(), slog.LevelInfo, nil, "new certificates", "old", old.String(), "new", next.String())
	}
	return true
}

// allTLSWarnings are the warnings about TLS for the status, those about the files included.
func (d *Daemon) allTLSWarnings(now time.Time) []string {
	out := d.tlsWarnings(now)
	if w := d.tlsFiles.warning(); w != "" {
		out = append(out, w)
	}
	return out
}

// warning is for the status; "" for none.
func (f *tlsFiles) warning() string {
	if why := f.refused.Load(); why != nil {
		return "the new certificates are not used, but those that were read before: " + *why
	}
	return ""
}
