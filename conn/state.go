package conn

import "fmt"

// State of a connection.
type State uint8

const (
	Down       State = iota // no queue pair
	Connecting              // a queue pair is being connected; nothing is posted on it
	Up                      // established; see Conn.Ready for the handshake
	Error                   // broken off; the queue pair empties

	numStates
)

func (s State) String() string {
	switch s {
	case Down:
		return "DOWN"
	case Connecting:
		return "CONNECTING"
	case Up:
		return "UP"
	case Error:
		return "ERROR"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// legal has, for each state, the states that may follow it.
var legal = [numStates][numStates]bool{
	Down:       {Connecting: true},
	Connecting: {Up: true, Down: true},
	Up:         {Error: true},
	Error:      {Down: true},
}

// LeadsTo reports whether a connection in state s may be in state to next.
func (s State) LeadsTo(to State) bool { return legal[s][to] }

// setState is the only place where the state changes. An illegal edge is a bug
// in this package; no input leads to one.
func (c *Conn) setState(to State) {
	if !c.state.LeadsTo(to) {
		panic(fmt.Sprintf("conn: illegal transition %v to %v", c.state, to))
	}
	c.state, c.since = to, c.now
}
