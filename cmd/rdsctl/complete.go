package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// completeVerb is the verb that the shells' scripts call with the words typed so far. The
// last word is unfinished. It prints what that word may become, one a line.
const completeVerb = "__complete"

// completeTimeout is how long rdsctl waits for names from the daemon.
var completeTimeout = 300 * time.Millisecond

// fixed returns words that do not depend on a daemon.
func fixed(words ...string) func(context.Context, *app, *options) []string {
	return func(context.Context, *app, *options) []string { return words }
}

// peerWords are the addresses of the daemon's peers.
func peerWords(ctx context.Context, a *app, o *options) []string {
	_, r, err := a.once(ctx, o, ctl.Request{Kind: ctl.KindPeers})
	if err != nil {
		return nil
	}
	var words []string
	for i := range r.Peers {
		words = append(words, r.Peers[i].Remote.String())
	}
	slices.Sort(words)
	return slices.Compact(words)
}

func (a *app) complete(ctx context.Context, o *options, args []string) int {
	if len(args) == 0 {
		args = []string{""}
	}
	o.timeout = completeTimeout
	done, last := args[:len(args)-1], args[len(args)-1]
	for _, w := range a.candidates(ctx, o, done, last) {
		if strings.HasPrefix(w, last) {
			fmt.Fprintln(a.stdout, printable(w))
		}
	}
	return exitOK
}

// candidates are the words that may follow done. last is the part of the word that was
// typed.
func (a *app) candidates(ctx context.Context, o *options, done []string, last string) []string {
	if v, rest, err := find(withoutFlags(done)); err == nil && v.raw == nil {
		fs := newFlagSet("")
		o.declare(fs, v)
		if v.prepare != nil {
			v.prepare(fs)
		}
		if f := valueOf(fs, done); f != nil {
			return flagValues(a, v, f, last)
		}
		if strings.HasPrefix(last, "-") {
			return flagWords(a, v, fs, last)
		}
		if v.args == "" || len(rest) > 0 || v.words == nil {
			return nil
		}
		_, _ = parseMixed(fs, rest) // finds -socket
		for i, w := range done {
			if name := strings.TrimLeft(w, "-"); name == "socket" && strings.HasPrefix(w, "-") && i+1 < len(done) {
				o.socket = done[i+1]
			}
		}
		return v.words(ctx, a, o)
	}
	fs := newFlagSet("")
	o.declare(fs, nil)
	if f := valueOf(fs, done); f != nil {
		return flagValues(a, &verb{forms: allForms}, f, last)
	}
	if strings.HasPrefix(last, "-") {
		return flagWords(a, &verb{forms: allForms}, fs, last)
	}
	words := withoutFlags(done)
	var next []string
	for _, v := range append(verbs(), verb{name: "help"}) {
		name := strings.Fields(v.name)
		if len(words) > 0 && words[0] == "help" {
			name = append([]string{"help"}, name...)
		}
		if len(name) > len(words) && slices.Equal(name[:len(words)], words) {
			next = append(next, name[len(words)])
		}
	}
	slices.Sort(next)
	return slices.Compact(next)
}

// withoutFlags are the words that are neither flags nor their values. It knows only the
// flags that all verbs have.
func withoutFlags(args []string) (words []string) {
	fs := newFlagSet("")
	newOptions().declare(fs, nil)
	for i := 0; i < len(args); i++ {
		if name, ok := strings.CutPrefix(args[i], "-"); ok && name != "" {
			name = strings.TrimPrefix(name, "-")
			if fs.Lookup(name) != nil {
				i++
			}
			continue
		}
		words = append(words, args[i])
	}
	return words
}

// valueOf is the flag whose value comes next. It is nil if none does.
func valueOf(fs *flag.FlagSet, done []string) *flag.Flag {
	if len(done) == 0 || !strings.HasPrefix(done[len(done)-1], "-") {
		return nil
	}
	f := fs.Lookup(strings.TrimLeft(done[len(done)-1], "-"))
	if f == nil {
		return nil
	}
	if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
		return nil
	}
	return f
}

// flagValues are the values that f may have. A name in a list may follow others.
func flagValues(a *app, v *verb, f *flag.Flag, last string) (words []string) {
	switch f.Name {
	case "socket": // sockets of daemons that run here; for others the shell completes files
		for _, p := range a.paths {
			if _, err := os.Stat(p); err == nil {
				words = append(words, p)
			}
		}
	case "o":
		for _, form := range v.forms {
			words = append(words, string(form))
		}
	case "columns", "sort", "filter":
		if v.names == nil {
			return nil
		}
		before := last[:strings.LastIndexByte(last, ',')+1]
		columns, fields := v.names()
		names := slices.Compact(append(columns, fields...))
		for _, n := range names {
			words = append(words, before+n)
			if f.Name == "sort" {
				words = append(words, before+"-"+n)
			}
		}
	}
	return words
}

// flagWords are all flags, with as many dashes as last has. If last has a =, they are the
// values of its flag.
func flagWords(a *app, v *verb, fs *flag.FlagSet, last string) (words []string) {
	if name, value, ok := strings.Cut(last, "="); ok {
		if f := valueOf(fs, []string{name}); f != nil {
			for _, w := range flagValues(a, v, f, value) {
				words = append(words, name+"="+w)
			}
		}
		return words
	}
	dash := "-"
	if strings.HasPrefix(last, "--") {
		dash = "--"
	}
	fs.VisitAll(func(f *flag.Flag) { words = append(words, dash+f.Name) })
	return words
}

// completionVerb prints a shell's script.
func completionVerb(*flag.FlagSet) action {
	return func(_ context.Context, a *app, _ *options, shell string) int {
		script, ok := completions[shell]
		if !ok {
			return a.wrong("completion", "%q is none of bash, zsh, fish", shell)
		}
		fmt.Fprint(a.stdout, script)
		return exitOK
	}
}

// completions are the shells' scripts. All of them call completeVerb.
var completions = map[string]string{
	// Bash breaks words at colons, which addresses contain. So the script takes the words
	// from the line, and cuts off the answers what bash takes for finished.
	"bash": `# rdsctl completion bash
_rdsctl() {
	local line=${COMP_LINE:0:COMP_POINT} IFS=$' \t\n' words reply
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	local last=${words[${#words[@]}-1]}
	mapfile -t reply < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
	local done=${last%"${COMP_WORDS[COMP_CWORD]}"}
	[[ ${COMP_WORDS[COMP_CWORD]} == [:=] ]] && done=$last
	COMPREPLY=("${reply[@]#"$done"}")
	if [[ ${#COMPREPLY[@]} == 0 ]]; then compopt -o default; fi
	case $last in *,*) compopt -o nospace ;; esac
}
complete -F _rdsctl rdsctl
`,
	// Words are as typed and may have quotes. A list goes on after a comma.
	"zsh": `#compdef rdsctl
# rdsctl completion zsh
local -a answers more
answers=(${(f)"$(${(Q)words[1]} __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)"})
if (( $#answers )); then
	[[ $PREFIX == *,* ]] && more=(-S '')
	compadd "${(@)more}" -a answers
else
	_files
fi
`,
	"fish": `# rdsctl completion fish
function __rdsctl_answers
	set -l words (commandline -opc)
	set -l last (commandline -ct)
	set -l answers ($words[1] __complete $words[2..-1] "$last" 2>/dev/null)
	if test (count $answers) -gt 0
		printf '%s\n' $answers
	else
		__fish_complete_path "$last"
	end
end
complete -c rdsctl -f -a '(__rdsctl_answers)'
`,
}
