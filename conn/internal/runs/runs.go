// Package runs has runs for tests.
package runs

import (
	"strings"

	"github.com/rdsd/rdsd/conn/frames"
)

// Of is the run of the payloads.
func Of(payloads ...string) (run []byte) {
	for _, p := range payloads {
		at := len(run)
		run = append(run, make([]byte, frames.Size(len(p)))...)
		frames.Put(run[at:], []byte(p))
	}
	return run
}

// Letters are n payloads of 0 to 3 letters.
func Letters(n int) (out []string) {
	for i := range n {
		out = append(out, strings.Repeat(string(rune('a'+i%26)), i%4))
	}
	return out
}
