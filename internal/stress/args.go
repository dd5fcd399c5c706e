package stress

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/stress/proto"
)

// Command is a whole command line: the test's parameters, and the settings of the program.
type Command struct {
	Params
	Help       bool
	ShowParams bool
	Reset      bool   // reset the connection to the peer and run no test
	Form       string // of the output, as rdsctl names it; "": not given
	Socket     string // of the daemon, "" for the usual paths
	recv, send string // as given
	getMRSet   bool
}

// option is one flag of the command line.
type option struct {
	short byte // 0 for none
	long  string
	value string // the value's name, "" if it takes none
	help  string
	set   func(c *Command, v string) error
}

func number(max uint64, set func(c *Command, n uint64)) func(*Command, string) error {
	return func(c *Command, v string) error {
		n, err := parseNumber(v, max)
		if err == nil {
			set(c, n)
		}
		return err
	}
}

func mark(set func(c *Command)) func(*Command, string) error {
	return func(c *Command, _ string) error {
		set(c)
		return nil
	}
}

func options() []option {
	return []option{
		{'s', "send-addr", "addr", "be the active side: test with the peer that waits at this address (without -s: wait for a peer)", func(c *Command, v string) error { c.send = v; return nil }},
		{'r', "recv-addr", "addr", "local address, one of this host's daemon (default: that of the control connection)", func(c *Command, v string) error { c.recv = v; return nil }},
		{'p', "port", "port, 4000", "TCP port of the control connection; the tasks use the RDS ports above it", number(math.MaxUint16, func(c *Command, n uint64) { c.Options.Port = uint16(n) })},
		{'t', "tasks", "n, 1", "tasks on each side; each exchanges messages with every task of the peer", number(math.MaxUint16, func(c *Command, n uint64) { c.Options.Tasks = uint16(n) })},
		{'d', "depth", "n, 1", "requests outstanding for each pair of tasks", number(math.MaxUint32, func(c *Command, n uint64) { c.Options.Depth = uint32(n) })},
		{'q', "req-bytes", "bytes, 1024", "size of a request", number(math.MaxUint32, func(c *Command, n uint64) { c.Options.ReqSize = uint32(n) })},
		{'a', "ack-bytes", "bytes, 63", "size of an ack", number(math.MaxUint32, func(c *Command, n uint64) { c.Options.AckSize = uint32(n) })},
		{'T', "time", "seconds, 0", "duration, 0: until interrupted", number(math.MaxUint32, func(c *Command, n uint64) { c.Options.Seconds = uint32(n) })},
		{'o', "simplex", "", "requests from the active side only (-o json and -o table are the form of the output)", mark(func(c *Command) { c.Options.Simplex = true })},
		{'Q', "tos", "n, 0", "type of service: the lane", number(math.MaxUint8, func(c *Command, n uint64) { c.Options.TOS = uint8(n) })},
		{'v', "verify", "", "compare payload and RDMA buffers with their patterns", mark(func(c *Command) { c.Options.Verify = true })},
		{'D', "rdma-bytes", "bytes, 0", "RDMA: size of a piece of the read or write that comes with each ack", number(math.MaxUint32, func(c *Command, n uint64) { c.Options.RDMASize = uint32(n) })},
		{'I', "rdma-pieces", "n, 1", "RDMA: pieces of local memory in an operation, each of -D bytes", number(proto.MaxVector, func(c *Command, n uint64) { c.Options.Vector = uint32(n) })},
		{'M', "rdma-mode", "0|1|2, 0", "RDMA: 0 reads and writes alternately, 1 only reads, 2 only writes", number(2, func(c *Command, n uint64) { c.Options.RWMode = uint8(n) })},
		{0, "rdma-use-once", "0|1, 0", "RDMA: keys for one use", number(1, func(c *Command, n uint64) { c.Options.UseOnce = n == 1 })},
		{0, "rdma-use-get-mr", "0|1, 0", "RDMA: register before sending, and name the key in the request", number(1, func(c *Command, n uint64) { c.Options.UseGetMR, c.getMRSet = n == 1, true })},
		{0, "rdma-cache-mrs", "0|1, 0", "RDMA: register each buffer once and keep its key", number(1, func(c *Command, n uint64) { c.Options.CacheMRs = n == 1 })},
		{0, "rdma-use-fence", "0|1, 1", "RDMA: let the ack wait for a read (rdsd always does; the flag is for a peer with kernel RDS)", number(1, func(c *Command, n uint64) { c.Options.Fence = n == 1 })},
		{0, "rdma-use-notify", "0|1", "no effect: completions are always requested", number(1, func(*Command, uint64) {})},
		{0, "rdma-alignment", "bytes, 0", "RDMA: offset of buffers from the start of a page", number(proto.MaxAlignment, func(c *Command, n uint64) { c.Options.Alignment = uint32(n) })},
		{0, "rdma-key-o-meter", "", "RDMA: report keys that are issued again", mark(func(c *Command) { c.Options.KeyMeter = true })},
		{0, "use-cong-monitor", "0|1, 1", "learn by the congestion monitor when a destination is relieved", number(1, func(c *Command, n uint64) { c.Options.CongMonitor = n == 1 })},
		{0, "async", "", "send an ack again if its operation was lost with the connection", mark(func(c *Command) { c.Options.Async = true })},
		{0, "connect-retries", "n, 0", "how often to try again to connect, once a second", number(math.MaxUint32, func(c *Command, n uint64) { c.Options.ConnectRetries = uint32(n) })},
		{'c', "report-cpu", "", "measure the CPU time of the machine, from /proc/stat", mark(func(c *Command) { c.ReportCPU = true })},
		{'z', "report-summary", "", "print the summary only", mark(func(c *Command) { c.Options.SummaryOnly = true })},
		{'R', "rtprio", "", "print from a thread of real-time priority", mark(func(c *Command) { c.Options.RealTime = true })},
		{'V', "trace", "", "print each message on standard error, on both sides", mark(func(c *Command) { c.Options.Trace = true })},
		{0, "show-params", "", "print the parameters first", mark(func(c *Command) { c.Options.ShowParams, c.ShowParams = true, true })},
		{0, "show-perfdata", "", "print CSV lines that begin with ::, with the daemon's counters", mark(func(c *Command) { c.Options.ShowPerf = true })},
		{0, "show-outliers", "us", "print round trips that took longer", number(math.MaxUint32, func(c *Command, n uint64) { c.Outlier = time.Duration(n) * time.Microsecond })},
		{0, "show-histogram", "", "print a histogram of round trips at the end", mark(func(c *Command) { c.Histogram = true })},
		{0, "reset", "", "reset the connection to the peer, in lane -Q, and run no test", mark(func(c *Command) { c.Reset = true })},
		{0, "socket", "path", "control socket of the daemon (default: RDSD_SOCKET, or the usual places)", func(c *Command, v string) error { c.Socket = v; return nil }},
		{'h', "help", "", "print this text", mark(func(c *Command) { c.Help = true })},
	}
}

// UsageError is a mistake on a command line.
type UsageError struct{ msg string }

func (e *UsageError) Error() string { return e.msg }

func usage(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Parse reads a command line as getopt_long does. Short flags may be joined (-vz, -t8).
// Long flags may be cut short where that is unambiguous. Values follow or are joined (-t 8,
// --tasks=8). Its error is a *UsageError.
func Parse(args []string) (*Command, error) {
	c := &Command{Params: Params{Options: proto.Default()}}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		var err error
		switch {
		case strings.HasPrefix(arg, "--") && len(arg) > 2:
			args, err = c.long(arg[2:], args)
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			args, err = c.short(arg[1:], args)
		default:
			err = usage("%q: there are no arguments, only flags: the peer's address is -s %[1]s", arg)
		}
		if err != nil {
			return nil, err
		}
	}
	return c, c.check()
}

func (c *Command) short(cluster string, args []string) ([]string, error) {
	for i := range len(cluster) {
		// In rds-stress -o is "one way", in rdsctl it is the form of the output.
		if cluster[i] == 'o' && i == len(cluster)-1 && len(args) > 0 && slices.Contains([]string{"json", "json-v2", "table"}, args[0]) {
			c.Form = args[0]
			return args[1:], nil
		}
		o := findShort(cluster[i])
		if o == nil {
			return nil, usage("-%c: no such flag", cluster[i])
		}
		if o.value == "" {
			if err := o.set(c, ""); err != nil {
				return nil, err
			}
			continue
		}
		v := cluster[i+1:]
		if v == "" {
			if len(args) == 0 {
				return nil, usage("-%c: want %s behind it", o.short, o.value)
			}
			v, args = args[0], args[1:]
		}
		return args, c.apply(o, fmt.Sprintf("-%c", o.short), v)
	}
	return args, nil
}

func (c *Command) long(arg string, args []string) ([]string, error) {
	name, v, joined := strings.Cut(arg, "=")
	o, err := findLong(name)
	if err != nil {
		return nil, err
	}
	switch {
	case o.value == "" && joined:
		return nil, usage("--%s takes no value", o.long)
	case o.value != "" && !joined && len(args) == 0:
		return nil, usage("--%s: want %s behind it", o.long, o.value)
	case o.value != "" && !joined:
		v, args = args[0], args[1:]
	}
	return args, c.apply(o, "--"+o.long, v)
}

func (c *Command) apply(o *option, name, v string) error {
	if err := o.set(c, v); err != nil {
		return usage("%s: %v", name, err)
	}
	return nil
}

func findShort(b byte) *option {
	for _, o := range options() {
		if o.short == b {
			return &o
		}
	}
	return nil
}

func findLong(name string) (*option, error) {
	var found []option
	for _, o := range options() {
		if o.long == name {
			return &o, nil
		}
		if strings.HasPrefix(o.long, name) {
			found = append(found, o)
		}
	}
	switch len(found) {
	case 0:
		return nil, usage("--%s: no such flag", name)
	case 1:
		return &found[0], nil
	}
	var names []string
	for _, o := range found {
		names = append(names, "--"+o.long)
	}
	return nil, usage("--%s may be %s", name, strings.Join(names, " or "))
}

// check sets what follows from other flags and checks the rest.
func (c *Command) check() error {
	o := &c.Options
	if o.CacheMRs && !c.getMRSet {
		o.UseGetMR = true
	}
	switch {
	case c.Help:
		return nil
	case o.CacheMRs && !o.UseGetMR:
		return usage("--rdma-cache-mrs conflicts with --rdma-use-get-mr=0")
	case c.Reset && c.send == "":
		return usage("--reset: want the peer's address, -s")
	}
	if c.send == "" {
		if o.Port == 0 {
			return usage("-p: want 1 to 65534")
		}
		return nil
	}
	if err := o.Check(); err != nil {
		return usage("%v", err)
	}
	return nil
}

// Resolve looks up the addresses of the command line. Names are looked up as
// rds-stress does: their first IPv4 address.
func (c *Command) Resolve(ctx context.Context) error {
	for _, x := range []struct {
		name string
		to   *netip.Addr
	}{{c.send, &c.Send}, {c.recv, &c.Recv}} {
		if x.name == "" {
			continue
		}
		a, err := resolve(ctx, x.name)
		if err != nil {
			return err
		}
		*x.to = a
	}
	return nil
}

func resolve(ctx context.Context, name string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		if a = a.Unmap(); !a.Is4() {
			return a, usage("%v: rds-stress's protocol has IPv4 addresses only", a)
		}
		return a, nil
	}
	as, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q: %w", name, err)
	}
	return as[0].Unmap(), nil
}

// parseNumber reads a number up to max: decimal, 0x or 0 for octal, with k, m
// or g for powers of 1024.
func parseNumber(v string, max uint64) (uint64, error) {
	digits, shift := v, 0
	if n := len(v); n > 0 {
		if i := strings.IndexByte("kmg", v[n-1]|0x20); i >= 0 {
			digits, shift = v[:n-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(digits, 0, 64)
	if err != nil || strings.Contains(v, "_") || n<<shift>>shift != n || n<<shift > max {
		return 0, fmt.Errorf("%q is not a number from 0 to %d", v, max)
	}
	return n << shift, nil
}

// Usage prints the flags.
func Usage(w io.Writer, name string) {
	fmt.Fprintf(w, "usage: %s [flags]             wait for a peer\n       %[1]s -s ADDR [flags]     test with the peer at ADDR\n\n", name)
	for _, o := range options() {
		short := "    "
		if o.short != 0 {
			short = fmt.Sprintf("-%c, ", o.short)
		}
		arg := "--" + o.long
		if o.value != "" {
			arg += " [" + o.value + "]"
		}
		fmt.Fprintf(w, "  %s%-34s %s\n", short, arg, o.help)
	}
	fmt.Fprint(w, "  -o json|table                        form of the output\n")
}

// PrintParams prints the parameters, for --show-params.
func (c *Command) PrintParams(w io.Writer) {
	o := &c.Options
	fmt.Fprintf(w, "Options:\n  %-10s %-7d\n  %-10s %-7d\n  %-10s %-7d\n  %-10s %-7d\n  %-10s",
		"Tasks", o.Tasks, "Req size", o.ReqSize, "ACK size", o.AckSize, "RDMA size", o.RDMASize, "RDMA opts")
	some := false
	for _, x := range []struct {
		on   bool
		name string
	}{
		{o.UseOnce, "use_once"}, {o.UseGetMR, "use_get_mr"}, {o.Fence, "use_fence"}, {o.CacheMRs, "cache_mrs"},
		{o.Alignment > 0, fmt.Sprintf("align=%d", o.Alignment)},
	} {
		if x.on {
			some = true
			fmt.Fprintf(w, " %s", x.name)
		}
	}
	if !some {
		fmt.Fprint(w, " (defaults)")
	}
	fmt.Fprint(w, "\n\n")
}
