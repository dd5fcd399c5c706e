package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/loadgen"
	"github.com/rdsd/rdsd/rds/rpc"
)

// Exit statuses. Those of check are different, see checkState.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitNoDaemon   = 3
	exitNotFound   = 4
	exitPermission = 5
	exitTimeout    = 6
	exitVersion    = 7
)

// exitText is what the manual says about the exit statuses.
var exitText = []struct {
	code int
	text string
}{
	{exitOK, "done"},
	{exitFailed, "failed"},
	{exitUsage, "wrong usage: a verb, flag, name or filter that there is not"},
	{exitNoDaemon, "no daemon is running (also: with --offline, what was found is of a daemon that is gone)"},
	{exitNotFound, "no such peer, socket or file"},
	{exitPermission, "not permitted"},
	{exitTimeout, "no answer, or not done, in time"},
	{exitVersion, "the daemon is of another version"},
}

// exitOf is the exit status for an error, and the error's code for programs.
func exitOf(err error) (int, ctl.Code) {
	answer, answered := errors.AsType[*ctl.Error](err)
	_, version := errors.AsType[*ipc.VersionError](err)
	switch {
	case errors.Is(err, ipc.ErrNoDaemon):
		return exitNoDaemon, ctl.CodeNoDaemon
	case version, errors.Is(err, ctl.ErrSchema), errors.Is(err, syscall.EPROTONOSUPPORT):
		return exitVersion, ctl.CodeVersion
	case answered && (answer.Code == ctl.CodeVersion || answer.Code == ctl.CodeUnknownKind || answer.Code == ctl.CodeUnsupported):
		return exitVersion, answer.Code
	case errors.Is(err, ctl.ErrPermission), errors.Is(err, fs.ErrPermission):
		return exitPermission, ctl.CodePermission
	case errors.Is(err, ctl.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, loadgen.ErrNoServer), errors.Is(err, rpc.ErrNoSocket):
		return exitNotFound, ctl.CodeNotFound
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, loadgen.ErrTimeout):
		return exitTimeout, ctl.CodeTimeout
	case answered:
		return exitFailed, answer.Code
	}
	return exitFailed, ctl.CodeFailed
}

// wrong reports a mistake on the command line of a verb.
func (a *app) wrong(verb, format string, args ...any) int {
	fmt.Fprintf(a.stderr, "rdsctl: "+verb+": "+format+"\n", args...)
	return exitUsage
}

// cure is what to do about err. It is "" if err's text says that.
func cure(err error) string {
	answer, answered := errors.AsType[*ctl.Error](err)
	_, dialed := errors.AsType[*net.OpError](err) // the control socket, not a file
	switch {
	case errors.Is(err, ctl.ErrSchema):
		return "; use the rdsctl that came with the daemon, or restart the daemon if it was upgraded"
	case answered && answer.Code == ctl.CodeUnknownKind:
		return "; the daemon is older than this rdsctl: restart it if it was upgraded"
	case answered && answer.Code == ctl.CodeBadRequest && strings.Contains(answer.Message, "unknown field"):
		return "; the daemon is older than this rdsctl, does not know this flag and has done nothing: restart it if it was upgraded"
	case answered && answer.Code == ctl.CodeNotFound:
		return "; rdsctl peers lists those there are"
	case dialed && errors.Is(err, fs.ErrPermission):
		return "; the owner and mode of the daemon's socket say who may connect (its key socket_mode): be in its group, or root"
	}
	return ""
}
