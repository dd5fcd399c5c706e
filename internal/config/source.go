package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Sources is where a configuration comes from. Later sources win: the defaults; File; its
// drop-ins, File.d/*.toml in the order of their names; the environment (EnvName of a key);
// Flags. Sources does not change, so any goroutine may call Load, also again.
type Sources struct {
	File    string   // "" for none
	Environ []string // as os.Environ has it
	Flags   []Assignment
	UID     int
}

// Assignment is one key set by a flag. The value has no quotes, and lists are separated by
// commas.
type Assignment struct{ Key, Value string }

// Origins says for each key where its value comes from: "default", "FILE:LINE", the name of
// a variable, or a flag.
type Origins map[string]string

// Loaded is the result of Load.
type Loaded struct {
	Config
	Origins Origins
	// Warnings name settings that were ignored although the user perhaps meant them.
	Warnings []string
}

// FlagName is the flag of a key: peers.allow is peers-allow.
func FlagName(key string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(key) }

// EnvName is the environment variable of a key: peers.allow is
// RDSD_PEERS_ALLOW.
func EnvName(key string) string {
	return "RDSD_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// FileEnv is the variable that names the file if no flag does.
const FileEnv = "RDSD_CONFIG"

// Files are the files that Load reads: File, then its drop-ins. File has to exist, the
// folder of drop-ins need not.
func (s *Sources) Files() ([]string, error) {
	if s.File == "" {
		return nil, nil
	}
	names, err := os.ReadDir(s.File + ".d")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("drop-ins of the configuration: %w", err)
	}
	files := []string{s.File}
	for _, n := range names { // sorted
		if name := n.Name(); strings.HasSuffix(name, ".toml") && !strings.HasPrefix(name, ".") {
			files = append(files, filepath.Join(s.File+".d", name))
		}
	}
	return files, nil
}

// Load reads all sources and finishes the configuration. Its error has a line for each
// mistake, and says where it is.
func (s *Sources) Load() (*Loaded, error) {
	l := &Loaded{Config: Default(), Origins: Origins{}}
	for _, k := range l.keys() {
		l.Origins[k.name] = "default"
	}
	files, err := s.Files()
	if err != nil {
		return nil, err
	}
	var errs []error
	docs := map[string][]byte{}
	for _, file := range files {
		doc, err := os.ReadFile(file)
		if err == nil {
			docs[file] = doc
			err = l.parse(file, doc, l.Origins)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w (rdsctl config docs prints a file with every key)", err)
		}
		errs = append(errs, err)
	}
	errs = append(errs, l.environment(s.Environ))
	for _, a := range s.Flags {
		flag := "-" + FlagName(a.Key)
		if err := l.Set(a.Key, a.Value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
		l.Origins[a.Key] = flag
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := l.Finish(s.UID, s.getenv); err != nil {
		return nil, l.placed(err, docs)
	}
	return l, nil
}

// placed adds the place in the file to an error of Finish. The error begins with its key.
func (l *Loaded) placed(err error, docs map[string][]byte) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, err := range all.Unwrap() {
			errs = append(errs, l.placed(err, docs))
		}
		return errors.Join(errs...)
	}
	name, _, _ := strings.Cut(err.Error(), ":")
	origin := l.Origins[name]
	i := strings.LastIndexByte(origin, ':')
	if i < 0 {
		return err
	}
	line, numErr := strconv.Atoi(origin[i+1:])
	doc, ok := docs[origin[:i]]
	if numErr != nil || !ok {
		return err
	}
	return keyError(origin[:i], doc, line, err.Error())
}

// environment applies the variables of keys. A variable that is nearly that of a key gives
// a warning and no error, because other programs may have variables that begin like these.
func (l *Loaded) environment(environ []string) error {
	var errs []error
	for _, e := range environ {
		name, v, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "RDSD_") || v == "" || name == FileEnv {
			continue
		}
		keys := l.keys()
		i := slices.IndexFunc(keys, func(k key) bool { return EnvName(k.name) == name })
		if i < 0 {
			if hint := meant(strings.TrimPrefix(name, "RDSD_"), keys, func(k key) string { return strings.TrimPrefix(EnvName(k.name), "RDSD_") }); hint != "" {
				l.Warnings = append(l.Warnings, fmt.Sprintf("environment: %s is the variable of no key%s (behind RDSD_)", name, hint))
			}
			continue
		}
		if isServiceLink(name, v) {
			l.Warnings = append(l.Warnings, fmt.Sprintf("environment: %s=%s is ignored: Kubernetes sets it for a Service of that name (enableServiceLinks: false in the pod ends that); the key is %s", name, v, keys[i].name))
			continue
		}
		if err := keys[i].assign(splitList(keys[i], v)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		l.Origins[keys[i].name] = name
	}
	return errors.Join(errs...)
}

// serviceLinkSchemes are the protocols of a Service.
var serviceLinkSchemes = []string{"tcp://", "udp://", "sctp://"}

// isServiceLink reports whether a variable is one that Kubernetes sets in pods for a Service:
// NAME_PORT=tcp://ADDRESS:PORT. A Service called rdsd makes it the variable of the key port,
// and one called rdsd-tcp that of tcp.port.
func isServiceLink(name, v string) bool {
	return strings.HasSuffix(name, "_PORT") && slices.ContainsFunc(serviceLinkSchemes, func(scheme string) bool { return strings.HasPrefix(v, scheme) })
}

func (s *Sources) getenv(name string) string {
	for _, e := range slices.Backward(s.Environ) {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}
