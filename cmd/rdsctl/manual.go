package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/internal/config"
)

// manualVerb writes the manual: "man DIR" writes pages for man, "md DIR" writes docs/cli.
const manualVerb = "__manual"

func (a *app) manual(args []string) int {
	if len(args) != 2 || args[0] != "man" && args[0] != "md" {
		fmt.Fprintf(a.stderr, "rdsctl: want %s man DIR, or md DIR\n", manualVerb)
		return exitUsage
	}
	for name, text := range manualFiles(args[0]) {
		err := os.MkdirAll(args[1], 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(args[1], name), []byte(text), 0o644)
		}
		if err != nil {
			fmt.Fprintf(a.stderr, "rdsctl: %v\n", err)
			return exitFailed
		}
	}
	return exitOK
}

const diagnostics = "Every error is one line on standard error: the cause, and what to do about it. With JSON the document has it in its field error, too, with a code for programs."

// manualFiles are the files of one form of the manual, by name.
func manualFiles(form string) map[string]string {
	files := map[string]string{}
	for _, p := range manualPages() {
		if form == "man" {
			files[fmt.Sprintf("%s.%d", p.name, p.section)] = p.roff()
		} else if p.section == 1 && strings.HasPrefix(p.name, "rdsctl") {
			files[p.name+".md"] = p.markdown()
		}
	}
	return files
}

func manualPages() []*page {
	pages := []*page{rdsctlPage()}
	all := verbs()
	for i := range all {
		pages = append(pages, verbPage(&all[i]))
	}
	return append(pages, rdsdPage(), tomlPage(), oldPage("rdsctl-rds-info", "what the kernel's rds-info shows, of rdsd", "rds-info [-cIknrstTv] [-socket PATH]",
		"The flags and columns are those of rds-info of rds-tools: -c counters, -k sockets, -n connections, -r, -s and -t messages that arrived, wait, or are not acked, "+
			"-I connections over queue pairs, -T hosts reached by RDS/TCP, -v more; none: all tables. Rows of IPv6 follow in sections of their own. "+
			"What is the process's own affair is 0: a socket's connected address and send buffer.", "rds-info -kn"),
		oldPage("rdsctl-rds-ping", "what the kernel's rds-ping does, over rdsd", "rds-ping [-c COUNT] [-i INTERVAL[ms|us]] [-I SOURCE] [-Q TOS] [-socket PATH] DST",
			"The flags and lines are those of rds-ping of rds-tools. rdsctl ping asks the daemon instead, and has statistics and JSON.", "rds-ping -c 3 10.0.0.2"),
		oldPage("rdsctl-rds-stress", "what rds-stress does, over rdsd", "rds-stress [FLAGS]",
			"The flags are those of rds-stress of rds-tools 2.0.7; rds-stress --help lists them. See rdsctl-stress(1).", "rds-stress -s 10.0.0.2 -q 4096 -t 2 -d 2 -T 60 -v"))
}

func exitTerms() (terms []term) {
	for _, e := range exitText {
		terms = append(terms, term{fmt.Sprint(e.code), e.text})
	}
	return terms
}

// exits adds the exit statuses that verbs have in common.
func (p *page) exits() {
	p.heading("Exit status")
	p.terms(exitTerms())
}

// flags adds the flags of a verb, its own first.
func (p *page) flags(terms []term) {
	p.heading("Flags")
	common := commonTerms()
	own := slices.DeleteFunc(slices.Clone(terms), func(t term) bool { return slices.Contains(common, t) })
	if len(own) > 0 {
		p.terms(own)
	}
	if shared := slices.DeleteFunc(terms, func(t term) bool { return slices.Contains(own, t) }); len(shared) > 0 {
		p.blocks = append(p.blocks, block{terms: shared, common: true, flags: true})
	}
}

// commonTerms are the flags that many verbs have, with the same meaning.
func commonTerms() []term {
	fs := newFlagSet("")
	newOptions().declare(fs, &verb{forms: allForms, names: func() (columns, fields []string) { return nil, nil }, watch: true})
	return flagTerms(fs)
}

func rdsctlPage() *page {
	p := &page{name: "rdsctl", section: 1, summary: "ask a running rdsd what it does, and change what it may"}
	p.heading("Synopsis")
	p.code("rdsctl VERB [ARGUMENT] [FLAGS]", "rdsctl help [VERB]")
	p.heading("Description")
	p.text("Flags have one dash or two, before or behind the verb. Data goes to standard output, messages to standard error. " +
		"Tables are for people and may change; -o json is one document of schema " + schema + ", which only grows, with units in the names of its fields, and with what has 64 bits as a string; " +
		"jsonl is an item a line; csv has the fields of the JSON. json-v2 and jsonl-v2 are the schema before, in which they are numbers.")
	p.text(terminalAbout)
	group := ""
	var terms []term
	flush := func() {
		if terms != nil {
			p.terms(terms)
			terms = nil
		}
	}
	for _, v := range verbs() {
		if v.group != group {
			flush()
			group = v.group
			p.heading(group)
		}
		terms = append(terms, term{strings.TrimSpace(v.name + " " + v.args), v.summary})
	}
	flush()
	p.heading("Common flags")
	p.text("The page of each verb says which of them it has. Columns are those of the table; fields are those of the JSON, and of -columns, -filter and -sort.")
	p.terms(commonTerms())
	p.heading("Environment")
	p.terms([]term{{"RDSD_SOCKET", "control socket of the daemon, where -socket does not name it"}, {"NO_COLOR", "if it is not empty, tables on a terminal have no colours"}})
	p.exits()
	p.heading("Examples")
	p.code("rdsctl status", "rdsctl peers -filter 'remote=10.0.0.0/24,state!=up'", "rdsctl backlog -filter 'oldest>1s' -o jsonl", "rdsctl check daemon -o nagios")
	p.heading("Diagnostics")
	p.text(diagnostics + " rdsctl doctor looks for what is wrong by itself.")
	p.heading("See also")
	p.text("rdsd(8), rdsd.toml(5), rdsctl-rds-info(1), rdsctl-rds-ping(1), rdsctl-rds-stress(1)")
	return p
}

func verbPage(v *verb) *page {
	p := &page{name: "rdsctl-" + strings.ReplaceAll(v.name, " ", "-"), section: 1, summary: v.summary}
	p.heading("Synopsis")
	if v.alone && v.raw != nil { // what follows PROGRAM is the program's
		p.code("rdsctl " + v.name + " [FLAGS] [--] " + v.args + " [ARGUMENT...]")
	} else {
		p.code("rdsctl " + strings.TrimSpace(v.name+" "+v.args) + " [FLAGS]")
	}
	if v.about != "" {
		p.heading("Description")
		p.text("%s", v.about)
	}
	if v.raw == nil {
		fs := newFlagSet("")
		newOptions().declare(fs, v)
		v.prepare(fs)
		if terms := flagTerms(fs); terms != nil {
			p.flags(terms)
		}
	} else {
		v.rawFlags(p)
	}
	if v.names != nil {
		columns, fields := v.names()
		p.heading("Columns and fields")
		p.text("Columns of the table: %s.", strings.Join(columns, ", "))
		p.text("Fields of the JSON: %s.", strings.Join(fields, ", "))
	}
	if v.name == "check" {
		p.heading("Exit status")
		p.terms([]term{{"0", "ok"}, {"1", "warning"}, {"2", "critical, also: no daemon, or it does not answer"}, {"3", "unknown, also: wrong usage"}})
	} else {
		p.common(p.exits)
	}
	p.heading("Examples")
	tries := v.tries
	if len(tries) == 0 {
		tries = []string{strings.TrimSpace(v.name + " " + v.args)}
	}
	var lines []string
	for _, t := range tries {
		lines = append(lines, "rdsctl "+t)
	}
	p.code(lines...)
	p.common(func() {
		p.heading("Diagnostics")
		p.text(diagnostics)
	})
	return p
}

func stressFlagsPage(p *page) {
	p.heading("Flags")
	p.text("Those of rds-stress: rdsctl stress --help. With -o json or -o table, that form of output.")
}

func flagTerms(fs *flag.FlagSet) (terms []term) {
	fs.VisitAll(func(f *flag.Flag) {
		name, usage := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		terms = append(terms, term{strings.TrimSpace("-" + f.Name + " " + name), usage})
	})
	return terms
}

func rdsdPage() *page {
	p := &page{name: "rdsd", section: 8, summary: "Reliable Datagram Sockets in user space"}
	p.heading("Synopsis")
	p.code("rdsd [-config FILE] [FLAGS]")
	p.heading("Description")
	p.text("One daemon per host carries the reliable datagrams and RDMA operations of all its processes over one connection per pair of hosts and lane. " +
		"Processes reach it through its control socket; rdsctl(1) shows what it does.")
	p.heading("Flags")
	p.terms([]term{
		{"-config FILE", "configuration in TOML, and its drop-ins FILE.d/*.toml; without it " + config.FileEnv + " names it, else none is read"},
		{"-check-config", "check file and flags and end"},
		{"-version", "print the version and end"},
		{"-KEY VALUE", "every key of rdsd.toml(5) is a flag, with dashes for dots and underscores: " + "-" + config.FlagName("peers.allow") + " 10.0.0.0/24"},
	})
	p.heading("Signals")
	p.terms([]term{
		{"SIGHUP", "read the configuration again and apply what can be, as rdsctl config reload"},
		{"SIGUSR2", "have a new process of the same program take over, as rdsctl daemon upgrade"},
		{"SIGTERM, SIGINT", "say goodbye to clients, close the connections, and end"},
	})
	p.heading("Exit status")
	p.terms([]term{{"0", "ended in order"}, {"1", "could not start, or failed"}, {"2", "wrong usage or configuration"}})
	p.heading("Files")
	p.terms([]term{
		{"/run/rdsd/rdsd.sock", "control socket of a daemon that root runs; others: $XDG_RUNTIME_DIR/rdsd.sock"},
		{"SOCKET.stats", "statistics mapping: rdsctl status -offline reads it, of a stuck or dead daemon, too"},
		{"SOCKET.lists3", "its sockets and connections, for rdsctl sockets and peers -offline; for root and the daemon's own user"},
	})
	p.heading("Examples")
	p.code("rdsd -config /etc/rdsd/rdsd.toml", "rdsd -listen 10.0.0.1 -peers-allow 10.0.0.0/24 -check-config")
	p.heading("Diagnostics")
	p.text("The log on standard error names what is wrong and what to do about it. rdsctl doctor looks for what is wrong with a running daemon.")
	p.heading("See also")
	p.text("rdsctl(1), rdsd.toml(5)")
	return p
}

// tomlPage is made from the documentation of the keys.
func tomlPage() *page {
	p := &page{name: "rdsd.toml", section: 5, summary: "configuration of rdsd"}
	p.heading("Description")
	p.text("TOML, strict: a key or value that rdsd does not know is an error. The later wins: defaults; the file; its drop-ins, FILE.d/*.toml by name; "+
		"the environment, %s for peers.allow; flags, -%s. SIGHUP, or rdsctl config reload, applies the keys marked reload; the others wait for a restart.",
		config.EnvName("peers.allow"), config.FlagName("peers.allow"))
	keys := config.Keys()
	section := func(k config.Key) string {
		if i := strings.LastIndexByte(k.Name, '.'); i >= 0 {
			return k.Name[:i]
		}
		return ""
	}
	for len(keys) > 0 {
		of := section(keys[0])
		n := slices.IndexFunc(keys, func(k config.Key) bool { return section(k) != of })
		if n < 0 {
			n = len(keys)
		}
		if of == "" {
			p.heading("Keys")
		} else {
			p.heading("Keys of [" + of + "]")
		}
		var terms []term
		for _, k := range keys[:n] {
			by := "restart"
			if k.Live {
				by = "reload"
			}
			def := k.Default
			if def == "" {
				def = "empty"
			}
			terms = append(terms, term{k.Name, fmt.Sprintf("%s Allowed: %s. Default: %s. Changed by: %s.", k.Doc, k.Allowed, def, by)})
		}
		p.terms(terms)
		keys = keys[n:]
	}
	p.heading("Examples")
	p.code(`listen = ["10.0.0.1"]`, "", "[peers]", `allow = ["10.0.0.0/24"]`)
	p.heading("Diagnostics")
	p.text("rdsctl config validate FILE checks a file and its drop-ins and points at what is wrong; rdsctl config show says where each value of a running daemon comes from.")
	p.heading("See also")
	p.text("rdsd(8), rdsctl(1)")
	return p
}

// oldPage is the page of a link with another program's name. The page's name differs from
// the link's, because rds-tools has a page with that name.
func oldPage(name, summary, synopsis, text, example string) *page {
	p := &page{name: name, section: 1, summary: summary}
	p.heading("Synopsis")
	p.code(synopsis)
	p.heading("Description")
	p.text("A link named %s to rdsctl. %s", strings.TrimPrefix(name, "rdsctl-"), text)
	p.common(p.exits)
	p.heading("Examples")
	p.code(example)
	p.common(func() {
		p.heading("Diagnostics")
		p.text("Every error is one line: the cause, and what to do about it.")
	})
	p.heading("See also")
	p.text("rdsctl(1), rdsd(8)")
	return p
}
