package ipc

// MaxToken is the longest token of TakeOver.
const MaxToken = 1024

// TakeOver asks the daemon to hand over to the process that sends it. Answer: TakeOverOK, after
// which the daemon ends the session. Errors: EACCES (wrong user and token), EXDEV (another network
// namespace), EBUSY (a hand-over is in progress), ENOTSUP. Only with FeatureTakeOver.
type TakeOver struct {
	NetNS uint64 // the inode number of the process's network namespace, 0 if it is not known
	Token []byte // for a user that is neither root nor the daemon's own; at most MaxToken bytes
}

// TakeOverOK has two descriptors: the connection of package succession, and the daemon's pidfd,
// because its process id means nothing in another pid namespace.
type TakeOverOK struct{ Path string } // of the control socket

func (*TakeOver) request() Type { return TypeTakeOverOK }
func (*TakeOverOK) response()   {}

// Type implements Body.
func (*TakeOver) Type() Type { return TypeTakeOver }

// Type implements Body.
func (*TakeOverOK) Type() Type { return TypeTakeOverOK }
