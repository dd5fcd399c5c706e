package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// heldUp is why the process cannot run, by its state in /proc, and what to do about it. It
// is "" if the process can run or its state is not known.
func heldUp(proc string, pid int) string {
	raw, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	// The second field, the name in brackets, may contain any character.
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) == 0 {
		return ""
	}
	switch string(fields[0]) {
	case "T":
		return fmt.Sprintf("process %d is stopped by a signal: kill -CONT %[1]d lets it go on", pid)
	case "t":
		return fmt.Sprintf("process %d is stopped by a debugger", pid)
	case "D":
		return fmt.Sprintf("process %d waits in the kernel, for a disk or a device: dmesg", pid)
	}
	return ""
}
