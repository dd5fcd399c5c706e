// Package failpoint names the places where the daemon acquires a resource, so
// that tests can make each of them fail. Without the build tag failpoints, Hit
// is nil and costs nothing.
//
// With the tag, the environment variable RDSD_FAIL = "name:count[,name:count]"
// makes the count-th Hit of a name fail, once, with an error that is ENOMEM. With a "!"
// behind the count the process is killed there instead, and with a "~" it is stopped (SIGSTOP)
// and goes on without an error when it is continued.
//
// RDSD_FAIL = "@path" means what the file at path says when the process hits a fail point
// for the first time. All successors of a daemon inherit its environment, so a test that
// writes the file before each planned restart decides what fails in each successor.
//
// The environment variable RDSD_HURRY = "n" makes Limit return the n-th part of its argument.
package failpoint

// The names.
const (
	// When the daemon starts.

	ControlSocket    = "control socket"
	StatsFile        = "stats file"
	Device           = "device"
	ProtectionDomain = "protection domain"
	CompletionQueue  = "completion queue"
	ReceiveQueue     = "receive queue"
	SendPool         = "send pool"
	ReceivePool      = "receive pool"
	Listen           = "listen"
	Epoll            = "epoll"
	Eventfd          = "eventfd"

	// When a client attaches or is taken over. Segment, Table and the windows are also the names
	// of their memory files.

	Segment        = "rdsd-segment"
	Table          = "rdsd-table"
	SendWindow     = "rdsd-send"
	RecvWindow     = "rdsd-recv"
	DaemonDoorbell = "daemon doorbell"
	ClientDoorbell = "client doorbell"
	RegisterWindow = "register window"
	Watch          = "watch" // also twice when the daemon starts

	// When it works, all but Import and QueuePair also when it takes over.

	Buffer         = "rdsd-buffer"
	Import         = "import"
	RegisterBuffer = "register buffer"
	RegisterRegion = "register region"
	QueuePair      = "queue pair"

	// When it hands over: in the old daemon, and in the new one.

	Successor = "successor" // is started
	Passing   = "passing"   // of the listening sockets
	Park      = "park"      // the engine stands still
	Go        = "go"        // the new daemon has adopted everything
	Taking    = "taking"    // of the listening sockets
	Adopt     = "adopt"     // the state has come
	Process   = "process"   // what one process has: a fault of that process alone
	Adopted   = "adopted"   // everything is checked
)

// Names lists all names.
func Names() []string {
	return []string{ControlSocket, StatsFile, Device, ProtectionDomain, CompletionQueue, ReceiveQueue, SendPool, ReceivePool,
		Listen, Epoll, Eventfd, Segment, Table, SendWindow, RecvWindow, DaemonDoorbell, ClientDoorbell, RegisterWindow, Watch,
		Buffer, Import, RegisterBuffer, RegisterRegion, QueuePair,
		Successor, Passing, Park, Go, Taking, Adopt, Process, Adopted}
}

// InHandover lists those of a hand-over.
func InHandover() []string {
	return []string{Successor, Passing, Park, Go, Taking, Adopt, Process, Adopted}
}
