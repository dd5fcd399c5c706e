package soft

import (
	"runtime"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

// TestNoAllocations: moving messages allocates nothing, for each operation,
// with CRC and AckRemote and without either, copied and in place, with own and shared receives.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const batch = 100 // messages a run
	for _, c := range []struct {
		name string
		op   verbs.Opcode
		size int
	}{
		{"send 64", verbs.OpSend, 64},
		{"send 32K", verbs.OpSend, 32 << 10},
		{"send 100K", verbs.OpSend, 100 << 10},
		{"send with imm 64", verbs.OpSendWithImm, 64},
		{"write with imm 64", verbs.OpRDMAWriteWithImm, 64},
		{"write with imm 100K", verbs.OpRDMAWriteWithImm, 100 << 10},
		{"write 64", verbs.OpRDMAWrite, 64},
		{"write 100K", verbs.OpRDMAWrite, 100 << 10},
		{"read 64", verbs.OpRDMARead, 64},
		{"read 100K", verbs.OpRDMARead, 100 << 10},
	} {
		takes := (&sendWR{op: c.op}).messages() > 0 // a receive
		for _, mode := range []verbs.CRCMode{verbs.CRCOn, verbs.CRCOff} {
			for _, shared := range []bool{false, true} {
				if shared && !takes {
					continue
				}
				at := attrs()
				at.CRC = mode
				if mode == verbs.CRCOn {
					at.Ack = verbs.AckRemote
				}
				a, b := newHost(t, Options{}), newHost(t, Options{})
				bt := at
				var post func(r []verbs.RecvWR) (int, error)
				if shared {
					s, err := b.pd.CreateSRQ(128, 1)
					if err != nil {
						t.Fatal(err)
					}
					bt.SRQ = s
					post = s.PostRecv
				}
				link(t, a, b, at, bt)
				if !shared {
					post = b.qp.PostRecv
				}
				wr := []verbs.SendWR{{Op: c.op, Flags: verbs.SendSignaled, SGL: a.sge(0, c.size), RKey: b.mr.RKey(), RemoteAddr: testIOVA}}
				rv := []verbs.RecvWR{{SGL: b.sge(1<<20, c.size)}}
				wc := make([]verbs.WC, 16)
				var ev [4]verbs.CMEvent
				message := func() {
					if takes {
						post(rv)
					}
					a.qp.PostSend(wr)
				}
				turn := func() {
					sent, got := 0, 0
					want := 0
					if takes {
						want = batch
					}
					for i := 0; sent < batch || got < want; i++ {
						if i < batch {
							message()
						}
						a.dev.Progress()
						b.dev.Progress()
						for _, h := range [2]*host{a, b} {
							h.dev.PollCM(ev[:])
						}
						for k := range a.cq.Poll(wc) {
							if wc[k].Status != 0 {
								t.Fatalf("%+v", wc[k])
							}
							sent++
						}
						for k := range b.cq.Poll(wc) {
							if wc[k].Status != 0 {
								t.Fatalf("%+v", wc[k])
							}
							got++
						}
					}
				}
				turn() // stages and rings are made once
				if n := testing.AllocsPerRun(5, turn); n != 0 {
					t.Errorf("%s crc %v srq %v: %v allocations per %d messages", c.name, mode == verbs.CRCOn, shared, n, batch)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range 10 {
					turn()
				}
				runtime.ReadMemStats(&after)
				if n := after.Mallocs - before.Mallocs; n > batch/2 { // the runtime's own
					t.Errorf("%s crc %v srq %v: %d mallocs in %d messages", c.name, mode == verbs.CRCOn, shared, n, 10*batch)
				}
			}
		}
	}
}
