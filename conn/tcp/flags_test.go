package tcp

import (
	"flag"
	"strings"

	"github.com/rdsd/rdsd/conn/frames"
)

var (
	worldSeeds = flag.Int("tcp.seeds", 6, "seeds per case")
	worldSeed  = flag.Uint64("tcp.seed", 0, "run this seed alone")
)

// frameRun is the run of the payloads.
func frameRun(payloads ...string) (run []byte) {
	for _, p := range payloads {
		at := len(run)
		run = append(run, make([]byte, frames.Size(len(p)))...)
		frames.Put(run[at:], []byte(p))
	}
	return run
}

// letters are n payloads of 0 to 3 letters.
func letters(n int) (out []string) {
	for i := range n {
		out = append(out, strings.Repeat(string(rune('a'+i%26)), i%4))
	}
	return out
}
