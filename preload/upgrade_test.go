package preload

import (
	"path/filepath"
	"testing"

	"github.com/rdsd/rdsd/internal/test/rdsdtest"
)

// TestUpgrade: programs that know nothing of rdsd go on while their daemon is replaced again
// and again: no call fails, and poll tells what there is.
func TestUpgrade(t *testing.T) {
	built(t, "") // before anything is replaced
	d := rdsdtest.Start(t)
	for _, name := range []string{"calls", "ready", "memory", "busy", "anew"} {
		t.Run(name, func(t *testing.T) {
			prog := filepath.Join(built(t, ""), "pre-"+name)
			d.Under(t, 3, func() { finish(t, preloadedAt(t, d.Socket, "", prog, d.Addr.String())) })
		})
	}
}
