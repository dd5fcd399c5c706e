// Package daemon is rdsd around its engine: who may connect to it and what they get,
// the devices it opens, the thread that turns the engine, and the answers to rdsctl.
//
// open.go opens everything, run.go serves and shuts down, watch.go and supervised.go look
// after the running daemon. session.go and the files beside it serve a process,
// rdsctl*.go answer rdsctl.
package daemon

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/capture"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/logqueue"
	"github.com/rdsd/rdsd/internal/metrics"
	"github.com/rdsd/rdsd/internal/rdstcp"
	"github.com/rdsd/rdsd/internal/service"
	"github.com/rdsd/rdsd/internal/stats"
)

// Daemon is one running rdsd: its parts, each with a file and methods of its own.
type Daemon struct {
	settings // in force now
	reload   reloading
	tlsFiles tlsFiles
	started  time.Time
	info     stats.Info
	warnings []string                 // for the status; complete before Run
	sandbox  string                   // what Confine gave up; set before Run
	credOf   func(*ipc.Conn) ipc.Cred // whose a connection is
	labels   labels                   // of processes' cgroups

	engine    *engine.Engine
	loop      *loop // the engine's thread
	transport *transport
	tcp       *rdstcp.Net // nil: no RDS/TCP
	populator *populator
	traces    feedPlaces
	captures  feedPlaces
	hub       capture.Hub // the engine's

	listeners  *listeners
	admission  admission
	unreceived unreceived
	upgrades   *upgrades
	searching  sync.Mutex // during a search for holes. Tests hold it, so that only theirs runs
	handing    *handing   // to a successor
	mostHanded int        // records of processes that may go over, see engine.Excess. Set before Run
	inherited  *inherited // nil: this daemon has taken over from nobody

	statFile, listFile *stats.File
	statistics         *stats.Reader // of statFile
	lists              *stats.Lists  // in listFile, the engine's

	log        *slog.Logger
	lines      *logqueue.Queue // of log; nil: it has no queue
	counted    atomic.Uint64   // lines that lines has dropped and that are counted
	summed     *summedLog      // for what peers and clients can cause in a loop
	peerEvents *peerEvents
	notify     *service.Notifier // to the supervisor
	metrics    *metrics.Server   // nil: off

	drainNotice atomic.Pointer[string] // the warning about what is drained; empty: nothing is
}
