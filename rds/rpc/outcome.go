package rpc

import (
	"context"
	"errors"

	"github.com/rdsd/rdsd/rds"
)

// outcomes are the words of Outcome for errors that are compared.
var outcomes = []struct {
	err  error
	word string
}{
	{ErrNoSocket, "no_socket"},
	{ErrLost, "lost"},
	{ErrBusy, "busy"},
	{ErrShutdown, "shutdown"},
	{ErrNoMethod, "no_method"},
	{ErrTooLarge, "too_large"},
	{ErrNotGranted, "not_granted"},
	{ErrVersion, "version"},
	{ErrProtocol, "protocol"},
	{ErrMemory, "memory"},
	{context.DeadlineExceeded, "deadline"},
	{context.Canceled, "canceled"},
	{rds.ErrClosed, "closed"},
	{rds.ErrDaemonGone, "daemon_gone"},
	{rds.ErrSession, "session"},
	{rds.ErrInvalid, "invalid"},
}

// Outcome returns a word for err, the error of a call at its caller, or of a refusal: "ok" for
// nil, "failed" for an Error, "unreachable" for an rds.Reason, and a word such as "busy",
// "lost" or "deadline" for each of the errors that Caller.Call names. Any other is "other".
// There are few words, so they can be labels of metrics.
func Outcome(err error) string {
	if err == nil {
		return "ok"
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return "failed"
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.word
		}
	}
	if _, ok := errors.AsType[rds.Reason](err); ok {
		return "unreachable"
	}
	return "other"
}

// Outcome is the function Outcome for what next has returned to an Interceptor, on either
// side. At the server any error is "failed", as it is for the caller, or "deadline" or
// "canceled" if ctx, that of the request, has ended.
func (r *Request) Outcome(ctx context.Context, err error) string {
	switch {
	case !r.served || err == nil:
		return Outcome(err)
	case ctx.Err() != nil:
		return Outcome(ctx.Err())
	}
	return "failed"
}
