package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

const (
	// SubUIDFile lists which uids beside its own a user may run processes as.
	SubUIDFile = "/etc/subuid"
	// maxSubUIDFile is how much of it is read, bytes.
	maxSubUIDFile = 1 << 20
)

// SubUIDs says which uids belong to which user. Whoever has a range of /etc/subuid can be
// each uid in it, so these count as one user.
type SubUIDs []subRange

// subRange is the uids lo to hi of a user.
type subRange struct{ lo, hi, owner uint32 }

// ReadSubUIDs reads /etc/subuid. Each warning names a line that does not count. A missing file has no lines.
func ReadSubUIDs() (SubUIDs, []string) {
	f, err := os.Open(SubUIDFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, []string{fmt.Sprintf("%v: each subordinate uid counts as a user", err)}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSubUIDFile+1))
	if err != nil {
		return nil, []string{fmt.Sprintf("%v: each subordinate uid counts as a user", err)}
	}
	return ParseSubUIDs(text)
}

// ParseSubUIDs is ReadSubUIDs of a file with this text.
func ParseSubUIDs(text []byte) (SubUIDs, []string) { return parseSubUIDs(text, lookupUID) }

// lookupUID returns the uid of a user's name.
func lookupUID(name string) (uid uint32, ok bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err == nil
}

// parseSubUIDs reads lines of the form USER:FIRST:COUNT, USER being a name or a number. The
// ranges of a name that lookup does not know belong to the first uid of the first of them.
func parseSubUIDs(text []byte, lookup func(string) (uint32, bool)) (s SubUIDs, warnings []string) {
	if len(text) > maxSubUIDFile {
		warnings = append(warnings, fmt.Sprintf("%s: only the first %d bytes are read", SubUIDFile, maxSubUIDFile))
		text = text[:bytes.LastIndexByte(text[:maxSubUIDFile], '\n')+1]
	}
	owners := map[string]uint32{}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, lo, hi, err := parseSubUID(line)
		if err != nil {
			if len(warnings) < 8 { // the others are like these
				warnings = append(warnings, fmt.Sprintf("%s line %d does not count: %v", SubUIDFile, n, err))
			}
			continue
		}
		owner, known := owners[name]
		if !known {
			if owner, known = lookup(name); !known {
				owner = lo
				if id, err := strconv.ParseUint(name, 10, 32); err == nil {
					owner = uint32(id)
				}
			}
			owners[name] = owner
		}
		s = append(s, subRange{lo, hi, owner})
	}
	return s, warnings
}

func parseSubUID(line string) (name string, lo, hi uint32, err error) {
	parts := strings.Split(line, ":")
	if len(parts) != 3 || parts[0] == "" {
		return "", 0, 0, fmt.Errorf("want USER:FIRST:COUNT, there is %.64q", line)
	}
	first, err1 := strconv.ParseUint(parts[1], 10, 32)
	count, err2 := strconv.ParseUint(parts[2], 10, 32)
	if err1 != nil || err2 != nil || count == 0 || first+count-1 > math.MaxUint32 {
		return "", 0, 0, fmt.Errorf("%.64q is no range of uids", parts[1]+":"+parts[2])
	}
	return parts[0], uint32(first), uint32(first + count - 1), nil
}

// Equal reports whether both say the same.
func (s SubUIDs) Equal(t SubUIDs) bool { return slices.Equal(s, t) }

// String is the number of ranges.
func (s SubUIDs) String() string { return fmt.Sprintf("%d ranges", len(s)) }

// of returns the range that uid is in. The first line with it counts.
func (s SubUIDs) of(uid uint32) (subRange, bool) {
	i := slices.IndexFunc(s, func(r subRange) bool { return r.lo <= uid && uid <= r.hi })
	if i < 0 {
		return subRange{}, false
	}
	return s[i], true
}
