package librds

import (
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

var seeds = flag.Int("librds.seeds", 12, "how many hostile daemons TestHostile plays")

// TestHostile: a program that uses all of librds meets daemons that break the contract. It
// gets errors, but neither crashes nor hangs, and the sanitizers find nothing.
func TestHostile(t *testing.T) {
	for _, s := range sanitizers() {
		built(t, s)
		for seed := range *seeds {
			t.Run(fmt.Sprintf("sanitize=%s/seed=%d", s, seed), func(t *testing.T) {
				t.Parallel()
				dir, err := os.MkdirTemp("", "rds")
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				path := filepath.Join(dir, "sock")
				l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
				if err != nil {
					t.Fatal(err)
				}
				served := make(chan struct{})
				go func() {
					defer close(served)
					raw, err := l.AcceptUnix()
					if err != nil {
						return
					}
					h, err := newHostile(uint64(seed), raw)
					if err != nil {
						t.Error(err)
						return
					}
					h.serve(t)
				}()
				out := finish(t, program(t, s, "victim", path, strconv.Itoa(seed)))
				l.Close()
				<-served
				t.Log(out)
			})
		}
	}
}
