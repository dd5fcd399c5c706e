package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// Scenarios of other hosts.
var goesPeer = []scenario{
	{"a host is away", 2, Config{}, awayGoesOn},
	{"a host restarts in the pause", 2, Config{}, restartGoesOn},
	{"a host that has restarted", 2, Config{}, restartedGoesOn},
	{"a lane was forgotten", 2, Config{}, forgottenGoesOn},
	{"grants that wait", 2, Config{}, grantsGoOn},
	{"grants that find no room", 2, Config{MaxGrants: 1}, cookiesGoOn},
	{"who asks for a host", 2, Config{MaxPeers: 16}, userGoesOn},
	{"who asks is not answered", 2, Config{}, asksGoesOn},
	{"a key taken back from a host that is away", 2, Config{}, takenGoesOn},
}

// awayGoesOn: a host is not reached, which its destinations know. A new destination is told, too.
func awayGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	a.open(a.sock, 1, 1, nobody(1), 9)
	x.send(a, 0, 10, shm.Sub{})
	x.send(a, 1, 10, shm.Sub{})
	x.settle()
	x.cut()
	x.send(a, 0, 20, shm.Sub{})
	for range 3 {
		x.settle()
	}
	x.pause()
	a.open(a.sock, 2, 1, nobody(1), 10)
	x.open(a, 3, 0, far)
	for range 3 {
		x.settle()
	}
	x.mend()
	x.settle()
	x.send(a, 0, 30, shm.Sub{})
	x.settle()
}

// restartGoesOn: the daemon of a host is replaced by another one, which knows nothing, while this
// engine stands still. What the former one had and did not acknowledge is lost.
func restartGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	r := far.expose(0, 64, abi.RightWrite, a)
	ours := a.expose(0, 64, abi.RightRead, far)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	x.send(a, 0, 15, shm.Sub{})
	x.es[0].Turn(x.net.Now(), Wall(x.net.Now()))
	x.cut()
	x.send(a, 0, 20, shm.Sub{})
	x.send(a, 0, 25, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	x.settle()
	x.pause()
	x.restartFar()
	next := x.side(1, 40)
	x.mend()
	x.settle()
	x.send(a, 0, 30, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	x.open(next, 0, 0, a)
	x.send(next, 0, 10, shm.Sub{}, next.op(abi.OpRead, ours.Cookie, 0))
	x.settle()
}

// restartFar has another engine take host 1's place, which knows nothing. Its processes have ended.
func (x *played) restartFar() {
	_ = x.net.Device(hostAddr(1)).Close()
	for i := range x.sides {
		if x.hostOf[i] == 1 {
			x.sides[i].at.Kill()
			x.sides[i] = x.here()[0]
			x.said[i].Reset()
		}
	}
	x.es[1] = x.boot(1, 77, x.cfg)
}

// restartedGoesOn: a host has restarted before the pause. A destination has met its daemon's next
// life and a socket there.
func restartedGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	x.restartFar()
	x.cut()
	x.mend()
	next := x.side(1, 40)
	x.settle()
	x.send(a, 0, 20, shm.Sub{})
	x.settle()
	x.pause()
	next.must(&ipc.CloseSock{Sock: next.sock})
	next.bind(40)
	x.settle()
	x.send(a, 0, 30, shm.Sub{})
	x.settle()
	x.send(a, 0, 40, shm.Sub{})
	x.settle()
}

// forgottenGoesOn: a lane to a host was forgotten, with its sequences kept. It is used again.
func forgottenGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	lane := a.bind(11)
	x.open(a, 0, 0, far)
	a.openLane(lane, 1, hostAddr(1), 40, 3)
	x.send(a, 0, 10, shm.Sub{})
	a.sendMsg(lane, 1, 200, 10)
	x.settle()
	a.must(&ipc.CloseSock{Sock: lane})
	x.settle()
	ResetPeers(x.es[0], hostAddr(1), new(uint8(3)), nil)
	x.wait(90_000 * ms)
	x.settle()
	if p := x.es[0].peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}].lane(3); p != nil {
		x.t.Fatal("the lane was not forgotten")
	}
	x.pause()
	again := a.bind(12)
	a.openLane(again, 1, hostAddr(1), 40, 3)
	a.sendMsg(again, 1, 201, 20)
	x.settle()
}

// grantsGoOn: GRANTs, and the word that one was refused, wait for a host that is away. A region
// of one of them is released.
func grantsGoOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.open(far, 0, 0, a)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	x.cut()
	one := a.expose(0, 64, abi.RightRead, far)
	two := a.expose(64, 64, abi.RightRead, far)
	three := a.expose(128, 64, abi.RightRead|abi.UseOnce, far)
	theirs := far.expose(0, 64, abi.RightWrite, a)
	x.settle()
	x.pause()
	x.later(a, &ipc.Release{Region: one.Region})
	x.settle()
	x.mend()
	x.settle()
	for _, c := range []uint64{one.Cookie, two.Cookie, three.Cookie} {
		x.send(far, 0, 1, shm.Sub{}, far.op(abi.OpRead, c, 0))
	}
	x.send(a, 0, 2, shm.Sub{}, a.op(abi.OpWrite, theirs.Cookie, 0))
	x.settle()
	for _, r := range []uint32{two.Region, three.Region} {
		x.later(a, &ipc.Release{Region: r})
	}
	x.later(far, &ipc.Release{Region: theirs.Region})
}

// cookiesGoOn: cookies and GRANTs wait for a host that is away, which has room for one. Sockets are
// told of the others.
func cookiesGoOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	x.cut()
	for range 3 {
		x.send(a, 0, 20, shm.Sub{Cookie: a.register(abi.RightRead).Cookie})
		x.run()
	}
	x.ask(a, &ipc.Expose{Region: a.register(abi.RightRead).Region, Addr: hostAddr(1), Port: 40})
	x.settle()
	x.pause()
	x.settle()
	x.mend()
	x.pass(200*ms, x.es...)
	x.settle()
}

// userGoesOn: a user has asked for hosts that do not answer, of which it may have some.
func userGoesOn(x *played) {
	a, far := x.sideAs(0, 10, 1000), x.side(1, 40)
	x.cut()
	for slot := range uint32(6) {
		a.open(a.sock, slot, slot, nobody(int(slot)+1), 9)
		x.send(a, slot, 10, shm.Sub{GiveUp: 3000})
		x.run()
	}
	x.pause()
	for slot := range uint32(6) {
		a.open(a.sock, 8+slot, 8+slot, nobody(int(slot)+11), 9)
		x.run()
	}
	x.show(false)
	x.mend()
	x.open(a, 20, 20, far)
	x.send(a, 20, 10, shm.Sub{})
	x.settle()
}

// asksGoesOn: the first message to a destination asks which socket takes it, and others wait for
// the answer. The connection breaks before that.
func asksGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.settle()
	x.cut()
	for range 3 {
		x.send(a, 0, 10, shm.Sub{})
	}
	x.settle()
	x.pause()
	x.send(a, 0, 20, shm.Sub{})
	x.settle()
	x.mend()
	x.settle()
	far.must(&ipc.CloseSock{Sock: far.sock})
	far.bind(40)
	x.send(a, 0, 30, shm.Sub{})
	x.settle()
}

// takenGoesOn: a key was taken back by force from a host that was away, so it may not know. Its
// next operation with the key breaks no connection.
func takenGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(far, 0, 0, a)
	x.open(a, 0, 0, far)
	r := a.expose(0, 64, abi.RightRead, far)
	x.send(far, 0, 10, shm.Sub{})
	x.settle()
	x.cut()
	x.later(a, &ipc.Release{Region: r.Region})
	for range 60 {
		x.pass(100*ms, x.es[0])
	}
	x.read(a, 100)
	x.pause()
	x.settle()
	x.mend()
	x.settle()
	downs := x.es[0].peers.all[0].downs
	x.send(far, 0, 10, shm.Sub{}, far.op(abi.OpRead, r.Cookie, 0))
	x.settle()
	x.say(a, "%d breaks", x.es[0].peers.all[0].downs-downs)
}
