package librds

import (
	"flag"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

var seeds = flag.Int("librds.seeds", 12, "how many random scripts of hostile daemons FuzzHostile adds to its corpus")

// Rounds of each of the two threads of tests/victim.c.
const (
	plainRounds = 200
	fuzzRounds  = 40 // an input may take no more than ten seconds
)

// FuzzHostile: a program that uses all of librds meets a daemon that breaks the contract as the
// bytes say. The program gets errors, but neither crashes nor hangs, nor reads outside the
// memory that it has mapped, and the sanitizers find nothing.
func FuzzHostile(f *testing.F) {
	builds, rounds := sanitizers(), plainRounds
	fuzzing := flag.Lookup("test.fuzz").Value.String() != ""
	if fuzzing {
		builds, rounds = []string{"address,undefined"}, fuzzRounds
	}
	for _, s := range builds {
		dir := built(f, s)
		if fuzzing {
			f.Setenv(builtEnv, dir) // the fuzzer's processes build nothing
		}
	}
	for op := range hostileOps {
		f.Add(scriptOf(int(op), uint64(op)))
	}
	for seed := range *seeds {
		f.Add(scriptOf(-1, uint64(seed)))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		for _, s := range builds {
			if fuzzing {
				victim(t, s, script, rounds)
				continue
			}
			t.Run("sanitize="+s, func(t *testing.T) {
				t.Parallel()
				victim(t, s, script, rounds)
			})
		}
	})
}

// victim runs tests/victim.c against a hostile daemon.
func victim(t *testing.T, sanitize string, script []byte, rounds int) {
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
	h := newHostile(script)
	served := make(chan error, 1)
	go func() {
		raw, err := l.AcceptUnix()
		if err == nil {
			err = h.serve(raw)
		}
		served <- err
	}()
	out := finish(t, program(t, sanitize, "victim", path, strconv.Itoa(int(h.seed)), strconv.Itoa(rounds)))
	l.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	t.Log(out)
	if t.Failed() {
		t.Log("the daemon did:", h.does)
	}
}
