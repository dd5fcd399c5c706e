package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A releaseTree is a repository with the scripts that make a release, and nothing to build.
type releaseTree struct {
	t   *testing.T
	dir string
	env []string
}

func newReleaseTree(t *testing.T) *releaseTree {
	t.Helper()
	r := &releaseTree{t: t, dir: t.TempDir(), env: append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")}
	for _, name := range []string{"scripts/lib.sh", "scripts/release.sh", "scripts/reproduce.sh", "scripts/artifacts.sh", "go.mod"} {
		b, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		r.write(name, string(b))
	}
	r.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n- a thing\n")
	r.git("init", "-q", "-b", "main")
	r.git("config", "user.name", "a")
	r.git("config", "user.email", "a@example.org")
	r.commit()
	return r
}

func (r *releaseTree) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r *releaseTree) git(args ...string) {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", r.dir}, args...)...)
	cmd.Env = r.env
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

func (r *releaseTree) commit() {
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "a commit")
}

// pathWithout sets a PATH that has everything but some programs.
func (r *releaseTree) pathWithout(names ...string) {
	bin := r.t.TempDir()
	gone := " " + strings.Join(names, " ") + " "
	for _, dir := range filepath.SplitList(os.Getenv("PATH") + ":/usr/local/go/bin") {
		found, _ := filepath.Glob(dir + "/*")
		for _, path := range found {
			if name := filepath.Base(path); !strings.Contains(gone, " "+name+" ") {
				os.Symlink(path, filepath.Join(bin, name)) // the first of a name is the one that counts
			}
		}
	}
	r.env = append(r.env, "PATH="+bin)
}

// TestReleaseRefuses: what cannot become a release ends at once, with an error that says what to
// do, and leaves the repository as it was.
func TestReleaseRefuses(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	for _, tc := range []struct {
		name, command, want string
		prepare             func(*releaseTree)
	}{
		{"NoTag", "release.sh", "HEAD has no tag of a version: check out a release", nil},
		{"OtherTag", "release.sh", "HEAD has no tag of a version: check out a release", func(r *releaseTree) { r.git("tag", "nightly") }},
		{"TryWithoutVersion", "release.sh -n", "scripts/release.sh [-n] vX.Y.Z", nil},
		{"NoVersion", "release.sh 0.2", "0.2 is not a version like v1.2.3", nil},
		{"Changed", "release.sh v9.9.9", "uncommitted changes: commit or stash", func(r *releaseTree) { r.write("go.mod", "module x\n\ngo 1.20\n") }},
		{"NewFile", "release.sh v9.9.9", "uncommitted changes: commit or stash", func(r *releaseTree) { r.write("new", "") }},
		{"NewFileTwice", "reproduce.sh v9.9.9", "uncommitted changes: commit or stash", func(r *releaseTree) { r.write("new", "") }},
		{"TagExists", "release.sh v9.9.9", "the tag v9.9.9 already exists: name another", func(r *releaseTree) { r.git("tag", "v9.9.9") }},
		{"NoBranch", "release.sh v9.9.9", "git checkout BRANCH", func(r *releaseTree) { r.git("checkout", "-q", "--detach") }},
		{"NoName", "release.sh v9.9.9", "git config user.email", func(r *releaseTree) { r.git("config", "--unset", "user.email") }},
		{"NothingNew", "release.sh v9.9.9", "no entries under ## Unreleased", func(r *releaseTree) {
			r.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n## 0.1.0\n\n- a thing\n")
			r.commit()
		}},
		{"NoRepository", "release.sh v9.9.9", "is no git repository: clone it", func(r *releaseTree) { os.RemoveAll(r.dir + "/.git") }},
		{"NoTime", "artifacts.sh out v9.9.9", "set SOURCE_DATE_EPOCH", func(r *releaseTree) { os.RemoveAll(r.dir + "/.git") }},
		{"WrongTime", "artifacts.sh out v9.9.9", "set it to the commit's", func(r *releaseTree) { r.env = append(r.env, "SOURCE_DATE_EPOCH=today") }},
		{"NotHere", "artifacts.sh out v9.9.9", "whose rdsctl writes", func(r *releaseTree) { r.env = append(r.env, "ARCHS=riscv64") }},
		{"NoImageTool", "artifacts.sh out v9.9.9", "apt-get install -y --no-install-recommends umoci", func(r *releaseTree) { r.pathWithout("umoci", "apt-get") }},
		{"NoCompiler", "artifacts.sh out v9.9.9", "apt-get install -y --no-install-recommends gcc libc6-dev", func(r *releaseTree) { r.pathWithout("gcc", "apt-get") }},
		{"NoGo", "release.sh v9.9.9", "no 'go' is in PATH; see https://go.dev/doc/install", func(r *releaseTree) {
			r.pathWithout("go")
			b, err := os.ReadFile(r.dir + "/scripts/lib.sh")
			if err != nil {
				r.t.Fatal(err)
			}
			r.write("scripts/lib.sh", strings.ReplaceAll(string(b), "/usr/local/go/bin", "/nowhere"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newReleaseTree(t)
			if tc.prepare != nil {
				tc.prepare(r)
			}
			name, args, _ := strings.Cut(tc.command, " ")
			cmd := exec.Command("bash", append([]string{filepath.Join(r.dir, "scripts", name)}, strings.Fields(args)...)...)
			cmd.Dir, cmd.Env = "/", append(r.env, "GOTOOLCHAIN=local")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v: %v\n%swant %q", tc.command, err, out, tc.want)
			}
			for _, name := range []string{"bin", "out"} {
				if _, err := os.Stat(filepath.Join(r.dir, name)); err == nil {
					t.Errorf("it left %s", name)
				}
			}
		})
	}
}
