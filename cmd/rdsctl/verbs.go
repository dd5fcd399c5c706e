package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// verb is one command: an entry in the table below.
type verb struct {
	name    string // one or two words
	args    string // "", "ADDR", or "[ADDR]" if it may be left out
	summary string
	group   string
	// prepare declares the verb's own flags and returns what runs it.
	prepare func(fs *flag.FlagSet) action
	// raw is used instead of prepare by a verb that reads its command line itself. Its
	// error is a usage error.
	raw func(ctx context.Context, a *app, o *options, args []string) (int, error)
	// rawFlags writes what the manual says of the flags of raw.
	rawFlags func(p *page)

	forms   []output                                       // of -o; a verb with one form has none here
	names   func() (columns, fields []string)              // for a list
	watch   bool                                           // may be repeated
	limit   bool                                           // of the rows of its list
	offline bool                                           // may work without the daemon
	many    bool                                           // takes several words
	alone   bool                                           // asks no daemon
	words   func(context.Context, *app, *options) []string // what its argument may be
	about   string                                         // more than the summary, for the manual
	tries   []string                                       // examples, without "rdsctl"
}

// Groups of verbs, in the order of the manual.
const (
	groupLook    = "Looking"
	groupWaiting = "What waits, and for whom"
	groupFollow  = "Following messages"
	groupMeasure = "Measuring"
	groupHealth  = "Health"
	groupChange  = "Changing"
	groupConfig  = "Configuration"
	groupShell   = "Shells"
)

const offlineAbout = "With -offline rdsctl does not ask the daemon. It reads the lists that the daemon published at most a second before it got stuck. " +
	"They have at most 4096 sockets and 1024 connections. Only root and the daemon's own user may read them."

// verbs is the table of all verbs.
//
//nolint:funlen // one table, a row for each verb: parts of it would be looked for
func verbs() []verb {
	return []verb{
		{name: "status", summary: "the daemon, the state of its engine, and what it holds", group: groupLook,
			prepare: statusVerb, offline: true, forms: allForms, watch: true,
			about: "Warnings come first. With -offline rdsctl does not ask the daemon, but reads its statistics mapping.",
			tries: []string{"status", "status -offline -counters", "status -o json"}},
		{name: "devices", summary: "the RDMA devices of this host, which of them each address of the daemon uses, and if none, why", group: groupLook,
			prepare: devicesVerb, forms: allForms,
			about: "The list is from the start of the daemon. To use a device that came later, restart the daemon. The ports' counters are those of this moment, as the device names and counts them.", tries: []string{"devices", "devices -counters", "devices -o json"}},
		socketList().verb(verb{name: "sockets", summary: "the sockets bound here, with their owners and queues", group: groupLook,
			tries: []string{"sockets", "sockets -filter 'uid=1000,congested=yes'", "sockets -sort -recv-bytes -o csv -columns addr,port,recv-bytes", "sockets -offline"},
			about: offlineAbout}),
		processList().verb(verb{name: "processes", summary: "what each process has bound, sent and received", group: groupLook,
			about: "OLDEST is the age of the oldest message that is not acked. P50 and P99 are quantiles of the time until a message was acked. Sums are those of the open sockets.",
			tries: []string{"processes", "processes -sort -sent", "processes -watch 1s -columns pid,name,sent,received,p99"}}),
		peerList(time.Now).verb(verb{name: "peers", summary: "the connections to other hosts", group: groupLook,
			tries: []string{"peers", "peers -columns remote,state,rtt,rtt-min,p50,p99,oldest", "peers -filter 'remote=10.0.0.0/24,state!=up'", "peers -o wide -watch 1s", "peers -offline"},
			about: offlineAbout + " QUEUED then lacks messages that wait for their turn at a connection, and WHY is not known."}),
		counterList().verb(verb{name: "counters", summary: "the daemon's counters; with -watch also their rates", group: groupLook, prepare: countersVerb, offline: true,
			tries: []string{"counters", "counters -watch 1s -sort -rate -filter 'rate>0'", "counters -offline -all"}}),
		eventList().verb(verb{name: "events", summary: "what happened: connections, refusals, processes that broke a rule", group: groupLook, prepare: eventsVerb, limit: true,
			about: "The daemon keeps the latest 4096 events. Only administrators see events about processes of other users.",
			tries: []string{"events", "events -f -o jsonl", "events -filter 'level!=info'"}}),
		errorList(time.Now).verb(verb{name: "errors", summary: "distinct errors since the daemon started, with count, first and last time", group: groupLook,
			limit: true, tries: []string{"errors", "errors -sort -count"}}),
		{name: "top", summary: "a live screen: what is wrong, traffic both ways, peers, processes, sockets, backlog, events, counters", group: groupLook, prepare: topVerb, offline: true,
			about: topAbout, tries: []string{"top", "top -view processes", "top -once -view backlog", "top -offline"}},
		queueList().verb(verb{name: "queues", args: "[send|retrans|recv]", summary: "single messages: not sent, sent and not acked, arrived and not read", group: groupWaiting,
			prepare: queuesVerb, limit: true, words: fixed("send", "retrans", "recv"),
			tries: []string{"queues", "queues retrans -sort -age", "queues recv -filter 'bytes>64K'"}}),
		backlogList().verb(verb{name: "backlog", summary: "for each socket and destination: messages in progress, how old the oldest is, and who has to act", group: groupWaiting,
			limit: true,
			about: "WAITS-FOR: nobody; reader (the process that owns the socket); receiver (the socket there is congested); relief (the same: a sender in the process waits, and OLDEST is how long the congestion lasts); connection (rdsctl peers says why " +
				"there is none); credits and ack (the peer's daemon); turn (others on the same connection); copy (same host); quota.destinations (messages to other destinations of the user hold all of it); room (the daemon has as many peers as it can); administrator (drained).",
			tries: []string{"backlog", "backlog -filter 'waits-for!=nobody,oldest>1s'"}}),
		keyList().verb(verb{name: "keys", summary: "memory registered for RDMA: owner, size, rights, number of grants", group: groupWaiting,
			limit: true, about: "The keys themselves are not shown, because whoever has a key may use the memory.", tries: []string{"keys", "keys -filter 'state!=live'"}}),
		barrierList().verb(verb{name: "barriers", summary: "for each socket and address: operations issued, high-water mark, pending", group: groupWaiting,
			limit: true, tries: []string{"barriers -filter 'pending>0'"}}),
		congestedList(time.Now).verb(verb{name: "cong", summary: "congested ports, since when, and how many destinations wait for them", group: groupWaiting,
			limit: true, tries: []string{"cong", "cong -watch 1s"}}),
		stallList(time.Now).verb(verb{name: "stalls", summary: "connections with messages in progress, the oldest first", group: groupWaiting, prepare: stallsVerb,
			tries: []string{"stalls -over 1ms", "stalls -over 1s -watch 1s"}}),
		traceMergeEntry(), traceEntry(), captureEntry(),
		{name: "ping", args: "ADDR", summary: "round trips to another daemon", group: groupMeasure, prepare: pingVerb, forms: allForms, words: peerWords,
			about: "The answer of a peer is empty, whatever the size of the ping.", tries: []string{"ping 10.0.0.2 -c 3", "ping 10.0.0.2 -size 8000"}},
		callEntry(),
		{name: "bench", args: "[ADDR]", summary: "measure round trips, rates and RDMA against rdsctl bench -serve at ADDR[:PORT], or with both ends here",
			group: groupMeasure, prepare: benchVerb, forms: allForms, words: peerWords, tries: []string{"bench -serve", "bench -mode rtt 10.0.0.2"}},
		{name: "stress", summary: "rds-stress: load against another rdsctl stress or an rds-stress; it checks everything that arrives",
			group: groupMeasure, raw: runStress, rawFlags: stressFlagsPage, forms: allForms, tries: []string{"stress", "stress -s 10.0.0.2 -q 4096 -t 2 -d 2 -T 60 -v"}},
		{name: "check", args: "KIND", summary: "check one thing, for monitoring: daemon, peers, peer ADDR, socket ADDR:PORT, backlog, memory, cert, config", group: groupHealth,
			prepare: checkVerb, forms: checkForms, many: true, words: checkWords, about: checkAbout(),
			tries: []string{"check daemon -o nagios", "check backlog -warn 5s -crit 1m", "check peer 10.0.0.2 -o prometheus", "check socket 10.0.0.1:4000"}},
		{name: "doctor", summary: "look for problems, and say what to do about each", group: groupHealth, prepare: doctorVerb, forms: allForms, tries: []string{"doctor"}},
		{name: "bundle", args: "[FILE]", summary: "an archive for somebody who helps: versions, configuration, answers of all verbs, limits; no payload, keys or certificates", group: groupHealth,
			prepare: bundleVerb, about: "FILE must not exist, and gets mode 0600. - is standard output. What is missing is named in index.json and on standard error. If the daemon does not answer, the archive has less in it, and the exit status is 3, 5 or 6.",
			tries: []string{"bundle", "bundle -stacks /tmp/rdsd.tar.gz"}},
		{name: "peer reset", args: "ADDR", summary: "break the connections to a peer; the next traffic makes new ones; no datagram is lost, operations in progress may be DROPPED",
			group: groupChange, prepare: peerResetVerb, forms: allForms, words: peerWords, tries: []string{"peer reset 10.0.0.2", "peer reset 10.0.0.2 -lane 3", "peer reset 10.0.0.2 -path 1"}},
		{name: "peer drain", args: "ADDR", summary: "make senders to a peer wait until peer resume; break its connections when nothing is in progress", group: groupChange,
			prepare: peerDrainVerb, forms: allForms, words: peerWords,
			about: "Destinations at the peer look congested to their senders, so that nothing new is sent. Messages that the daemon already has are still sent. When the connections break after a drain, no operation is DROPPED.",
			tries: []string{"peer drain 10.0.0.2 -wait 1m"}},
		{name: "peer resume", args: "ADDR", summary: "end a peer's drain", group: groupChange, prepare: peerResumeVerb, forms: allForms, words: peerWords,
			tries: []string{"peer resume 10.0.0.2"}},
		{name: "daemon drain", summary: "make all senders wait and bind no socket, until daemon resume or the daemon's end; report when nothing is in progress", group: groupChange,
			prepare: daemonDrainVerb, forms: allForms, about: "Peers may still send here. To stop that, drain their daemons, too. Messages that have arrived and are not read are reported. The drain does not wait for them.",
			tries: []string{"daemon drain -wait 1m && systemctl stop rdsd"}},
		{name: "daemon resume", summary: "end the daemon's drain", group: groupChange, prepare: daemonResumeVerb, forms: allForms},
		upgradeEntry(),
		configList().verb(verb{name: "config show", summary: "the configuration the daemon runs with, and where each value comes from", group: groupConfig, prepare: configShowVerb,
			tries: []string{"config show -changed", "config show -filter 'key=limits.*'"}}),
		{name: "config diff", summary: "differences between the daemon's sources and the configuration it runs with", group: groupConfig, prepare: configDiffVerb, forms: allForms},
		{name: "config reload", summary: "read the sources again and apply what needs no restart", group: groupConfig, prepare: configReloadVerb, forms: allForms},
		{name: "config validate", args: "FILE", summary: "check a configuration file and its drop-ins; no daemon is asked", group: groupConfig, prepare: configValidateVerb, alone: true,
			tries: []string{"config validate /etc/rdsd/rdsd.toml"}},
		{name: "config docs", summary: "a configuration file with every key, its documentation and default", group: groupConfig, prepare: configDocsVerb, alone: true},
		{name: "version", summary: "the version of this program; rdsctl status has the daemon's", group: groupShell, prepare: versionVerb, forms: allForms, alone: true,
			tries: []string{"version", "version -o json"}},
		{name: "run", args: "PROGRAM", summary: "run a program made for the kernel's RDS: its AF_RDS sockets are rdsd's (docs/preload.md)", group: groupShell, raw: runProgram, rawFlags: runFlagsPage,
			alone: true, about: runAbout, tries: []string{"run -- rds-ping 10.0.0.2", "run -socket /run/rdsd/rdsd.sock -- python3 server.py"}},
		{name: "completion", args: "SHELL", summary: "completion for bash, zsh or fish, with the daemon's peers and all names of columns and fields", group: groupShell,
			prepare: completionVerb, alone: true, words: fixed("bash", "zsh", "fish"),
			tries: []string{"completion bash >/usr/share/bash-completion/completions/rdsctl", "completion zsh >/usr/share/zsh/site-functions/_rdsctl", "completion fish >~/.config/fish/completions/rdsctl.fish"}},
	}
}

// action runs a verb after its flags were parsed. arg is the verb's argument.
type action func(ctx context.Context, a *app, o *options, arg string) int

// usageError is a mistake on the command line.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// run finds the verb and runs it.
func (a *app) run(ctx context.Context, args []string) int {
	o := newOptions()
	code, err := a.dispatch(ctx, o, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(a.stderr, "rdsctl: %v\n", err)
		return cmp.Or(code, exitUsage)
	}
	return code
}

func (a *app) dispatch(ctx context.Context, o *options, args []string) (code int, err error) {
	if len(args) == 1 && slices.Contains([]string{"-version", "--version", "-V"}, args[0]) {
		args = []string{"version"}
	}
	root := newFlagSet("rdsctl")
	o.declare(root, nil)
	if err := root.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			printUsage(a.stdout)
		}
		return 0, flagError(root, "", err)
	}
	args = root.Args()
	if len(args) == 2 && slices.Contains([]string{"-h", "--h", "-help", "--help"}, args[1]) && family(args[0]) != nil {
		args = []string{"help", args[0]}
	}
	if len(args) > 0 {
		switch args[0] {
		case "help":
			return exitOK, a.help(args[1:])
		case completeVerb:
			return a.complete(ctx, o, args[1:]), nil
		case manualVerb:
			return a.manual(args[1:]), nil
		}
	}
	v, rest, err := find(args)
	if err != nil {
		return 0, err
	}
	if v.raw != nil {
		if err := o.check(v); err != nil {
			return 0, err
		}
		return v.raw(ctx, a, o, rest)
	}
	if v.name == "check" {
		defer func() {
			if err != nil {
				code = int(checkUnknown)
			}
		}()
	}
	fs := newFlagSet("rdsctl " + v.name)
	o.declare(fs, v)
	act := v.prepare(fs)
	words, err := parseMixed(fs, rest)
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			printVerb(a.stdout, v)
		}
		return 0, flagError(fs, v.name, err)
	}
	switch {
	case v.args != "" && v.args[0] != '[' && len(words) == 0:
		return 0, usagef("%s: %s is missing; usage: rdsctl %[1]s %[2]s", v.name, v.args)
	case v.args == "" && len(words) > 0:
		return 0, usagef("%s takes no argument, %q is one too many", v.name, words[0])
	case len(words) > 1 && !v.many:
		return 0, usagef("%s takes one argument, %q is one too many", v.name, words[1])
	}
	if err := o.check(v); err != nil {
		return 0, err
	}
	if o.socket != "" {
		a.paths = []string{o.socket}
	}
	return act(ctx, a, o, strings.Join(words, " ")), nil
}

// find returns the verb at the beginning of args, and the words behind it.
func find(args []string) (*verb, []string, error) {
	all := verbs()
	var names, firsts, seconds []string
	for i := range all {
		v := &all[i]
		names = append(names, v.name)
		words := strings.Fields(v.name)
		if len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			return v, args[len(words):], nil
		}
		firsts = append(firsts, words[0])
		if len(args) > 0 && len(words) > 1 && words[0] == args[0] {
			seconds = append(seconds, strings.TrimSpace(words[1]+" "+v.args))
		}
	}
	known := strings.Join(names, ", ")
	switch {
	case len(args) == 0:
		return nil, nil, usagef("no verb; there are: %s (more: rdsctl help)", known)
	case len(seconds) > 0:
		return nil, nil, usagef("%s: want rdsctl %[1]s and one of: %s", args[0], strings.Join(seconds, ", "))
	}
	if near := nearest(args[0], firsts); near != "" {
		return nil, nil, usagef("unknown verb %q; is it %s? There are: %s (more: rdsctl help)", args[0], near, known)
	}
	return nil, nil, usagef("unknown verb %q; there are: %s (more: rdsctl help)", args[0], known)
}

// nearest is the name that differs from word by one or two letters. It is "" if there is
// none.
func nearest(word string, names []string) string {
	best, at := "", 3
	for _, n := range names {
		if d := distance(word, n); d < at && d < len(n)/2 {
			best, at = n, d
		}
	}
	return best
}

// distance is how many letters to add, drop or change to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			last, row[j+1] = row[j+1], min(last+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func (a *app) help(args []string) error {
	if len(args) == 0 {
		printUsage(a.stdout)
		return nil
	}
	v, _, err := find(args)
	if err == nil {
		printVerb(a.stdout, v)
	} else if all := family(args[0]); all != nil && len(args) == 1 {
		fmt.Fprintf(a.stdout, "usage: rdsctl %s VERB [ADDR|FILE] [flags]\n\n", args[0])
		printVerbs(a.stdout, all)
		fmt.Fprintf(a.stdout, "\nrdsctl help %s VERB: its flags and examples\n", args[0])
		err = nil
	}
	return err
}

// family is the verbs of two words that begin with word, nil if there are none or word is a verb itself.
func family(word string) (all []verb) {
	for _, v := range verbs() {
		switch first, _, two := strings.Cut(v.name, " "); {
		case first == word && !two:
			return nil
		case first == word:
			all = append(all, v)
		}
	}
	return all
}

// printVerbs prints a line for each verb.
func printVerbs(w io.Writer, all []verb) {
	for _, v := range all {
		fmt.Fprintf(w, "  %-27s %s\n", strings.TrimSpace(v.name+" "+v.args), v.summary)
	}
}

func printUsage(w io.Writer) {
	fmt.Fprint(w, "usage: rdsctl VERB [ADDR|FILE] [flags]\n")
	group := ""
	for _, v := range verbs() {
		if v.group != group {
			group = v.group
			fmt.Fprintf(w, "\n%s:\n", group)
		}
		printVerbs(w, []verb{v})
	}
	fmt.Fprint(w, "  help [VERB]                 this text, or a verb's flags, fields and examples\n\nflags of every verb:\n")
	fs := newFlagSet("")
	newOptions().declare(fs, nil)
	fs.SetOutput(w)
	fs.PrintDefaults()
	fmt.Fprint(w, "\nexit status:\n")
	for _, e := range exitText {
		fmt.Fprintf(w, "  %d  %s\n", e.code, e.text)
	}
}

func printVerb(w io.Writer, v *verb) {
	if v.raw != nil {
		_, _ = v.raw(context.Background(), &app{stdout: w}, newOptions(), []string{"--help"})
		return
	}
	fmt.Fprintf(w, "usage: rdsctl %s [flags]\n\n%s\n\n", strings.TrimSpace(v.name+" "+v.args), v.summary)
	if v.about != "" {
		fmt.Fprintf(w, "%s\n\n", v.about)
	}
	fs := newFlagSet("")
	newOptions().declare(fs, v)
	v.prepare(fs)
	fs.SetOutput(w)
	fs.PrintDefaults()
	if v.names != nil {
		columns, fields := v.names()
		fmt.Fprintf(w, "\ncolumns: %s\nfields: %s\n", strings.Join(columns, " "), strings.Join(fields, " "))
	}
	if len(v.tries) > 0 {
		fmt.Fprint(w, "\nexamples:\n")
	}
	for _, t := range v.tries {
		fmt.Fprintf(w, "  rdsctl %s\n", t)
	}
}
