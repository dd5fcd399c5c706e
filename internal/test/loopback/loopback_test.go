package loopback

import (
	"net"
	"testing"
)

// Reserved networks are all different, and their addresses can be used.
func TestReserve(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		n, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		if s := n.First().String(); seen[s] {
			t.Fatalf("%s twice", s)
		} else {
			seen[s] = true
		}
	}
	n, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, i := range []int{1, 254} {
		l, err := net.Listen("tcp", net.JoinHostPort(n.At(i).String(), "4000"))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
