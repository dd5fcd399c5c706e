package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// goesAmid are scenarios in which messages and operations of all kinds are on their way between
// two hosts when the engine begins to pause: after so many events.
func goesAmid() (all []scenario) {
	for _, who := range []string{"sends", "receives"} {
		for n := 0; n <= 72; n += 3 {
			all = append(all, scenario{fmt.Sprintf("host 0 %s, after %d events", who, n), 2, Config{HardCap: 1}, func(x *played) {
				amidGoesOn(x, who == "sends", n)
			}})
		}
	}
	return all
}

// amidGoesOn pauses the engine of the sender or of the receiver of what is listed here. When a
// message is delivered depends on when a connection comes up again, so only what is so in
// the end is compared.
func amidGoesOn(x *played, sends bool, events int) {
	from, to := 0, 1
	if !sends {
		from, to = 1, 0
	}
	a, b := x.side(from, 10), x.side(to, 40)
	full := x.side(to, 50)
	x.open(a, 0, 0, b)
	x.open(a, 1, 1, full)
	a.open(a.sock, 2, 2, hostAddr(to), 77) // nobody
	x.open(b, 0, 0, a)
	r := b.expose(0, 64, abi.RightWrite|abi.RightRead, a)
	words := b.expose(64, 64, abi.RightAtomic, a)
	full.must(&ipc.SetRcvBuf{Sock: full.sock, Bytes: 500})
	x.settle()
	x.send(a, 1, 800, shm.Sub{})
	x.settle(full)
	copy(a.mem, "written!")
	x.send(a, 1, 300, shm.Sub{})
	x.send(a, 2, 10, shm.Sub{})
	x.send(a, 0, 20, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	x.send(a, 0, 25, shm.Sub{}, a.args(a.op(abi.OpFetchAdd, words.Cookie, 0), shm.AtomicEntry{CompareAdd: 3}))
	x.send(b, 0, 30, shm.Sub{})
	x.send(a, 0, 35, shm.Sub{}, a.args(a.op(abi.OpFetchAdd, words.Cookie, 64), shm.AtomicEntry{CompareAdd: 3})) // beyond it
	x.send(a, 1, 400, shm.Sub{})
	a.submitRun(20, 30)
	x.send(a, 2, 15, shm.Sub{})
	x.send(a, 0, 40, shm.Sub{Cookie: a.register(abi.RightRead).Cookie})
	for range events {
		x.turnAll()
		x.net.Step()
	}
	x.pause()
	for range 4 {
		x.pass(50*ms, x.es...)
		x.settle()
		x.give(full)
		x.give(b)
	}
	x.say(b, "%q, a word %d", b.mem[:8], binary.NativeEndian.Uint64(b.mem[64:]))
}
