package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestCheck checks what a receiver reports of a stream of three messages. In arrives F is the
// first mark, E the last mark, a digit a message, and x a message with a wrong byte.
func TestCheck(t *testing.T) {
	from := netip.MustParseAddrPort("127.0.0.1:5000")
	for _, k := range []struct {
		arrives string
		lossy   bool
		want    string // of the error, or of the output
	}{
		{"F012E", false, "3 messages, 30 bytes, 0 lost"},
		{"F01E", false, "the end of stream"},
		{"F0112E", false, "wrong contents"},
		{"F021E", false, "wrong contents"},
		{"F01x", false, "wrong contents"},
		{"F0120", false, "a stream of 3 messages"},
		{"0", false, "belongs to no stream"},
		{"FF", false, "before the one before it"},
		{"F012E", true, "3 messages, 72 bytes, 0 lost"},
		{"F02E", true, "2 messages, 48 bytes, 1 lost"},
		{"FE", true, "0 messages, 0 bytes, 3 lost"},
		{"F010", true, "or later"},
		{"F00", true, "or later"},
		{"F0x", true, "wrong contents"},
		{"F0F0E", true, "1 messages, 24 bytes, 2 lost"},
	} {
		t.Run(fmt.Sprintf("%s lossy %v", k.arrives, k.lossy), func(t *testing.T) {
			var out bytes.Buffer
			c := &config{out: &out, sizes: sizes{10}, lossy: k.lossy}
			streams := map[netip.AddrPort]*stream{}
			want := make([]byte, maxMessage)
			var err error
			for i := 0; i < len(k.arrives) && err == nil; i++ {
				n := 10
				if k.lossy {
					n = numberLen
				}
				b := make([]byte, n)
				switch x := k.arrives[i]; x {
				case 'F':
					b = mark(magicFirst, 7, 3, k.lossy)
				case 'E':
					b = mark(magicLast, 7, 3, k.lossy)
				case 'x':
					message(b, 7, i-1, k.lossy)
					b[len(b)-1] ^= 1
					if k.lossy { // content behind the number, which b has no room for
						b = append(b, 1)
					}
				default:
					message(b, 7, int(x-'0'), k.lossy)
				}
				_, err = c.check(streams, from, b, want)
			}
			got := out.String()
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, k.want) {
				t.Errorf("got %q, want %q", got, k.want)
			}
		})
	}
}

func TestSizes(t *testing.T) {
	var s sizes
	if err := s.Set("0-2,7,1048576"); err != nil || fmt.Sprint(s) != "[0 1 2 7 1048576]" {
		t.Errorf("%v, %v", s, err)
	}
	for _, bad := range []string{"", "x", "-1", "2-1", "1048577", "1,,2"} {
		if s.Set(bad) == nil {
			t.Errorf("%q is taken for %v", bad, s)
		}
	}
}
