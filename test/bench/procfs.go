package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// resident returns the bytes of a process's resident memory. Shared memory counts in full.
func resident(pid int) (int64, error) {
	kib, err := statusField(filepath.Join("/proc", strconv.Itoa(pid), "status"), "VmRSS")
	return kib << 10, err
}

// switches returns how often threads of a process have gone to sleep. The count of a thread that
// has ended is lost.
func switches(pid int) (int64, error) {
	tasks, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "status"))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("no threads of process %d", pid)
	}
	var sum int64
	for _, t := range tasks {
		n, err := statusField(t, "voluntary_ctxt_switches")
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// statusField returns a number from a file of lines "name: number unit".
func statusField(file, name string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return parseField(string(b), file, name)
}

func parseField(text, file, name string) (int64, error) {
	for l := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(l, name+":"); ok {
			f := strings.Fields(v)
			if len(f) == 0 {
				break
			}
			return strconv.ParseInt(f[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s in %s", name, file)
}
