package main

import (
	"bufio"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A kind is what the loader does with a library that is preloaded into a program.
type kind struct {
	why         string // why it does not load the library; empty: it does, as far as the files tell
	unstartable bool   // the program does not start if the library is preloaded
}

// kindOf returns the kind of a program for the library at lib. A script is of the kind of its
// interpreter. A file that cannot be read tells nothing.
func kindOf(program, lib string) kind {
	name, path := program, interpreterOf(program)
	if path != program {
		name = "the interpreter " + path + " of " + program
	}
	if why := privileged(path, os.Getuid(), unix.Getxattr); why != "" {
		return kind{why: name + " " + why + ", so it has no RDS sockets of rdsd"}
	}
	why, unstartable := unloadable(path, lib)
	switch {
	case unstartable:
		why = name + " " + why + ": it starts without the library, so neither it nor its children have RDS sockets of rdsd"
	case why != "":
		why = name + " " + why + ", so it has no RDS sockets of rdsd"
	}
	return kind{why, unstartable}
}

// maxScripts is how many scripts the kernel follows to an interpreter.
const maxScripts = 5

// interpreterOf returns the program that runs path: path itself unless it is a script.
func interpreterOf(path string) string {
	for range maxScripts {
		f, err := os.Open(path)
		if err != nil {
			return path
		}
		line, _ := bufio.NewReaderSize(io.LimitReader(f, 256), 256).ReadString('\n') // as much as the kernel reads
		f.Close()
		command, is := strings.CutPrefix(line, "#!")
		words := strings.Fields(command)
		if !is || len(words) == 0 {
			return path
		}
		path = words[0]
	}
	return path
}

// privileged says why the program gets rights that its caller, a user, does not have, or "". The
// loader then ignores what the caller asks for. Capabilities of a file are no news for root.
func privileged(path string, uid int, xattr func(path, name string, to []byte) (int, error)) string {
	if info, err := os.Stat(path); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return "is set-user-ID or set-group-ID"
	}
	if n, err := xattr(path, "security.capability", nil); err == nil && n > 0 && uid != 0 {
		return "has file capabilities"
	}
	return ""
}

// unloadable says why the loader of the program cannot load the library, or "", and whether it then
// refuses to start the program.
func unloadable(path, lib string) (why string, unstartable bool) {
	f, err := elf.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	loader := loaderOf(f)
	if loader == "" {
		return "is linked statically", false
	}
	l, err := elf.Open(lib)
	if err != nil {
		return "", false
	}
	defer l.Close()
	if f.Class != l.Class || f.Machine != l.Machine {
		return fmt.Sprintf("is for %s, and the library for %s", machine(f), machine(l)), false
	}
	// musl's loader ends a program for which it does not find each symbol of each library. That of
	// the GNU C library says so and goes on.
	if needs, err := l.ImportedLibraries(); err == nil && strings.HasPrefix(filepath.Base(loader), "ld-musl-") && slices.Contains(needs, "libc.so.6") {
		return "is linked with musl, and the library with the GNU C library", true
	}
	return "", false
}

// machine names the processors that f is for.
func machine(f *elf.File) string {
	bits := map[elf.Class]int{elf.ELFCLASS32: 32, elf.ELFCLASS64: 64}[f.Class]
	return fmt.Sprintf("%s with %d bits", strings.TrimPrefix(f.Machine.String(), "EM_"), bits)
}

// loaderOf returns the path of the loader that a program asks for; "": it is linked statically.
func loaderOf(f *elf.File) string {
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, _ := io.ReadAll(io.LimitReader(p.Open(), 4096))
			return strings.TrimRight(string(b), "\x00")
		}
	}
	return ""
}
