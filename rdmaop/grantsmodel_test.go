package rdmaop

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/handover"
	"golang.org/x/sys/unix"
)

// TestGrantsModel compares a table with a naive one over random histories.
func TestGrantsModel(t *testing.T) {
	replay(t, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 4))
		g := NewGrants(12)
		type flight struct {
			op  *Op
			gen int // of the key
		}
		var (
			rights   = map[holder]abi.Rights{}
			gen      = map[uint32]int{} // counts the lives of a key number
			used     = map[uint32]bool{}
			revoking = map[uint32]bool{}
			flying   []flight
		)
		inFlight := func(rkey uint32) (n int) {
			for _, f := range flying {
				if f.op.RKey() == rkey && f.gen == gen[rkey] {
					n++
				}
			}
			return n
		}
		forget := func(rkey uint32) {
			for p := range uint16(4) {
				delete(rights, holder{rkey, p})
			}
		}
		for range 4000 {
			if len(flying) == 0 {
				g = handedOver(t, g)
			} else if len(flying) == inFlight(1)+inFlight(2)+inFlight(3)+inFlight(4) {
				if _, err := g.Encode(handover.Newest); !errors.Is(err, ErrInFlight) {
					t.Errorf("handed over with operations in flight: %v", err)
				}
			}
			rkey, port := uint32(1+r.IntN(4)), uint16(r.IntN(4))
			switch r.IntN(12) {
			case 0, 1, 2:
				n := grant(rkey, port, abi.Rights(1+r.IntN(15)))
				_, again := rights[holder{rkey, port}]
				held := false
				for p := range uint16(4) {
					_, ok := rights[holder{rkey, p}]
					held = held || ok
				}
				err := g.Add(n)
				switch {
				case revoking[rkey], used[rkey]:
					if !errors.Is(err, ErrGrantOver) {
						t.Errorf("Add while revoking (%v), or that crossed the use: %v", revoking[rkey], err)
					}
				case !again && len(rights)+len(used) == 12:
					if !errors.Is(err, ErrTooManyGrants) {
						t.Errorf("Add over the limit: %v", err)
					}
				default:
					if err != nil {
						t.Errorf("Add: %v", err)
					}
					if !held { // a new life
						gen[rkey]++
					}
					rights[holder{rkey, port}] = n.Rights
				}
			case 3, 4, 5, 6:
				o := opOn(rkey, abi.OpKind(1+r.IntN(4)))
				own, anyone := rights[holder{rkey, port}], rights[holder{rkey, AnyPort}]
				held := false
				for p := range uint16(4) {
					_, ok := rights[holder{rkey, p}]
					held = held || ok
				}
				want := unix.Errno(0)
				switch {
				case !held:
					want = unix.EINVAL
				case (own|anyone)&o.Rights() == 0:
					want = unix.EACCES
				}
				if got := use(g, port, o); got != want {
					t.Errorf("Use: %v, want %v", got, want)
				}
				if want == 0 {
					flying = append(flying, flight{o, gen[rkey]})
					if (own|anyone)&abi.UseOnce != 0 {
						forget(rkey)
						used[rkey] = true
					}
				}
			case 7, 8, 9, 10:
				if len(flying) == 0 {
					continue
				}
				i := r.IntN(len(flying))
				f := flying[i]
				flying = append(flying[:i], flying[i+1:]...)
				k := f.op.RKey()
				want := f.gen == gen[k] && revoking[k] && inFlight(k) == 0
				if got := g.Done(f.op); got != want {
					t.Errorf("Done: revoked %v, want %v", got, want)
				}
				if want {
					delete(revoking, k)
				}
			case 11:
				if r.IntN(20) == 0 {
					g.Clear()
					clear(rights)
					clear(revoking)
					clear(used)
					for k := range uint32(5) {
						gen[k]++
					}
					continue
				}
				forget(rkey)
				delete(used, rkey)
				want := inFlight(rkey) == 0
				if !want {
					revoking[rkey] = true
				}
				if got := g.Revoke(rkey, 1); got != want {
					t.Errorf("Revoke: retired %v, want %v", got, want)
				}
			}
			if g.Len() != len(rights)+len(used) {
				t.Errorf("%d grants, want %d", g.Len(), len(rights)+len(used))
			}
			if t.Failed() {
				return
			}
		}
	})
}
