package rpc

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"
)

// sentinel is an error that matches an errno.
type sentinel struct {
	text  string
	errno syscall.Errno
}

func (e *sentinel) Error() string { return e.text }
func (e *sentinel) Unwrap() error { return e.errno }

// Errors of a call. Each is found with errors.Is, as is the errno named. Whether the
// request ran is part of each: where it may have run, only the application can know
// whether to ask again.
var (
	// ErrNoSocket: no socket is bound at the destination, or the server that the Caller had
	// met there has ended, even if another is bound there by now: the request and the question
	// whether it is known go to the server met, or to none (docs/guarantees.md). A later call
	// goes to the new one. The request may have run, if there was a server: a call that began
	// after the end of the server did not run, and its error is the same. ECONNREFUSED.
	ErrNoSocket error = &sentinel{"no server at the destination", syscall.ECONNREFUSED}
	// ErrLost: the daemon of the server's host restarted, or a server that lives does not know
	// the request: it had no room for the answer, for example, or Server.Shutdown ran out of
	// time before the handler returned. So no answer will come. The request may have run.
	// ECONNRESET.
	ErrLost error = &sentinel{"request lost: its server, or the daemon there, ended or was restarted", syscall.ECONNRESET}
	// ErrBusy: as many requests wait at the server as it takes. The request did not run.
	// EAGAIN.
	ErrBusy error = &sentinel{"server busy", syscall.EAGAIN}
	// ErrShutdown: the server is shutting down. The request did not run. Serve returns
	// ErrShutdown after Server.Shutdown. ESHUTDOWN.
	ErrShutdown error = &sentinel{"server is shut down", syscall.ESHUTDOWN}
	// ErrNoMethod: the server has no such method. The request did not run. ENOSYS.
	ErrNoMethod error = &sentinel{"no such method", syscall.ENOSYS}
	// ErrTooLarge: the request is larger than the server takes, and did not run; or the
	// answer is larger than the caller takes, and the request ran. EMSGSIZE.
	ErrTooLarge error = &sentinel{"request or answer too large", syscall.EMSGSIZE}
	// ErrNotGranted: the server's host could not be given the caller's memory; see
	// rds.NotGranted. The request may have run. ENOBUFS.
	ErrNotGranted error = &sentinel{"memory not granted to the server", syscall.ENOBUFS}
	// ErrVersion: the server does not speak this version of the protocol. The request did
	// not run. EPROTONOSUPPORT.
	ErrVersion error = &sentinel{"server of another version", syscall.EPROTONOSUPPORT}
	// ErrProtocol: the other side sent what no version of this package sends. The request
	// may have run. EPROTO.
	ErrProtocol error = &sentinel{"protocol error", syscall.EPROTO}
	// ErrMemory: a Memory is in use by another call, or a call that ended with an error
	// may still write to it: see Memory. The request was not sent. EBUSY.
	ErrMemory error = &sentinel{"memory in use", syscall.EBUSY}
)

// Error is the error of a handler as its caller sees it. It matches Errno, if that is
// not 0.
type Error struct {
	Text  string        // what the handler's error said, at most 1 KiB
	Errno syscall.Errno // the errno that the handler's error matched, or 0
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns Errno, or nil if there is none.
func (e *Error) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

// CallError is the error that calls return: which method of which server, and why.
type CallError struct {
	Method string
	To     netip.AddrPort
	Err    error
}

func (e *CallError) Error() string {
	return "rpc " + e.Method + " at " + e.To.String() + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Err }

// Timeout reports whether a deadline ended the call.
func (e *CallError) Timeout() bool {
	return errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, os.ErrDeadlineExceeded)
}

// err returns the error that a is at the caller, or nil.
func (a *answer) err() error {
	switch a.status {
	case statusOK:
		return nil
	case statusFailed:
		return &Error{Text: strings.ToValidUTF8(string(a.part), "\uFFFD"), Errno: a.errno}
	case statusBusy:
		if a.errno == shutDown.errno {
			return ErrShutdown
		}
	}
	err := map[status]error{statusBusy: ErrBusy, statusNoMethod: ErrNoMethod, statusTooLarge: ErrTooLarge,
		statusMalformed: ErrProtocol, statusVersion: ErrVersion}[a.status]
	if len(a.part) == 0 {
		return err
	}
	return &detailed{err, strings.ToValidUTF8(string(a.part), "\uFFFD")}
}

// shutDown refuses a request because the server is shutting down. Callers that do not know
// ErrShutdown take it for ErrBusy.
var shutDown = answer{status: statusBusy, errno: syscall.ESHUTDOWN, total: uint64(len(shutDownText)), part: []byte(shutDownText)}

const shutDownText = "it is shutting down"

// refusal is the answer to a request that did not run.
func refusal(st status, text string) answer {
	text = clip(text)
	return answer{status: st, total: uint64(len(text)), part: []byte(text)}
}

// detailed is err with what the server says about it.
type detailed struct {
	err  error
	text string
}

func (e *detailed) Error() string { return e.err.Error() + ": " + e.text }
func (e *detailed) Unwrap() error { return e.err }

// clip shortens a text to maxText bytes.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	n := maxText
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
