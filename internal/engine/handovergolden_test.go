package engine

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/handover"
)

var writeGolden = flag.Bool("handover.write", false, "write those golden bytes of which there is no file")

// Golden bytes: "handover" is an engine with users and processes, "peers" is what another has of
// other hosts. Each version has its own.

func goldenFile(name string, version uint16) string {
	return fmt.Sprintf("testdata/%s.%d.hex", name, version)
}

func goldenState(t testing.TB, name string, version uint16) []byte {
	t.Helper()
	want, err := os.ReadFile(goldenFile(name, version))
	if err != nil {
		t.Fatal(err)
	}
	golden, err := hex.DecodeString(strings.Join(strings.Fields(string(want)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return golden
}

// isGolden compares state with the golden bytes, and returns these.
func isGolden(t *testing.T, name string, version uint16, state []byte) []byte {
	t.Helper()
	file := goldenFile(name, version)
	if _, err := os.Stat(file); *writeGolden && err != nil {
		var out strings.Builder
		for b := state; len(b) > 0; b = b[min(64, len(b)):] {
			out.WriteString(hex.EncodeToString(b[:min(64, len(b))]) + "\n")
		}
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden := goldenState(t, name, version)
	if !bytes.Equal(state, golden) {
		t.Errorf("version %d: %d bytes are written, the %d golden ones differ from byte %d on", version, len(state), len(golden), differ(state, golden))
	}
	return golden
}

// TestHandoverGolden: the bytes of an engine's state do not change within a version, and what
// is read from them is written again as it was. Each version that there is can be written.
func TestHandoverGolden(t *testing.T) {
	for v := handover.Oldest; v <= handover.Newest; v++ {
		h := handOver(t)
		h.version = v
		heirs, state := h.state()
		golden := isGolden(t, "handover", v, state)
		e := h.next()
		if err := heirs.Adopt(e, golden); err != nil {
			t.Fatal(err)
		}
		if again := h.encode(e, heirs); !bytes.Equal(again, golden) {
			t.Errorf("version %d, read and written again it differs from byte %d on", v, differ(again, golden))
		}
	}
}

// TestPeersGolden: the same for what an engine has of other hosts.
func TestPeersGolden(t *testing.T) {
	for v := handover.Oldest; v <= handover.Newest; v++ {
		x := newParting(t)
		if v >= 7 {
			x.further()
		}
		golden := isGolden(t, "peers", v, peersIn(t, x.old, v))
		e, _ := x.heirOf(0, x.old, partingConfig)
		if err := adoptPeers(e, golden); err != nil {
			t.Fatal(err)
		}
		if again := peersIn(t, e, v); !bytes.Equal(again, golden) {
			t.Errorf("version %d, read and written again it differs from byte %d on", v, differ(again, golden))
		}
	}
}

// peersIn is what e hands over of other hosts, in a version. None of its clients has a message.
func peersIn(t *testing.T, e *Engine, version uint16) []byte {
	t.Helper()
	s := handover.Write(version)
	x := &crossing{Engine: e, s: s}
	if x.section(handover.TagRemotes, x.handOverRemotes); s.Err() != nil {
		t.Fatal(s.Err())
	}
	return s.Bytes()
}

// differ returns where a and b begin to differ.
func differ(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
