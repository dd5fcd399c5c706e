package ctl

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Code says what kind of error a response carries, for programs.
type Code string

const (
	CodeBadRequest  Code = "bad_request"  // not JSON, or an argument is missing or wrong
	CodeVersion     Code = "version"      // another schema than this daemon's
	CodeUnknownKind Code = "unknown_kind" // this daemon does not know the request
	CodePermission  Code = "permission"   // only for root and the daemon's own user
	CodeNotFound    Code = "not_found"    // no such peer
	CodeTimeout     Code = "timeout"      // no answer in time
	CodeUnsupported Code = "unsupported"  // not in this version of the daemon
	CodeBusy        Code = "busy"         // what the request asks for is in progress already
	CodeNoDaemon    Code = "no_daemon"    // set by rdsctl: no daemon answers
	CodeFailed      Code = "failed"       // everything else
)

// Error is the error of a response.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Is lets errors.Is compare a received Error with the sentinels below.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Code == CodeNotFound
	case ErrPermission:
		return e.Code == CodePermission
	case ErrUnsupported:
		return e.Code == CodeUnsupported
	case syscall.EBUSY:
		return e.Code == CodeBusy
	case context.DeadlineExceeded:
		return e.Code == CodeTimeout
	}
	return false
}

// Sentinels for a Backend's errors. A Backend wraps them with what is missing.
var (
	ErrNotFound    = errors.New("not found")
	ErrPermission  = errors.New("permission denied")
	ErrUnsupported = errors.New("not supported by this version")
	// ErrSchema says that the answer has another version.
	ErrSchema = errors.New("different versions")
)

func toError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	code := CodeFailed
	switch {
	case errors.Is(err, ErrNotFound):
		code = CodeNotFound
	case errors.Is(err, ErrPermission):
		code = CodePermission
	case errors.Is(err, ErrUnsupported), errors.Is(err, errors.ErrUnsupported):
		code = CodeUnsupported
	case errors.Is(err, syscall.EBUSY):
		code = CodeBusy
	case errors.Is(err, context.DeadlineExceeded):
		code = CodeTimeout
	}
	return &Error{Code: code, Message: err.Error()}
}

// errorf is used at many places, so it is not inlined.
//
//go:noinline
func errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
