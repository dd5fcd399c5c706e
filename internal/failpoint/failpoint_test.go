//go:build failpoints

package failpoint

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestHit(t *testing.T) {
	p, err := parse("listen:1,epoll:3")
	if err != nil {
		t.Fatal(err)
	}
	for i, tc := range []struct {
		name string
		fail bool
	}{{Listen, true}, {Listen, false}, {Epoll, false}, {Epoll, false}, {Epoll, true}, {Epoll, false}, {Device, false}} {
		if due := p.due(tc.name); due != tc.fail {
			t.Errorf("hit %d of %s: %v", i, tc.name, due)
		}
	}
	if p, err := parse("go:2!,park:3~,adopt:1"); err != nil || p.left[Go] != 2 || p.do[Go] != kills || p.do[Park] != stops || p.do[Adopt] != fails {
		t.Errorf("%v, %v", p, err)
	}
	for _, bad := range []string{"nothing:1", "listen", "listen:0", "listen:x", "listen:1,", "listen:!", "listen:1!~"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestFile: the file that RDSD_FAIL names is read when the first fail point is hit.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fail")
	t.Setenv("RDSD_FAIL", "@"+path)
	t.Setenv("RDSD_HURRY", "10")
	if err := os.WriteFile(path, []byte("epoll:2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Hit(Epoll); err != nil {
		t.Error(err)
	}
	if err := Hit(Epoll); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("the second hit: %v", err)
	}
	if d := Limit(time.Second); d != 100*time.Millisecond {
		t.Errorf("hurried: %v", d)
	}
}
