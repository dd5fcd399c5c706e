package cong

import (
	"bytes"
	"testing"
)

// FuzzLoad: a frame of any length replaces the map, or changes nothing; what it
// says has changed is what has.
func FuzzLoad(f *testing.F) {
	full := make([]byte, Len)
	f.Add([]byte{}, uint16(1))
	f.Add(full, uint16(7))
	f.Add(append([]byte{0xff}, full[1:]...), uint16(65535))
	f.Add(append(full, 1), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, port uint16) {
		var m Map
		m.Set(port)
		before := map[uint16]bool{port: true}
		err := m.Load(b, func(p uint16, congested bool) {
			if before[p] == congested {
				t.Errorf("port %d told as changed to %v, which it was", p, congested)
			}
			before[p] = congested
		})
		var out [Len]byte
		m.Put(out[:])
		switch {
		case (err == nil) != (len(b) == Len):
			t.Fatalf("%d bytes: %v", len(b), err)
		case err != nil && (m.Count() != 1 || !m.Test(port)):
			t.Error("a frame that was refused changed the map")
		case err == nil && !bytes.Equal(out[:], b):
			t.Error("the map is not what was loaded")
		}
		n := 0
		for p, congested := range before {
			if m.Test(p) != congested {
				t.Errorf("port %d is %v, told was %v", p, m.Test(p), congested)
			}
			if congested {
				n++
			}
		}
		if m.Count() != n {
			t.Errorf("%d ports congested, %d told", m.Count(), n)
		}
	})
}
