// Package handover is the format in which a daemon passes its state to the daemon that
// takes over from it (docs/adr/0030). The format is a list of sections in a fixed order.
// Each package has its own sections; a section may contain others. One function says what a
// type hands over, and goes in both directions: see [State].
//
// The first bytes are a magic and the version of the whole format. The two daemons agree
// on a version before anything is written: the highest that both know, between [Oldest]
// and [Newest]. [State.Version] is asked what there is. So a field that a version has added
// needs one condition, and an older daemon is never sent what it does not know.
//
// Numbers are little-endian and of fixed size. A section is its tag (2 bytes), 2 bytes
// that are 0, the length of its body (4 bytes) and the body. A list is its length (4
// bytes) and its elements. Byte strings are a list of bytes.
//
// # What goes over
//
//   - Of the engine: the clock, the tick counter, the instance, counters of keys and instances.
//     Local addresses are the configuration's; ports and congestion bits follow from sockets.
//   - Of connections: the peer's instance, sequences and last ack; messages with a sequence and
//     messages that wait, as ids; the connection's own messages (notices, grants and their ends) with
//     their bodies; ports that refused, and what they hold back; flags of posted operations;
//     time to settle them and back-off; the peer's congestion map; round-trip time,
//     statistics, the last error as text; the part of a run that was sent to a kernel; of
//     RDS/TCP the sequences of lanes and ports. Queue pair, credits, control buffer, assembly
//     and handshake do not: the connection is down.
//   - Of hosts: instances, sequences of forgotten lanes; grants that the host gave; revocations
//     owed; its grants of our regions, by region and lane; limits of what it may send.
//     Shares and counts of grants follow.
//   - Of users and processes: user, limits, parameters, name, process id; private indices of the
//     rings; submitted messages, their operations, delivered messages; overflow with its
//     payload; events that wait; sockets, destinations, marks, buffers, regions; users that holes
//     keep out. The segment, the slot table, arenas and windows are shared. Counts, the receive
//     arena's allocator and whose turn it is are made anew. Buffers are registered again:
//     verbs/soft gives the same keys, an adapter does not.
//   - Of the daemon: counters and times, by name; the number of the last event, events and
//     errors; requests in progress that are late or broken off (docs/adr/0032). Gauges are
//     counted anew; sums of the log, the page's ten minutes, counters of devices and handshakes, and
//     what RDMA of others has done to memory here, and ages of congestion at senders, begin
//     anew; traces and captures end, with a reason.
//
// # Changing what is written
//
// Whoever does so, in one commit,
//
//  1. raises Newest by one, adds a line to the versions below and a row in docs/operations.md, and
//     puts the new field behind a condition on [State.Version];
//  2. checks the field's bounds where it is read, and says what becomes of a state without it;
//  3. writes the golden bytes of the new version (go test ./internal/engine -run Golden
//     -handover.write). Those of older versions stay: tests write and read each version, and
//     the fuzz targets begin with each;
//  4. adds a variant that leaves the field out (test/mutant), and the check that finds it.
//
// Two commits that change the encoding between two releases need one version, if no release has
// the first. When Oldest rises, the conditions and the golden bytes of the versions below go.
//
// e2e.TestUpgradeVersion builds the daemon of the commit before, and replaces each of the two by
// the other under load.
package handover

// Versions of the format. A change that a reader would notice makes a new version
// (the package's comment says what else such a change needs):
//
//	1  the first
//	2  what hosts have left of their limits (engine), recent events and errors, and which
//	   versions programs and peers speak (daemon)
//	3  a successor says of which session an error is, see Fault (succession); connections
//	   that ended with descriptors unread, a window that was not sent, users who are
//	   not admitted because of holes in memory (daemon)
//	4  which regions are open, questions for keys (engine)
//	5  which messages are to have a status, and that one found no socket (engine, rdmaop)
//	6  labels of accounts (engine, daemon), traceparents of messages (engine)
//	7  paths of connections and of destinations (engine), connections of events (daemon)
const (
	Newest uint16 = 7
	Oldest uint16 = 1
)

// Tag says what a section holds.
type Tag uint16

// The sections. A number is never used again.
const (
	_ Tag = iota
	TagEngine
	TagAddresses
	TagUsers
	TagRemotes
	TagConn
	TagMessages
	TagClients
	TagBuffers
	TagRegions
	TagSockets
	TagSlots
	TagOperations
	TagStats
	TagArrived
	TagDaemon // the first of internal/daemon's; it numbers its own behind it

	TagClient Tag = 0x80 // behind those

	// TagTests and above are free for tests.
	TagTests Tag = 0xff00
)

// Range is memory that both daemons map: a part of a memory file. The file is named by its
// index in the list of descriptors that go with the state.
type Range struct {
	File     uint32
	Off, Len uint64
}

// NoFile is the File of a Range that names no memory.
const NoFile = ^uint32(0)

const (
	magic       = "rdsdhand"
	headLen     = len(magic) + 4
	sectionHead = 8
)
