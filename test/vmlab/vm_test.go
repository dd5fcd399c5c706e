package vmlab

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

// dirVariable names the folder that setup.sh has filled.
const dirVariable = "RDSD_VMLAB"

// TestVM boots one machine and runs all its cases.
func TestVM(t *testing.T) {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		t.Skip("needs a virtual machine: make vm")
	}
	m := boot(t, dir)
	for _, c := range []struct {
		name         string
		siwInitiates bool
		crc          verbs.CRCMode
	}{
		{"siw connects, CRC", true, verbs.CRCOn},
		{"siw connects, no CRC", true, verbs.CRCOff},
		{"soft connects, CRC", false, verbs.CRCOn},
		{"soft connects, no CRC", false, verbs.CRCOff},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Run("transfer", func(t *testing.T) { transfer(newLab(t, m, soft.Options{CRC: c.crc}), c.siwInitiates, sizes) })
			t.Run("pipeline", func(t *testing.T) { pipeline(newLab(t, m, soft.Options{CRC: c.crc}), c.siwInitiates) })
			t.Run("remote acknowledgement", func(t *testing.T) {
				l := newLab(t, m, soft.Options{CRC: c.crc})
				l.useQP(verbs.AckRemote, 32)
				transfer(l, c.siwInitiates, sizes)
			})
		})
	}
	for _, siwInitiates := range []bool{true, false} {
		name := map[bool]string{true: "siw connects", false: "soft connects"}[siwInitiates]
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 1, 4, 56, 200, 251} {
				t.Run(fmt.Sprintf("private data of %d bytes", n), func(t *testing.T) {
					text := strings.Repeat("0123456789abcdef", 16)
					newLab(t, m, soft.Options{PlainMPA: true}).connect(siwInitiates, text[:n], text[1:1+n])
				})
			}
			for i := range 10 { // siw loses the reply if a FIN follows it too closely
				t.Run(fmt.Sprintf("reject %d", i), func(t *testing.T) { reject(newLab(t, m, soft.Options{}), siwInitiates) })
			}
			hostErrors(t, m, siwInitiates)
			guestErrors(t, m, siwInitiates)
			closing(t, m, siwInitiates)
			abrupt(t, m, siwInitiates)
			t.Run("stale answers", func(t *testing.T) { stale(t, m, siwInitiates) })
			t.Run("receives come late", func(t *testing.T) { late(newLab(t, m, soft.Options{}), siwInitiates) })
			t.Run("wire", func(t *testing.T) { wire(t, m, siwInitiates) })
		})
	}
	for _, siwInitiates := range []bool{true, false} {
		name := map[bool]string{true: "many, siw connects", false: "many, soft connects"}[siwInitiates]
		t.Run(name, func(t *testing.T) { many(t, m, siwInitiates) })
	}
	for i := range 5 {
		t.Run(fmt.Sprintf("soft speaks at once %d", i), func(t *testing.T) { early(newLab(t, m, soft.Options{})) })
	}
	t.Run("markers", func(t *testing.T) { markers(t, m) })
	t.Run("our program killed", func(t *testing.T) { killed(t, m) })
	t.Run("rping", func(t *testing.T) { rping(t, m) })
	t.Run("perftest", func(t *testing.T) { perftest(t, m) })
}
