package engine

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/internal/handover"
)

// FuzzAdopt: whatever the state is, an engine refuses it, or goes on from it.
func FuzzAdopt(f *testing.F) {
	for v := handover.Oldest; v <= handover.Newest; v++ {
		f.Add(goldenState(f, "handover", v))
	}
	f.Fuzz(func(t *testing.T, state []byte) {
		h := handOver(t)
		heirs, _ := h.state()
		e := h.next()
		if err := heirs.Adopt(e, state); err != nil {
			if !errors.Is(err, handover.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		if err := e.Encode(handover.Write(handover.Newest), heirs.Number); err != nil {
			t.Fatalf("adopted, and not handed over: %v", err)
		}
		e.Resume()
		h.es[0] = e
		h.run()
	})
}
