// Package version says which version of rdsd this build is.
package version

import "runtime/debug"

// version is set by the linker (-X github.com/rdsd/rdsd/internal/version.version=...).
var version = ""

// String returns the version of this build. It is what the Makefile set, else what the Go
// command wrote into the program (a tag, or a pseudo-version of the commit), else "devel".
func String() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	return ofModule(info, ok)
}

func ofModule(info *debug.BuildInfo, ok bool) string {
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
