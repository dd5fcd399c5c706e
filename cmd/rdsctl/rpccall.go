package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
)

func callEntry() verb {
	return verb{name: "call", args: "ADDR:PORT", summary: "call a method of a server made with rds/rpc, and print the answer", group: groupMeasure,
		prepare: callVerb, many: true, words: peerWords,
		about: "rdsctl call ADDR:PORT METHOD [PAYLOAD] sends PAYLOAD as it is, or nothing. If PAYLOAD is -, it is read from standard input. The answer goes to standard output as it is. " +
			"Every server has the methods " + rpc.MethodHealth + " and " + rpc.MethodList + ".",
		tries: []string{"call 10.0.0.2:4000 -list", "call 10.0.0.2:4000 " + rpc.MethodHealth, "call 10.0.0.2:4000 greet world", "call 10.0.0.2:4000 put - <file", "call 10.0.0.2:4000 greet world -H user=anna -timeout 1m"}}
}

// callVerb takes "ADDR:PORT METHOD PAYLOAD" for its argument.
func callVerb(fs *flag.FlagSet) action {
	list := fs.Bool("list", false, "print the names of the server's methods")
	var header rpc.Header
	fs.Func("H", "a header of the request, as `name=value`; may be repeated", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want name=value")
		}
		if header == nil {
			header = rpc.Header{}
		}
		header[name] = value
		return nil
	})
	return func(ctx context.Context, a *app, o *options, arg string) int {
		addr, rest, _ := strings.Cut(arg, " ")
		method, payload, has := strings.Cut(rest, " ")
		to, err := a.addrPort(ctx, o, addr, 0)
		switch {
		case err != nil:
			return a.wrong("call", "%v", err)
		case to.Port() == 0:
			return a.wrong("call", "%s has no port; want ADDR:PORT", addr)
		case *list && method != "":
			return a.wrong("call", "-list takes no method")
		case *list:
			method = rpc.MethodList
		case method == "":
			return a.wrong("call", "METHOD is missing; rdsctl call %s -list names the methods", addr)
		}
		body := []byte(payload)
		if has && payload == "-" {
			if body, err = io.ReadAll(a.stdin); err != nil {
				return a.fail(o, "", fmt.Errorf("read the payload: %w", err))
			}
		}
		answer, err := callOnce(ctx, o, &rpc.Request{Method: method, To: to, Body: body, Header: header})
		if err != nil {
			return a.failCall(o, err)
		}
		if a.screen != nil && len(answer) > 0 && answer[len(answer)-1] != '\n' {
			answer = append(answer, '\n')
		}
		if _, err := a.stdout.Write(answer); err != nil {
			return a.fail(o, "", err)
		}
		return exitOK
	}
}

// callOnce calls from a socket of its own.
func callOnce(ctx context.Context, o *options, r *rpc.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	c, err := rds.Open(ctx, rds.Options{Socket: o.socket})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	from := netip.IPv4Unspecified()
	if r.To.Addr().Is6() {
		from = netip.IPv6Unspecified()
	}
	s, err := c.Bind(netip.AddrPortFrom(from, 0))
	if err != nil {
		return nil, err
	}
	calls := rpc.NewCaller(s, rpc.CallerOptions{})
	defer calls.Close()
	return calls.Do(ctx, r)
}

// failCall reports why a call failed. What the handler says has no exit status of its own.
func (a *app) failCall(o *options, err error) int {
	_, answered := errors.AsType[*rpc.Error](err)
	call, called := errors.AsType[*rpc.CallError](err)
	switch {
	case answered:
		fmt.Fprintf(a.stderr, "rdsctl: %s\n", printable(err.Error()))
		return exitFailed
	case errors.Is(err, rpc.ErrNoMethod):
		err = &ctl.Error{Code: ctl.CodeFailed, Message: fmt.Sprintf("%v; rdsctl call %v -list names the methods", err, call.To)}
	case errors.Is(err, rpc.ErrVersion):
		err = &ctl.Error{Code: ctl.CodeFailed, Message: fmt.Sprintf("%v; it is older than headers, leave out -H", err)}
	case called && errors.Is(err, rpc.ErrNoSocket):
		err = fmt.Errorf("%w; rdsctl sockets on the host of %v lists the ports that are bound", err, call.To.Addr())
	}
	return a.fail(o, "", err)
}
