// Package version names the build.
package version

// version is set by the linker (-X github.com/rdsd/rdsd/internal/version.version=...).
var version = "devel"

// String returns the version of this build, "devel" for one made without the
// Makefile.
func String() string { return version }
