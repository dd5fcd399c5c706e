// Command sbom writes the software bill of materials of a release to standard output, as
// CycloneDX JSON:
//
//	sbom VERSION PROGRAM...
//
// It reads what the Go command wrote into the programs: their modules with their hashes, and
// the version of Go. SOURCE_DATE_EPOCH is the time in the document, in seconds. The same
// programs give the same bytes. The current directory is the top of the tree.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// uplot is the status page's part that is no Go module (docs/dependencies.md).
const uplot = "internal/metrics/uplot/uPlot.iife.min.js.gz"

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom VERSION PROGRAM...")
		os.Exit(2)
	}
	// The whole document or nothing: an error leaves no half of it.
	var out bytes.Buffer
	err := run(&out, os.Getenv("SOURCE_DATE_EPOCH"), os.Args[1], os.Args[2:])
	if err == nil {
		_, err = os.Stdout.Write(out.Bytes())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, epoch, version string, programs []string) error {
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH is %q, not a number of seconds: set it to that of the commit (git log -1 --format=%%ct)", epoch)
	}
	bom, err := document(time.Unix(seconds, 0).UTC(), version, programs)
	if err != nil {
		return err
	}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// document returns the bill of materials of programs.
func document(at time.Time, version string, programs []string) (*cdx.BOM, error) {
	all := map[string]cdx.Component{} // by BOMRef
	linked := map[string][]string{}   // BOMRef to names of programs
	main := ""
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read what %s is made of: %w (it has to be a program that go build wrote)", path, err)
		}
		main = info.Main.Path
		std := strings.TrimPrefix(info.GoVersion, "go")
		parts := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", std, "pkg:golang/std@"+std)}
		for _, m := range info.Deps {
			c, err := module(m)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			parts = append(parts, c)
		}
		for _, c := range parts {
			all[c.BOMRef] = c
			if name := filepath.Base(path); !slices.Contains(linked[c.BOMRef], name) {
				linked[c.BOMRef] = append(linked[c.BOMRef], name)
			}
		}
	}
	page, err := statusPage()
	if err != nil {
		return nil, err
	}
	all[page.BOMRef], linked[page.BOMRef] = page, []string{"rdsd"}

	product := component(cdx.ComponentTypeApplication, "rdsd", version, "pkg:golang/"+main+"@"+version)
	product.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: at.Format(time.RFC3339), Component: &product}
	refs := slices.Sorted(maps.Keys(all))
	components, dependencies := []cdx.Component{}, []cdx.Dependency{{Ref: product.BOMRef, Dependencies: &refs}}
	for _, ref := range refs {
		c := all[ref]
		slices.Sort(linked[ref])
		c.Properties = &[]cdx.Property{{Name: "rdsd:linked-into", Value: strings.Join(linked[ref], ",")}}
		components = append(components, c)
		dependencies = append(dependencies, cdx.Dependency{Ref: ref})
	}
	bom.Components, bom.Dependencies = &components, &dependencies
	return bom, nil
}

func component(kind cdx.ComponentType, name, version, purl string) cdx.Component {
	return cdx.Component{Type: kind, Name: name, Version: version, BOMRef: purl, PackageURL: purl}
}

// module returns the component of a module. A module that another one replaces is the other one.
func module(m *debug.Module) (cdx.Component, error) {
	m = cmp.Or(m.Replace, m)
	c := component(cdx.ComponentTypeLibrary, m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version)
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil || len(sum) != 32 {
		return c, fmt.Errorf("module %s has no hash (%q): build without a replace directive that names a folder", m.Path, m.Sum)
	}
	c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	return c, nil
}

// statusPage returns the component of uPlot, which rdsd embeds.
func statusPage() (cdx.Component, error) {
	f, err := os.Open(uplot)
	if err != nil {
		return cdx.Component{}, fmt.Errorf("%w (run sbom at the top of the tree)", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return cdx.Component{}, fmt.Errorf("%s: %w", uplot, err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return cdx.Component{}, fmt.Errorf("%s: %w", uplot, err)
	}
	v := regexp.MustCompile(`uPlot \(v([0-9.]+)\)`).FindSubmatch(b)
	if v == nil {
		return cdx.Component{}, errors.New(uplot + " does not say its version")
	}
	version := string(v[1])
	c := component(cdx.ComponentTypeLibrary, "uplot", version, "pkg:npm/uplot@"+version)
	c.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "MIT"}}}
	return c, nil
}
