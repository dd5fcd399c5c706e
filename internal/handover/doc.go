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
//  4. adds a variant that leaves the field out (internal/mutant), and the check that finds it.
//
// e2e.TestUpgradeVersion builds the daemon of the commit before, and replaces each of the two by
// the other under load.
package handover

// Versions of the format. A change that a reader would notice makes a new version
// (docs/adr/0030 says what else such a change needs):
//
//	1  the first
//	2  what hosts have left of their limits (engine), recent events and errors, and which
//	   versions programs and peers speak (daemon)
//	3  a successor says of which session an error is, see Fault (succession); connections
//	   that ended with descriptors unread, a window that was not sent, users who are
//	   not admitted because of holes in memory (daemon)
const (
	Newest uint16 = 3
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
