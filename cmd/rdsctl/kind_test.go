package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// elfFile is an ELF file for machine, with a loader and a needed library unless they are empty.
func elfFile(t *testing.T, machine elf.Machine, loader, needed string) []byte {
	t.Helper()
	const head, prog, sect = 64, 56, 64
	text := append([]byte("\x00"+needed+"\x00"), loader+"\x00"...)
	dynamic := []elf.Dyn64{{Tag: int64(elf.DT_NEEDED), Val: 1}, {Tag: int64(elf.DT_NULL)}}
	at := uint64(head + prog)
	size := uint64(binary.Size(dynamic))
	h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: 1, Phoff: head, Shoff: at + size + uint64(len(text)),
		Ehsize: head, Phentsize: prog, Phnum: 1, Shentsize: sect, Shnum: 3, Shstrndx: 2}
	copy(h.Ident[:], []byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)})
	p := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: at + size + uint64(len(needed)) + 2, Filesz: uint64(len(loader)) + 1}
	if loader == "" {
		p.Type = uint32(elf.PT_NULL)
	}
	sections := []elf.Section64{{}, {Type: uint32(elf.SHT_DYNAMIC), Off: at, Size: size, Link: 2}, {Type: uint32(elf.SHT_STRTAB), Off: at + size, Size: uint64(len(text))}}
	var b bytes.Buffer
	for _, part := range []any{h, p, dynamic, text, sections} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestKinds: a program that the loader does not preload into is named. One that would not start
// starts without the library.
func TestKinds(t *testing.T) {
	const glibc, musl = "/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"
	dir := t.TempDir()
	file := func(name string, mode os.FileMode, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	lib := file(preloadName, 0o644, elfFile(t, elf.EM_X86_64, "", "libc.so.6"))
	foreign := file("musl", 0o755, elfFile(t, elf.EM_X86_64, musl, "libc.so"))
	script := file("script", 0o755, []byte("#! "+foreign+" -x\n"))
	for program, want := range map[string]kind{
		file("suid", 0o755|os.ModeSetuid, nil):                               {"is set-user-ID or set-group-ID", false},
		file("glibc", 0o755, elfFile(t, elf.EM_X86_64, glibc, "libc.so.6")):  {},
		file("static", 0o755, elfFile(t, elf.EM_X86_64, "", "")):             {"is linked statically", false},
		file("other", 0o755, elfFile(t, elf.EM_AARCH64, glibc, "libc.so.6")): {"is for AARCH64 with 64 bits, and the library for X86_64 with 64 bits", false},
		foreign: {"is linked with musl", true},
		script:  {"the interpreter " + foreign + " of " + script + " is linked with musl", true},
		file("itself", 0o755, []byte("#!"+filepath.Join(dir, "itself")+"\n")): {},
		file("bare", 0o755, []byte("#!\n")):                                   {},
		filepath.Join(dir, "none"):                                            {},
	} {
		if got := kindOf(program, lib); !strings.Contains(got.why, want.why) || (got.why == "") != (want.why == "") || got.unstartable != want.unstartable {
			t.Errorf("%s: %+v, want %+v", program, got, want)
		}
	}
	t.Setenv("LD_PRELOAD", "/a.so "+lib)
	for program, want := range map[string]string{foreign: "LD_PRELOAD=/a.so", filepath.Join(dir, "glibc"): "LD_PRELOAD=" + lib + ":/a.so"} {
		var out, errs bytes.Buffer
		var env []string
		a := &app{stdout: &out, stderr: &errs,
			dial: func(context.Context, string) (caller, error) { return answering{}, nil },
			exec: func(_ string, _, vars []string) error {
				env = vars
				return errors.New("stopped here")
			}}
		a.run(t.Context(), []string{"run", "-preload", lib, program})
		if !slices.Contains(env, want) {
			t.Errorf("%s: no %s in %q", program, want, env)
		}
	}
}

// TestCapabilities: a program whose file has capabilities is named, but for root.
func TestCapabilities(t *testing.T) {
	has := func(_, name string, _ []byte) (int, error) {
		if name != "security.capability" {
			return 0, unix.ENODATA
		}
		return 20, nil
	}
	hasNot := func(string, string, []byte) (int, error) { return 0, unix.ENODATA }
	if got := privileged("/none", 1000, has); got != "has file capabilities" {
		t.Errorf("a user: %q", got)
	}
	if got := privileged("/none", 0, has) + privileged("/none", 1000, hasNot); got != "" {
		t.Errorf("root, and a file without: %q", got)
	}
}
