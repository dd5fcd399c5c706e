//go:build failpoints

package failpoint

import (
	"errors"
	"syscall"
	"testing"
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
		if err := p.hit(tc.name); errors.Is(err, syscall.ENOMEM) != tc.fail {
			t.Errorf("hit %d of %s: %v", i, tc.name, err)
		}
	}
	if p, err := parse("go:2!"); err != nil || p.left[Go] != 2 || !p.kill[Go] {
		t.Errorf("%v, %v", p, err)
	}
	for _, bad := range []string{"nothing:1", "listen", "listen:0", "listen:x", "listen:1,", "listen:!"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
