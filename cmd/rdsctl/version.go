package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/version"
)

const kindVersion ctl.Kind = "version"

// versionAnswer is rdsctl version -o json.
type versionAnswer struct {
	Schema  string      `json:"schema"`
	Kind    ctl.Kind    `json:"kind"`
	Version versionInfo `json:"version"`
}

type versionInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func versionVerb(*flag.FlagSet) action {
	return func(_ context.Context, a *app, o *options, _ string) int {
		v := versionInfo{version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
		if o.output.machine() {
			return a.printJSON(o, &versionAnswer{ctl.Schema, kindVersion, v})
		}
		fmt.Fprintf(a.stdout, "rdsctl %s %s %s/%s\n", v.Version, v.Go, v.OS, v.Arch)
		return exitOK
	}
}
