package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rdstest"
)

// runsMain makes the test binary be rdsctl itself.
const runsMain = "RDSCTL_TEST_RUNS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runsMain) != "" {
		completeTimeout = time.Minute // the words offered must not depend on the machine's load
		main()
		return
	}
	os.Exit(m.Run())
}

// asksZsh types each line into an interactive zsh and asks for completion. It prints the
// words that zsh offers, and in braces the line that results. -f leaves out the host's
// start-up files.
const asksZsh = `
zmodload zsh/zpty || exit
dir=$1; shift
zpty z zsh -f -i
zpty -w z "PS1=; fpath=(${(q)dir} \$fpath); autoload -Uz compinit; compinit -D -u"
zpty -w z 'compadd() { local -a hits; builtin compadd -O hits "$@"; print -r -- "<${(j: :)hits}>"; builtin compadd "$@" }'
zpty -w z '_files() { print -r -- "<files>" }'
zpty -w z 'ask() { zle complete-word; print -r -- "{$BUFFER}EN""D"; BUFFER= }; zle -N ask; bindkey "^I" ask'
zpty -w z 'print REA""DY'
zpty -r z out '*READY*'
for line; do
	zpty -w -n z "$line"$'\t'
	zpty -r z out '*END*'
	[[ $out =~ '<([^>]*)>' ]] && offered=$match[1]
	[[ $out =~ '[{]([^}]*)[}]END' ]] && line=$match[1]
	print -r -- "$offered|$line"
done
zpty -d z
`

// asksFish prints the words that fish offers for each line.
const asksFish = `
source $argv[1]/rdsctl.fish
for line in $argv[2..-1]
	echo (string join -- ' ' (complete -C $line))
end
`

// Zsh and fish themselves complete, with a running daemon.
func TestShells(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	peer := ds[1].Addr().String()
	if code, _, stderr := runSocket(t, "ping", peer, "-c", "1", "-socket", ds[0].Socket()); code != exitOK {
		t.Fatal(stderr)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "rdsctl")); err != nil {
		t.Fatal(err)
	}
	for shell, name := range map[string]string{"zsh": "_rdsctl", "fish": "rdsctl.fish"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(completions[shell]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "fileofmine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The words offered, and the resulting line in zsh.
	cases := []struct {
		line, want, typed string
		files             bool
	}{
		{line: "rdsctl st", want: "stalls status stress", typed: "rdsctl st"},
		{line: "rdsctl peer ", want: "drain reset resume", typed: "rdsctl peer "},
		{line: "rdsctl peer reset ", want: peer, typed: "rdsctl peer reset " + peer + " "},
		{line: "rdsctl ping 127", want: peer, typed: "rdsctl ping " + peer + " "},
		{line: "rdsctl ping 9", files: true, typed: "rdsctl ping 9"},
		{line: "rdsctl peers -o ", want: "csv json jsonl table wide", typed: "rdsctl peers -o "},
		{line: "rdsctl peers -o=jsonl", want: "-o=jsonl", typed: "rdsctl peers -o=jsonl "},
		{line: "rdsctl peers --co", want: "--columns", typed: "rdsctl peers --columns "},
		{line: "rdsctl peers -columns remote,sta", want: "remote,state", typed: "rdsctl peers -columns remote,state"},
		{line: "rdsctl -socket ", want: ds[0].Socket(), typed: "rdsctl -socket " + ds[0].Socket() + " "},
		{line: "rdsctl config validate fileof", want: "fileofmine", files: true, typed: "rdsctl config validate fileof"},
	}
	for _, shell := range []struct{ name, script string }{{"zsh", asksZsh}, {"fish", asksFish}} {
		t.Run(shell.name, func(t *testing.T) {
			path, err := exec.LookPath(shell.name)
			if err != nil {
				t.Skipf("%s is not installed: apt-get install -y --no-install-recommends %[1]s", shell.name)
			}
			args := []string{"-f", "-c", shell.script, shell.name, dir}
			if shell.name == "fish" {
				args = []string{"--no-config", "-c", shell.script, "--", dir}
			}
			for _, tc := range cases {
				args = append(args, tc.line)
			}
			cmd := exec.CommandContext(ctx, path, args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), runsMain+"=1", "RDSD_SOCKET="+ds[0].Socket(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "TERM=dumb")
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v, %s", err, out)
			}
			lines := strings.Split(strings.ReplaceAll(string(out), "\r", ""), "\n")
			if len(lines) != len(cases)+1 {
				t.Fatalf("%d answers: %q", len(lines)-1, lines)
			}
			for i, tc := range cases {
				offered, line, both := strings.Cut(lines[i], "|")
				if tc.files && both {
					tc.want = "files"
				}
				if !sameWords(strings.Fields(offered), strings.Fields(tc.want)) {
					t.Errorf("%q offers %q, want %q", tc.line, offered, tc.want)
				}
				if both && line != tc.typed {
					t.Errorf("%q becomes %q, want %q", tc.line, line, tc.typed)
				}
			}
		})
	}
}
