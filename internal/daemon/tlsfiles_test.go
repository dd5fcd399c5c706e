package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// TestCertificatesReplaced: the daemon reads files that were replaced as cert-manager and SPIRE replace them.
func TestCertificatesReplaced(t *testing.T) {
	dir, ca := t.TempDir(), tlstest.NewCA(t)
	version := func(name string, spoil func(string)) {
		t.Helper()
		folder := filepath.Join(dir, name)
		err := os.Mkdir(folder, 0o755)
		ca.Write(t, folder, tlstest.IPs("10.0.0.1"))
		spoil(folder)
		err = errors.Join(err, os.Symlink(name, dir+"/..tmp"), os.Rename(dir+"/..tmp", dir+"/..data"))
		if err != nil {
			t.Fatal(err)
		}
	}
	version("..1", func(string) {})
	for _, name := range []string{"cert.pem", "key.pem", "ca.pem"} {
		if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	d := &Daemon{summed: newSummedLog(slog.New(slog.DiscardHandler)), handing: newHanding()}
	d.set(tlsConfig(dir))
	first, err := loadTLS(d.config())
	if err != nil {
		t.Fatal(err)
	}
	d.credentials.Store(first)
	look := func() { d.lookAtCertificates(); d.lookAtCertificates() }
	if look(); d.credentials.Load() != first || d.tlsFiles.warning() != "" {
		t.Errorf("nothing has changed: %q", d.tlsFiles.warning())
	}

	version("..2", func(string) {})
	if d.lookAtCertificates(); d.credentials.Load() != first {
		t.Error("read at once, while somebody may be writing")
	}
	d.lookAtCertificates()
	second := d.credentials.Load()
	if second.same(first) {
		t.Error("the link was swapped, and nothing has changed")
	}

	// The key of another certificate; then it is mended in place.
	version("..3", func(folder string) { os.Rename(dir+"/..2/key.pem", folder+"/key.pem") })
	if look(); d.credentials.Load() != second || !strings.Contains(d.tlsFiles.warning(), "private key does not match") {
		t.Errorf("a wrong key: %q", d.tlsFiles.warning())
	}
	if w := strings.Join(d.allTLSWarnings(time.Now()), ""); !strings.Contains(w, "private key does not match") {
		t.Errorf("the status says %q", w)
	}
	os.Remove(dir + "/..3/key.pem")
	if look(); d.credentials.Load() != second || !strings.Contains(d.tlsFiles.warning(), "no such file") {
		t.Errorf("no key: %q", d.tlsFiles.warning())
	}
	ca.Write(t, dir+"/..3", tlstest.IPs("10.0.0.1"))

	d.refuseReloads()
	if look(); d.credentials.Load() != second {
		t.Error("read while a successor takes over")
	}
	d.allowReloads()
	if look(); d.credentials.Load().same(second) || d.tlsFiles.warning() != "" {
		t.Errorf("mended: %q", d.tlsFiles.warning())
	}
}
